// SPDX-License-Identifier: MIT OR Apache-2.0
//! `block`: a known wait in every frame.

use framepath_model::path::{Arg, DefaultValue, Definition, Hosts, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::measure::meter;
use framepath_os::process::signal;
use framepath_os::time::{now_ns, sleep_until};

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

static DEFINITION: Definition = Definition::stage("block", "injects a blocked wait into every frame")
    .args(&[Arg::option("time", ValueKind::Duration, DefaultValue::Required, "time waited per frame")])
    .hosts(Hosts::Any)
    .for_tests();

pub(crate) fn element() -> Element {
    // The stage passes frames on, and has no pool to wait for.
    Element::stage(&DEFINITION, |hop, _| Ok(Block { ns: hop.duration_ns("time") }))
        .with_least_out(|_, _| u32::MAX)
}

/// Stage that sleeps for every frame and passes it on unchanged. The ledger counts the time as blocked.
pub(crate) struct Block {
    /// Time to sleep per frame, nanoseconds. A signal or a stop request ends the sleep early.
    pub(crate) ns: u64,
}

impl Stage for Block {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        meter::blocked(|| {
            let until = now_ns() + self.ns;
            while now_ns() < until && !signal::interrupted() {
                sleep_until(until);
            }
        });
        out.push(item)
    }
}
