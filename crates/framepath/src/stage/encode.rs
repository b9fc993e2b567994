// SPDX-License-Identifier: MIT OR Apache-2.0
//! `encode raw`: passes the pixels on unchanged.

use framepath_model::path::{Arg, DefaultValue, Definition, Hosts, ValueKind};
use framepath_model::stream::StreamInfo;

use crate::copy_pool::{COPY_SLOTS, CopyPool};
use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

static DEFINITION: Definition =
    Definition::stage("encode", "raw video: passes frames on unchanged, or a copy of each")
        .args(&[
            Arg::word("codec", ValueKind::choice(&["raw"]), "raw: the pixels as they are"),
            Arg::option(
                "copy",
                ValueKind::Flag,
                DefaultValue::Is("0"),
                "copy the pixels, as a naive encoder does",
            ),
        ])
        .hosts(Hosts::Any);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, |hop, place| Ok(RawEncode::new(hop.flag("copy").then(|| place.copy_pool()))))
        .with_least_out(|_, _| COPY_SLOTS - 1)
}

/// Stage that passes frames on. With `copies`, the stage passes on a copy, as a naive raw encoder does.
pub(crate) struct RawEncode {
    /// Pool for the copies; `None` passes each frame on without a copy.
    copies: Option<CopyPool>,
}

impl RawEncode {
    /// Makes the stage. With `copies`, the stage copies each frame into that pool.
    pub(crate) fn new(copies: Option<CopyPool>) -> RawEncode {
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
