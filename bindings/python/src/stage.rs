// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of Python as stages and sinks of a path.

use std::fmt;
use std::sync::Arc;

use framepath::{Frame, HopFailure, Item, Out, Stage, StageError, StreamInfo};
use pyo3::prelude::*;

use crate::frame::{FrameSource, PyFrame};

/// Exception that a function has raised.
#[derive(Debug)]
pub(crate) struct PythonError(PyErr);

impl PythonError {
    /// Returns the exception as it was raised.
    pub(crate) fn raised(&self, py: Python<'_>) -> PyErr {
        self.0.clone_ref(py)
    }
}

impl fmt::Display for PythonError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

impl std::error::Error for PythonError {}

/// Function of Python that gets each frame: a stage passes on the frame that it returns, and drops the frame for `None`; a sink ends the
/// run if it returns `False`.
pub(crate) struct Function {
    function: Py<PyAny>,
    is_sink: bool,
    source: Option<Arc<FrameSource>>,
}

impl Function {
    pub(crate) fn stage(function: Py<PyAny>) -> Function {
        Function { function, is_sink: false, source: None }
    }

    pub(crate) fn sink(function: Py<PyAny>) -> Function {
        Function { function, is_sink: true, source: None }
    }

    /// Calls the function. Returns the frame to pass on, and whether the sink takes more.
    fn call(&self, frame: Frame) -> Result<(Option<Frame>, bool), PyErr> {
        let source = self.source.as_ref();
        Python::attach(|py| {
            let source = source.map_or_else(|| FrameSource::new(None), Arc::clone);
            let frame = Bound::new(py, PyFrame::new(frame, &source)?)?;
            let returned = self.function.bind(py).call1((frame,))?;
            if self.is_sink {
                let ends = returned.extract::<bool>().is_ok_and(|goes_on| !goes_on);
                return Ok((None, !ends));
            }
            if returned.is_none() {
                return Ok((None, true));
            }
            let frame = returned.cast::<PyFrame>().map_err(|_| {
                pyo3::exceptions::PyTypeError::new_err(format!(
                    "a stage returns the frame that it got, or None to drop it; not {}",
                    returned.get_type()
                ))
            })?;
            Ok((Some(frame.get().share()), true))
        })
    }
}

impl Stage for Function {
    fn name(&self) -> &str {
        "python"
    }

    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.source = Some(FrameSource::new(Some(info.time_base)));
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        match self.call(frame) {
            Ok((Some(frame), _)) => out.push(Item::Frame(frame)),
            Ok((None, true)) => Ok(()),
            Ok((None, false)) => Err(out.enough()),
            Err(error) => Err(out.fail(StageError::Other(Box::new(PythonError(error))))),
        }
    }
}
