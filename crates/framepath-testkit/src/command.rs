// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the command `framepath`; a run that hangs is ended and fails the test.

use std::io::{ErrorKind, Read};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::checkout::program;
use crate::ffmpeg::md5_lines;

/// Time limit of a run; a run that takes longer counts as hung.
const PATIENCE: Duration = Duration::from_secs(120);

/// Creates a command of the binary, with empty standard input.
pub fn framepath(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the binary to its end.
pub fn run(args: &[&str]) -> CommandOutput {
    finish(framepath(args))
}

/// Runs `command` to its end; kills it and fails if it hangs.
pub fn finish(mut command: Command) -> CommandOutput {
    wait(spawn(&mut command), &format!("{command:?}"))
}

/// Starts `command`. Retries while its program file is busy (ETXTBSY): if another test forks while
/// a test writes the program, the forked child holds the file open until its exec.
fn spawn(command: &mut Command) -> Child {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            child => return child.unwrap_or_else(|error| panic!("{command:?}: {error}")),
        }
    }
}

/// Waits for `child` and returns its output.
pub fn wait(mut child: Child, what: &str) -> CommandOutput {
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
    CommandOutput::from(Output { status, stdout: text(stdout), stderr: text(stderr) })
}

fn all_of(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Exit code and output of a command that ended.
#[derive(Debug)]
pub struct CommandOutput {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> CommandOutput {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
        CommandOutput { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl CommandOutput {
    /// Asserts the exit code; prints the whole output on failure.
    #[track_caller]
    pub fn ended(self, code: i32) -> CommandOutput {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    /// Returns the framemd5 lines on standard output, without the header.
    pub fn frames(&self) -> Vec<String> {
        md5_lines(&self.stdout)
    }

    /// Asserts that standard error contains `part`.
    #[track_caller]
    pub fn prints(self, part: &str) -> CommandOutput {
        assert!(self.stderr.contains(part), "no `{part}` in {self:#?}");
        self
    }

    /// Asserts that standard output contains `part`.
    #[track_caller]
    pub fn shows(self, part: &str) -> CommandOutput {
        assert!(self.stdout.contains(part), "no `{part}` in {self:#?}");
        self
    }
}
