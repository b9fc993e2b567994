// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the binary, and never waits for ever.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// No test needs this long; one that does hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A command line of the binary, with nothing on standard input.
pub fn framepath(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_framepath"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the binary to its end.
pub fn run(args: &[&str]) -> Ran {
    finish(framepath(args))
}

/// Runs `command` to its end; kills it and fails where that does not come.
pub fn finish(mut command: Command) -> Ran {
    let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    wait(child, &format!("{command:?}"))
}

/// Waits for `child` and takes what it wrote.
pub fn wait(mut child: Child, what: &str) -> Ran {
    let stdout = child.stdout.take().map(|pipe| thread::spawn(move || all_of(pipe)));
    let stderr = child.stderr.take().map(|pipe| thread::spawn(move || all_of(pipe)));
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("{what} hangs");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let text =
        |reader: Option<thread::JoinHandle<Vec<u8>>>| reader.map_or_else(Vec::new, |r| r.join().unwrap());
    Ran::from(Output { status, stdout: text(stdout), stderr: text(stderr) })
}

fn all_of(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).unwrap();
    bytes
}

/// How it ended.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; `None` where a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
        Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Ran {
    /// Asserts the exit code; shows everything where it is another.
    #[track_caller]
    pub fn ended(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    /// Asserts that standard error says `part`.
    #[track_caller]
    pub fn says(self, part: &str) -> Ran {
        assert!(self.stderr.contains(part), "no `{part}` in {self:#?}");
        self
    }

    /// Asserts that standard output has `part`.
    #[track_caller]
    pub fn shows(self, part: &str) -> Ran {
        assert!(self.stdout.contains(part), "no `{part}` in {self:#?}");
        self
    }
}

/// A path's text for a file in the checkout.
pub fn in_checkout(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
