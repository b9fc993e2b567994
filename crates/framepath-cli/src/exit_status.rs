// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit code of the program, and the message on standard error with the reason.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use framepath_model::path::nearest;
use framepath_model::shown::{shown, shown_lines};
use framepath_os::process::cancel;
use framepath_os::process::signal;
use framepath_os::process::standard_output;

use crate::terminal;

/// Exit code of `run`, `lab` and `compare` if a path lost packets or frames, and of `run --strict` if the
/// stream is damaged.
const LOST: u8 = 3;
// The lab distinguishes a loss from a failure by this code.
#[cfg(feature = "lab")]
const _: () = assert!(LOST == framepath_lab::LOST);
/// Exit code of `gate --strict` if no budget fails, but at least one is inconclusive.
#[cfg(feature = "lab")]
const INCONCLUSIVE: u8 = 4;
/// Exit code of a command whose work SIGINT, SIGTERM or Ctrl-C has cut short.
const INTERRUPTED: u8 = 130;

/// Result of a command that returned no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// The command succeeded. Exit code 0.
    Done,
    /// The command has reported a failure or a difference. Exit code 1.
    Failed,
    /// `run`, `lab` or `compare` has reported lost packets or frames, or `run --strict` a damaged stream. Exit
    /// code 3.
    Lost,
    /// `gate --strict` has reported a figure that may be within or beyond its limit, and no failure.
    /// Exit code 4.
    #[cfg(feature = "lab")]
    Inconclusive,
    /// `trace` has run a command that ended with this exit code, which is not 0, or 128 and the number of the signal
    /// that ended it.
    OfCommand(u8),
    /// SIGINT, SIGTERM or Ctrl-C ended the command. The commands that collect results over time (`run`,
    /// `lab`, `meta`, `fixture`, `trace`) have shown the results up to the signal; `compare`, `asked` and `handoff`
    /// show none. Exit code 130.
    Interrupted,
}

/// Error of an invalid argument, environment variable or budget file, and of a file that `diff` cannot read,
/// compare or write, as text. Exit code 2.
#[derive(Debug)]
pub(crate) struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for UsageError {}

/// Error of a write to standard output whose reader is gone. The program ends without a message. Exit
/// code 1.
#[derive(Debug)]
pub(crate) struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl Error for OutputClosed {}

