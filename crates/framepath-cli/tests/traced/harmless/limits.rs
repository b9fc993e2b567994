// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that cannot be traced do not start.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use framepath_testkit::{finish, program};

use super::{levels, open_folder};

/// Returns a shell in `folder` that runs the line `limit`, and then becomes `command`: alone, or traced with `options`.
fn limited(limit: &str, folder: &Path, options: Option<&[&str]>, command: &[&OsStr]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limit}\nexec \"$@\""), "sh"]);
    if let Some(options) = options {
        shell.arg(program()).args(["trace", "--quiet"]).args(options).arg("--");
    }
    shell.args(command).current_dir(folder);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

fn words<'a>(command: &[&'a str]) -> Vec<&'a OsStr> {
    command.iter().map(|word| OsStr::new(*word)).collect()
}

/// With too few descriptors, the command does not start. It never runs alone.
pub(crate) fn a_command_runs_traced_or_not_at_all() {
    let mut codes = Vec::new();
    for level in levels().iter().map(|level| Some(*level)).chain([None]) {
        for files in (4..40).chain([50, 60, 70, 80, 100, 120]) {
            let folder = open_folder();
            let command = words(&["sh", "-c", "echo x >ran; sleep 0.02; echo x >ended; exit 3"]);
            let options = level.map_or(Vec::new(), |level| vec!["--level", level]);
            let ran = finish(limited(&format!("ulimit -n {files}"), folder.path(), Some(&options), &command));
            let has = |name: &str| folder.path().join(name).exists();
            let what = format!("{level:?}, {files} descriptors: {ran:#?}");
            match ran.code {
                Some(3) => assert!(has("ended"), "{what}"),
                // The loader of programs needs some, too.
                Some(1 | 127) => assert!(!has("ran"), "{what}"),
                _ => panic!("{what}"),
            }
            codes.push((level, ran.code));
        }
    }
    for level in levels() {
        assert!(
            codes.contains(&(Some(level), Some(3))) && codes.contains(&(Some(level), Some(1))),
            "{codes:?}"
        );
    }
}

pub(crate) fn an_error_before_the_start_ends_the_command_without_a_word() {
    for level in levels() {
        let folder = open_folder();
        let options = ["--level", level, "--json", "/nonexistent/figures"];
        let command = words(&["sh", "-c", "echo x >ran"]);
        let ran = finish(limited("ulimit -c unlimited", folder.path(), Some(&options), &command)).ended(1);
        assert_eq!((ran.stdout.as_str(), ran.stderr.lines().count()), ("", 1), "{ran:#?}");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
