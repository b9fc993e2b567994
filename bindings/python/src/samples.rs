// SPDX-License-Identifier: MIT OR Apache-2.0
//! Array of samples that Python gives for a plane: its check and its copy.

use std::ffi::CStr;

use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::array::{ArrayShape, sizes_text};

/// Largest number of dimensions of a buffer (`PyBUF_MAX_NDIM`).
const MOST_DIMENSIONS: usize = 64;

/// Array of unsigned samples for one plane, from any object with the buffer protocol. The object keeps the memory, which other threads
/// may change at any time.
pub(crate) struct PlaneSamples {
    buffer: PyUntypedBuffer,
    /// Rows, columns, and samples of a pixel. The buffer's own numbers are in memory of the object, which may change them after the check.
    sizes: [usize; 3],
    /// Bytes from one row, column and sample to the next.
    strides: [isize; 3],
    /// Bytes of a sample: 1 or 2.
    sample: usize,
    /// True if the higher byte of a sample is the first one.
    is_big_endian: bool,
}

impl PlaneSamples {
    /// Checks that `object` is an array of the shape `expected`, or with `is_any_size` of another number of rows and columns. `index` is
    /// the number of the plane for errors.
    ///
    /// # Errors
    /// `TypeError` for an object without the buffer protocol, `ValueError` for another array, or the object's own exception.
    pub(crate) fn new(
        object: &Bound<'_, PyAny>,
        index: usize,
        expected: &ArrayShape,
        is_any_size: bool,
    ) -> PyResult<PlaneSamples> {
        let text = |got: &str| format!("plane {index}: expected {}, got {got}", expected.text(is_any_size));
        let kind = object.get_type();
        if !has_buffer(object) {
            return Err(PyTypeError::new_err(text(&format!("{kind}, which is no array"))));
        }
        // A memoryview has the strides that some objects leave out, such as those of ctypes.
        let buffer = PyMemoryView::from(object).and_then(|view| PyUntypedBuffer::get(&view));
        let buffer = buffer.map_err(|error| match error.is_instance_of::<PyBufferError>(object.py()) {
            true => PyValueError::new_err(text(&format!("{kind}: {error}"))),
            false => error,
        })?;
        if !is_consistent(&buffer) {
            return Err(PyValueError::new_err(text(&format!("{kind}, whose buffer contradicts itself"))));
        }
        let shape = buffer.shape();
        let sample = expected.sample;
        let element = ElementType::from_format(buffer.format());
        let fits = element == (ElementType::UnsignedInteger { bytes: sample })
            && buffer.item_size() == sample
            && expected.matches(shape, is_any_size);
        if !fits {
            let items = items_text(buffer.format(), element);
            return Err(PyValueError::new_err(text(&format!("{} {items}", sizes_text(shape)))));
        }
        let strides = buffer.strides();
        // A plane without a third dimension has one sample for each pixel.
        let sizes = [shape[0], shape[1], shape.get(2).copied().unwrap_or(1)];
        let strides = [strides[0], strides[1], strides.get(2).copied().unwrap_or(sample as isize)];
        let is_big_endian = sample > 1 && matches!(buffer.format().to_bytes()[0], b'>' | b'!');
        Ok(PlaneSamples { buffer, sizes, strides, sample, is_big_endian })
    }

    /// Returns the number of rows and columns.
    pub(crate) fn rows_and_columns(&self) -> (usize, usize) {
        (self.sizes[0], self.sizes[1])
    }

