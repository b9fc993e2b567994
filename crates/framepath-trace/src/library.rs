// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries that a process has mapped, and where their functions are in the files.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{
    EM_AARCH64, EM_X86_64, FileHeader64, PT_LOAD, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC,
};
use object::read::elf::{FileHeader, ProgramHeader, Sym};

/// Largest file that is read as a library, bytes.
const LARGEST: u64 = 1 << 30;

/// Number of bytes of a function that a choice of its probe needs.
const CODE_BYTES: usize = 96;

/// File of a library or program, as a process has mapped it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MappedFile {
    /// Path by which this process opens the file, also if the other one has another root folder.
    pub path: PathBuf,
    /// Name of the file without its folder.
    pub name: String,
    /// Device and inode: the file's identity.
    pub identity: (u64, u64),
}

/// Function in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryFunction {
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Its first bytes.
    pub code: Vec<u8>,
}

/// Returns the files from which process `process` has mapped code.
///
/// # Errors
/// The process has ended, or belongs to another user.
pub fn mapped(process: u32) -> io::Result<Vec<MappedFile>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
    let mut files: Vec<MappedFile> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, mode) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (_, device, inode) = (words.next(), words.next(), words.next());
        if !mode.contains('x') || inode.is_none_or(|inode| inode == "0") {
            continue;
        }
        let Some(path) = line.find('/').map(|at| &line[at..]) else { continue };
        let identity = (number(device.unwrap_or_default()), inode.unwrap_or_default().parse().unwrap_or(0));
        if files.iter().all(|file| file.identity != identity) {
            let name = path.trim_end_matches(" (deleted)").rsplit('/').next().unwrap_or_default().to_owned();
            // Needs CAP_SYS_PTRACE in the process's user namespace; the plain path serves without.
            let link = PathBuf::from(format!("/proc/{process}/map_files/{range}"));
            let path = if fs::metadata(&link).is_ok() { link } else { PathBuf::from(path) };
            files.push(MappedFile { path, name, identity });
        }
    }
    Ok(files)
}

/// Returns a number for the text `major:minor` of a device.
fn number(device: &str) -> u64 {
    u64::from_str_radix(&device.replace(':', ""), 16).unwrap_or(0)
}

/// Returns the functions named `names` in the file `path`, with the names that are there.
///
/// # Errors
/// The file cannot be read, or it is not an ELF file for this computer.
pub fn functions(path: &Path, names: &[&str]) -> io::Result<HashMap<String, LibraryFunction>> {
    if fs::metadata(path)?.len() > LARGEST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let bytes = fs::read(path)?;
    let header = FileHeader64::<Endianness>::parse(&*bytes).map_err(invalid)?;
    let machine = if cfg!(target_arch = "x86_64") { EM_X86_64 } else { EM_AARCH64 };
    match header.endian().map(|endian| header.e_machine(endian) == machine) {
        Ok(true) => find(&bytes, header, names).map_err(invalid),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is a program for another processor")),
    }
}

fn find(
    bytes: &[u8],
    header: &FileHeader64<Endianness>,
    names: &[&str],
) -> object::Result<HashMap<String, LibraryFunction>> {
    let endian = header.endian()?;
    let segments = header.program_headers(endian, bytes)?;
    let sections = header.sections(endian, bytes)?;
    let mut found = HashMap::new();
    for kind in [SHT_DYNSYM, SHT_SYMTAB] {
        let table = sections.symbols(endian, bytes, kind)?;
        for symbol in table.symbols() {
            let is_function = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC);
            if !is_function || symbol.st_shndx(endian) == 0 {
                continue;
            }
            let name = symbol.name(endian, table.strings()).unwrap_or_default();
            let Some(name) = names.iter().find(|wanted| wanted.as_bytes() == name) else { continue };
            let address = symbol.st_value(endian);
            let segment = segments.iter().find(|segment| {
                segment.p_type(endian) == PT_LOAD
                    && (segment.p_vaddr(endian)
                        ..segment.p_vaddr(endian).saturating_add(segment.p_filesz(endian)))
                        .contains(&address)
            });
            let Some(segment) = segment else { continue };
            let offset = address - segment.p_vaddr(endian) + segment.p_offset(endian);
            let code = bytes.get(offset as usize..).unwrap_or_default();
            let code = code[..code.len().min(CODE_BYTES)].to_vec();
            found.entry((*name).to_owned()).or_insert(LibraryFunction { offset, code });
        }
    }
    Ok(found)
}
