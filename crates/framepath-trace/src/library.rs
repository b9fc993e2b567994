// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries that a process has mapped, and where their functions are in the files.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use framepath_os::process::regular_file::RegularFile;
use object::elf::{
    DT_NEEDED, Dyn64, FileHeader64, PT_INTERP, PT_LOAD, ProgramHeader64, SHT_DYNAMIC, SHT_DYNSYM, SHT_SYMTAB,
    STT_FUNC, STT_GNU_IFUNC, SectionHeader64, Sym64,
};
use object::read::SectionIndex;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, ReadCache, ReadRef};

use crate::elf_file::MACHINE;

/// Number of bytes of a function that a choice of its probe needs.
const CODE_BYTES: u64 = 96;

/// Most bytes of a section that is read: that of symbols, or of their names.
const MOST_BYTES: u64 = 64 << 20;
/// Most sections of a file that is read.
const MOST_SECTIONS: u16 = 4096;
/// Bytes of a symbol.
const SYMBOL_BYTES: usize = size_of::<Sym64<Endianness>>();

/// File of a library or program, as a process has mapped it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MappedFile {
    /// Path by which this process opens the file, also if the other one has another root folder.
    pub path: PathBuf,
    /// Name of the file without its folder.
    pub name: String,
    /// Device and inode, as stat(2) of the path has them: the file's identity.
    pub identity: (u64, u64),
}

impl MappedFile {
    /// Returns the file at `path`.
    ///
    /// # Errors
    /// There is no such file, or this user may not look it up.
    pub(crate) fn at(path: PathBuf) -> io::Result<MappedFile> {
        let path = fs::canonicalize(path)?;
        let name = file_name(&path);
        let identity = identity(&path)?;
        Ok(MappedFile { path, name, identity })
    }

    /// Returns the file at `path` of process `process`, which has mapped it at the addresses `range`.
    ///
    /// # Errors
    /// The process has ended, or it is another user's and the file is not at its path any more.
    pub(crate) fn of_process(process: u32, range: &Range<u64>, path: &Path) -> io::Result<MappedFile> {
        let name = file_name(path);
        let (start, end) = (range.start, range.end);
        // The first needs CAP_CHECKPOINT_RESTORE, and finds removed files, too; the second finds those of another root folder.
        let link = PathBuf::from(format!("/proc/{process}/map_files/{start:x}-{end:x}"));
        let in_root =
            Path::new(&format!("/proc/{process}/root")).join(path.strip_prefix("/").unwrap_or(path));
        let mut missing = io::ErrorKind::NotFound.into();
        for path in [link, in_root, path.to_owned()] {
            match identity(&path) {
                Ok(identity) => return Ok(MappedFile { path, name, identity }),
                Err(error) => missing = error,
            }
        }
        Err(missing)
    }
}

/// Returns the identity of the file at `path`.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let data = fs::metadata(path)?;
    Ok((data.dev(), data.ino()))
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.trim_end_matches(" (deleted)").to_owned()
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
    let (start, end) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let (range, offset) = (address(start)?..address(end)?, address(offset)?);
    let file = MappedFile::of_process(process, &range, Path::new(path)).unwrap_or_else(|_| MappedFile {
        path: PathBuf::from(path),
        name: file_name(Path::new(path)),
        identity: (number(device), inode.parse().unwrap_or(0)),
    });
    Some(MappedPart { range, offset, is_code: mode.contains('x'), file })
}

/// Returns a number for the text `major:minor` of a device.
fn number(device: &str) -> u64 {
    u64::from_str_radix(&device.replace(':', ""), 16).unwrap_or(0)
}

/// Functions of a program or library that were looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundFunctions {
    /// The functions that are there, by their names.
    pub(crate) functions: HashMap<String, LibraryFunction>,
    /// True for a program without a loader: it has its libraries inside.
    pub(crate) is_static: bool,
}

/// Sections of an ELF file, whose size is limited: a program can map any file.
pub(crate) struct BoundedElf<'a> {
    file: &'a ReadCache<&'a File>,
    /// Bytes of contents that may still be read.
    left: Cell<u64>,
    pub(crate) endian: Endianness,
    header: &'a FileHeader64<Endianness>,
    pub(crate) segments: &'a [ProgramHeader64<Endianness>],
    pub(crate) sections: SectionTable<'a, FileHeader64<Endianness>, &'a ReadCache<&'a File>>,
}

