// SPDX-License-Identifier: MIT OR Apache-2.0
//! `fill`: emits one new frame of a given size, of which it writes only 16 bytes, per input frame. The lab
//! uses the stage to measure the cost of passing frames on.

use framepath_model::format::Layout;
use framepath_model::path::{Arg, DefaultValue, Definition, Hosts, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::memory::pool::{GiveBack, Pool};
use framepath_os::time::now_ns;

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

static DEFINITION: Definition = Definition::stage(
    "fill",
    "emits one new frame per input frame: its number and the time in 16 bytes, the rest untouched",
)
.args(&[Arg::option(
    "bytes",
    ValueKind::Bytes { min: 16, max: 1 << 30 },
    DefaultValue::Required,
    "size of an output frame",
)])
.hosts(Hosts::Any)
.for_tests();

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, |hop, place| {
        Ok(Fill::new(hop.bytes("bytes").unwrap_or(0) as usize, place.give_back))
    })
    .with_least_out(|_, _| SLOTS - 1)
}

/// Number of slots of the stage's own pool. The stage waits while all are in use.
const SLOTS: u32 = 8;

/// Stage that emits, for each input frame, a frame of `bytes` bytes from a pool of its own. The first 8
/// bytes are the frame's number, the next 8 the CLOCK_MONOTONIC time in nanoseconds, both in native byte
/// order. The other bytes are the slot's old content. The clock is read as the last step before the frame is
/// passed on.
pub(crate) struct Fill {
    /// Size of an output frame in bytes, at least 16.
    bytes: usize,
    /// In a worker: table of the frames that the process that runs the path still reads, with the shared
    /// words by which that process returns them; `None` outside a worker.
    give_back: Option<&'static GiveBack>,
    /// Pool of the output frames; `None` before the start. Made when the stage starts, so that the first
    /// frame does not wait until the pool is made.
    pool: Option<Pool>,
}

impl Fill {
    /// Makes the stage, which emits frames of `bytes` bytes; of 16 if `bytes` is less.
    pub(crate) fn new(bytes: usize, give_back: Option<&'static GiveBack>) -> Fill {
        Fill { bytes: bytes.max(16), give_back, pool: None }
    }
}

impl Stage for Fill {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.pool = Some(match self.give_back {
            None => Pool::new(self.bytes, SLOTS)?,
            Some(give_back) => Pool::new_shared(self.bytes, SLOTS, give_back)?,
        });
        let layout = Layout::opaque(self.bytes);
        Ok(StreamInfo { format: Some(layout.format), width: layout.width, height: layout.height, ..*info })
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|e| out.fail(e))?;
        let meta = frame.meta();
        drop(frame);
        let pool = self.pool.as_mut().expect("made at the start");
        let mut frame = pool.acquire().map_err(|e| out.fail(e))?;
        let head = &mut frame.plane_mut(0)[..16];
        head[..8].copy_from_slice(&meta.seq.to_ne_bytes());
        head[8..].copy_from_slice(&now_ns().to_ne_bytes());
        out.push(Item::Frame(frame.freeze(meta)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::{Level, Options, Pipeline, Test, TestOptions};

    /// Sends the head of each frame to the test.
    struct Heads(Sender<(u64, [u8; 16], usize)>);

    impl Stage for Heads {
        fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
            Ok(*info)
        }

        fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
            let frame = item.into_frame().map_err(|e| out.fail(e))?;
            let mut head = [0; 16];
            frame.plane(0).sub(0..16).copy_to(&mut head);
            self.0.send((frame.meta().seq, head, frame.plane(0).len())).unwrap();
            Ok(())
        }
    }

    #[test]
    fn frames_have_their_number_and_rising_stamps() {
        let (sender, heads) = channel();
        let options = TestOptions { bytes: Some(64), frames: 50, ..TestOptions::default() };
        let hop = crate::path::parse_stage("fill bytes=4097").unwrap();
        let before = now_ns();
        let report = Pipeline::from_source(Test::new(&options).unwrap())
            .named("test")
            .add_hop(&hop, 1)
            .unwrap()
            .sink(Heads(sender))
            .named("heads")
            .run(&Options { level: Level::Times, ..Options::default() })
            .unwrap();
        // The stage copies nothing; the sink takes 16 bytes of each frame.
        assert_eq!((report.frames, report.copied_bytes), (50, 50 * 16));
        let mut last = before;
        for number in 0..50u64 {
            let (seq, head, bytes) = heads.recv().unwrap();
            let words = [0, 8].map(|at| u64::from_ne_bytes(head[at..at + 8].try_into().unwrap()));
            assert_eq!((seq, words[0], bytes), (number, number, 4097));
            assert!(words[1] >= last && words[1] <= now_ns());
            last = words[1];
        }
        assert!(heads.recv().is_err());
    }
}
