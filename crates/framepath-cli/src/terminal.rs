// SPDX-License-Identifier: MIT OR Apache-2.0
//! Printing on standard output and standard error. After SIGINT or SIGTERM, a write that waits for a slow
//! reader fails when the grace period of 0.4 s is over.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;
use framepath_model::shown::shown_lines;
use framepath_os::process::cancel::StoppableWriter;
use framepath_os::process::standard_output;

use crate::exit_status::OutputClosed;

/// Destination of the text that a command prints for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTarget {
    /// Standard output.
    Output,
    /// Standard error, for a command whose standard output carries data.
    Error,
}

impl TextTarget {
    /// Chooses standard error if standard output carries data, else standard output.
    pub(crate) fn beside_data(data_on_output: bool) -> TextTarget {
        if data_on_output { TextTarget::Error } else { TextTarget::Output }
    }

    /// Prints `text`, which may have several lines and tabs. Escapes all other control characters,
    /// because they would change the terminal's state.
    ///
    /// # Errors
    /// The write failed, or a signal ended its wait for the reader (ECANCELED); [`OutputClosed`] if the
    /// reader of standard output is gone.
    pub(crate) fn print(self, text: &str) -> anyhow::Result<()> {
        let text = shown_lines(text);
        match self {
            TextTarget::Output => print(text.as_bytes()),
            TextTarget::Error => {
                StoppableWriter::new(io::stderr().lock()).write_all(text.as_bytes()).context("standard error")
            }
        }
    }
}

/// Writes all of `bytes` to standard output.
///
/// # Errors
/// [`OutputClosed`] if the reader has closed standard output; otherwise the system's error, which is
/// ECANCELED if a signal ended the wait for the reader.
pub(crate) fn print(bytes: &[u8]) -> anyhow::Result<()> {
    standard_output::check().context("standard output")?;
    match StoppableWriter::new(io::stdout().lock()).write_all(bytes) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        outcome => outcome.context("standard output"),
    }
}

/// Prints `line` and a line end on standard error. Escapes control characters, except line feeds and
/// tabs. Ignores errors, because there is no other place to report them.
pub(crate) fn note(line: &str) {
    let line = format!("{}\n", shown_lines(line));
    let _ = StoppableWriter::new(io::stderr().lock()).write_all(line.as_bytes());
}
