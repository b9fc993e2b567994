// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output and standard error.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

use crate::ending::Closed;

/// Where a command's text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    /// Standard output.
    Output,
    /// Standard error, because standard output carries data.
    Error,
}

impl Screen {
    /// Standard error if standard output carries data.
    pub(crate) fn beside_data(data_on_output: bool) -> Screen {
        if data_on_output { Screen::Error } else { Screen::Output }
    }

    /// Prints `text` as it is, all of it or an error.
    pub(crate) fn print(self, text: &str) -> anyhow::Result<()> {
        match self {
            Screen::Output => print(text.as_bytes()),
            Screen::Error => {
                let mut stderr = io::stderr().lock();
                stderr.write_all(text.as_bytes()).context("standard error")
            }
        }
    }
}

/// Writes `bytes` to standard output.
///
/// # Errors
/// [`Closed`] where its reader has gone, the system's words otherwise.
pub(crate) fn print(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Closed.into()),
        outcome => outcome.context("standard output"),
    }
}

/// A line on standard error. Where even that is closed nobody can be told.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
