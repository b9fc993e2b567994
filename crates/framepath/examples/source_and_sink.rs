// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends pictures from a source of its own through a queue to a sink of its own:
//! `cargo run --example source_and_sink`.

use std::error::Error;

use framepath::format::{Layout, PixelFormat};
use framepath::{
    FrameMeta, HopFailure, Item, Leaky, Options, Out, Pipeline, Pool, Rational, Source, Stage, StageError,
    StreamInfo,
};

/// Source of 100 grey pictures, each lighter than the picture before.
struct Fade {
    layout: Layout,
    pool: Pool,
    level: u8,
}

impl Source for Fade {
    fn info(&self) -> StreamInfo {
        StreamInfo::from_layout(&self.layout, Rational::new(25, 1))
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        let birth_ns = out.birth();
        let mut frame = self.pool.acquire().map_err(|error| out.fail(error))?;
        frame.set_layout(&self.layout).map_err(|error| out.fail(error))?;
        frame.plane_mut(0).fill(self.level);
        let seq = u64::from(self.level);
        self.level += 1;
        let meta = FrameMeta { seq, birth_ns, pts: Some(seq as i64), duration: 1, ..FrameMeta::default() };
        out.push(Item::Frame(frame.freeze(meta)))?;
        Ok(self.level < 100)
    }
}

/// Sink that prints the presentation time and the first pixel of each picture.
struct Print;

impl Stage for Print {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        println!("{:?}: level {}", frame.meta().pts, frame.row(0, 0).to_vec()[0]);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let layout = Layout::packed(PixelFormat::Grey, 64, 48)?;
    let source = Fade { layout, pool: Pool::new(layout.size, 4)?, level: 0 };
    let pipeline = Pipeline::from_source(source).queue(2, Leaky::No).sink(Print);
    let report = pipeline.run(&Options::default())?;
    report.error.map_or(Ok(()), |error| Err(error.into()))
}
