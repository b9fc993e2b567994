// SPDX-License-Identifier: MIT OR Apache-2.0
//! Run of a path to its end, which Ctrl-C ends.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use framepath::{Level, Options, Pipeline};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{Error, exception};
use crate::frames::warn_of_losses;
use crate::report::PyReport;

/// Time between two looks at Python's signals.
const LOOK: Duration = Duration::from_millis(50);

/// Returns the level of the ledger with this name.
pub(crate) fn level(name: &str) -> PyResult<Level> {
    match name {
        "off" => Ok(Level::Off),
        "times" => Ok(Level::Times),
        "full" => Ok(Level::Full),
        _ => Err(PyValueError::new_err(format!("ledger={name:?}: expected 'off', 'times' or 'full'"))),
    }
}

/// Runs the pipeline in a thread of its own, because only the main thread sees Python's signals.
///
/// # Errors
/// The run has failed, or a signal's handler has raised an exception.
pub(crate) fn run(py: Python<'_>, pipeline: Pipeline, options: Options) -> PyResult<PyReport> {
    let stop = options.stop.clone();
    let (sender, ended) = channel();
    let thread = thread::Builder::new().name("framepath".to_owned()).spawn(move || {
        // The receiver waits for it.
        let _ = sender.send(pipeline.run(&options));
    });
    let thread = thread.map_err(|error| Error::new_err(format!("start a thread: {error}")))?;
    // A receiver is for one thread at a time, and this one has it.
    let ended = Mutex::new(ended);
    let mut raised = None;
    let report = loop {
        match py.detach(|| ended.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK)) {
            Ok(report) => break report,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::new_err("the run has ended in a panic, which is a bug"));
            }
            Err(RecvTimeoutError::Timeout) if raised.is_none() => {
                raised = py.check_signals().err();
                if raised.is_some() {
                    stop.stop();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    py.detach(|| drop(thread.join()));
    if let Some(raised) = raised {
        return Err(raised);
    }
    let report = report.map_err(|error| exception(py, &error))?;
    if let Some(error) = &report.error {
        return Err(exception(py, error));
    }
    warn_of_losses(py, &report)?;
    Ok(PyReport::new(report))
}
