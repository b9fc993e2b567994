// SPDX-License-Identifier: MIT OR Apache-2.0
//! Live sources: `play` shows their frames at once.

use framepath::format::{Layout, PixelFormat};
use framepath::{
    FrameMeta, HopFailure, Item, Options, Out, Pipeline, PlayReport, Pool, Rational, Source, StreamInfo,
};

/// Number of frames of a [`Camera`].
const FRAMES: u64 = 20;

/// Source of frames for each millisecond.
struct Camera {
    is_live: bool,
    layout: Layout,
    pool: Pool,
    next: u64,
}

impl Source for Camera {
    fn info(&self) -> StreamInfo {
        StreamInfo::from_layout(&self.layout, Rational::new(1000, 1))
    }

    fn is_live(&self) -> bool {
        self.is_live
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        let birth_ns = out.birth();
        let mut frame = self.pool.acquire().map_err(|error| out.fail(error))?;
        frame.set_layout(&self.layout).map_err(|error| out.fail(error))?;
        let pts = Some(self.next as i64);
        let meta = FrameMeta { seq: self.next, birth_ns, pts, duration: 1, ..FrameMeta::default() };
        self.next += 1;
        out.push(Item::Frame(frame.freeze(meta)))?;
        Ok(self.next < FRAMES)
    }
}

/// Plays the frames, each of which takes 20 ms on its way. `options` are those of `play`.
fn played(is_live: bool, options: &str) -> PlayReport {
    let layout = Layout::packed(PixelFormat::Grey, 64, 48).unwrap();
    let camera = Camera { is_live, layout, pool: Pool::new(layout.size, 4).unwrap(), next: 0 };
    let behind = format!("block time=20ms ! play driver=null {options}");
    let report = Pipeline::from_source(camera).append(&behind).unwrap().run(&Options::default()).unwrap();
    report.played.unwrap()
}

#[test]
fn frames_of_a_live_source_are_shown_at_once() {
    for (is_live, options) in [(true, ""), (true, "sync=0"), (false, "sync=0")] {
        let report = played(is_live, options);
        assert_eq!((report.shown, report.late), (FRAMES, 0), "{is_live} {options}");
    }
    // By their times, nearly all are late.
    for (is_live, options) in [(false, ""), (true, "sync=1")] {
        let report = played(is_live, options);
        assert_eq!(report.shown + report.late, FRAMES);
        assert!(report.late > FRAMES / 2, "{is_live} {options}: {report:?}");
    }
}
