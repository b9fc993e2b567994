// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other users that own the folder of the socket, or listen at the clients' default path.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Stdio;

use framepath_os::crossing::Socket;

use framepath_testkit::harness::{Tested, needs_root};
use framepath_testkit::until;
use framepath_testkit::{CommandOutput, finish, framepath, in_checkout, run, wait};

use crate::{NOBODY, NOGROUP, as_nobody, binary};

/// Makes a folder owned by user nobody.
fn folder_of_nobody() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    chown(folder.path(), Some(NOBODY), Some(NOGROUP)).unwrap();
    folder
}

/// Starts a service at `socket`. Stops the service with SIGTERM once it accepts a connection, or after
/// about 5 s, unless it ends by itself. Returns its exit code and output.
fn serve_at(socket: &Path) -> CommandOutput {
    let mut serve =
        framepath(&["serve", "--spares", "0", "--grace", "0", "--allow-uid", "12345", "--socket"]);
    let mut child = serve.arg(socket).spawn().unwrap();
    let mut has_ended = || child.try_wait().unwrap().is_some();
    let mut looks = 0;
    while Socket::connect(socket).is_err() && !has_ended() && looks < 1000 {
        looks += 1;
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    if !has_ended() {
        framepath_os::process::children::signal(&child, 15).unwrap();
    }
    wait(child, "serve")
}

/// The owner of a folder can replace the socket's name by a link to a file or folder of root.
pub fn a_socket_in_another_users_folder_is_an_error_and_changes_no_file() -> Tested {
    needs_root()?;
    let victims = tempfile::tempdir().unwrap();
    let victim = victims.path().join("victim");
    fs::write(&victim, "root's").unwrap();
    fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
    let folder = folder_of_nobody();
    let socket = folder.path().join("socket");
    let refused = |socket: &Path| {
        serve_at(socket).ended(1).prints("belongs to user 65534").prints(folder.path().to_str().unwrap());
        assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read(&victim).unwrap(), b"root's");
    };
    refused(&socket);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    symlink(&victim, &socket).unwrap();
    refused(&socket);
    assert!(fs::symlink_metadata(&socket).unwrap().is_symlink());
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "nobody's").unwrap();
    refused(&socket);
    // A folder of root inside a folder of user nobody: user nobody can replace it.
    fs::create_dir(folder.path().join("inner")).unwrap();
    refused(&folder.path().join("inner/socket"));
    // A link of user nobody to a folder of root.
    let public = tempfile::tempdir().unwrap();
    fs::set_permissions(public.path(), Permissions::from_mode(0o1777)).unwrap();
    let link = public.path().join("link");
    symlink(victims.path(), &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(NOBODY), None).unwrap();
    serve_at(&link.join("socket")).ended(1).prints("symbolic link").prints("belongs to user 65534");
    assert_eq!(fs::read_dir(victims.path()).unwrap().count(), 1);
    // In a sticky folder, where every user may create files but not replace files of others, the
    // service listens, but does not take over a name of another user.
    let name = public.path().join("socket");
    serve_at(&name).ended(0);
    drop(std::os::unix::net::UnixListener::bind(&name).unwrap());
    chown(&name, Some(NOBODY), None).unwrap();
    serve_at(&name).ended(1).prints("belongs to user 65534");
    assert!(name.exists());
    Ok(())
}

pub fn clients_refuse_a_service_of_another_user_unless_named() -> Tested {
    needs_root()?;
    let (binary, folder) = (binary(), folder_of_nobody());
    let socket = folder.path().join("socket");
    let at = socket.to_str().unwrap();
    let mut service = as_nobody(&binary, &["serve", "--socket", at, "--allow-uid", "0"]);
    service.stdout(Stdio::null()).stderr(Stdio::null());
    let mut service = service.spawn().unwrap();
    until("nobody's service listens", || Socket::connect(&socket).is_ok());
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let client = |more: &str| {
        let host = format!("host=service socket={at} {more}");
        run(&["run", &format!("file '{}' ! decode {host} ! framemd5 -", clip.display())])
    };
    let names_both = |ran: CommandOutput| ran.ended(1).prints("runs as user 65534").prints("as user 0");
    assert!(!names_both(client("")).stdout.contains("0, "), "frames of a service of nobody's");
    names_both(client("service_uid=12345"));
    names_both(run(&["top", "--once", "--socket", at]));
    // Clients that refuse the service send no request to it.
    let top = run(&["top", "--once", "--socket", at, "--service-uid", "65534"]).ended(0);
    top.shows("no streams");
    client("service_uid=65534").ended(0);
    // User nobody trusts its own services and those of root.
    finish(as_nobody(&binary, &["top", "--once", "--socket", at])).ended(0);
    service.kill().unwrap();
    service.wait().unwrap();
    Ok(())
}
