// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that may wait, which Ctrl-C ends: the opening of a path, and its run.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use framepath::{Level, Options, Pipeline, Stop};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{Error, exception};
use crate::frames::warn_of_losses;
use crate::report::PyReport;

/// Time between two looks at Python's signals.
const LOOK: Duration = Duration::from_millis(50);
/// Time that the opening of a file has to end after Ctrl-C. That of a named pipe without a writer never ends.
pub(crate) const OPENING: Duration = Duration::from_millis(500);

/// Returns the level of the ledger with this name.
pub(crate) fn level(name: &str) -> PyResult<Level> {
    match name {
        "off" => Ok(Level::Off),
        "times" => Ok(Level::Times),
        "full" => Ok(Level::Full),
        _ => Err(PyValueError::new_err(format!("ledger={name:?}: expected 'off', 'times' or 'full'"))),
    }
}

/// Calls a function that may wait in a thread of its own, because only the main thread sees Python's signals. After an exception of a
/// signal's handler, requests the stop that the function's thread has entered, and waits at most `patience` for its end; then the thread
/// goes on alone.
///
/// # Errors
/// A signal's handler has raised an exception; or the thread cannot be started or has panicked.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    stop: &Stop,
    patience: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, ended) = channel();
    let entered = stop.clone();
    let thread = thread::Builder::new().name("framepath".to_owned()).spawn(move || {
        let _entered = entered.enter();
        // Nobody receives it if the caller's patience has ended.
        let _ = sender.send(call());
    });
    let thread = thread.map_err(|error| Error::new_err(format!("start a thread: {error}")))?;
    // A receiver is for one thread at a time, and this one has it.
    let ended = Mutex::new(ended);
    let mut raised: Option<(PyErr, Instant)> = None;
    let result = loop {
        match py.detach(|| ended.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK)) {
            Ok(result) => break result,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::new_err("framepath has panicked, which is a bug"));
            }
            Err(RecvTimeoutError::Timeout) => match raised {
                None => {
                    raised = py.check_signals().err().map(|raised| (raised, Instant::now()));
                    if raised.is_some() {
                        stop.stop();
                    }
                }
                Some((raised, since)) if since.elapsed() > patience => return Err(raised),
                Some(_) => {}
            },
        }
    };
    py.detach(|| drop(thread.join()));
    raised.map_or(Ok(result), |(raised, _)| Err(raised))
}

/// Runs the pipeline to its end.
///
/// # Errors
/// The run has failed, or a signal's handler has raised an exception.
pub(crate) fn run(py: Python<'_>, pipeline: Pipeline, options: Options) -> PyResult<PyReport> {
    let stop = options.stop.clone();
    // Python's functions in the path must not outlive the call.
    let report = interruptible(py, &stop, Duration::MAX, move || pipeline.run(&options))?;
    let report = report.map_err(|error| exception(py, &error))?;
    if let Some(error) = &report.error {
        return Err(exception(py, error));
    }
    warn_of_losses(py, &report)?;
    Ok(PyReport::new(report))
}
