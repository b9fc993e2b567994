// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C ends a run with what was done until then.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use framepath_os::children;

use crate::harness::{framepath, wait};

const SIGINT: i32 = 2;

#[test]
fn an_endless_path_ends_with_its_summary() {
    let folder = tempfile::tempdir().unwrap();
    for path in ["test size=64x48 frames=0 rate=100", "test size=64x48 frames=0 rate=100 ! queue"] {
        let md5 = folder.path().join("frames.md5");
        let csv = folder.path().join("frames.csv");
        let path = format!("{path} ! pgm '{}'", md5.display());
        let child = framepath(&["run", &path, "--csv", csv.to_str().unwrap()]).spawn().unwrap();
        // Frames on disk tell that it runs.
        let deadline = Instant::now() + Duration::from_secs(60);
        while !md5.join("frame-000005.pgm").exists() {
            assert!(Instant::now() < deadline, "no frame came");
            thread::sleep(Duration::from_millis(5));
        }
        children::signal(&child, SIGINT).unwrap();
        let ran = wait(child, "run").ended(130).shows("; interrupted");
        let frames: usize = ran.stdout.split(' ').next().unwrap().parse().unwrap();
        assert!(frames >= 5, "{ran:#?}");
        let pictures = fs::read_dir(&md5).unwrap().count();
        assert_eq!(pictures, frames, "every frame that was made was delivered");
        assert!(fs::read_to_string(&csv).unwrap().lines().count() > frames);
        fs::remove_dir_all(&md5).unwrap();
    }
}

#[test]
fn a_comparison_ends_too() {
    let child = framepath(&["compare", "--", "sleep 60", "sleep 60"]).spawn().unwrap();
    // The signal goes to framepath alone, so its sleeper is ended as well:
    // a terminal would have told both.
    thread::sleep(Duration::from_millis(300));
    children::signal(&child, SIGINT).unwrap();
    let sleeper = child_of(child.id());
    if let Some(sleeper) = sleeper {
        assert!(std::process::Command::new("kill").arg(sleeper.to_string()).status().unwrap().success());
    }
    wait(child, "compare").ended(130);
}

/// The process whose parent is `parent`, as /proc tells.
fn child_of(parent: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}
