// SPDX-License-Identifier: MIT OR Apache-2.0
//! New frame, whose planes a function of Python returned as arrays.

use framepath::colors::Colors;
use framepath::format::{Layout, PixelFormat};
use framepath::{CopyPool, Frame, FrameMeta, StageError, counted_copy};
use framepath_codec::Converter;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::array::ArrayShape;
use crate::samples::{PlaneSamples, has_buffer};

/// Maker of new frames, into a pool of its own.
pub(crate) struct FrameMaker {
    /// Format of the new frames, and the converter that knows their colours; `None` for the format of the incoming frame.
    named: Option<(PixelFormat, Converter)>,
    copies: CopyPool,
}

/// Arrays for the planes of a new frame, which fit its layout.
pub(crate) struct NewFrame {
    layout: Layout,
    meta: FrameMeta,
    planes: Vec<PlaneSamples>,
}

impl NewFrame {
    /// Reads the arrays that a function `returned` as planes of `format`, for an incoming frame `of` width and height. The size of the new
    /// frame is that of the first array.
    ///
    /// # Errors
    /// `TypeError` for other objects than arrays, `ValueError` for arrays that are no planes of the format.
    fn new(
        returned: &Bound<'_, PyAny>,
        (format, colors): (PixelFormat, Colors),
        of: (u32, u32),
        meta: FrameMeta,
    ) -> PyResult<NewFrame> {
        let objects = objects(returned)?;
        let count = format.plane_count();
        if objects.len() != count {
            let name = format.name().to_lowercase();
            let expected = match count {
                1 => format!("one array, for the plane of {name}"),
                _ => format!("a tuple of {count} arrays, one for each plane of {name}"),
            };
            return Err(PyValueError::new_err(format!(
                "expected {expected}, got {} ({}); Path.stage(function, format=...) names another format",
                objects.len(),
                returned.get_type()
            )));
        }
        // Any size will do to learn the rest of the shape.
        let any = layout(format, 2, 2)?;
        let first = PlaneSamples::new(&objects[0], 0, &ArrayShape::of(&any, 0), true)?;
        let (width, height) = picture_size(&first, format, of);
        let layout = layout(format, width, height)?.with_colors(colors);
        let shape = ArrayShape::of(&layout, 0);
        if shape.rows_and_columns() != first.rows_and_columns() {
            // A row of YUYV has an even number of columns.
            let (rows, columns) = first.rows_and_columns();
            return Err(PyValueError::new_err(format!(
                "plane 0: expected {}, got {rows} rows and {columns} columns",
                shape.text(false)
            )));
        }
        let mut planes = vec![first];
        for (index, object) in objects.iter().enumerate().skip(1) {
            planes.push(PlaneSamples::new(object, index, &ArrayShape::of(&layout, index), false)?);
        }
        Ok(NewFrame { layout, meta, planes })
    }
}

impl FrameMaker {
    /// Makes a maker of frames in `format`, or with `None` in that of each incoming frame.
    pub(crate) fn new(format: Option<PixelFormat>) -> FrameMaker {
        FrameMaker { named: format.map(|format| (format, Converter::new(format))), copies: CopyPool::new() }
    }

    /// Returns the format of the new frames; `None` for that of the incoming frame.
    pub(crate) fn format(&self) -> Option<PixelFormat> {
        self.named.as_ref().map(|(format, _)| *format)
    }

    /// Reads the arrays that a function `returned` for a frame of the layout `of`.
    ///
    /// # Errors
    /// As [`NewFrame::new`].
    pub(crate) fn read(
        &self,
        returned: &Bound<'_, PyAny>,
        of: &Layout,
        meta: FrameMeta,
    ) -> PyResult<NewFrame> {
        let described = match &self.named {
            // Those of `convert`: RGB, for example, has the full range and the incoming frame's primaries.
            Some((format, converter)) => (*format, converter.colors(of)),
            None => (of.format, of.colors),
        };
        NewFrame::new(returned, described, (of.width, of.height), meta)
    }

    /// Makes the frame, by one copy that the ledger counts. Waits while all slots are in use; call it without the GIL.
    ///
    /// # Errors
    /// The pool cannot be made.
    pub(crate) fn make(&mut self, new: NewFrame) -> Result<Frame, StageError> {
        let NewFrame { layout, meta, planes } = new;
        let mut slot = self.copies.slot(&layout)?;
        counted_copy(layout.pixel_bytes(), || {
            for (index, plane) in planes.iter().enumerate() {
                plane.copy_to(slot.plane_mut(index));
            }
        });
        // Each buffer would wait for the GIL otherwise.
        Python::attach(|_| drop(planes));
        Ok(slot.freeze(meta))
    }
}

/// Returns the objects for the planes: those of a tuple or list, or the only one.
fn objects<'py>(returned: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if let Ok(tuple) = returned.cast::<PyTuple>() {
        return Ok(tuple.iter().collect());
    }
    if let Ok(list) = returned.cast::<PyList>() {
        return Ok(list.iter().collect());
    }
    if has_buffer(returned) {
        return Ok(vec![returned.clone()]);
    }
    Err(PyTypeError::new_err(format!(
        "a stage returns the frame that it got, None to drop it, or arrays for the planes of a new one; not {}",
        returned.get_type()
    )))
}

/// Returns the width and height of a picture whose first plane is `first`, for an incoming frame `of` width and height.
fn picture_size(first: &PlaneSamples, format: PixelFormat, of: (u32, u32)) -> (u32, u32) {
    let (rows, columns) = first.rows_and_columns();
    // The plane of YUYV does not tell an odd width from the next even one; that of the incoming frame is likelier.
    let is_same = Layout::packed(format, of.0, of.1)
        .is_ok_and(|same| ArrayShape::of(&same, 0).rows_and_columns() == (rows, columns));
    let side = |size| u32::try_from(size).unwrap_or(u32::MAX);
    if is_same { of } else { (side(columns), side(rows)) }
}

/// Returns a layout without padding.
///
/// # Errors
/// `ValueError` for a size that no picture can have.
fn layout(format: PixelFormat, width: u32, height: u32) -> PyResult<Layout> {
    Layout::packed(format, width, height).map_err(|error| PyValueError::new_err(error.to_string()))
}