    /// Copies the samples to `to`, row by row and without padding, in the byte order of the computer. Needs no GIL.
    ///
    /// # Panics
    /// `to` has another number of bytes.
    pub(crate) fn copy_to(&self, to: &mut [u8]) {
        let [rows, columns, samples] = self.sizes;
        let [down, across, next] = self.strides;
        let row_bytes = columns * samples * self.sample;
        assert_eq!(to.len(), rows * row_bytes, "the destination has another length");
        let is_row_dense =
            !self.is_big_endian && next == self.sample as isize && across == (samples * self.sample) as isize;
        let first: *const u8 = self.buffer.buf_ptr().cast();
        if is_row_dense && down == row_bytes as isize {
            // SAFETY: the buffer protocol promises the memory of all samples, which are side by side, while `self.buffer` keeps it. No
            // reference is made to it, because other threads may write it. `to` has so many bytes, and is borrowed exclusively.
            unsafe { std::ptr::copy_nonoverlapping(first, to.as_mut_ptr(), to.len()) };
        } else if is_row_dense {
            for (row, to) in to.chunks_exact_mut(row_bytes).enumerate() {
                let from = first.wrapping_offset(row as isize * down);
                // SAFETY: as above, for the samples of one row.
                unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), row_bytes) };
            }
        } else if self.sample == 1 {
            self.gather::<1>(first, to);
        } else {
            self.gather::<2>(first, to);
        }
    }

    /// Copies samples of `N` bytes one by one to `to`, which has room for all of them.
    fn gather<const N: usize>(&self, first: *const u8, to: &mut [u8]) {
        debug_assert_eq!(self.sample, N);
        let [_, columns, samples] = self.sizes;
        let [down, across, next] = self.strides;
        for (row, to) in to.chunks_exact_mut(columns * samples * N).enumerate() {
            let row = first.wrapping_offset(row as isize * down);
            for (column, to) in to.chunks_exact_mut(samples * N).enumerate() {
                let pixel = row.wrapping_offset(column as isize * across);
                for (sample, to) in to.chunks_exact_mut(N).enumerate() {
                    let from = pixel.wrapping_offset(sample as isize * next);
                    // SAFETY: the buffer protocol promises the memory of each sample inside the shape, while `self.buffer` keeps it. No
                    // reference is made to it, because other threads may write it. `to` has N bytes, and is borrowed exclusively.
                    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), N) };
                    if self.is_big_endian {
                        to.reverse();
                    }
                }
            }
        }
    }
}

/// Returns true if the object's type has the buffer protocol.
pub(crate) fn has_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive, and the GIL is held.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) == 1 }
}

/// Returns true if the numbers of a buffer agree with each other. Whether its memory is there, only its object knows.
fn is_consistent(buffer: &PyUntypedBuffer) -> bool {
    // Also refuses a negative number, which is a large one here. Read before the shape, whose length it is.
    if buffer.dimensions() > MOST_DIMENSIONS {
        return false;
    }
    // Pointers to rows are for `PyBUF_INDIRECT`, and no library of arrays has them.
    let has_pointers = buffer.suboffsets().is_some_and(|offsets| offsets.iter().any(|offset| *offset >= 0));
    let bytes = buffer.shape().iter().try_fold(buffer.item_size(), |bytes, size| bytes.checked_mul(*size));
    let ends_inside = buffer.shape().iter().zip(buffer.strides()).try_fold(0isize, |end, (size, stride)| {
        let last = isize::try_from(size.saturating_sub(1)).ok()?;
        end.checked_add(stride.checked_abs()?.checked_mul(last)?)
    });
    !has_pointers
        && bytes == Some(buffer.len_bytes())
        && buffer.len_bytes() <= isize::MAX as usize
        && ends_inside.is_some()
        && (!buffer.buf_ptr().is_null() || buffer.len_bytes() == 0)
}

/// Names the items of an array that may be no samples.
fn items_text(format: &CStr, element: ElementType) -> String {
    match element {
        ElementType::UnsignedInteger { bytes } => format!("samples of {} bits", bytes * 8),
        ElementType::SignedInteger { bytes } => format!("signed integers of {} bits", bytes * 8),
        ElementType::Float { bytes } => format!("floats of {} bits", bytes * 8),
        ElementType::Bool => "booleans".to_owned(),
        ElementType::Unknown => format!("items of the format {:?}", format.to_string_lossy()),
    }
}
