// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the lab.

use std::io;

use framepath::{PathError, RunError};

/// Failure of an experiment, of a comparison, or of one of their contenders.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// This machine cannot run a contender, or the contender gave no usable figures; the text is the
    /// reason. An experiment that gets this error from a contender skips the contender and continues.
    #[error("{0}")]
    Missing(String),
    /// A path that runs in the lab's own process could not start, or failed while it ran.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The text of a path is invalid.
    #[error("{0}")]
    Path(#[from] PathError),
    /// A contender failed: a program did not exit with 0, the output or the frames of a program
    /// or path are wrong, or a device failed.
    #[error("`{command}` {outcome}{}", detail(stderr))]
    Command {
        /// The command as a user would type it, or the contender's name.
        command: String,
        /// The failure, as the rest of the sentence: `exited with 1`, `was killed by signal 9`.
        outcome: String,
        /// Exit code of the program; `None` if a signal ended the program, or if the error is not
        /// about its exit.
        exit_code: Option<i32>,
        /// Details: the last lines of the program's standard error, a library's error, or a description of
        /// wrong frames. May be empty.
        stderr: String,
    },
    /// A system call or an operation on a file failed, or a program could not be started although it exists.
    #[error("{what}: {error}")]
    Io {
        /// The operation and its object, such as `starting NAME`.
        what: String,
        /// Error that the system returned for the operation.
        #[source]
        error: io::Error,
    },
    /// Any other failure, with its description, such as an unknown name, an unreadable clip, unexpected
    /// output or a panic.
    #[error("{0}")]
    Unknown(String),
    /// A path lost packets or frames, so its figures are invalid.
    #[error("{0}")]
    Lost(String),
    /// SIGINT or SIGTERM stopped the experiment, the comparison or the contender's run before its end.
    #[error("interrupted")]
    Interrupted,
}

impl LabError {
    /// Returns a closure that converts an I/O error to [`LabError::Io`]; `what` names the
    /// operation and its object.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let what = what.into();
        move |error| LabError::Io { what, error }
    }
}

fn detail(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}
