// SPDX-License-Identifier: MIT OR Apache-2.0
//! Search for the worker program.
//!
//! A worker reads the bytes of an untrusted video, so its program comes only from places that the user or the
//! system's owner chose.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use framepath_os::process::owners::TrustedUsers;

use super::HostError;

/// Argument 1 of the zygote process, behind the program's name ([`init`](crate::worker::init)).
pub(crate) const ZYGOTE: &str = "framepath-zygote";
/// Argument 1 of a worker that is started as a program, not forked by the zygote; behind the program's name.
pub(crate) const WORKER: &str = "framepath-worker";

/// Environment variable with the path of the worker's program; overrides all other ways to name it.
const VARIABLE: &str = "FRAMEPATH_WORKER";
const NAME: &str = "framepath";

/// Folder of the worker's program in a package that does not install it in PATH: the value that the
/// environment variable FRAMEPATH_LIBEXEC had when this crate was built, else `/usr/libexec/framepath`.
const LIBEXEC: &str = match option_env!("FRAMEPATH_LIBEXEC") {
    Some(folder) => folder,
    None => "/usr/libexec/framepath",
};

/// File of this process's program.
const OWN: &str = "/proc/self/exe";

/// Program of [`set_worker_program`].
static SET: OnceLock<PathBuf> = OnceLock::new();
/// True once this program has called [`init`](crate::worker::init).
static IS_OWN: AtomicBool = AtomicBool::new(false);

/// A program that can be started as a worker or zygote.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WorkerProgram {
    /// Path for execve(2).
    pub(super) file: PathBuf,
    /// Path of the program for error messages.
    pub(super) name: PathBuf,
}

impl WorkerProgram {
    fn of(path: PathBuf) -> WorkerProgram {
        WorkerProgram { file: path.clone(), name: path }
    }

    /// Returns true for the program of this process.
    pub(super) fn is_own(&self) -> bool {
        self.file == Path::new(OWN)
    }
}

/// Sets the program of this process's workers: the `framepath` command, or a program that calls
/// [`worker::init`](crate::worker::init), of the same version. Call it before the first stage with a
/// worker is built; only the first call has an effect.
///
/// The environment variable FRAMEPATH_WORKER overrides this function. Without both, the worker's program
/// is this program if it has called `worker::init`; else `framepath` next to this program, in the
/// package's libexec folder, or in PATH.
///
/// ```no_run
/// framepath::host::set_worker_program("/opt/framepath/bin/framepath");
/// ```
pub fn set_worker_program(path: impl Into<PathBuf>) {
    // A second call changes nothing, as documented.
    let _ = SET.set(path.into());
}

/// Records that this program has called [`init`](crate::worker::init), so that this program can be started as
/// the program of its own workers.
pub(crate) fn use_own_program() {
    IS_OWN.store(true, Ordering::Relaxed);
}

/// Returns the program that FRAMEPATH_WORKER names; `None` without this variable.
pub(super) fn in_variable() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

/// Finds the worker's program: the named program; or this program if it can be a worker; else
/// `framepath` next to this program, in the package's libexec folder, or in PATH. Leaves out a `framepath`
/// that a user outside [`TrustedUsers::of_program`] can replace.
///
/// # Errors
/// No program was found; the error lists every searched folder, and the reason for each program that was left
/// out.
pub(super) fn find() -> Result<WorkerProgram, HostError> {
    if let Some(named) = in_variable().or_else(|| SET.get().cloned()) {
        return Ok(WorkerProgram::of(named));
    }
    let own = std::env::current_exe().unwrap_or_default();
    if IS_OWN.load(Ordering::Relaxed) {
        // The running file, because a new build may have replaced the file at its path.
        return Ok(WorkerProgram { file: PathBuf::from(OWN), name: own });
    }
    let places = places(&own, Path::new(LIBEXEC), &std::env::var_os("PATH").unwrap_or_default());
    let users = TrustedUsers::of_program(&own);
    let mut searched = Vec::new();
    for folder in places {
        let program = folder.join(NAME);
        let mut place = folder.display().to_string();
        if program.is_file() {
            match users.resolve_program(&program) {
                Ok(file) => return Ok(WorkerProgram { file, name: program }),
                Err(why) => place += &format!(" (not used: {why})"),
            }
        }
        searched.push(place);
    }
    Err(HostError::NoProgram { places: searched.join(", ") })
}

/// Returns the folders in which to search for the worker's program, in order: the folder of `own`, which is
/// this process's program file, then `libexec`, then the absolute folders of `path` (PATH).
fn places(own: &Path, libexec: &Path, path: &OsStr) -> Vec<PathBuf> {
    let beside = own.parent().map(Path::to_owned);
    // Relative folders are ignored, because they depend on the current directory.
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
    fn relative_and_duplicate_folders_are_not_searched() {
        let path = OsStr::new("/usr/bin::.:relative/bin:/opt/p/bin:/usr/bin");
        let found = places(Path::new("/opt/p/bin/player"), Path::new("/usr/libexec/framepath"), path);
        let expected = ["/opt/p/bin", "/usr/libexec/framepath", "/usr/bin"];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
