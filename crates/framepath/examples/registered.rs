// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers a stage of its own, which path text can name and a sandboxed process can run:
//! `cargo run --example registered -- 'file clip.mp4 ! decode ! invert host=process ! y4m out.y4m'`.

use framepath::path::{Arg, DefaultValue, Definition, Hosts, ValueKind};
use framepath::{
    CopyPool, HopFailure, Item, Options, Out, Pipeline, Registry, Stage, StageError, StreamInfo,
};

static INVERT: Definition = Definition::stage("invert", "inverts luma at or above a level")
    .args(&[Arg::option("level", ValueKind::Level, DefaultValue::Is("0"), "lowest luma to invert")])
    .hosts(Hosts::Any);

struct Invert {
    level: u8,
    copies: CopyPool,
}

impl Stage for Invert {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        let meta = frame.meta();
        let mut frame = self.copies.writable(frame).map_err(|error| out.fail(error))?;
        for luma in frame.plane_mut(0) {
            *luma = if *luma >= self.level { 255 - *luma } else { *luma };
        }
        out.push(Item::Frame(frame.freeze(meta)))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut registry = Registry::default();
    registry.add_stage(&INVERT, |hop, place| {
        Ok(Invert { level: hop.level("level"), copies: place.copy_pool() })
    })?;
    // The workers of this program run this call, and find the stage in the registry.
    framepath::worker::init_with(&registry);
    let text = std::env::args().nth(1).ok_or("usage: registered PATH")?;
    let report = Pipeline::parse_with(&registry, &text)?.run(&Options::default())?;
    println!("{} frames", report.frames);
    report.error.map_or(Ok(()), |error| Err(error.into()))
}
