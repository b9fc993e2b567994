// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of framepath as exceptions.

use std::error::Error as StdError;
use std::io;

use framepath::{RunError, StageError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyFileNotFoundError, PyRuntimeWarning, PyValueError};
use pyo3::prelude::*;

use crate::stage::PythonError;

create_exception!(framepath, Error, PyException, "A path could not be started, or has failed.");
create_exception!(framepath, LossWarning, PyRuntimeWarning, "Frames were lost or damaged; the run went on.");
create_exception!(framepath, PathError, PyValueError, "The text of a path is not valid.");

/// Returns the error of an iterator, a run or a path as an exception: that of a function of the program as it was raised, a file that
/// is not there as `FileNotFoundError`, wrong text as `PathError`, and all others as `Error`.
pub(crate) fn exception(py: Python<'_>, error: &RunError) -> PyErr {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    let mut is_missing = false;
    if let RunError::Stage { error: StageError::Other(error), .. } = error {
        if let Some(raised) = error.downcast_ref::<PythonError>() {
            return raised.raised(py);
        }
    }
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            is_missing |= error.kind() == io::ErrorKind::NotFound;
        }
        cause = error.source();
    }
    // The text has those of the causes.
    let text = error.to_string();
    match error {
        RunError::Path(_) => PathError::new_err(text),
        _ if is_missing => PyFileNotFoundError::new_err(text),
        _ => Error::new_err(text),
    }
}
