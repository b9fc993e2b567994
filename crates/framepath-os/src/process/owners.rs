// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users who can replace a program file before this process starts it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// User ids whose programs this process may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedUsers(Vec<u32>);

impl TrustedUsers {
    /// Returns root, the user of this process, the owner of `own`, which is this process's program file, and
    /// the owner of `/`. In a user namespace without root, this is the user id that stands for all users
    /// outside. Leaves out the owner of a file that cannot be read.
    pub fn of_program(own: &Path) -> TrustedUsers {
        let owner = |path: &Path| fs::metadata(path).ok().map(|file| file.uid());
        let user = rustix::process::geteuid().as_raw();
        TrustedUsers([Some(0), Some(user), owner(own), owner(Path::new("/"))].into_iter().flatten().collect())
    }

    /// Returns the path, without symbolic links, of the file `program` (an absolute path), which only these users can
    /// replace: they own the file, its symbolic link, and all folders above the two, and no other user may
    /// write them. The members of the groups of these files and folders are trusted. Start the returned path: a link
    /// inside another link is not checked.
    ///
    /// # Errors
    /// A text that names the user or the mode that is the reason, or the system's error.
    pub fn resolve_program(&self, program: &Path) -> Result<PathBuf, String> {
        const STICKY: u32 = 0o1000;
        const OTHERS_WRITE: u32 = 0o002;
        let real = program.canonicalize().map_err(|error| error.to_string())?;
        for path in program.ancestors().chain(real.ancestors()) {
            let file = path.symlink_metadata().map_err(|error| error.to_string())?;
            if !self.0.contains(&file.uid()) {
                return Err(format!("{} belongs to user {}", path.display(), file.uid()));
            }
            let others_write = file.mode() & OTHERS_WRITE != 0 && !file.is_symlink();
            // In a sticky folder, others add files but do not replace those of these users.
            if others_write && !(file.is_dir() && file.mode() & STICKY != 0) {
                return Err(format!(
                    "every user may write {} (mode {:04o})",
                    path.display(),
                    file.mode() & 0o7777
                ));
            }
        }
        Ok(real)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_that_another_user_can_replace_is_left_out() {
        let set_mode =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        // Root owns the folders above the temporary one.
        let check = |file: &Path, user| TrustedUsers(vec![user, 0]).resolve_program(file);
        let folder = tempfile::tempdir().unwrap();
        // The temporary folder may be behind a link.
        let program = folder.path().canonicalize().unwrap().join("program");
        fs::write(&program, "").unwrap();
        let own = fs::metadata(&program).unwrap().uid();
        assert_eq!(check(&program, own), Ok(program.clone()));
        let error = TrustedUsers(vec![own + 1]).resolve_program(&program).unwrap_err();
        assert!(error.ends_with(&format!("belongs to user {own}")), "{error}");
        // Others may add files to a sticky folder, but not replace this one.
        set_mode(folder.path(), 0o1777);
        assert_eq!(check(&program, own), Ok(program.clone()));
        set_mode(folder.path(), 0o777);
        let error = check(&program, own).unwrap_err();
        assert!(error.starts_with("every user may write") && error.ends_with("(mode 0777)"), "{error}");
        // Nor may others exchange a folder above.
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("program"), "").unwrap();
        assert!(check(&inner.join("program"), own).is_err());
        set_mode(folder.path(), 0o755);
        assert!(check(&inner.join("program"), own).is_ok());
        set_mode(&program, 0o757);
        assert!(check(&program, own).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&program, &link).unwrap();
        assert!(check(&link, own).is_err());
        set_mode(&program, 0o755);
        assert_eq!(check(&link, own), Ok(program));
    }
}
