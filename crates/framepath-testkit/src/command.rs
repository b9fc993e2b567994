// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the command `framepath`; a run that hangs is ended and fails the test.

use std::io::{ErrorKind, Read};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::checkout::program;
use crate::ffmpeg::md5_lines;

/// Time limit of a run; a command that runs longer is killed, and the test fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Creates a command that runs the binary `framepath` with `args`. Standard input is empty;
/// standard output and standard error are pipes. Panics if the binary was not built.
pub fn framepath(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the binary `framepath` with `args` to its end and returns its output. Panics as
/// [`framepath()`] and [`finish`] do, for example if the run takes longer than 120 s.
pub fn run(args: &[&str]) -> CommandOutput {
    finish(framepath(args))
}

/// Runs `command` to its end and returns its output, as far as its outputs are pipes. Panics if the
/// command cannot be started, and as [`wait`] does.
pub fn finish(mut command: Command) -> CommandOutput {
    wait(spawn(&mut command), &format!("{command:?}"))
}

/// Starts `command`; panics if that fails. Retries while the program file is busy (ETXTBSY): if
/// another test forks while a test writes the program, the forked child holds the file open until
/// its exec. Panics if the file is busy for 120 s.
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

/// Waits for `child` and returns its output, as far as its outputs are pipes. Kills it and panics
/// with `what` if it takes longer than 120 s. Panics if the output is not UTF-8. After the child's
/// end, waits without a limit until no other process holds its pipes open.
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
    /// Exit code; `None` if a signal ended the command.
    pub code: Option<i32>,
    /// Number of the signal that ended the command.
    pub signal: Option<i32>,
    /// Text on standard output; empty if standard output was no pipe.
    pub stdout: String,
    /// Text on standard error; empty if standard error was no pipe.
    pub stderr: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> CommandOutput {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        CommandOutput { code: output.status.code(), signal, stdout, stderr }
    }
}

impl CommandOutput {
    /// Asserts that the exit code is `code` and that standard error does not contain `panicked`;
    /// prints the whole output on failure. Returns the same output.
    #[track_caller]
    pub fn ended(self, code: i32) -> CommandOutput {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    /// Asserts that the signal `number` ended the command, and that standard error does not contain `panicked`; prints the
    /// whole output on failure. Returns the same output.
    #[track_caller]
    pub fn ended_by(self, number: i32) -> CommandOutput {
        assert_eq!(self.signal, Some(number), "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    /// Returns the framemd5 lines on standard output, without the header lines.
    pub fn frames(&self) -> Vec<String> {
        md5_lines(&self.stdout)
    }

    /// Asserts that standard error contains `part`. Returns the same output.
    #[track_caller]
    pub fn prints(self, part: &str) -> CommandOutput {
        assert!(self.stderr.contains(part), "no `{part}` in {self:#?}");
        self
    }

    /// Asserts that standard output contains `part`. Returns the same output.
    #[track_caller]
    pub fn shows(self, part: &str) -> CommandOutput {
        assert!(self.stdout.contains(part), "no `{part}` in {self:#?}");
        self
    }
}
