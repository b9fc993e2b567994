// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tee`: passes each item to the queue of a branch, which has its own thread, and then to the next hop in
//! the tee's thread.
//!
//! A tee with more than two branches in path text becomes several tees with two branches in a row. Items are
//! shared, not copied. The queue of a slow branch decides what happens to the other branches. A queue that
//! waits makes the other branches wait, and the tee's row of the ledger has this wait. A leaky queue drops
//! items, and the other branches do not wait. If a hop of a branch fails or takes no more items, the other
//! branches continue.

use framepath_model::path::Definition;
use framepath_model::stream::StreamInfo;

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::queue::QueueEnd;
use crate::stage::Stage;

static DEFINITION: Definition =
    Definition::tee("tee", "passes every frame or packet to each of its branches, without a copy");

pub(crate) fn element() -> Element {
    Element::tee(&DEFINITION)
}

/// Stage in front of two branches: one behind a queue in a thread of its own, one in the tee's thread.
pub(crate) struct Tee {
    /// Queue of the branch that has a thread of its own.
    side: QueueEnd,
    /// Failure of the branch in the tee's own thread, which then takes no more items. The tee returns the
    /// failure when the other branch has ended too, or at the drain. `None` while the branch takes items, and
    /// after the return.
    ended: Option<HopFailure>,
}

impl Tee {
    pub(crate) fn new(side: QueueEnd) -> Tee {
        Tee { side, ended: None }
    }
}

impl Stage for Tee {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let mut dropped = None;
        if self.side.is_open() {
            let shared = item.share().map_err(|error| out.fail(error))?;
            match self.side.offer(shared, out) {
                Ok(left) => dropped = left,
                Err(_) => log::debug!("a branch of a tee has ended"),
            }
        }
        if self.ended.is_none() {
            self.ended = out.push(item).err();
            if self.ended.is_some() {
                out.end_behind();
            }
        }
        // After the push, because the count ends the recorder's present stretch, which is the pushed frame's.
        if let Some(dropped) = dropped {
            self.side.count_dropped(&dropped, out);
        }
        match self.side.is_open() {
            true => Ok(()),
            false => self.ended.take().map_or(Ok(()), Err),
        }
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        // An error is ignored: a branch that has ended has no items.
        let _ = self.side.flush(out);
        Ok(())
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let _ = self.side.drain(out);
        self.ended.take().map_or(Ok(()), Err)
    }
}
