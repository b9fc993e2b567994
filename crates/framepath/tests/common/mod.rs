// SPDX-License-Identifier: MIT OR Apache-2.0
//! What several of these tests need. Each of them uses a part of it.
#![allow(dead_code)]

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use framepath::{Level, Options, Report, RunError};

/// Runs `f`, which must come to an end: a hang becomes a failure.
pub fn ends<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = channel();
    let worker = thread::spawn(move || {
        // Nobody listens any more once the test has failed.
        let _ = sender.send(f());
    });
    match receiver.recv_timeout(Duration::from_secs(120)) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("hangs: not done after 120 s"),
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => unreachable!("the result was sent"),
        },
    }
}

/// The built `framepath`: in the folder above the tests' own.
pub fn worker_program() -> PathBuf {
    let own = std::env::current_exe().expect("a test has a file");
    let program = own.ancestors().nth(2).expect("target/PROFILE/deps").join("framepath");
    assert!(program.is_file(), "no {}: cargo build -p framepath-cli, in this profile", program.display());
    program
}

/// The folder of the committed clips.
pub fn clips() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../clips")
}

/// A committed clip, as it stands in a path.
pub fn clip(name: &str) -> String {
    let path = clips().join(name);
    assert!(path.is_file(), "no clip {}", path.display());
    path.to_str().expect("a plain path").to_owned()
}

/// Options with the ledger at `level`.
pub fn at(level: Level) -> Options {
    Options { level, ..Options::default() }
}

/// Builds and runs the path in `text`, which must be right.
pub fn try_run(text: &str, options: &Options) -> Result<Report, RunError> {
    let path = framepath::path::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let options = options.clone();
    ends(move || framepath::run(&path, &options))
}

/// The same of a path that runs to its end.
pub fn run(text: &str, options: &Options) -> Report {
    let report = try_run(text, options).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert!(report.error.is_none(), "{text}: {:?}", report.error);
    report
}

/// Lines of a framemd5 file without its head.
pub fn md5_lines(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// What `ffmpeg` writes to standard output.
pub fn ffmpeg(words: &[&str]) -> String {
    let output = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error"])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("this test needs the `ffmpeg` tool (apt install ffmpeg): {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ffmpeg {words:?}: {said}");
    String::from_utf8(output.stdout).expect("ffmpeg was asked for text")
}
