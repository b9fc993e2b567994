// SPDX-License-Identifier: MIT OR Apache-2.0
//! A path that runs changes nothing in its process: the handled, ignored and
//! blocked signals and the umask stay the same.

use std::fs;

use framepath::{Options, path, run};

/// Returns the lines of /proc/thread-self/status (proc(5)) about signals and the umask. Those of this thread,
/// because the main thread blocks all signals while it starts another thread.
fn status() -> Vec<String> {
    let text = fs::read_to_string("/proc/thread-self/status").unwrap();
    let kept = ["SigBlk:", "SigIgn:", "SigCgt:", "Umask:"];
    text.lines().filter(|line| kept.iter().any(|name| line.starts_with(name))).map(str::to_owned).collect()
}

#[test]
fn a_run_leaves_signals_and_umask_alone() {
    let folder = tempfile::tempdir().unwrap();
    let before = status();
    assert_eq!(before.len(), 4, "{before:?}");
    let clip = framepath_testkit::clip("vp9-180p8.ivf");
    for rest in ["decode ! null", "decode ! queue ! framemd5 OUT", "decode format=native ! y4m OUT"] {
        let out = folder.path().join("out");
        let text = format!("file {clip} ! {}", rest.replace("OUT", out.to_str().unwrap()));
        let report = run(&path::parse(&text).unwrap(), &Options::default()).unwrap();
        assert!(report.error.is_none() && report.frames > 0);
        assert_eq!(status(), before, "{text}");
    }
}
