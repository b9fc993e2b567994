// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a stream: a program that sends or receives.

use std::fs;
use std::process::{Command, Stdio};

use framepath_os::process::{children, running};

use super::contender::{failed, missing_program};
use crate::descendants::descendants;
use crate::display::Display;
use crate::error::LabError;
use crate::own_child::OwnChild;
use crate::process::ProgramOutput;

/// A running program. It ends when this value is dropped.
pub(super) struct StreamEnd {
    child: OwnChild,
    output: ProgramOutput,
}

impl StreamEnd {
    /// Starts the program `words` with the X display `screen`.
    ///
    /// # Errors
    /// [`LabError::Missing`] if it is not installed; [`LabError::Io`].
    pub(super) fn start(words: &[String], screen: &Display) -> Result<StreamEnd, LabError> {
        let [program, arguments @ ..] = words else {
            return Err(LabError::Unknown("a contender without a command".to_owned()));
        };
        let output = ProgramOutput::new()?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(output.to_stdio()?).stderr(output.to_stdio()?);
        screen.offer(&mut command);
        let child = children::on_a_lead(&mut command).spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => missing_program(program),
            _ => LabError::Io { what: format!("starting {program}"), error },
        })?;
        Ok(StreamEnd { child: OwnChild::new(child), output })
    }

    /// Returns the id of the process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPU time of the program and of its child processes, nanoseconds.
    ///
    /// # Errors
    /// The program has ended; the error is one of the contender `name`.
    pub(super) fn cpu_ns(&mut self, name: &str) -> Result<u64, LabError> {
        let cpu_ns = |pid| running::of(pid).ok().map(|used| used.cpu_ns);
        self.sum(name, cpu_ns)
    }

    /// Returns the resident memory of the program and of its child processes, KiB.
    ///
    /// # Errors
    /// As [`cpu_ns`](StreamEnd::cpu_ns).
    pub(super) fn memory_kib(&mut self, name: &str) -> Result<u64, LabError> {
        self.sum(name, |pid| resident_kib(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?))
    }

    /// Adds the figures of the program and of its child processes.
    fn sum(&mut self, name: &str, figure: impl Fn(u32) -> Option<u64>) -> Result<u64, LabError> {
        let id = self.child.id();
        let Some(own) = figure(id) else {
            return Err(failed(name, &format!("a program has ended{}", self.said())));
        };
        // A child that has just ended has no figure.
        Ok(own + descendants(id).into_iter().filter_map(|child| figure(child.pid())).sum::<u64>())
    }

    /// Returns what the program has written, as the end of an error's text.
    pub(super) fn said(&mut self) -> String {
        let text = self.output.text();
        let text = text.trim();
        if text.is_empty() { String::new() } else { format!("; {text}") }
    }

    /// Ends the program as Ctrl-C does.
    ///
    /// # Errors
    /// As [`OwnChild::interrupt`]: the program has ended by itself.
    pub(super) fn end(self) -> Result<(), LabError> {
        self.child.interrupt().map(|_| ())
    }
}

/// Reads the resident memory, KiB, from the text of a process's status file in /proc, proc_pid_status(5).
fn resident_kib(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_the_resident_one() {
        assert_eq!(resident_kib("VmHWM:\t  900 kB\nVmRSS:\t  812 kB\n"), Some(812));
        assert_eq!(resident_kib("Name:\tkthreadd\n"), None);
    }
}
