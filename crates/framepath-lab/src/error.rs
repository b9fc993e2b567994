// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the lab.

use std::io;

use framepath::{PathError, RunError};

/// Reason why an experiment stopped.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// This machine cannot run a contender, or a player gave no figures. The other contenders
    /// continue.
    #[error("{0}")]
    Missing(String),
    /// A path did not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A path is invalid.
    #[error("{0}")]
    Path(#[from] PathError),
    /// A program failed.
    #[error("`{command}` {outcome}{}", detail(stderr))]
    Command {
        /// The command.
        command: String,
        /// Text such as `exited with 1`, `was killed by signal 9`.
        outcome: String,
        /// Exit code of the program; `None` if a signal ended it.
        exit_code: Option<i32>,
        /// Last lines of the program's standard error.
        stderr: String,
    },
    /// A system call or a file failed.
    #[error("{what}: {error}")]
    Io {
        /// The operation and its object.
        what: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// Any other failure, with its description: an unknown name, an unreadable clip, unexpected
    /// output or a panic.
    #[error("{0}")]
    Unknown(String),
    /// A path lost packets or frames, so its figures are invalid.
    #[error("{0}")]
    Lost(String),
    /// SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}

impl LabError {
    /// Returns a closure that makes an I/O error of operation `what`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let what = what.into();
        move |error| LabError::Io { what, error }
    }
}

fn detail(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}
