// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users who can replace a program file before this process starts it.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Extended attribute that holds the POSIX access control list (ACL) of a file.
const ACL: &str = "system.posix_acl_access";

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
    /// write them, neither by their modes nor by their POSIX access control lists. The members of the groups of
    /// these files and folders, and of groups that the lists name, are trusted. Start the returned path: a link
    /// inside another link is not checked.
    ///
    /// # Errors
    /// A text that names the user or the mode that is the reason, or the system's error. An access control list
    /// cannot be read or is malformed.
    pub fn resolve_program(&self, program: &Path) -> Result<PathBuf, String> {
        const STICKY: u32 = 0o1000;
        const OTHERS_WRITE: u32 = 0o002;
        let real = program.canonicalize().map_err(|error| error.to_string())?;
        for path in program.ancestors().chain(real.ancestors()) {
            let file = path.symlink_metadata().map_err(|error| error.to_string())?;
            if !self.0.contains(&file.uid()) {
                return Err(format!("{} belongs to user {}", path.display(), file.uid()));
            }
            // A link has no mode and no list. In a sticky folder, others add files but do not replace those of these
            // users.
            if file.is_symlink() || file.is_dir() && file.mode() & STICKY != 0 {
                continue;
            }
            if file.mode() & OTHERS_WRITE != 0 {
                return Err(format!(
                    "every user may write {} (mode {:04o})",
                    path.display(),
                    file.mode() & 0o7777
                ));
            }
            // An id without a number in this user namespace reads as 4294967295, which is never trusted.
            if let Some(user) = acl_writers(path)?.into_iter().find(|user| !self.0.contains(user)) {
                return Err(format!("user {user} may write {} by its access control list", path.display()));
            }
        }
        Ok(real)
    }

    /// Returns the path of the file `name` in the first folder of `path` (the value of PATH) in which
    /// [`TrustedUsers::resolve_program`] accepts it; `None` if there is none. Relative folders are not searched, because
    /// another user may have made the current folder.
    pub fn find_program(&self, name: &str, path: &OsStr) -> Option<PathBuf> {
        let folders = env::split_paths(path).filter(|folder| folder.is_absolute());
        let mut programs = folders.map(|folder| folder.join(name)).filter(|program| program.is_file());
        programs.find_map(|program| self.resolve_program(&program).ok())
    }
}

/// Returns the users that the access control list of the file or folder `path` names and permits to write; none
/// if it has no list.
///
/// # Errors
/// The list cannot be read or is malformed; the text names the path.
fn acl_writers(path: &Path) -> Result<Vec<u32>, String> {
    // The kernel's limit of an attribute (XATTR_SIZE_MAX).
    let mut list = vec![0; 64 << 10];
    let length = match rustix::fs::lgetxattr(path, ACL, &mut list[..]) {
        Ok(length) => length,
        // The file has no list, or its file system or the kernel has none.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(error) => {
            return Err(format!("cannot read the access control list of {}: {error}", path.display()));
        }
    };
    named_writers(&list[..length])
        .ok_or_else(|| format!("the access control list of {} is malformed", path.display()))
}

