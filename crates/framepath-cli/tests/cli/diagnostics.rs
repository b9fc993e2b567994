// SPDX-License-Identifier: MIT OR Apache-2.0
//! `-v` and FRAMEPATH_LOG: log messages on standard error.

use std::fs;

use framepath_testkit::{CommandOutput, clip, finish, framepath};

/// Returns the log lines of `level` on standard error, without their prefix.
fn lines<'a>(ran: &'a CommandOutput, level: &str) -> Vec<&'a str> {
    let head = format!("framepath: {level}: ");
    ran.stderr.lines().filter_map(|line| line.strip_prefix(&head)).collect()
}

fn decode(file: &str, options: &str, arguments: &[&str], level: Option<&str>) -> CommandOutput {
    let path = format!("file '{file}' ! decode {options} ! null");
    let mut command = framepath(&[&["run", "--quiet", &path], arguments].concat());
    command.env_remove("FRAMEPATH_LOG");
    if let Some(level) = level {
        command.env("FRAMEPATH_LOG", level);
    }
    finish(command).ended(0)
}

#[test]
fn diagnostics_are_off_by_default() {
    let clip = clip("vp9-180p8.ivf");
    for level in [None, Some(""), Some("off")] {
        assert_eq!(decode(&clip, "", &[], level).stderr, "");
    }
}

#[test]
fn the_option_v_and_the_variable_set_the_level() {
    let clip = clip("vp9-180p8.ivf");
    for (arguments, level) in [(&["-v"][..], None), (&["-v"], Some("off")), (&[], Some("info"))] {
        let ran = decode(&clip, "", arguments, level);
        let info = lines(&ran, "info");
        assert!(
            info.iter().any(|line| line.contains("vp9-180p8.ivf") && line.contains("320x180")),
            "{ran:#?}"
        );
        assert_eq!(lines(&ran, "debug").len(), 0, "{ran:#?}");
    }
    let more = decode(&clip, "", &["-vv"], None);
    assert!(lines(&more, "debug").iter().any(|line| line.contains("pool")), "{more:#?}");
}

#[test]
fn a_worker_death_is_a_warning_with_its_process_id() {
    let clip = clip("vp9-180p8.ivf");
    let ran = decode(&clip, "host=process fault=crash@3", &[], Some("warn"));
    let warnings = lines(&ran, "warn");
    assert!(warnings.iter().any(|line| line.starts_with("worker ")), "{ran:#?}");
    let started = decode(&clip, "host=process fault=crash@3", &["-v"], None);
    let started = lines(&started, "info").iter().filter(|line| line.starts_with("worker ")).count();
    // The demuxer's worker, the decoder's, and the worker that takes over the decoder's stream.
    assert_eq!(started, 3);
}

#[test]
fn a_hostile_file_name_is_escaped_on_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("a\x1b[2Jb.ivf");
    fs::copy(clip("vp9-180p8.ivf"), &name).unwrap();
    let ran = decode(name.to_str().unwrap(), "", &["-vv"], None);
    assert!(ran.stderr.contains("b.ivf") && !ran.stderr.contains('\x1b'), "{ran:#?}");
}

#[test]
fn an_invalid_level_is_a_usage_error() {
    let mut command = framepath(&["run", "test frames=1 ! null"]);
    command.env("FRAMEPATH_LOG", "loud");
    finish(command).ended(2).prints("FRAMEPATH_LOG").prints("loud");
}
