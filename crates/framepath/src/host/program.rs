// SPDX-License-Identifier: MIT OR Apache-2.0
//! The worker's program, and where it is looked for.
//!
//! A worker is given what a stranger's video is decoded with, so its program
//! comes only from places that the user or the system's owner chose.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::HostError;

/// Names the worker's program; without it `framepath` is looked for.
const VARIABLE: &str = "FRAMEPATH_WORKER";
const NAME: &str = "framepath";

/// Where a package that has no `framepath` in PATH puts it: FRAMEPATH_LIBEXEC
/// when this crate is built.
const LIBEXEC: &str = match option_env!("FRAMEPATH_LIBEXEC") {
    Some(folder) => folder,
    None => "/usr/libexec/framepath",
};

static SET: OnceLock<PathBuf> = OnceLock::new();

/// A program that can be started.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// What execve(2) is given.
    pub(super) file: PathBuf,
    /// What errors call it.
    pub(super) name: PathBuf,
}

impl Program {
    fn of(path: PathBuf) -> Program {
        Program { file: path.clone(), name: path }
    }
}

/// Sets the program of this process's workers: a `framepath` of the same
/// version. The variable FRAMEPATH_WORKER comes first. Call it before the first
/// stage with a worker is built; later calls change nothing.
pub fn set_worker_program(path: impl Into<PathBuf>) {
    // A second call changes nothing, as documented.
    let _ = SET.set(path.into());
}

/// The program that the environment or [`set_worker_program`] names.
pub(super) fn named() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from).or_else(|| SET.get().cloned())
}

/// The worker's program: the named one; this program where it is `framepath`
/// itself; else `framepath` beside it, in the package's libexec folder, or in
/// PATH.
///
/// # Errors
/// There is none; the error names every place.
pub(super) fn find() -> Result<Program, HostError> {
    if let Some(named) = named() {
        return Ok(Program::of(named));
    }
    let own = std::env::current_exe().unwrap_or_default();
    if is_framepath(&own) {
        // Not by its name, so that a new build under that name does not come
        // between.
        return Ok(Program { file: PathBuf::from("/proc/self/exe"), name: own });
    }
    let places = places(&own, Path::new(LIBEXEC), &std::env::var_os("PATH").unwrap_or_default());
    let found = places.iter().map(|folder| folder.join(NAME)).find(|program| program.is_file());
    found.map(Program::of).ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|folder| folder.display().to_string()).collect();
        HostError::NoProgram { places: places.join(", ") }
    })
}

/// Whether `own`, as /proc/self/exe names it, is `framepath` itself; also where
/// another file has taken its name meanwhile.
fn is_framepath(own: &Path) -> bool {
    let name = own.file_name().unwrap_or_default().as_encoded_bytes();
    name.strip_suffix(b" (deleted)").unwrap_or(name) == NAME.as_bytes()
}

/// The folders to look in for a program that runs from file `own`, in order.
fn places(own: &Path, libexec: &Path, path: &OsStr) -> Vec<PathBuf> {
    let beside = own.parent().map(Path::to_owned);
    // A relative folder is another one wherever the program is started.
    let in_path = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    let mut places: Vec<PathBuf> = Vec::new();
    for place in beside.into_iter().chain([libexec.to_owned()]).chain(in_path) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framepath_itself_is_known_after_an_update() {
        assert!(is_framepath(Path::new("/usr/bin/framepath")));
        assert!(is_framepath(Path::new("/usr/bin/framepath (deleted)")));
        assert!(!is_framepath(Path::new("/usr/bin/framepath.py")) && !is_framepath(Path::new("")));
    }

    #[test]
    fn only_folders_that_somebody_chose_are_searched() {
        let path = OsStr::new("/usr/bin::.:relative/bin:/opt/p/bin:/usr/bin");
        let found = places(Path::new("/opt/p/bin/player"), Path::new("/usr/libexec/framepath"), path);
        let wanted = ["/opt/p/bin", "/usr/libexec/framepath", "/usr/bin"];
        assert_eq!(found, wanted.map(PathBuf::from));
    }
}
