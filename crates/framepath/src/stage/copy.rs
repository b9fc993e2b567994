// SPDX-License-Identifier: MIT OR Apache-2.0
//! `copy`: a known number of copied bytes in every frame.

use framepath_model::path::{Arg, DefaultValue, Definition, Hosts, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::measure::meter;

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

static DEFINITION: Definition = Definition::stage("copy", "injects a copy into every frame")
    .args(&[Arg::option(
        "bytes",
        ValueKind::Bytes { min: 0, max: 1 << 30 },
        DefaultValue::Required,
        "bytes copied per frame",
    )])
    .hosts(Hosts::Any)
    .for_tests();

pub(crate) fn element() -> Element {
    // The stage passes frames on, and has no pool to wait for.
    Element::stage(&DEFINITION, |hop, _| Ok(Copy::new(hop.bytes("bytes").unwrap_or(0) as usize)))
        .with_least_out(|_, _| u32::MAX)
}

/// Stage that copies one of its two buffers to the other for every frame, and passes the frame on unchanged.
pub(crate) struct Copy {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Copy {
    pub(crate) fn new(bytes: usize) -> Copy {
        // Both are written here, so that no page fault occurs during a copy.
        Copy { from: vec![1; bytes], to: vec![2; bytes] }
    }
}

impl Stage for Copy {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        meter::copy_bytes(&mut self.to, std::hint::black_box(&self.from));
        std::hint::black_box(&self.to);
        out.push(item)
    }
}
