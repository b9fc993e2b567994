// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path that is built from text and functions of Python.

use std::sync::{Arc, Mutex, PoisonError};

use framepath::format::PixelFormat;
use framepath::{Options, Pipeline, RunError, Stop};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::error::{Error, exception};
use crate::frames::PyFrames;
use crate::held::KeptSlots;
use crate::report::PyReport;
use crate::run::{OPENING, interruptible, level, run};
use crate::stage::Function;

/// Path that is ready to run once.
#[pyclass(frozen, name = "Path", module = "framepath")]
pub struct PyPath {
    /// `None` once the path runs.
    pipeline: Mutex<Option<Pipeline>>,
    text: Mutex<String>,
    kept: Arc<KeptSlots>,
}

impl PyPath {
    fn take(&self) -> PyResult<Pipeline> {
        let mut pipeline = self.pipeline.lock().unwrap_or_else(PoisonError::into_inner);
        pipeline.take().ok_or_else(|| Error::new_err("a path runs once; make another one"))
    }

    /// Changes the pipeline by `change`, and notes the part's text.
    fn change(&self, part: &str, change: impl FnOnce(Pipeline) -> PyResult<Pipeline>) -> PyResult<()> {
        let changed = change(self.take()?)?;
        *self.pipeline.lock().unwrap_or_else(PoisonError::into_inner) = Some(changed);
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str(" ! ");
        text.push_str(part);
        Ok(())
    }
}

/// Calls a function that opens files or starts processes, and may wait for either; Ctrl-C and `stop` end the wait.
fn opened<T: Send + 'static>(
    py: Python<'_>,
    stop: Stop,
    open: impl FnOnce() -> Result<T, RunError> + Send + 'static,
) -> PyResult<T> {
    interruptible(py, &stop, OPENING, open)?.map_err(|error| exception(py, &error))
}

fn check_callable(function: &Bound<'_, PyAny>) -> PyResult<()> {
    match function.is_callable() {
        true => Ok(()),
        false => Err(PyTypeError::new_err("expected a function that takes a frame")),
    }
}

/// Returns the pixel format with this name.
fn pixel_format(name: &str) -> PyResult<PixelFormat> {
    name.parse().map_err(|_| {
        let known = PixelFormat::ALL.map(|format| format.name().to_lowercase()).join(", ");
        PyValueError::new_err(format!("format={name:?}: no such pixel format; known: {known}"))
    })
}

#[pymethods]
impl PyPath {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<PyPath> {
        let parsed = text.to_owned();
        let pipeline = opened(py, Stop::new(), move || Pipeline::parse(&parsed))?;
        Ok(PyPath {
            pipeline: Mutex::new(Some(pipeline)),
            text: Mutex::new(text.to_owned()),
            kept: Arc::default(),
        })
    }

    /// Adds hops of path text behind the last hop.
    fn append(slf: Py<Self>, py: Python<'_>, text: &str) -> PyResult<Py<Self>> {
        let added = text.to_owned();
        slf.get().change(text, |pipeline| opened(py, Stop::new(), move || pipeline.append(&added)))?;
        Ok(slf)
    }

    /// Adds a function that gets each frame, and returns it, the planes of a new one, or `None` to drop it.
    #[pyo3(signature = (function, *, format=None))]
    fn stage(slf: Py<Self>, function: Bound<'_, PyAny>, format: Option<&str>) -> PyResult<Py<Self>> {
        check_callable(&function)?;
        let format = format.map(pixel_format).transpose()?;
        let function = Function::stage(function.unbind(), format, &slf.get().kept);
        let text = format
            .map_or("python".to_owned(), |format| format!("python format={}", format.name().to_lowercase()));
        slf.get().change(&text, |pipeline| Ok(pipeline.stage(function)))?;
        Ok(slf)
    }

    /// Ends the path in a function that gets each frame, and may return `False` to end the run.
    fn sink(slf: Py<Self>, function: Bound<'_, PyAny>) -> PyResult<Py<Self>> {
        check_callable(&function)?;
        let function = Function::sink(function.unbind(), &slf.get().kept);
        slf.get().change("python", |pipeline| Ok(pipeline.sink(function)))?;
        Ok(slf)
    }

    /// Starts the path, and returns its frames.
    #[pyo3(signature = (*, ledger="full"))]
    fn frames(&self, py: Python<'_>, ledger: &str) -> PyResult<PyFrames> {
        let options = Options { level: level(ledger)?, ..Options::default() };
        let pipeline = self.take()?;
        let frames = opened(py, options.stop.clone(), move || pipeline.frames_with(options))?;
        Ok(PyFrames::new(frames, &self.kept))
    }

    /// Runs the path to its end, and returns the report.
    #[pyo3(signature = (*, frames=None, ledger="full"))]
    fn run(&self, py: Python<'_>, frames: Option<u64>, ledger: &str) -> PyResult<PyReport> {
        if frames == Some(0) {
            return Err(PyValueError::new_err("frames=0: expected at least 1"));
        }
        let options = Options { level: level(ledger)?, frames, ..Options::default() };
        run(py, self.take()?, options)
    }

    fn __repr__(&self) -> String {
        format!("<framepath.Path {}>", self.text.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
