// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mirrors a video in planar YUV of 8 bits per sample, by a stage of its own:
//! `cargo run --example stage -- clip.mp4 mirrored.y4m`.

use framepath::{CopyPool, HopFailure, Item, Options, Out, Pipeline, Stage, StageError, StreamInfo, path};

#[derive(Default)]
struct Mirror {
    copies: CopyPool,
}

impl Stage for Mirror {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        let meta = frame.meta();
        let mut frame = self.copies.writable(frame).map_err(|error| out.fail(error))?;
        let layout = *frame.layout();
        for (index, plane) in layout.planes().iter().enumerate() {
            for row in frame.plane_mut(index).chunks_mut(plane.stride) {
                row[..plane.width].reverse();
            }
        }
        out.push(Item::Frame(frame.freeze(meta)))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (file, to) = args.next().zip(args.next()).ok_or("usage: stage FILE MIRRORED.y4m")?;
    let source = Pipeline::parse(&format!("file {} ! decode", path::quote(&file)))?;
    let report = source
        .stage(Mirror::default())
        .append(&format!("y4m {}", path::quote(&to)))?
        .run(&Options::default())?;
    println!("{} frames mirrored", report.frames);
    report.error.map_or(Ok(()), |error| Err(error.into()))
}
