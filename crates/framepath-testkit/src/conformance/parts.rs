// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source, stages and sink of the paths under test; the source and the sink record their frames.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use framepath::{HopFailure, Item, Level, Options, Out, Pipeline, Report, Source, Stage, StageError};
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::orientation::Orientation;
use framepath_model::stream::{FrameMeta, Rational, StreamInfo};
use framepath_os::memory::pool::{Frame, Pool};

use super::way::PathUnderTest;

/// Number of frames for a source that runs until the path stops it.
pub const ENDLESS: u64 = u64::MAX;

/// Counts and records of the source and the sink of one path, and the source's pool.
pub struct PathRecord {
    pool: Mutex<Pool>,
    /// Number of frames that the source has acquired from its pool.
    pub given: AtomicU64,
    /// Largest number of frames that the source had acquired and the sink had not yet counted in
    /// `taken`.
    pub most_alive: AtomicU64,
    /// Number of frames that the sink has received.
    pub taken: AtomicU64,
    /// True once the source has reported its end; stays false if the source fails.
    pub ended: AtomicBool,
    /// Frames that the sink has received, in the order of their arrival.
    pub seen: Mutex<Vec<SeenFrame>>,
    /// Number of times that the sink was drained; the checks of streams that end expect 1.
    pub drained: AtomicU64,
}

/// Frame as it arrived at the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenFrame {
    /// Sequence number of the frame.
    pub seq: u64,
    /// Number that the source wrote into the pixels; equal to `seq` if the slot was not reused too
    /// early.
    pub written: u64,
    /// Address of the frame's pixels in memory.
    pub address: usize,
}

impl PathRecord {
    /// Creates a record with a pool of `slots` slots for the source.
    pub fn new(slots: u32) -> Arc<PathRecord> {
        let pool = Pool::new(layout().size, slots).unwrap();
        Arc::new(PathRecord {
            pool: Mutex::new(pool),
            given: AtomicU64::new(0),
            most_alive: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            seen: Mutex::default(),
            drained: AtomicU64::new(0),
        })
    }

    /// Creates a source of `frames` frames that updates this record and then ends without failure.
    pub fn source(self: &Arc<PathRecord>, frames: u64) -> Numbered {
        Numbered { watch: self.clone(), frames, next: 0, fails: false, awaits_first: false }
    }

    /// Creates a sink that updates this record.
    pub fn sink(self: &Arc<PathRecord>) -> CollectSink {
        CollectSink { watch: self.clone(), gate: None }
    }

    /// Runs the path of a source of `frames` frames, the inside `way`, and a sink, with the ledger
    /// at `level`. Panics if the path cannot be run; a hop that fails is in the report.
    pub fn run(self: &Arc<PathRecord>, way: &PathUnderTest, frames: u64, level: Level) -> Report {
        let source = Pipeline::from_source(self.source(frames)).named("numbered");
        run(way.through(source).sink(self.sink()).named("collect"), level)
    }

    /// Returns the sequence numbers of the frames in the order of their arrival at the sink.
    pub fn order(&self) -> Vec<u64> {
        unpoisoned(&self.seen).iter().map(|s| s.seq).collect()
    }

    /// Asserts that all slots of the source's pool can be acquired at the same time. A leaked slot
    /// makes this wait until the deadline of the check.
    pub fn assert_all_back(&self) {
        let mut pool = unpoisoned(&self.pool);
        let all: Vec<_> = (0..pool.slots()).map(|_| pool.acquire().unwrap()).collect();
        assert_eq!(all.len() as u32, pool.slots());
    }
}

/// Runs `built` with a ledger at `level` that has room for all rows of a check. Panics if the path
/// cannot be run; a hop that fails is in the report.
pub fn run(built: Pipeline, level: Level) -> Report {
    built.run(&Options { level, rows: 1 << 14, ..Options::default() }).unwrap()
}

/// Creates the error of the sources and stages that fail on purpose.
pub fn on_purpose() -> StageError {
    StageError::Io { what: "the part".to_owned(), error: io::Error::other("failed on purpose") }
}

/// Waits until `done` returns true, checking every millisecond; panics with `what` after 20,000
/// checks, which take at least 20 s.
pub fn wait_for(what: &str, done: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if done() {
            return;
        }
        sleep(Duration::from_millis(1));
    }
    panic!("{what} did not happen");
}

/// Locks `mutex`, even if another thread panicked while it held the lock.
pub fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn layout() -> Layout {
    Layout::packed(PixelFormat::Grey, 16, 16).unwrap()
}

/// Source of frames that contain their number in the pixels.
pub struct Numbered {
    watch: Arc<PathRecord>,
    frames: u64,
    next: u64,
    /// True if the source fails after its last frame, false if it ends without a failure.
    pub fails: bool,
    /// True if the source emits the second frame only after the sink has received the first.
    pub awaits_first: bool,
}

