// SPDX-License-Identifier: MIT OR Apache-2.0
//! `test`: a moving pattern, or buffers of a given size, at a rate or as fast as possible.

use std::time::Duration;

use framepath_model::format::{Layout, PixelFormat};
use framepath_model::path::{Arg, DefaultValue, Definition, Hop, ValueKind};
use framepath_model::stream::{FrameMeta, Rational, SeekTo, StreamInfo};
use framepath_os::memory::pool::Pool;

use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::request::{Answered, Request};
use crate::source::{Pace, PaceWait, Source, frames, pattern};

static DEFINITION: Definition = Definition::source("test", "frames with a moving pattern")
    .args(&[
        Arg::option("size", ValueKind::Size, DefaultValue::Is("1280x720"), "size of the picture in pixels"),
        Arg::option(
            "format",
            ValueKind::choice(&["grey", "yuv420p", "nv12", "yuv420p10", "p010", "rgba"]),
            DefaultValue::Is("nv12"),
            "pixel format",
        ),
        Arg::option(
            "rate",
            ValueKind::Rate,
            DefaultValue::Is("0"),
            "frames per second; 0: as fast as possible",
        ),
        frames("300"),
        Arg::option(
            "pool",
            ValueKind::count(1, 4096),
            DefaultValue::Is("8"),
            "number of frames in the source's pool; while all are in use, the source waits",
        ),
        Arg::option(
            "bytes",
            ValueKind::Bytes { min: 1, max: 1 << 30 },
            DefaultValue::Unset("a picture of `size` and `format`"),
            "size of each frame, which then has no picture: the source does not write its bytes",
        )
        .excluding(&["size", "format"]),
    ])
    .known_as(&["videotestsrc"]);

pub(crate) fn element() -> Element {
    Element::source(&DEFINITION, make)
}

fn make(hop: &Hop, _: &HopPlace<'_>) -> Result<Test, StageError> {
    let (width, height) = hop.size("size");
    Test::new(&TestOptions {
        width,
        height,
        format: hop.choice("format").parse()?,
        bytes: hop.bytes("bytes"),
        rate: hop.rate("rate"),
        frames: hop.count("frames"),
        pool: hop.count("pool") as u32,
    })
}

/// Options of the `test` source.
///
/// ```
/// use framepath::{Options, Pipeline, Test, TestOptions};
///
/// let source = Test::new(&TestOptions { frames: 4, width: 64, height: 48, ..TestOptions::default() })?;
/// assert_eq!(Pipeline::from_source(source).sink_fn(|_| ()).run(&Options::default())?.frames, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TestOptions {
    /// Width of the pictures in pixels; ignored with `bytes`.
    pub width: u32,
    /// Height of the pictures in pixels; ignored with `bytes`.
    pub height: u32,
    /// Pixel format of the pictures; ignored with `bytes`.
    pub format: PixelFormat,
    /// Size in bytes of buffers without a picture; `None` emits pictures.
    pub bytes: Option<u64>,
    /// Frames per second; 0: as fast as possible.
    pub rate: f64,
    /// Number of frames; 0: no limit.
    pub frames: u64,
    /// Number of slots of the source's pool. The source waits while all are in use.
    pub pool: u32,
}

impl Default for TestOptions {
    /// Returns the default: 300 frames of 1280x720 NV12, as fast as possible, from a pool of 8 slots.
    fn default() -> TestOptions {
        TestOptions {
            width: 1280,
            height: 720,
            format: PixelFormat::Nv12,
            bytes: None,
            rate: 0.0,
            frames: 300,
            pool: 8,
        }
    }
}

/// The `test` source. The birth of a frame is the time when the source starts to make it: without a rate, the
/// time when the previous frame was done; with a rate, its due time, or later if the path is late.
pub struct Test {
    layout: Layout,
    /// True for pictures, false for buffers whose bytes the source does not write.
    draws: bool,
    pool: Pool,
    info: StreamInfo,
    pace: Option<Pace>,
    /// Number of frames in the stream; `u64::MAX`: no limit.
    frames: u64,
    /// Number of the next frame; goes on after a seek.
    next_seq: u64,
    /// Number of the next picture in the stream: its presentation time in frames. A seek changes it.
    position: u64,
}

impl Test {
    /// Makes the source, with a pool of its own.
    ///
    /// # Errors
    /// The size of the picture or the pool is impossible, or memory is short.
    pub fn new(options: &TestOptions) -> Result<Test, StageError> {
        let layout = match options.bytes {
            Some(bytes) => Layout::opaque(bytes as usize),
            None => Layout::aligned(options.format, options.width, options.height, 64)?,
        };
        let paced = options.rate > 0.0;
        let frame_rate = if paced { rate_of(options.rate) } else { Rational::new(30, 1) };
        Ok(Test {
            layout,
            draws: options.bytes.is_none(),
            pool: Pool::new(layout.size, options.pool)?,
            info: StreamInfo::from_layout(&layout, frame_rate),
            pace: Pace::from_rate(options.rate),
            frames: if options.frames == 0 { u64::MAX } else { options.frames },
            next_seq: 0,
            position: 0,
        })
    }
}

impl Source for Test {
    fn info(&self) -> StreamInfo {
        self.info
    }

    fn duration(&self) -> Option<Duration> {
        let frames = i64::try_from(self.frames).ok()?;
        let ns = self.info.time_base.rescale(frames, Rational::new(1, 1_000_000_000))?;
        u64::try_from(ns).ok().map(Duration::from_nanos)
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        if self.position >= self.frames {
            return Ok(false);
        }
        let birth_ns = match &mut self.pace {
            Some(pace) => match pace.wait_for(self.next_seq, out) {
                PaceWait::Now => out.birth(),
                PaceWait::Ended => return Ok(false),
                PaceWait::Request => return Ok(true),
            },
            None => out.birth_at_last(),
        };
        let mut frame = self.pool.acquire().map_err(|e| out.fail(e))?;
        if self.draws {
            frame.set_layout(&self.layout).map_err(|e| out.fail(e))?;
            pattern::draw(&mut frame, self.position);
        }
        let pts = i64::try_from(self.position).ok();
        let meta = FrameMeta { seq: self.next_seq, birth_ns, pts, duration: 1, ..FrameMeta::default() };
        self.next_seq += 1;
        self.position += 1;
        out.push(Item::Frame(frame.freeze(meta)))?;
        Ok(true)
    }

    fn can_seek(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        match *request {
            Request::Seek { to, mode } => {
                // Each frame is a random access point.
                let behind_all = (i64::MAX, i64::MAX);
                let (before, exact) = self.info.time_base.ticks_around(to).unwrap_or(behind_all);
                let position = if mode == SeekTo::Exact { exact } else { before };
                self.position = position as u64;
                self.pace.iter_mut().for_each(Pace::restart);
                Ok(Answered::Done)
            }
            Request::Flush => Ok(Answered::Done),
            _ => Ok(Answered::PassOn),
        }
    }
}

/// Returns a rate in Hz as a fraction: over 1 if the rate is whole and below `i32::MAX`, else rounded to
/// thousandths, with a numerator limited to 1 to `i32::MAX`.
pub(crate) fn rate_of(hz: f64) -> Rational {
    if hz.fract() == 0.0 && hz < f64::from(i32::MAX) {
        Rational::new(hz as i32, 1)
    } else {
        Rational::new((hz * 1000.0).round().clamp(1.0, f64::from(i32::MAX)) as i32, 1000)
    }
}
