// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shape of a plane as an array of samples.

use framepath::format::{Layout, PixelFormat};

/// Array of unsigned samples, of one byte or two (in the order of this computer: little-endian).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrayShape {
    /// Rows, columns, and the samples of a pixel if it has several: 2 or 3 numbers.
    shape: [isize; 3],
    /// Bytes from one row, column and sample to the next.
    strides: [isize; 3],
    dimensions: usize,
    /// Bytes of a sample.
    pub(crate) sample: usize,
}

impl ArrayShape {
    /// Returns the shape of plane `index`.
    pub(crate) fn of(layout: &Layout, index: usize) -> ArrayShape {
        let plane = layout.planes()[index];
        let sample = if layout.format.depth() > 8 { 2 } else { 1 };
        // A palette is 256 colours of four bytes.
        let is_palette = layout.format == PixelFormat::Pal8 && index == 1;
        let pixel = match layout.format {
            PixelFormat::Pal8 if is_palette => 4,
            // Luma and one of the chromas for each pixel.
            PixelFormat::Yuyv | PixelFormat::Uyvy => 2,
            format => format.plane_size(index, 1, 1).0,
        };
        let (columns, samples) = (plane.width / pixel, pixel / sample);
        let signed = |sizes: [usize; 3]| sizes.map(|size| size as isize);
        ArrayShape {
            shape: signed([plane.rows, columns, samples]),
            strides: signed([plane.stride, pixel, sample]),
            dimensions: if samples > 1 { 3 } else { 2 },
            sample,
        }
    }

    pub(crate) fn shape(&self) -> &[isize] {
        &self.shape[..self.dimensions]
    }

    pub(crate) fn strides(&self) -> &[isize] {
        &self.strides[..self.dimensions]
    }

    /// Returns the number of bytes of the samples, without padding.
    pub(crate) fn bytes(&self) -> isize {
        self.shape().iter().product::<isize>() * self.sample as isize
    }

    /// Returns the number of rows and columns.
    pub(crate) fn rows_and_columns(&self) -> (usize, usize) {
        (self.shape[0] as usize, self.shape[1] as usize)
    }

    /// Returns true if an array of the sizes `shape` has this shape, or with `is_any_size` another number of rows and columns.
    pub(crate) fn matches(&self, shape: &[usize], is_any_size: bool) -> bool {
        let free = if is_any_size { 2 } else { 0 };
        let same = |(own, size): (&isize, &usize)| *own as usize == *size;
        shape.len() == self.dimensions && self.shape().iter().zip(shape).skip(free).all(same)
    }

    /// Names the shape and the samples for an error, with `is_any_size` without the number of rows and columns.
    pub(crate) fn text(&self, is_any_size: bool) -> String {
        let sizes: Vec<usize> = self.shape().iter().map(|size| *size as usize).collect();
        let sizes = match &sizes[..] {
            [_, _] if is_any_size => "rows x columns".to_owned(),
            [_, _, samples] if is_any_size => format!("rows x columns x {samples}"),
            sizes => sizes_text(sizes),
        };
        format!("{sizes} samples of {} bits", self.sample * 8)
    }

    /// Returns true if the samples have no padding between them.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.strides[0] == self.shape[1] * self.strides[1] || self.shape[0] <= 1
    }
}

/// Names the sizes of an array, such as `90 x 160`.
pub(crate) fn sizes_text(shape: &[usize]) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(" x ")
}
