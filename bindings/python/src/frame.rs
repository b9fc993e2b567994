// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frame for Python.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use framepath::format::Layout;
use framepath::{Frame, Rational};
use pyo3::exceptions::{PyIndexError, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::error::Error;
use crate::held::{HeldFrame, KeptSlots};
use crate::plane::PyPlane;
use crate::rgb::RgbConverter;

/// Part that the frames of one iterator or function share.
pub(crate) struct FrameSource {
    kept: Arc<KeptSlots>,
    /// Bytes of frames that were copied, because Python kept too many slots, or asked for a copy.
    pub(crate) copied_bytes: AtomicU64,
    /// Seconds per tick of the frames' times; `None` if it is not known.
    pub(crate) time_base: Option<Rational>,
    rgb: RgbConverter,
}

impl FrameSource {
    /// Makes the source of frames of a path that has the number `kept`.
    pub(crate) fn new(time_base: Option<Rational>, kept: &Arc<KeptSlots>) -> Arc<FrameSource> {
        let (kept, copied_bytes, rgb) = (kept.clone(), AtomicU64::new(0), RgbConverter::new());
        Arc::new(FrameSource { kept, copied_bytes, time_base, rgb })
    }
}

/// Frame. It keeps its memory until it and all its views are gone.
#[pyclass(frozen, name = "Frame", module = "framepath")]
pub struct PyFrame {
    held: Arc<HeldFrame>,
    source: Arc<FrameSource>,
}

impl PyFrame {
    /// Keeps a frame for Python.
    ///
    /// # Errors
    /// There is no memory for a copy.
    pub(crate) fn new(frame: Frame, source: &Arc<FrameSource>) -> PyResult<PyFrame> {
        let held = HeldFrame::new(frame, &source.kept, &source.copied_bytes);
        let held = held.map_err(|error| PyMemoryError::new_err(error.to_string()))?;
        Ok(PyFrame { held: Arc::new(held), source: source.clone() })
    }

    /// Returns another handle to the frame.
    pub(crate) fn share(&self) -> Frame {
        self.held.frame().share()
    }

    fn layout(&self) -> &Layout {
        self.held.frame().layout()
    }
}

/// Returns `numpy.asarray(object)`.
fn as_array<'py>(object: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    object.py().import("numpy")?.call_method1("asarray", (object,))
}

#[pymethods]
impl PyFrame {
    #[getter]
    fn width(&self) -> u32 {
        self.layout().width
    }

    #[getter]
    fn height(&self) -> u32 {
        self.layout().height
    }

    #[getter]
    fn format(&self) -> String {
        self.layout().format.name().to_lowercase()
    }

    #[getter]
    fn number(&self) -> u64 {
        self.held.frame().meta().seq
    }

    #[getter]
    fn pts(&self) -> Option<i64> {
        self.held.frame().meta().pts
    }

    #[getter]
    fn time(&self) -> Option<f64> {
        let seconds = self.source.time_base?.value()?;
        Some(self.pts()? as f64 * seconds)
    }

    #[getter]
    fn is_damaged(&self) -> bool {
        self.held.frame().meta().is_damaged
    }

    /// Planes as read-only arrays of numpy.
    #[getter]
    fn planes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let count = self.layout().planes().len();
        let planes = (0..count)
            .map(|index| as_array(Bound::new(py, PyPlane::new(self.held.clone(), index))?.into_any()));
        PyTuple::new(py, planes.collect::<PyResult<Vec<_>>>()?)
    }

    fn plane(&self, index: usize) -> PyResult<PyPlane> {
        let count = self.layout().planes().len();
        if index >= count {
            return Err(PyIndexError::new_err(format!("plane {index}: the frame has {count}")));
        }
        Ok(PyPlane::new(self.held.clone(), index))
    }

    /// Converts the frame to RGB: an array of numpy with rows, columns and three samples of 8 bits.
    fn rgb<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let converted = py.detach(|| self.source.rgb.convert(self.held.frame()));
        let (converted, bytes) = converted.map_err(Error::new_err)?;
        self.source.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
        // The array is the only view of this memory, so that the program may change it.
        let plane = PyPlane::writable(Arc::new(HeldFrame::apart(converted)));
        as_array(Bound::new(py, plane)?.into_any())
    }

    /// Samples of the only plane, as numpy asks for them.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.layout().planes().len() != 1 {
            return Err(Error::new_err(format!(
                "a frame of {} has several planes; use frame.planes or frame.rgb()",
                self.format()
            )));
        }
        let options = PyDict::new(py);
        options.set_item("dtype", dtype)?;
        if copy == Some(true) {
            options.set_item("copy", true)?;
        }
        let plane = Bound::new(py, PyPlane::new(self.held.clone(), 0))?;
        py.import("numpy")?.call_method("array", (plane,), Some(&options))
    }

    fn __repr__(&self) -> String {
        let time = self.time().map_or(String::new(), |time| format!(" at {time:.3} s"));
        let Layout { width, height, .. } = self.layout();
        format!("<framepath.Frame {}{time}: {width}x{height} {}>", self.number(), self.format())
    }
}
