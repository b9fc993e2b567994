// SPDX-License-Identifier: MIT OR Apache-2.0
//! DLPack (<https://dmlc.github.io/dlpack/latest/c_api.html>, version 1.0): memory of a plane for other libraries' tensors.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::held::HeldFrame;
use crate::plane::PyPlane;

/// `kDLCPU`.
pub(crate) const CPU: i32 = 1;
/// `kDLUInt`.
const UNSIGNED: u8 = 1;
/// `DLPACK_FLAG_BITMASK_READ_ONLY` and `DLPACK_FLAG_BITMASK_IS_COPIED`.
const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;
/// Names of a capsule that nobody has taken.
const VERSIONED: &CStr = c"dltensor_versioned";
const UNVERSIONED: &CStr = c"dltensor";

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    data_type: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`, of versions before 1.0, which cannot say that the memory is read-only.
#[repr(C)]
struct Unversioned {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Unversioned)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

/// Owner of what a tensor points to: the frame or the copy of its samples, and the sizes.
struct Context {
    _frame: Option<Arc<HeldFrame>>,
    copy: Vec<u64>,
    sizes: [Vec<i64>; 2],
}

/// Makes the capsule of a plane, for a consumer that knows the version `max_version`.
///
/// # Errors
/// `BufferError`: the consumer cannot know that the memory is read-only, and does not want a copy.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    plane: &PyPlane,
    max_version: Option<(u32, u32)>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
    let copies = copy == Some(true);
    if !is_versioned && !copies {
        return Err(PyBufferError::new_err(
            "a frame is read-only, which DLPack before 1.0 cannot say; ask for a copy, or use numpy.asarray()",
        ));
    }
    let (tensor, context) = tensor(plane, copies);
    let context = Box::into_raw(Box::new(context)).cast::<c_void>();
    let capsule = if is_versioned {
        let flags = if copies { IS_COPIED } else { READ_ONLY };
        let managed = Versioned { version: [1, 0], context, deleter: Some(delete_versioned), flags, tensor };
        let managed = Box::into_raw(Box::new(managed)).cast();
        // SAFETY: the name is static; `drop_versioned` takes the tensor that nobody has taken.
        unsafe { ffi::PyCapsule_New(managed, VERSIONED.as_ptr(), Some(drop_versioned)) }
    } else {
        let managed = Unversioned { tensor, context, deleter: Some(delete_unversioned) };
        let managed = Box::into_raw(Box::new(managed)).cast();
        // SAFETY: as above.
        unsafe { ffi::PyCapsule_New(managed, UNVERSIONED.as_ptr(), Some(drop_unversioned)) }
    };
    // SAFETY: a new reference, or null with an exception; then the tensor leaks, for lack of memory.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// Returns the tensor of a plane or of a copy of its samples, and what it points to.
fn tensor(plane: &PyPlane, copies: bool) -> (Tensor, Context) {
    let array = plane.array();
    let shape: Vec<i64> = array.shape().iter().map(|size| *size as i64).collect();
    let sample = array.sample as i64;
    let (data, strides, frame, copy) = if copies {
        let copy = copied(plane);
        let mut strides = vec![1; shape.len()];
        for index in (0..shape.len() - 1).rev() {
            strides[index] = strides[index + 1] * shape[index + 1];
        }
        (copy.as_ptr().cast::<u8>(), strides, None, copy)
    } else {
        let strides = array.strides().iter().map(|stride| *stride as i64 / sample).collect();
        (plane.first(), strides, Some(plane.held().clone()), Vec::new())
    };
    let mut context = Context { _frame: frame, copy, sizes: [shape, strides] };
    debug_assert!(copies != context.copy.is_empty() || array.bytes() == 0);
    let [shape, strides] = &mut context.sizes;
    let tensor = Tensor {
        data: data.cast_mut().cast(),
        device: Device { kind: CPU, id: 0 },
        dimensions: shape.len() as i32,
        data_type: DataType { code: UNSIGNED, bits: 8 * sample as u8, lanes: 1 },
        // Moving the context leaves the numbers where they are.
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    (tensor, context)
}

/// Copies the samples of a plane without the padding of its rows, into memory that is aligned for each of them.
fn copied(plane: &PyPlane) -> Vec<u64> {
    let array = plane.array();
    let row_bytes = (array.bytes() / array.shape()[0].max(1)) as usize;
    let mut copy = vec![0u64; (array.bytes() as usize).div_ceil(8)];
    for row in 0..array.shape()[0] as usize {
        // SAFETY: the row is inside the plane, and its place inside the copy.
        unsafe {
            let from = plane.first().add(row * array.strides()[0] as usize);
            let to = copy.as_mut_ptr().cast::<u8>().add(row * row_bytes);
            std::ptr::copy_nonoverlapping(from, to, row_bytes);
        }
    }
    copy
}

/// # Safety
/// `managed` is from [`capsule`], and is used no more.
unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: as the caller promises; any thread may drop a frame.
    unsafe {
        drop(Box::from_raw((*managed).context.cast::<Context>()));
        drop(Box::from_raw(managed));
    }
}

/// # Safety
/// As for [`delete_versioned`].
unsafe extern "C" fn delete_unversioned(managed: *mut Unversioned) {
    // SAFETY: as above.
    unsafe {
        drop(Box::from_raw((*managed).context.cast::<Context>()));
        drop(Box::from_raw(managed));
    }
}

/// # Safety
/// Python calls it for a capsule of [`capsule`].
unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule has its first name until a consumer has taken its tensor.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

/// # Safety
/// As for [`drop_versioned`].
unsafe extern "C" fn drop_unversioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, UNVERSIONED.as_ptr()) == 1 {
            delete_unversioned(ffi::PyCapsule_GetPointer(capsule, UNVERSIONED.as_ptr()).cast());
        }
    }
}
