// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source `portal` with the real xdg-desktop-portal and PipeWire, and a stand-in for the desktop's dialog.

mod session;

use std::io::Read;

use framepath_os::process::children;
use framepath_testkit::harness::Tested;
use framepath_testkit::{finish, until, wait, within_deadline};
use session::{SIZE, Session};

framepath_testkit::tests! {
    a_granted_screen_is_captured_with_one_copy,
    the_end_of_the_screen_ends_the_stream,
    a_signal_ends_the_capture,
    a_refusal_is_an_error,
    a_region_of_the_screen_is_refused_by_the_portal,
    a_session_without_a_portal_is_an_error,
}

const SIGINT: i32 = 2;
/// Bytes of a picture.
const PICTURE: usize = (SIZE.0 * SIZE.1 * 4) as usize;

/// Runs a test with a session, and with a time limit.
fn with_session(refuses: bool, test: impl FnOnce(Session) + Send + 'static) -> Tested {
    let session = Session::start(refuses)?;
    within_deadline(move || test(session));
    Ok(())
}

fn a_granted_screen_is_captured_with_one_copy() -> Tested {
    with_session(false, |session| {
        let path = "portal frames=5 cursor=no ! tee ( queue ! raw all.bgr0 ) ( queue ! null )";
        let ran = finish(session.framepath(&["run", "--quiet", "--json", "-", path])).ended(0);
        let summary: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let hop = &summary["rows"][0]["hops"][0];
        assert_eq!(hop["copied_bytes_per_frame"].as_f64(), Some(PICTURE as f64), "{hop}");
        let pixels = session.read("all.bgr0");
        assert_eq!(pixels.len(), 5 * PICTURE);
        assert!(pixels.chunks_exact(4).all(|pixel| pixel[..3] == [255, 0, 0]), "not blue");
    })
}

fn the_end_of_the_screen_ends_the_stream() -> Tested {
    with_session(false, |mut session| {
        let mut child = session.framepath(&["run", "--quiet", "portal ! raw -"]).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; PICTURE]).unwrap();
        session.end_node();
        std::io::copy(child.stdout.as_mut().unwrap(), &mut std::io::sink()).unwrap();
        wait(child, "run").ended(0).prints("portal: the access has ended, and so has the stream");
    })
}

fn a_signal_ends_the_capture() -> Tested {
    with_session(false, |session| {
        let child = session.framepath(&["run", "--quiet", "portal rate=5 ! raw all.bgr0"]).spawn().unwrap();
        until("a picture is there", || session.read("all.bgr0").len() >= PICTURE);
        children::signal(&child, SIGINT).unwrap();
        wait(child, "run").ended(130);
    })
}

fn a_refusal_is_an_error() -> Tested {
    with_session(true, |session| {
        let run = session.framepath(&["run", "--quiet", "portal kind=screen ! null"]);
        finish(run).ended(1).prints("the dialog was closed without a choice");
    })
}

fn a_region_of_the_screen_is_refused_by_the_portal() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = framepath_testkit::framepath(&["run", "--quiet", "screen region=10x10+0+0 ! null"]);
    // There is no compositor.
    command.env("XDG_RUNTIME_DIR", folder.path()).env("WAYLAND_DISPLAY", "none").env_remove("WAYLAND_SOCKET");
    finish(command).ended(1).prints("region= is not supported by the portal; cut the part out behind it");
}

fn a_session_without_a_portal_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = framepath_testkit::framepath(&["run", "--quiet", "portal ! null"]);
    let nothing = format!("unix:path={}", folder.path().join("bus").display());
    command.env("DBUS_SESSION_BUS_ADDRESS", nothing);
    finish(command).ended(1).prints("it needs D-Bus of the session");
}
