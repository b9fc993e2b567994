// SPDX-License-Identifier: MIT OR Apache-2.0
//! `encode raw`: the pixels as they are.

use framepath_model::format::Layout;
use framepath_model::stream::StreamInfo;
use framepath_os::meter;
use framepath_os::pool::{Frame, FrameMut, GiveBack, Pool};

use crate::error::StageError;
use crate::item::Item;
use crate::out::{Failure, Out};
use crate::stage::{Stage, frame_of};

/// Frames in a stage's own pool: one being written and what a
/// queue behind it may hold; when that is not enough it waits.
const COPY_SLOTS: u32 = 8;

/// Hands the frame on, or with `copies` writes it to memory of its own first,
/// as a naive raw encoder does.
pub(crate) struct RawEncode {
    copies: Option<Copies>,
}

impl RawEncode {
    /// With `copies` it writes there.
    pub(crate) fn new(copies: Option<Copies>) -> RawEncode {
        RawEncode { copies }
    }
}

impl Stage for RawEncode {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), Failure> {
        let frame = frame_of(item).map_err(|e| out.fail(e))?;
        let frame = match &mut self.copies {
            Some(copies) => {
                let meta = frame.meta();
                copies.of(&frame).map_err(|e| out.fail(e))?.freeze(meta)
            }
            None => frame,
        };
        out.push(Item::Frame(frame))
    }
}

/// A stage's own copies of frames that others still use.
pub(crate) struct Copies {
    /// In a worker: the way back of frames from the caller.
    give_back: Option<&'static GiveBack>,
    slots: u32,
    pool: Option<Pool>,
    /// How the last frame lay, and how its copy did.
    layouts: Option<(Layout, Layout)>,
}

impl Copies {
    pub(crate) fn new(give_back: Option<&'static GiveBack>) -> Copies {
        Copies::in_slots(give_back, COPY_SLOTS)
    }

    /// With so many slots, of which those behind may hold all but one.
    pub(crate) fn in_slots(give_back: Option<&'static GiveBack>, slots: u32) -> Copies {
        Copies { give_back, slots, pool: None, layouts: None }
    }

    /// A writable copy of `frame`, packed, in a slot of a pool that is made,
    /// or made anew, where the frame does not fit. Every byte goes through the
    /// meter.
    pub(crate) fn of(&mut self, frame: &Frame) -> Result<FrameMut, StageError> {
        let layout = self.packed(frame.layout());
        if self.pool.as_ref().is_none_or(|p| p.slot_bytes() < layout.size) {
            self.pool = Some(Pool::for_stage(layout.size, self.slots, self.give_back)?);
        }
        let pool = self.pool.as_mut().expect("made above");
        let mut copy = pool.acquire()?;
        copy.set_layout(&layout)?;
        for (index, plane) in layout.planes().iter().enumerate() {
            let stride = frame.layout().planes()[index].stride;
            let from = frame.plane(index);
            let to = copy.plane_mut(index);
            if stride == plane.stride {
                meter::copy(to.len(), || from.sub(0..to.len()).copy_to(to));
            } else {
                meter::copy(plane.width * plane.rows, || {
                    for (y, to) in to.chunks_mut(plane.stride).enumerate() {
                        from.sub(y * stride..y * stride + plane.width).copy_to(to);
                    }
                });
            }
        }
        Ok(copy)
    }

    /// `from` without padding; worked out, which allocates, once for all
    /// frames alike.
    fn packed(&mut self, from: &Layout) -> Layout {
        match &self.layouts {
            Some((last, packed)) if last == from => *packed,
            _ => {
                // Opaque buffers may be wider than any picture.
                let packed = Layout::packed(from.format, from.width, from.height)
                    .map_or(*from, |packed| packed.with_colors(from.colors));
                self.layouts.insert((*from, packed)).1
            }
        }
    }
}