/// Returns the exit code for the result of the command named `command`. Prints an error on standard
/// error, except an interruption and a closed standard output.
pub(crate) fn code(command: &str, outcome: anyhow::Result<ExitStatus>) -> ExitCode {
    match outcome {
        Ok(ExitStatus::Done) => ExitCode::SUCCESS,
        Ok(ExitStatus::Failed) => ExitCode::FAILURE,
        Ok(ExitStatus::Lost) => ExitCode::from(LOST),
        #[cfg(feature = "lab")]
        Ok(ExitStatus::Inconclusive) => ExitCode::from(INCONCLUSIVE),
        Ok(ExitStatus::OfCommand(code)) => ExitCode::from(code),
        Ok(ExitStatus::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(error) => {
            print_failure(command, &error);
            match error {
                _ if is_interruption(&error) => ExitCode::from(INTERRUPTED),
                _ if error.is::<UsageError>() => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Prints `error` as [`print_error`] does, except an interruption and a closed standard output.
pub(crate) fn print_failure(command: &str, error: &anyhow::Error) {
    if !is_interruption(error) && !error.is::<OutputClosed>() {
        print_error(command, error);
    }
}

/// Returns true if a signal ended a wait, so that `error` is an interruption and not a failure.
fn is_interruption(error: &anyhow::Error) -> bool {
    signal::interrupted() && is_canceled(error)
}

/// Returns true if `error` or one of its causes is a wait that was canceled.
fn is_canceled(error: &anyhow::Error) -> bool {
    let canceled = |cause: &(dyn Error + 'static)| cause.downcast_ref().is_some_and(cancel::is_canceled);
    error.chain().any(canceled)
}

/// Prints `error` as `framepath: COMMAND: error: cause` on standard error, with control characters
/// escaped. A usage error keeps its line breaks and tabs; they are escaped in other errors.
pub(crate) fn print_error(command: &str, error: &anyhow::Error) {
    // A usage error may have several lines: the arguments, and a mark below the wrong word.
    let line = with_remedy(one_line(error));
    let line = if error.is::<UsageError>() { shown_lines(&line) } else { shown(&line) };
    terminal::note(&format!("framepath: {command}: {line}"));
}

/// Adds a remedy to `line` if it names EAGAIN, by which the system says that no process or thread can be started. The
/// text counts, because it may come from another process. No call that could block returns this error here.
fn with_remedy(line: String) -> String {
    // Libraries write the text without the number.
    match line.contains("Resource temporarily unavailable") {
        true => format!(
            "{line}; this user or cgroup has too many processes and threads: end some, or raise `ulimit -u` or pids.max"
        ),
        false => line,
    }
}

/// Joins the texts of `error` and its causes with `: `; line breaks in their texts remain. Omits a cause
/// whose text the line already contains, because many errors of libraries include the text of the cause.
/// Also omits a cause if the line ends with the cause's text after its first or second `: `, because such
/// a cause differs only in the name in front: `a b: gone` after `file 'a b': gone`.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        let shorter = cause.match_indices(": ").map(|(at, _)| &cause[at + 2..]).take(2);
        if !line.contains(&cause) && !shorter.into_iter().any(|rest| line.ends_with(rest)) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Prints the outcome of command-line parsing if no command is to run: the requested help or version on
/// standard output, or a usage error on standard error; without any command, the help on standard error.
/// Returns the exit code: 0 for requested help and version, 1 if standard output cannot be written, 2
/// otherwise.
pub(crate) fn from_usage_error(error: &clap::Error) -> ExitCode {
    if let Some(text) = unknown_command(error) {
        terminal::note(&shown_lines(&text));
        return ExitCode::from(2);
    }
    if error.use_stderr() {
        // The error repeats the arguments, which may be file names with control characters.
        terminal::note(shown_lines(&error.render().to_string()).trim_end());
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    // The help goes to standard output; a closed pipe there is a failure.
    if let Err(closed) = standard_output::check() {
        terminal::note(&format!("framepath: standard output: {closed}"));
        return ExitCode::FAILURE;
    }
    let code = if error.print().is_ok() { error.exit_code() } else { 1 };
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}

/// Formats the error of an unknown command: the word, the nearest command if one is similar, and all
/// commands that are not hidden. Replaces clap's own text, which suggests no command for a short word such
/// as `rn`. Returns `None` for another error.
fn unknown_command(error: &clap::Error) -> Option<String> {
    if error.kind() != clap::error::ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let arguments = crate::arguments();
    let names: Vec<&str> =
        arguments.get_subcommands().filter(|one| !one.is_hide_set()).map(|one| one.get_name()).collect();
    let guess = nearest(word, names.iter().copied())
        .map_or_else(String::new, |name| format!("; did you mean `framepath {name}`?"));
    Some(format!(
        "framepath: no command `{word}`{guess}\nthe commands are {}; see `framepath --help`",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn an_error_chain_is_one_line_without_repetitions() {
        let inner = io::Error::other("disk is full");
        let error = anyhow::Error::new(inner).context("writing `a.csv`");
        assert_eq!(one_line(&error), "writing `a.csv`: disk is full");
        let echoed = anyhow::anyhow!("disk is full").context("a.csv: disk is full");
        assert_eq!(one_line(&echoed), "a.csv: disk is full");
        let named = anyhow::anyhow!("a b: cannot open: gone").context("file 'a b': cannot open: gone");
        assert_eq!(one_line(&named), "file 'a b': cannot open: gone");
        assert_eq!(with_remedy("decode: gone".to_owned()), "decode: gone");
        let lack = with_remedy(io::Error::from_raw_os_error(11).to_string());
        assert!(lack.ends_with("raise `ulimit -u` or pids.max"), "{lack}");
    }
}
