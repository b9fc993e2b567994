// SPDX-License-Identifier: MIT OR Apache-2.0
//! End of the program: an exit code, and at most one line with the reason.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use framepath_model::shown::{shown, shown_lines};
use framepath_os::process::cancel;
use framepath_os::process::signal;

use crate::terminal;

/// Exit code of a run that lost something.
const LOST: u8 = 3;
// The lab distinguishes a loss from a failure by this code.
#[cfg(feature = "lab")]
const _: () = assert!(LOST == framepath_lab::LOST);
/// Exit code after SIGINT or SIGTERM.
const INTERRUPTED: u8 = 130;

/// A command that ran to its end, whatever it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Exit code 0.
    Done,
    /// The command found a failure or a difference, and has reported it. Exit code 1.
    Failed,
    /// Packets or frames were lost, and a line reported them. Exit code 3.
    Lost,
    /// SIGINT or SIGTERM; the results until then were shown. Exit code 130.
    Interrupted,
}

/// Invalid arguments. Exit code 2.
#[derive(Debug)]
pub(crate) struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for UsageError {}

/// The reader of standard output is gone, so no message is possible there.
#[derive(Debug)]
pub(crate) struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl Error for OutputClosed {}

/// Returns the exit code of `command`; prints a line on standard error if it failed.
pub(crate) fn code(command: &str, outcome: anyhow::Result<ExitStatus>) -> ExitCode {
    match outcome {
        Ok(ExitStatus::Done) => ExitCode::SUCCESS,
        Ok(ExitStatus::Failed) => ExitCode::FAILURE,
        Ok(ExitStatus::Lost) => ExitCode::from(LOST),
        Ok(ExitStatus::Interrupted) => ExitCode::from(INTERRUPTED),
        // A failure caused by a signal is no failure.
        Err(error) if signal::interrupted() && is_canceled(&error) => ExitCode::from(INTERRUPTED),
        Err(error) if error.is::<OutputClosed>() => ExitCode::FAILURE,
        Err(error) => {
            print_error(command, &error);
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}

/// Returns true if `error` is a wait that was given up because of a signal.
fn is_canceled(error: &anyhow::Error) -> bool {
    let canceled = |cause: &(dyn Error + 'static)| cause.downcast_ref().is_some_and(cancel::is_canceled);
    error.chain().any(canceled)
}

/// Prints `error` as `framepath: COMMAND: cause: cause` on standard error.
pub(crate) fn print_error(command: &str, error: &anyhow::Error) {
    // A usage error shows the wrong words, on lines of their own.
    let line = one_line(error);
    let line = if error.is::<UsageError>() { shown_lines(&line) } else { shown(&line) };
    terminal::note(&format!("framepath: {command}: {line}"));
}

/// Formats the chain of causes. Leaves out a cause whose words are already there: errors
/// of the libraries name their cause themselves.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Ends after arguments that could not be parsed, or after `--help`.
pub(crate) fn from_usage_error(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // It contains the given words, which may be names of files.
        terminal::note(shown_lines(&error.render().to_string()).trim_end());
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    // Help goes to standard output, where a closed pipe is a failure.
    let code = if error.print().is_ok() { error.exit_code() } else { 1 };
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_chain_is_one_line_without_echoes() {
        let inner = io::Error::other("disk is full");
        let error = anyhow::Error::new(inner).context("writing `a.csv`");
        assert_eq!(one_line(&error), "writing `a.csv`: disk is full");
        let echoed = anyhow::anyhow!("disk is full").context("a.csv: disk is full");
        assert_eq!(one_line(&echoed), "a.csv: disk is full");
    }
}
