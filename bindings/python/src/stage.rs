// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of Python as stages and sinks of a path.

use std::fmt;
use std::sync::Arc;

use framepath::format::PixelFormat;
use framepath::{Frame, HopFailure, Item, Out, Stage, StageError, StreamInfo};
use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyValueError};
use pyo3::prelude::*;

use crate::frame::{FrameSource, PyFrame};
use crate::held::KeptSlots;
use crate::new_frame::{FrameMaker, NewFrame};

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

/// Function of Python that gets each frame: a stage passes on the frame that it returns, or a new one whose planes it returns, and drops
/// the frame for `None`; a sink ends the run if it returns `False`.
pub(crate) struct Function {
    function: Py<PyAny>,
    /// `None` for a sink.
    maker: Option<FrameMaker>,
    /// Slots that Python keeps of all frames of the path.
    kept: Arc<KeptSlots>,
    /// `None` before the start.
    source: Option<Arc<FrameSource>>,
}

/// Meaning of what a function has returned.
enum Returned {
    Frame(Frame),
    New(Box<NewFrame>),
    /// No frame, and the function takes further ones.
    Nothing,
    /// No frame, and the function takes no more.
    Enough,
}

impl Function {
    /// Makes a stage whose new frames have `format`, or with `None` that of each incoming frame.
    pub(crate) fn stage(function: Py<PyAny>, format: Option<PixelFormat>, kept: &Arc<KeptSlots>) -> Function {
        Function { function, maker: Some(FrameMaker::new(format)), kept: kept.clone(), source: None }
    }

    pub(crate) fn sink(function: Py<PyAny>, kept: &Arc<KeptSlots>) -> Function {
        Function { function, maker: None, kept: kept.clone(), source: None }
    }

    /// Calls the function, and reads what it returns.
    fn call(&self, frame: Frame) -> PyResult<Returned> {
        let (layout, meta) = (*frame.layout(), frame.meta());
        Python::attach(|py| {
            let source = self.source.as_ref();
            let source = source.map_or_else(|| FrameSource::new(None, &self.kept), Arc::clone);
            let frame = Bound::new(py, PyFrame::new(frame, &source)?)?;
            // An iterator would end silently.
            let returned = self.function.bind(py).call1((frame,)).map_err(|raised| no_stop(py, raised))?;
            let Some(maker) = &self.maker else {
                let ends = returned.extract::<bool>().is_ok_and(|goes_on| !goes_on);
                return Ok(if ends { Returned::Enough } else { Returned::Nothing });
            };
            if returned.is_none() {
                return Ok(Returned::Nothing);
            }
            let Ok(frame) = returned.cast::<PyFrame>() else {
                return Ok(Returned::New(Box::new(maker.read(&returned, &layout, meta)?)));
            };
            let frame = frame.get().share();
            let got = frame.layout().format;
            match maker.format() {
                // The hops behind were started for this format.
                Some(format) if format != got => Err(PyValueError::new_err(format!(
                    "the stage has format={:?}, and returned a frame of {:?}; return an array, such as frame.rgb()",
                    format.name().to_lowercase(),
                    got.name().to_lowercase()
                ))),
                _ => Ok(Returned::Frame(frame)),
            }
        })
    }
}

/// Returns what a function has raised; `RuntimeError` for `StopIteration`, as generators do (PEP 479).
fn no_stop(py: Python<'_>, raised: PyErr) -> PyErr {
    if !raised.is_instance_of::<PyStopIteration>(py) {
        return raised;
    }
    let error = PyRuntimeError::new_err("a function of the path raised StopIteration");
    error.set_cause(py, Some(raised));
    error
}

impl Stage for Function {
    fn name(&self) -> &str {
        "python"
    }

    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.source = Some(FrameSource::new(Some(info.time_base), &self.kept));
        let named = self.maker.as_ref().and_then(FrameMaker::format);
        Ok(StreamInfo { format: named.or(info.format), ..*info })
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        let returned = self.call(frame);
        let returned = returned.map_err(|error| out.fail(StageError::Other(Box::new(PythonError(error)))))?;
        let frame = match (returned, &mut self.maker) {
            (Returned::Frame(frame), _) => frame,
            (Returned::New(new), Some(maker)) => maker.make(*new).map_err(|error| out.fail(error))?,
            // Only a stage returns a new frame.
            (Returned::Nothing | Returned::New(_), _) => return Ok(()),
            (Returned::Enough, _) => return Err(out.enough()),
        };
        out.push(Item::Frame(frame))
    }
}
