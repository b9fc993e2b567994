// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that a run reads and writes: no output may be a file that the run reads, or that another output is.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use framepath_model::path::{DefinitionKind, Hop, all_hops};

use crate::error::RunError;

/// Maximum number of symbolic links behind each other, as the kernel's.
const MOST_LINKS: usize = 40;

/// Identity of a file.
#[derive(PartialEq, Eq)]
enum FileIdentity {
    /// File that exists: device and inode, so that links do not matter.
    Existing(u64, u64),
    /// File that does not exist: device and inode of its folder, and its name.
    New(u64, u64, OsString),
    /// Pictures `frame-N.png` or `frame-N.pgm` in a folder: device and inode of the folder, and the ending.
    Pictures(u64, u64, OsString),
}

impl FileIdentity {
    /// Returns the identity of the file `name`. `None` if it is no regular file, such as a device or a pipe, which several outputs may
    /// share, or if its folder cannot be read.
    fn of(name: &Path) -> Option<FileIdentity> {
        if let Ok(file) = fs::metadata(name) {
            return file.is_file().then(|| FileIdentity::Existing(file.dev(), file.ino()));
        }
        // A link may name a file that does not exist.
        let mut name = name.to_owned();
        for _ in 0..MOST_LINKS {
            let Ok(target) = fs::read_link(&name) else { break };
            name = name.parent().unwrap_or(Path::new(".")).join(target);
        }
        let folder = fs::metadata(folder_of(&name)).ok()?;
        Some(FileIdentity::New(folder.dev(), folder.ino(), name.file_name()?.to_owned()))
    }

    /// Returns the pictures that the sink `ending` writes into the folder `name`; `None` if there is no such folder.
    fn pictures(name: &Path, ending: &str) -> Option<FileIdentity> {
        let folder = fs::metadata(name).ok().filter(fs::Metadata::is_dir)?;
        Some(FileIdentity::Pictures(folder.dev(), folder.ino(), ending.into()))
    }

    /// Returns the pictures of a folder to which the file `name`, or the pattern of a sequence, belongs by its name.
    fn pictures_with(name: &Path) -> Option<FileIdentity> {
        let is_picture = name.file_name()?.to_str()?.starts_with("frame-");
        FileIdentity::pictures(folder_of(name), name.extension()?.to_str()?).filter(|_| is_picture)
    }
}

/// Returns the folder that has the file `name`.
fn folder_of(name: &Path) -> &Path {
    name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that a run uses.
struct UsedFile {
    name: String,
    identity: FileIdentity,
    /// Hop or option that uses it, for errors.
    used_by: String,
    is_written: bool,
}

/// Checks that each file that `hops` and the options of a command write is written once and not read. `options` has the name of
/// each option with its value; `-` is standard output.
///
/// # Errors
/// [`RunError::SharedFile`].
pub fn check_files<'a>(
    hops: &[Hop],
    options: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(), RunError> {
    let of_hops = all_hops(hops).filter_map(used_by_hop);
    let is_picture = |file: &UsedFile, pictures: &UsedFile| {
        FileIdentity::pictures_with(Path::new(&file.name)).is_some_and(|of| of == pictures.identity)
    };
    let of_options = options.into_iter().filter(|(_, file)| *file != "-").filter_map(|(option, file)| {
        let identity = FileIdentity::of(Path::new(file))?;
        Some(UsedFile { name: file.to_owned(), identity, used_by: option.to_owned(), is_written: true })
    });
    let mut all: Vec<UsedFile> = Vec::new();
    for file in of_hops.chain(of_options) {
        let is_same = |other: &&UsedFile| {
            let is_one =
                other.identity == file.identity || is_picture(other, &file) || is_picture(&file, other);
            is_one && (other.is_written || file.is_written)
        };
        if let Some(other) = all.iter().find(is_same) {
            let does = if other.is_written { "writes" } else { "reads" };
            let other = format!("`{}` {does}", other.used_by);
            return Err(RunError::SharedFile { file: file.name, by: file.used_by, other });
        }
        all.push(file);
    }
    Ok(())
}

/// Returns the file that a source or sink uses; `None` for hops without one.
fn used_by_hop(hop: &Hop) -> Option<UsedFile> {
    let is_written = match hop.def.kind {
        DefinitionKind::Source => false,
        DefinitionKind::Sink => true,
        _ => return None,
    };
    if hop.def.arg("dir").is_some() {
        let name = hop.text("dir").to_owned();
        let identity = FileIdentity::pictures(Path::new(&name), hop.def.name)?;
        return Some(UsedFile { identity, used_by: hop.to_string(), name, is_written });
    }
    let is_given = |name: &&str| hop.def.arg(name).is_some_and(|(_, arg)| arg.positional || hop.is_set(name));
    let argument = ["file", "path", "sdp"].into_iter().find(is_given)?;
    let name = hop.text(argument).to_owned();
    let opened = match (name.as_str(), is_written) {
        ("-", false) => "/dev/stdin",
        ("-", true) => "/dev/stdout",
        (name, _) => name,
    };
    let identity = FileIdentity::of(Path::new(opened))?;
    Some(UsedFile { identity, used_by: hop.to_string(), name, is_written })
}
