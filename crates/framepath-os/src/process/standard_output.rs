// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output of this process, which its parent may have closed.
//!
//! Rust's runtime opens /dev/null in place of a closed standard file, so that no other file takes its number. Writes then
//! succeed, and the bytes are lost.

use std::fs;
use std::io;
use std::path::Path;

use super::start_state;

/// Checks that standard output leads somewhere. Can be called on any thread.
///
/// # Errors
/// EBADF if it was closed when the program began.
pub fn check() -> io::Result<()> {
    match start_state::was_closed(1) {
        true => Err(io::Error::from_raw_os_error(libc::EBADF)),
        false => Ok(()),
    }
}

/// Checks that `path` does not name a standard output that leads nowhere, as `/dev/stdout` and `/proc/self/fd/1`
/// may do. Can be called on any thread.
///
/// # Errors
/// EBADF as from [`check`], if `path` names standard output.
pub fn check_path(path: &Path) -> io::Result<()> {
    check().or_else(|closed| if names_standard_output(path) { Err(closed) } else { Ok(()) })
}

/// Follows the symbolic links from `path`; returns true if one of them is the link of this process's standard output
/// in `/proc`.
fn names_standard_output(path: &Path) -> bool {
    let mut path = path.to_owned();
    // Linux follows at most 40 links.
    for _ in 0..40 {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (Ok(folder), Ok(own)) = (fs::canonicalize(folder), fs::canonicalize("/proc/self")) else {
            return false;
        };
        if path.ends_with("1") && folder.ends_with("fd") && folder.starts_with(own) {
            return true;
        }
        match fs::read_link(&path) {
            Ok(target) => path = folder.join(target),
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_standard_output_are_recognized() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/stdout", &link).unwrap();
        for path in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/proc/thread-self/fd/1"] {
            assert!(names_standard_output(Path::new(path)), "{path}");
        }
        assert!(names_standard_output(&link));
        let other = folder.path().join("1");
        fs::write(&other, "").unwrap();
        for path in ["/dev/null", "/dev/stderr", "/dev/fd/2", "1", "-", "/", other.to_str().unwrap()] {
            assert!(!names_standard_output(Path::new(path)), "{path}");
        }
    }
}