impl<'a> BoundedElf<'a> {
    /// Reads the headers of a file.
    ///
    /// # Errors
    /// The file cannot be read, or it is not an ELF file for this computer.
    pub(crate) fn parse(file: &'a ReadCache<&'a File>) -> io::Result<BoundedElf<'a>> {
        let header = FileHeader64::<Endianness>::parse(file).map_err(invalid)?;
        let endian = header.endian().map_err(invalid)?;
        if header.e_machine(endian) != MACHINE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is a program for another processor"));
        }
        // 0 and the greatest number mean that the number is elsewhere, and has no limit.
        if header.e_phnum.get(endian) == u16::MAX
            || !(1..=MOST_SECTIONS).contains(&header.e_shnum.get(endian))
        {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it has too many or no sections"));
        }
        let segments = header.program_headers(endian, file).map_err(invalid)?;
        let sections = header.sections(endian, file).map_err(invalid)?;
        Ok(BoundedElf { file, left: Cell::new(2 * MOST_BYTES), endian, header, segments, sections })
    }

    /// Returns the content of a section; empty if it has more than `most` bytes, or if all contents so far have used up the limit of
    /// a file.
    pub(crate) fn content(&self, section: &SectionHeader64<Endianness>, most: u64) -> &'a [u8] {
        let bytes = section.sh_size(self.endian);
        match self.left.get().checked_sub(bytes).filter(|_| bytes <= most) {
            Some(left) => {
                self.left.set(left);
                section.data(self.endian, self.file).unwrap_or_default()
            }
            None => &[],
        }
    }

    /// Returns the content of the section that `section` names as that of its texts.
    fn texts(&self, section: &SectionHeader64<Endianness>) -> &'a [u8] {
        let index = SectionIndex(section.sh_link(self.endian) as usize);
        self.sections.section(index).map_or(&[][..], |texts| self.content(texts, MOST_BYTES))
    }
}

/// Returns the text at a place, up to a zero.
fn text_at(texts: &[u8], at: u32) -> &[u8] {
    let rest = texts.get(at as usize..).unwrap_or_default();
    &rest[..rest.iter().position(|byte| *byte == 0).unwrap_or(0)]
}

fn invalid(error: object::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Finds the functions named `names` in a file. Reads the parts of the file that have symbols, and the first bytes of the
/// functions.
///
/// # Errors
/// The file cannot be read, or it is not an ELF file for this computer.
pub(crate) fn functions(file: &RegularFile, names: &[&str]) -> io::Result<FoundFunctions> {
    let file = ReadCache::new(file.file());
    let elf = BoundedElf::parse(&file)?;
    let (endian, mut found) = (elf.endian, FoundFunctions::default());
    let is_program = elf.header.e_entry(endian) != 0;
    found.is_static = is_program && elf.segments.iter().all(|segment| segment.p_type(endian) != PT_INTERP);
    for section in
        elf.sections.iter().filter(|section| matches!(section.sh_type(endian), SHT_DYNSYM | SHT_SYMTAB))
    {
        let texts = elf.texts(section);
        let symbols = elf.content(section, MOST_BYTES);
        let (symbols, _) =
            object::pod::slice_from_bytes::<Sym64<Endianness>>(symbols, symbols.len() / SYMBOL_BYTES)
                .unwrap_or_default();
        for symbol in symbols {
            let is_function = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC);
            if !is_function || symbol.st_shndx(endian) == 0 {
                continue;
            }
            let name = text_at(texts, symbol.st_name(endian));
            let wanted = names.iter().find(|wanted| wanted.as_bytes() == name);
            let offset = file_offset(endian, elf.segments, symbol.st_value(endian));
            if let Some((name, (offset, bytes))) = wanted.zip(offset) {
                let code = file.read_bytes_at(offset, bytes.min(CODE_BYTES)).unwrap_or_default().to_vec();
                found.functions.entry((*name).to_owned()).or_insert(LibraryFunction { offset, code });
            }
        }
    }
    Ok(found)
}

/// Returns the names of the libraries that the program or library in a file needs.
///
/// # Errors
/// As for [`functions`].
pub(crate) fn needed(file: &RegularFile) -> io::Result<Vec<String>> {
    let file = ReadCache::new(file.file());
    let elf = BoundedElf::parse(&file)?;
    let endian = elf.endian;
    let Some(section) = elf.sections.iter().find(|section| section.sh_type(endian) == SHT_DYNAMIC) else {
        return Ok(Vec::new());
    };
    let (texts, entries) = (elf.texts(section), elf.content(section, MOST_BYTES));
    let (entries, _) = object::pod::slice_from_bytes::<Dyn64<Endianness>>(
        entries,
        entries.len() / size_of::<Dyn64<Endianness>>(),
    )
    .unwrap_or_default();
    let needed = entries.iter().filter(|entry| entry.tag32(endian) == Some(DT_NEEDED));
    let names = needed.filter_map(|entry| entry.val32(endian)).map(|at| text_at(texts, at));
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// Returns the offset in the file of the byte at an address, and the number of bytes from there on.
fn file_offset(
    endian: Endianness,
    segments: &[ProgramHeader64<Endianness>],
    address: u64,
) -> Option<(u64, u64)> {
    let loaded = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
    let mut behind = loaded.filter_map(|segment| {
        let at = address.checked_sub(segment.p_vaddr(endian))?;
        let rest = segment.p_filesz(endian).checked_sub(at).filter(|rest| *rest > 0)?;
        Some((segment.p_offset(endian).checked_add(at)?, rest))
    });
    behind.next()
}
