// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs programs as contenders and measures them. The CPU time of a program includes every child process
//! that the program has waited for.

use std::ffi::OsString;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};

use framepath_os::process::children::{self, ResourceUsage};
use framepath_os::time::now_ns;

use crate::error::LabError;
use crate::measure::Measured;

/// A program and its arguments, run without a shell.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name of the program, to be found in PATH, or its path.
    pub program: OsString,
    /// Arguments, without the program's name.
    pub args: Vec<OsString>,
}

/// Result of a program that exited with 0.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Wall time from before the spawn until the program was waited for, nanoseconds.
    pub wall_ns: u64,
    /// CPU time, memory and context switches of the program and of the descendants it waited for.
    pub usage: ResourceUsage,
    /// Peak memory of this process before the spawn, in KiB; the kernel counts it as the child's
    /// too. `None` if not known.
    spawner_peak_kib: Option<u64>,
    /// Standard output of the program; empty if it was discarded or cannot be read.
    pub stdout: String,
}

impl Program {
    /// Creates a program with its arguments.
    pub fn new<A: Into<OsString>>(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = A>,
    ) -> Program {
        Program { program: program.into(), args: args.into_iter().map(Into::into).collect() }
    }

    /// Formats the command as a user would type it, for messages.
    pub fn text(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.args);
        words.map(|w| framepath_model::path::quote(&w.to_string_lossy())).collect::<Vec<_>>().join(" ")
    }

    /// Runs the program to its end, with empty standard input. Keeps its standard output if
    /// `keep_output` is true, otherwise discards it. If the program fails, the error has the last three
    /// lines of its standard error. If SIGINT or SIGTERM arrives at this process meanwhile, sends SIGTERM to
    /// the program, and SIGKILL if the program has not ended 0.7 s after the signal; this needs
    /// [`signal::install`](framepath_os::process::signal::install).
    ///
    /// # Errors
    /// [`LabError::Missing`] if the program is not installed, [`LabError::Io`] if it cannot be
    /// started otherwise or another system call fails. If it does not exit with 0:
    /// [`LabError::Interrupted`] if this process got SIGINT or SIGTERM, otherwise
    /// [`LabError::Command`].
    pub fn run(&self, keep_output: bool) -> Result<Finished, LabError> {
        let (mut stdout, mut stderr) = (ProgramOutput::new()?, ProgramOutput::new()?);
        let output = if keep_output { stdout.to_stdio()? } else { Stdio::null() };
        let spawner_peak_kib = framepath_os::machine::own_peak_memory_kib();
        let start = now_ns();
        let child = Command::new(&self.program)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(stderr.to_stdio()?)
            .spawn()
            .map_err(|error| self.not_started(error))?;
        let usage = children::wait(child).map_err(LabError::io(self.text()))?;
        let wall_ns = now_ns() - start;
        if usage.exit_code == Some(0) {
            return Ok(Finished { wall_ns, usage, spawner_peak_kib, stdout: stdout.text() });
        }
        if framepath_os::process::signal::interrupted() {
            return Err(LabError::Interrupted);
        }
        Err(self.failed(usage.exit_code, usage.signal, &stderr.text()))
    }

    /// Returns the error of a program that did not exit with 0; it has the last three lines of `stderr`.
    pub(crate) fn failed(&self, exit_code: Option<i32>, signal: Option<i32>, stderr: &str) -> LabError {
        let outcome = match (exit_code, signal) {
            (Some(code), _) => format!("exited with {code}"),
            (_, Some(signal)) => format!("was killed by signal {signal}"),
            _ => "did not end normally".to_owned(),
        };
        LabError::Command { command: self.text(), outcome, exit_code, stderr: last_lines(stderr) }
    }

    /// Returns the error of a program that could not be started.
    pub(crate) fn not_started(&self, error: std::io::Error) -> LabError {
        let name = self.program.to_string_lossy().into_owned();
        if error.kind() == std::io::ErrorKind::NotFound {
            LabError::Missing(format!("`{name}` is not installed"))
        } else {
            LabError::Io { what: format!("starting `{name}`"), error }
        }
    }
}

impl Finished {
    /// Returns the largest resident set of a single process of the program, in KiB. The kernel reports the
    /// larger of this figure and the spawning process's peak; the result is `None` if the report is not
    /// above that peak, because the program's own figure is then not known.
    fn peak_memory_kib(&self) -> Option<u64> {
        Some(self.usage.peak_memory_kib).filter(|peak| Some(*peak) > self.spawner_peak_kib)
    }

    /// Returns the figures of the run, which had `frames` frames; 0 if not known, then without the
    /// figures per frame.
    pub fn measured(&self, frames: u64) -> Measured {
        Measured {
            frames,
            wall_ns: self.wall_ns,
            cpu_ns: self.usage.cpu_ns,
            peak_memory_kib: self.peak_memory_kib(),
            switches_per_frame: (frames > 0).then(|| self.usage.switches as f64 / frames as f64),
            ..Measured::default()
        }
    }
}

/// Nameless file in memory for a program's output, because a full pipe would block the program.
#[derive(Debug)]
pub(crate) struct ProgramOutput(std::fs::File);

impl ProgramOutput {
    /// Creates an empty file.
    pub(crate) fn new() -> Result<ProgramOutput, LabError> {
        let file = framepath_os::memory::memory_file("framepath-output");
        file.map(ProgramOutput).map_err(LabError::io("creating a temporary file"))
    }

    /// Returns the file as a stream of a program that is to be started.
    pub(crate) fn to_stdio(&self) -> Result<Stdio, LabError> {
        let clone = self.0.try_clone().map_err(LabError::io("duplicating the handle of a temporary file"))?;
        Ok(Stdio::from(clone))
    }

    /// Returns the text that the program has written; empty if it cannot be read.
    pub(crate) fn text(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = self.0.rewind().and_then(|()| self.0.read_to_end(&mut bytes));
        read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_returns_output_cost_and_exit_code() {
        let finished = Program::new("sh", ["-c", "echo hello"]).run(true).unwrap();
        assert_eq!(finished.stdout, "hello\n");
        assert!(finished.wall_ns > 0 && finished.usage.peak_memory_kib > 0);
        let failed = Program::new("sh", ["-c", "echo no such thing >&2; exit 3"]).run(false).unwrap_err();
        assert_eq!(
            failed.to_string(),
            "`sh -c 'echo no such thing >&2; exit 3'` exited with 3: no such thing"
        );
        let missing = Program::new("no-such-program-here", ["x"]).run(false).unwrap_err();
        assert!(matches!(missing, LabError::Missing(_)), "{missing}");
    }
}
