// SPDX-License-Identifier: MIT OR Apache-2.0
//! One plane of a frame, whose memory Python's buffer protocol and DLPack show without a copy.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::ArrayShape;
use crate::dlpack;
use crate::held::HeldFrame;

const BYTES: &CStr = c"B";
const WORDS: &CStr = c"H";

/// Plane of a frame. Its views keep the frame's memory; those of a decoded frame are read-only.
#[pyclass(frozen, name = "Plane", module = "framepath")]
pub struct PyPlane {
    held: Arc<HeldFrame>,
    index: usize,
    shape: ArrayShape,
    /// True if nothing but the views reads the memory.
    is_writable: bool,
}

impl PyPlane {
    pub(crate) fn new(held: Arc<HeldFrame>, index: usize) -> PyPlane {
        let shape = ArrayShape::of(held.frame().layout(), index);
        PyPlane { held, index, shape, is_writable: false }
    }

    /// Returns the first plane of a frame that nobody else reads, so that its views may change it.
    pub(crate) fn writable(held: Arc<HeldFrame>) -> PyPlane {
        PyPlane { is_writable: true, ..PyPlane::new(held, 0) }
    }

    pub(crate) fn held(&self) -> &Arc<HeldFrame> {
        &self.held
    }

    pub(crate) fn array(&self) -> &ArrayShape {
        &self.shape
    }

    /// Returns the address of the first sample.
    pub(crate) fn first(&self) -> *const u8 {
        self.held.frame().plane(self.index).as_ptr()
    }
}

#[pymethods]
impl PyPlane {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape.shape())
    }

    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape.strides())
    }

    /// Shows the memory (`memoryview(plane)`, `numpy.asarray(plane)`).
    ///
    /// # Safety
    /// Python calls it, with a `view` to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: Python passes a buffer to fill, or null where it wants an error.
        let Some(view) = (unsafe { view.as_mut() }) else {
            return Err(PyBufferError::new_err("no buffer to fill"));
        };
        view.obj = std::ptr::null_mut();
        let plane = slf.get();
        let shape = &plane.shape;
        if !plane.is_writable && flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("a frame is read-only; copy it to change it"));
        }
        let wants_strides = flags & ffi::PyBUF_STRIDES == ffi::PyBUF_STRIDES;
        let needs_c = flags & ffi::PyBUF_C_CONTIGUOUS == ffi::PyBUF_C_CONTIGUOUS;
        let needs_f = flags & ffi::PyBUF_F_CONTIGUOUS == ffi::PyBUF_F_CONTIGUOUS;
        if (!wants_strides || needs_c) && !shape.is_contiguous() || needs_f {
            return Err(PyBufferError::new_err(
                "the rows of this plane have padding between them; ask for strides",
            ));
        }
        let format = if shape.sample == 2 { WORDS } else { BYTES };
        view.buf = plane.first().cast_mut().cast::<c_void>();
        view.len = shape.bytes();
        view.readonly = c_int::from(!plane.is_writable);
        view.itemsize = shape.sample as isize;
        let wants_format = flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT;
        view.format = if wants_format { format.as_ptr().cast_mut() } else { std::ptr::null_mut() };
        let wants_shape = flags & ffi::PyBUF_ND == ffi::PyBUF_ND;
        view.ndim = if wants_shape { shape.shape().len() as c_int } else { 1 };
        // Both live as long as the plane, which the view keeps.
        view.shape = if wants_shape { shape.shape().as_ptr().cast_mut() } else { std::ptr::null_mut() };
        view.strides = if wants_strides { shape.strides().as_ptr().cast_mut() } else { std::ptr::null_mut() };
        view.suboffsets = std::ptr::null_mut();
        view.internal = std::ptr::null_mut();
        view.obj = slf.into_ptr();
        Ok(())
    }

    /// Returns where the memory is, as DLPack has it: of the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::CPU, 0)
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some_and(|stream| !stream.is_none()) {
            return Err(PyBufferError::new_err("memory of the CPU has no streams"));
        }
        if dl_device.is_some_and(|device| device != (dlpack::CPU, 0)) {
            return Err(PyBufferError::new_err("the frame is in memory of the CPU"));
        }
        dlpack::capsule(slf.py(), slf.get(), max_version, copy)
    }

    fn __repr__(&self) -> String {
        let bits = self.shape.sample * 8;
        format!("<framepath.Plane {}, {:?}, uint{bits}>", self.index, self.shape.shape())
    }
}
