// SPDX-License-Identifier: MIT OR Apache-2.0
//! `encode raw`: passes the pixels on unchanged.

use framepath_model::stream::StreamInfo;

use crate::copy_pool::CopyPool;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

/// Stage that passes frames on. With `copies`, the stage passes on a copy, as a naive raw encoder does.
pub(super) struct RawEncode {
    /// Pool for the copies; `None` passes each frame on without a copy.
    copies: Option<CopyPool>,
}

impl RawEncode {
    /// Makes the stage. With `copies`, the stage copies each frame into that pool.
    pub(super) fn new(copies: Option<CopyPool>) -> RawEncode {
        RawEncode { copies }
    }
}

impl Stage for RawEncode {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|e| out.fail(e))?;
        let frame = match &mut self.copies {
            Some(copies) => {
                let meta = frame.meta();
                copies.copy(&frame).map_err(|e| out.fail(e))?.freeze(meta)
            }
            None => frame,
        };
        out.push(Item::Frame(frame))
    }
}