impl Source for Numbered {
    fn info(&self) -> StreamInfo {
        StreamInfo {
            format: Some(PixelFormat::Grey),
            width: 16,
            height: 16,
            time_base: Rational::new(1, 30),
            frame_rate: Rational::new(30, 1),
            sample_aspect: Rational::new(1, 1),
            orientation: Orientation::Upright,
        }
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        if self.next == self.frames {
            if self.fails {
                return Err(out.fail(on_purpose()));
            }
            self.watch.ended.store(true, Ordering::SeqCst);
            return Ok(false);
        }
        if self.awaits_first && self.next == 1 {
            wait_for("the first frame's arrival", || self.watch.taken.load(Ordering::SeqCst) >= 1);
        }
        let birth_ns = out.birth();
        let mut frame = unpoisoned(&self.watch.pool).acquire().map_err(|e| out.fail(e))?;
        let given = self.watch.given.fetch_add(1, Ordering::SeqCst) + 1;
        // `taken` counts before a frame is dropped, so `alive` is at most the true number.
        let alive = given - self.watch.taken.load(Ordering::SeqCst).min(given);
        self.watch.most_alive.fetch_max(alive, Ordering::SeqCst);
        frame.set_layout(&layout()).map_err(|e| out.fail(e))?;
        frame.plane_mut(0)[..8].copy_from_slice(&self.next.to_le_bytes());
        let meta = FrameMeta {
            seq: self.next,
            birth_ns,
            pts: Some(self.next as i64),
            duration: 1,
            ..FrameMeta::default()
        };
        self.next += 1;
        out.push(Item::Frame(frame.freeze(meta)))?;
        Ok(true)
    }
}

/// Stage that passes every item on.
pub struct Pass;

impl Stage for Pass {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        out.push(item)
    }
}

/// Stage that passes items on until it fails, 2 ms after it has dropped the item.
pub struct FailsAt {
    left: u64,
    panics: bool,
}

impl FailsAt {
    /// Creates a stage that fails with an error at its frame `frame`, counted from 0.
    pub fn new(frame: u64) -> FailsAt {
        FailsAt { left: frame, panics: false }
    }

    /// Creates a stage that panics at its frame `frame`, counted from 0.
    pub fn panicking(frame: u64) -> FailsAt {
        FailsAt { left: frame, panics: true }
    }
}

impl Stage for FailsAt {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if self.left == 0 {
            // The source acquires the slot and continues before it can notice the failure.
            drop(item);
            sleep(Duration::from_millis(2));
            assert!(!self.panics, "panics on purpose");
            return Err(out.fail(on_purpose()));
        }
        self.left -= 1;
        out.push(item)
    }
}

/// Stage that keeps all items until the drain.
#[derive(Default)]
pub struct KeepStage {
    inside: Vec<Item>,
}

impl Stage for KeepStage {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        out.hold(item.meta().seq);
        self.inside.push(item);
        Ok(())
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        for item in self.inside.drain(..) {
            out.mark();
            out.resume(item.meta().seq);
            out.push(item)?;
        }
        Ok(())
    }
}

/// Function that a sink calls while it holds the first frame.
pub type FirstFrameHook = Box<dyn FnMut(&PathRecord) + Send>;

/// Sink that records its frames and drains in a [`PathRecord`].
pub struct CollectSink {
    watch: Arc<PathRecord>,
    gate: Option<FirstFrameHook>,
}

impl CollectSink {
    /// Returns the sink with `gate` as the function that it calls once, while it holds the first
    /// frame.
    pub fn gated(self, gate: impl FnMut(&PathRecord) + Send + 'static) -> CollectSink {
        CollectSink { gate: Some(Box::new(gate)), ..self }
    }
}

impl Stage for CollectSink {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, _: &mut Out<'_>) -> Result<(), HopFailure> {
        assert_eq!(self.watch.drained.load(Ordering::SeqCst), 0, "a frame after the end");
        let Item::Frame(frame) = item else { panic!("expected frames") };
        self.watch.taken.fetch_add(1, Ordering::SeqCst);
        if let Some(mut gate) = self.gate.take() {
            gate(&self.watch);
        }
        unpoisoned(&self.watch.seen).push(seen(&frame));
        drop(frame);
        Ok(())
    }

    fn drain(&mut self, _: &mut Out<'_>) -> Result<(), HopFailure> {
        self.watch.drained.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn seen(frame: &Frame) -> SeenFrame {
    let pixels = frame.plane(0);
    let mut stamp = [0; 8];
    pixels.sub(0..8).copy_to(&mut stamp);
    let written = u64::from_le_bytes(stamp);
    SeenFrame { seq: frame.meta().seq, written, address: pixels.as_ptr() as usize }
}
