// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries that a process has mapped, and where their functions are in the files.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::elf_file::ElfFile;

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

/// Part of a file that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappedPart {
    /// Addresses in the process.
    pub(crate) range: Range<u64>,
    /// Offset of the first byte in the file.
    pub(crate) offset: u64,
    /// True if the process can execute it.
    pub(crate) is_code: bool,
    pub(crate) file: MappedFile,
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
    let mut files: Vec<MappedFile> = Vec::new();
    for mapping in mappings(process)?.into_iter().filter(|mapping| mapping.is_code) {
        if files.iter().all(|file| file.identity != mapping.file.identity) {
            files.push(mapping.file);
        }
    }
    Ok(files)
}

/// Returns the parts of files that process `process` has mapped, in the order of their addresses.
///
/// # Errors
/// As for [`mapped`].
pub(crate) fn mappings(process: u32) -> io::Result<Vec<MappedPart>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
    Ok(maps.lines().filter_map(|line| mapping(process, line)).collect())
}

/// Returns the mapping of a line of /proc/PID/maps; `None` for memory without a file.
fn mapping(process: u32, line: &str) -> Option<MappedPart> {
    let mut words = line.split_whitespace();
    let (range, mode, offset) = (words.next()?, words.next()?, words.next()?);
    let (device, inode) = (words.next()?, words.next()?);
    let path = line.find('/').filter(|_| inode != "0").map(|at| &line[at..])?;
    let name = path.trim_end_matches(" (deleted)").rsplit('/').next().unwrap_or_default().to_owned();
    // Needs CAP_SYS_PTRACE in the process's user namespace; the plain path serves without.
    let link = PathBuf::from(format!("/proc/{process}/map_files/{range}"));
    let path = if fs::metadata(&link).is_ok() { link } else { PathBuf::from(path) };
    let (start, end) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some(MappedPart {
        range: address(start)?..address(end)?,
        offset: address(offset)?,
        is_code: mode.contains('x'),
        file: MappedFile { path, name, identity: (number(device), inode.parse().unwrap_or(0)) },
    })
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
    let bytes = fs::read(path)?;
    let elf = ElfFile::parse(&bytes)?;
    let mut found = HashMap::new();
    elf.for_each_function(|name, address| {
        let wanted = names.iter().find(|wanted| wanted.as_bytes() == name);
        if let Some((name, offset)) = wanted.zip(elf.offset(address)) {
            let code = bytes.get(offset as usize..).unwrap_or_default();
            let code = code[..code.len().min(CODE_BYTES)].to_vec();
            found.entry((*name).to_owned()).or_insert(LibraryFunction { offset, code });
        }
    });
    Ok(found)
}
