// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copy of the picture on the screen, for comparison with the next frame.

use framepath_model::format::Layout;
use framepath_os::measure::meter;
use framepath_os::memory::pool::Frame;

use super::{BAND, SLACK, planar8};

/// Number of frames that are neither compared nor copied after a frame of which more than half of
/// the bands changed.
const MOVING: u32 = 15;

/// Copy of the picture on the screen. A copy is needed, because the slot of the previous frame may
/// have been returned to its pool.
#[derive(Debug, Default)]
pub(super) struct PaintedCopy {
    /// Layout of `picture`; `None` if `picture` is not a copy of the screen's content.
    pub(super) layout: Option<Layout>,
    pub(super) picture: Vec<u8>,
    /// Number of coming frames that are neither compared nor copied.
    moving: u32,
}

impl PaintedCopy {
    pub(super) fn forget(&mut self) {
        self.layout = None;
    }

    /// Returns the indices of the bands in which a planar 8-bit YUV frame differs from the copy,
    /// and updates the copy. Returns all bands if the copy has another layout or was dropped, and
    /// `None` if the whole frame has to be painted from its own memory: the height is not a
    /// multiple of [`BAND`], or the comparison is suspended. Drops the copy then.
    pub(super) fn bands(&mut self, frame: &Frame) -> Option<Vec<usize>> {
        let layout = *frame.layout();
        let height = layout.height as usize;
        if height % BAND != 0 || self.moving > 0 {
            self.moving = self.moving.saturating_sub(1);
            self.forget();
            return None;
        }
        let bands = height / BAND;
        let own =
            Layout::aligned(layout.format, layout.width, layout.height, 64).ok()?.with_colors(layout.colors);
        if self.layout != Some(own) {
            self.layout = Some(own);
            self.picture.resize(own.size + SLACK, 0);
            planar8(frame, &mut self.picture, &own);
            return Some((0..bands).collect());
        }
        let changed: Vec<usize> = (0..bands).filter(|band| self.differs(frame, &own, *band)).collect();
        for band in &changed {
            self.take(frame, &own, *band);
        }
        if changed.len() * 2 > bands {
            self.moving = MOVING;
        }
        Some(changed)
    }

    fn differs(&self, frame: &Frame, own: &Layout, band: usize) -> bool {
        own.planes().iter().enumerate().any(|(index, plane)| {
            rows(index, band).any(|y| {
                let mut at = plane.offset + y * plane.stride;
                let same = frame.row(index, y).try_visit(|bytes| {
                    let kept = &self.picture[at..at + bytes.len()];
                    at += bytes.len();
                    if kept == bytes { Ok(()) } else { Err(()) }
                });
                same.is_err()
            })
        })
    }

    fn take(&mut self, frame: &Frame, own: &Layout, band: usize) {
        for (index, plane) in own.planes().iter().enumerate() {
            for y in rows(index, band) {
                let at = plane.offset + y * plane.stride;
                let to = &mut self.picture[at..at + plane.width];
                meter::copy(plane.width, || frame.row(index, y).copy_to(to));
            }
        }
    }
}

/// Returns the rows of plane number `plane` in band number `band`.
fn rows(plane: usize, band: usize) -> std::ops::Range<usize> {
    let rows = if plane == 0 { BAND } else { BAND / 2 };
    band * rows..(band + 1) * rows
}