/// Returns the users that an access control list names and permits to write; `None` if the list is malformed. `list`
/// has the kernel's format (linux/posix_acl_xattr.h), little endian: the version in 32 bits; then for each
/// entry a tag and permissions in 16 bits each, and an id in 32 bits.
fn named_writers(list: &[u8]) -> Option<Vec<u32>> {
    const VERSION: u32 = 2;
    const USER: u16 = 0x02;
    const MASK: u16 = 0x10;
    // The file's owner, its group, a named group, and all others. The owner and the mode show these permissions,
    // except those of the named group, whose members are trusted.
    const OTHER_TAGS: [u16; 4] = [0x01, 0x04, 0x08, 0x20];
    const WRITE: u16 = 0o2;
    let (version, entries) = list.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % 8 != 0 {
        return None;
    }
    let (mut writers, mut mask) = (Vec::new(), None);
    for entry in entries.chunks_exact(8) {
        let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let (tag, permissions) = (half(0), half(2));
        match tag {
            USER if permissions & WRITE != 0 => writers.push(u32::from_le_bytes(*entry.last_chunk()?)),
            USER => {}
            MASK if mask.is_none() => mask = Some(permissions),
            _ if OTHER_TAGS.contains(&tag) => {}
            _ => return None,
        }
    }
    // The mask limits the permissions of named users. A list that names users has one.
    if mask.is_some_and(|mask| mask & WRITE == 0) {
        writers.clear();
    }
    Some(writers)
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

    #[test]
    fn a_program_is_found_in_the_first_folder_of_path_that_only_trusted_users_write() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let users = TrustedUsers(vec![fs::metadata(&top).unwrap().uid(), 0]);
        let folders = ["public", "own", "later"].map(|name| top.join(name));
        for folder in &folders {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("program"), "").unwrap();
        }
        let set_mode = |mode| fs::set_permissions(&folders[0], fs::Permissions::from_mode(mode)).unwrap();
        let found = |path: &[&Path]| users.find_program("program", &env::join_paths(path).unwrap());
        let [public, own, later] = [0, 1, 2].map(|place| folders[place].as_path());
        set_mode(0o777);
        assert_eq!(found(&[public, own, later]), Some(own.join("program")));
        assert_eq!(found(&[public]), None);
        set_mode(0o755);
        assert_eq!(found(&[public, own, later]), Some(public.join("program")));
        assert_eq!(found(&[&top, later]), Some(later.join("program")));
        // Another name for a trusted folder, from the current one.
        let steps = env::current_dir().unwrap().components().count();
        let relative: PathBuf = std::iter::repeat_n("..", steps).collect();
        let relative = relative.join(own.strip_prefix("/").unwrap());
        assert!(relative.join("program").is_file());
        assert_eq!(found(&[Path::new(""), Path::new("."), &relative]), None);
    }

    /// Returns an access control list with the usual entries, the user and group `id` with the permissions `named`,
    /// and a mask.
    fn acl(named: u16, id: u32, mask: u16) -> Vec<u8> {
        let entries = [
            (0x01, 0o7, u32::MAX),
            (0x02, named, id),
            (0x04, 0o5, u32::MAX),
            (0x08, named, id),
            (0x10, mask, u32::MAX),
            (0x20, 0o5, u32::MAX),
        ];
        let bytes = |(tag, permissions, id): (u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        [2_u32.to_le_bytes().to_vec()].into_iter().chain(entries.map(bytes)).collect::<Vec<_>>().concat()
    }

    #[test]
    fn the_named_users_that_may_write_are_found_in_an_access_control_list() {
        assert_eq!(named_writers(&acl(0o6, 1000, 0o7)), Some(vec![1000]));
        assert_eq!(named_writers(&acl(0o2, 70_000, 0o2)), Some(vec![70_000]));
        assert_eq!(named_writers(&acl(0o5, 1000, 0o7)), Some(vec![]));
        // The mask takes the write permission away.
        assert_eq!(named_writers(&acl(0o7, 1000, 0o5)), Some(vec![]));
        let list = acl(0o6, 1000, 0o7);
        // Without a mask, which the kernel does not permit.
        assert_eq!(named_writers(&list[..4 + 4 * 8]), Some(vec![1000]));
        assert_eq!(named_writers(&list[..4]), Some(vec![]));
        let several = [acl(0o6, 1000, 0o7), list[12..20].to_vec()].concat();
        assert_eq!(named_writers(&several), Some(vec![1000, 1000]));

        for length in (0..list.len()).filter(|length| length % 8 != 4) {
            assert_eq!(named_writers(&list[..length]), None, "{length} bytes");
        }
        let changed = |at: usize, value: u8| {
            let mut list = list.clone();
            list[at] = value;
            named_writers(&list)
        };
        assert_eq!(changed(0, 1), None, "another version");
        assert_eq!(changed(3, 1), None, "another version");
        assert_eq!(changed(12, 0x03), None, "an unknown tag");
        assert_eq!(changed(13, 0x01), None, "an unknown tag");
        assert_eq!(changed(4 + 5 * 8, 0x10), None, "two masks");
    }

    #[test]
    fn a_program_that_an_access_control_list_lets_another_user_write_is_left_out() {
        let set =
            |path: &Path, list: &[u8]| rustix::fs::setxattr(path, ACL, list, rustix::fs::XattrFlags::empty());
        let folders = [std::env::temp_dir(), "/dev/shm".into(), std::env::current_dir().unwrap()];
        let supported = folders.iter().find_map(|folder| {
            let folder = tempfile::tempdir_in(folder).ok()?;
            (set(folder.path(), &acl(0, 1, 0)) != Err(Errno::OPNOTSUPP)).then_some(folder)
        });
        let top = supported.unwrap_or_else(|| panic!("no access control lists in any of {folders:?}"));
        let folder = top.path().canonicalize().unwrap().join("folder");
        let program = folder.join("program");
        fs::create_dir(&folder).unwrap();
        fs::write(&program, "").unwrap();
        let own = fs::metadata(&program).unwrap().uid();
        let other = own + 1;
        let check = |file: &Path| TrustedUsers(vec![own, 0]).resolve_program(file);
        let refused = |path: &Path| {
            Err(format!("user {other} may write {} by its access control list", path.display()))
        };
        let link = top.path().canonicalize().unwrap().join("link");
        std::os::unix::fs::symlink(&program, &link).unwrap();
        assert_eq!(check(&program), Ok(program.clone()));
        for path in [&program, &folder] {
            set(path, &acl(0o7, other, 0o7)).unwrap();
            assert_eq!(check(&program), refused(path));
            assert_eq!(check(&link), refused(path));
            assert_eq!(TrustedUsers(vec![own, other, 0]).resolve_program(&program), Ok(program.clone()));
            // Others read; the mask takes the write permission away.
            for (named, mask) in [(0o5, 0o7), (0o7, 0o5)] {
                set(path, &acl(named, other, mask)).unwrap();
                assert_eq!(check(&program), Ok(program.clone()));
            }
        }
        // Another user may add files to a sticky folder, but not replace this one.
        set(&folder, &acl(0o7, other, 0o7)).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1775)).unwrap();
        assert_eq!(check(&program), Ok(program.clone()));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o775)).unwrap();
        assert_eq!(check(&program), refused(&folder));
    }
}
