// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output and standard error.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;
use framepath_model::shown::shown_lines;
use framepath_os::process::cancel::Writer;

use crate::exit_status::Closed;

/// Destination of a command's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    /// Standard output.
    Output,
    /// Standard error, because standard output carries data.
    Error,
}

impl Screen {
    /// Returns standard error if standard output carries data.
    pub(crate) fn beside_data(data_on_output: bool) -> Screen {
        if data_on_output { Screen::Error } else { Screen::Output }
    }

    /// Prints all of `text`, or fails. Escapes characters that would act on a terminal.
    pub(crate) fn print(self, text: &str) -> anyhow::Result<()> {
        let text = shown_lines(text);
        match self {
            Screen::Output => print(text.as_bytes()),
            Screen::Error => {
                Writer::new(io::stderr().lock()).write_all(text.as_bytes()).context("standard error")
            }
        }
    }
}

/// Writes `bytes` to standard output.
///
/// # Errors
/// [`Closed`] if its reader has gone, otherwise the system's error.
pub(crate) fn print(bytes: &[u8]) -> anyhow::Result<()> {
    match Writer::new(io::stdout().lock()).write_all(bytes) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Closed.into()),
        outcome => outcome.context("standard output"),
    }
}

/// Prints a line on standard error. Ignores errors, because there is no other place to report them.
pub(crate) fn note(line: &str) {
    let line = format!("{}\n", shown_lines(line));
    let _ = Writer::new(io::stderr().lock()).write_all(line.as_bytes());
}
