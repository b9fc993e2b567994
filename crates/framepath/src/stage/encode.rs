// SPDX-License-Identifier: MIT OR Apache-2.0
//! `encode raw`: the pixels as they are.

use framepath_model::stream::StreamInfo;
use framepath_os::pool::{Frame, FrameMut, Pool};

use crate::error::StageError;
use crate::item::Item;
use crate::out::{Failure, Out};
use crate::stage::{Stage, frame_of};

/// Frames in the copying encoder's own pool: one being written and what a
/// queue behind it may hold; when that is not enough it waits.
const COPY_SLOTS: u32 = 8;

/// Hands the frame on, or with `copy` writes it to memory of its own first, as
/// a naive raw encoder does.
pub(crate) struct RawEncode {
    copy: bool,
    pool: Option<Pool>,
}

impl RawEncode {
    pub(crate) fn new(copy: bool) -> RawEncode {
        RawEncode { copy, pool: None }
    }
}

impl Stage for RawEncode {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), Failure> {
        let frame = frame_of(item).map_err(|e| out.fail(e))?;
        let frame = if self.copy {
            let meta = frame.meta;
            copied(&frame, &mut self.pool).map_err(|e| out.fail(e))?.freeze(meta)
        } else {
            frame
        };
        out.push(Item::Frame(frame))
    }
}

/// A writable copy of `frame` in a slot of `pool`, which is made, or made
/// anew, where the frame does not fit. Every byte goes through the meter.
pub(crate) fn copied(frame: &Frame, pool: &mut Option<Pool>) -> Result<FrameMut, StageError> {
    let layout = framepath_model::format::Layout::packed(
        frame.layout().format,
        frame.layout().width,
        frame.layout().height,
    );
    // Opaque buffers may be wider than any picture.
    let layout = layout.unwrap_or(*frame.layout());
    if pool.as_ref().is_none_or(|p| p.slot_bytes() < layout.size) {
        *pool = Some(Pool::new(layout.size, COPY_SLOTS)?);
    }
    let pool = pool.as_mut().expect("made above");
    let mut copy = pool.acquire()?;
    copy.set_layout(&layout)?;
    for (index, plane) in layout.planes().iter().enumerate() {
        let stride = frame.layout().planes()[index].stride;
        let from = frame.plane(index);
        let to = copy.plane_mut(index);
        if stride == plane.stride {
            framepath_os::meter::copy_bytes(to, &from[..to.len()]);
        } else {
            framepath_os::meter::copy(plane.width * plane.rows, || {
                for (to, from) in to.chunks_mut(plane.stride).zip(from.chunks(stride)) {
                    to.copy_from_slice(&from[..plane.width]);
                }
            });
        }
    }
    Ok(copy)
}
