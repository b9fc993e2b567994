// SPDX-License-Identifier: MIT OR Apache-2.0
//! `null`: takes frames and packets and drops them, so that they go back to their pool.

use framepath_model::path::Definition;
use framepath_model::stream::StreamInfo;

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

static DEFINITION: Definition =
    Definition::sink("null", "discards frames and packets").known_as(&["fakesink"]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, |_, _| Ok(Null))
}

pub(crate) struct Null;

impl Stage for Null {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    #[inline]
    fn push(&mut self, item: Item, _: &mut Out<'_>) -> Result<(), HopFailure> {
        drop(item);
        Ok(())
    }
}
