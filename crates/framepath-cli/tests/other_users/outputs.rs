// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other users that own what is at the path of an output, in a folder in which every user may add files.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use framepath_testkit::harness::{Tested, needs_root};
use framepath_testkit::{CommandOutput, run};

use crate::NOBODY;

/// Makes a folder with the permissions of /tmp.
fn public_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
    folder
}

/// Runs a path whose figures go to `output`.
fn run_with_output(output: &Path) -> CommandOutput {
    run(&["run", "--quiet", "--json", output.to_str().unwrap(), "test frames=2 size=64x48 ! null"])
}

pub fn an_output_takes_no_permissions_from_another_users_file() -> Tested {
    needs_root()?;
    let folder = public_folder();
    let (usual, output) = (folder.path().join("usual"), folder.path().join("output"));
    run_with_output(&usual).ended(0);
    for mode in [0o4777, 0o6755, 0o666] {
        fs::write(&output, "nobody's").unwrap();
        chown(&output, Some(NOBODY), None).unwrap();
        fs::set_permissions(&output, Permissions::from_mode(mode)).unwrap();
        run_with_output(&output).ended(0);
        let (made, usual) = (fs::metadata(&output).unwrap(), fs::metadata(&usual).unwrap());
        assert_eq!((made.uid(), made.mode()), (0, usual.mode()), "{mode:o}");
    }
    Ok(())
}

/// Whatever the kernel's setting `fs.protected_symlinks` is.
pub fn a_link_of_another_user_in_a_public_folder_is_not_followed() -> Tested {
    needs_root()?;
    let (folder, victims) = (public_folder(), tempfile::tempdir().unwrap());
    let (victim, link) = (victims.path().join("victim"), folder.path().join("link"));
    fs::write(&victim, "root's").unwrap();
    for target in [victim.clone(), victims.path().join("new")] {
        symlink(&target, &link).unwrap();
        lchown(&link, Some(NOBODY), None).unwrap();
        run_with_output(&link).ended(1).prints("the symbolic link belongs to user 65534");
        assert_eq!(fs::read(&victim).unwrap(), b"root's");
        assert_eq!(fs::read_dir(victims.path()).unwrap().count(), 1);
        fs::remove_file(&link).unwrap();
    }
    // A link of the own user is followed, and stays.
    symlink(&victim, &link).unwrap();
    run_with_output(&link).ended(0);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read(&victim).unwrap().starts_with(b"{"));
    Ok(())
}

/// Also if a program reads the FIFO.
pub fn a_fifo_of_another_user_in_a_public_folder_is_not_written() -> Tested {
    needs_root()?;
    let folder = public_folder();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Opened for both, it has a reader.
    let mut reader = File::options().read(true).write(true).open(&fifo).unwrap();
    run_with_output(&fifo).ended(0);
    let mut first = [0];
    reader.read_exact(&mut first).unwrap();
    assert_eq!(first, *b"{");
    chown(&fifo, Some(NOBODY), None).unwrap();
    run_with_output(&fifo).ended(1).prints("the FIFO belongs to user 65534");
    Ok(())
}
