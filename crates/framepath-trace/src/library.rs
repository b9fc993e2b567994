// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries that a process has mapped, and where their functions are in the files.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use framepath_os::process::chosen_file::chosen_file;
use framepath_os::process::regular_file::RegularFile;
use object::{ReadCache, ReadRef};

use crate::elf_file::ElfFile;

/// Number of bytes of a function that a choice of its probe needs.
const CODE_BYTES: u64 = 96;

/// Most bytes that are read of a list of mappings: a program can have any number of them, with long paths.
const MOST_MAPS: u64 = 16 << 20;

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
        let data = fs::metadata(&path)?;
        let identity = (data.dev(), data.ino());
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
            match chosen_file(&path) {
                Ok(file) => return Ok(MappedFile { path, name, identity: file.identity }),
                Err(error) => missing = error,
            }
        }
        Err(missing)
    }
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
    Ok(code_files(&mappings(process)?).into_iter().map(|part| part.file.clone()).collect())
}

/// Returns the first part with code of each file in `parts`, in their order.
pub(crate) fn code_files(parts: &[MappedPart]) -> Vec<&MappedPart> {
    let mut known = HashSet::new();
    parts.iter().filter(|part| part.is_code && known.insert(part.file.identity)).collect()
}

/// Returns the parts of files that process `process` has mapped, in the order of their addresses.
///
/// # Errors
/// As for [`mapped`].
pub(crate) fn mappings(process: u32) -> io::Result<Vec<MappedPart>> {
    let maps = BufReader::new(File::open(format!("/proc/{process}/maps"))?.take(MOST_MAPS));
    // A path may have any bytes.
    let lines = maps.split(b'\n').map_while(Result::ok);
    Ok(lines.filter_map(|line| mapping(process, &String::from_utf8_lossy(&line))).collect())
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

/// Finds the functions named `names` in a file. Reads the parts of the file that have symbols, and the first bytes of the
/// functions.
///
/// # Errors
/// The file cannot be read, or it is not an ELF file for this computer.
pub(crate) fn functions(file: &RegularFile, names: &[&str]) -> io::Result<FoundFunctions> {
    let file = ReadCache::new(file.file());
    let elf = ElfFile::parse(&file)?;
    let mut found = FoundFunctions { is_static: elf.is_static(), ..FoundFunctions::default() };
    // Any number of symbols can have one name.
    let mut seen = HashSet::new();
    elf.functions(|texts, symbol_name, address| {
        let Some(name) = texts.one_of(symbol_name, names).filter(|name| seen.insert(*name)) else { return };
        if let Some((offset, bytes)) = elf.offset(address) {
            let code = file.read_bytes_at(offset, bytes.min(CODE_BYTES)).unwrap_or_default().to_vec();
            found.functions.insert(name.to_owned(), LibraryFunction { offset, code });
        }
    });
    Ok(found)
}

/// Returns the names of the libraries that the program or library in a file needs.
///
/// # Errors
/// As for [`functions`].
pub(crate) fn needed(file: &RegularFile) -> io::Result<Vec<String>> {
    let file = ReadCache::new(file.file());
    Ok(ElfFile::parse(&file)?.needed())
}
