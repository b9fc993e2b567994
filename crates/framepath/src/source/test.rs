// SPDX-License-Identifier: MIT OR Apache-2.0
//! `test`: a moving pattern, or buffers of so many bytes, paced or flat out.

use framepath_model::format::{Layout, PixelFormat};
use framepath_model::stream::{FrameMeta, Rational, StreamInfo};
use framepath_os::pool::Pool;

use crate::error::StageError;
use crate::item::Item;
use crate::out::{Failure, Out};
use crate::source::{Pace, Source, pattern};

/// What the `test` source makes.
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
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
    /// Pixel format.
    pub format: PixelFormat,
    /// Buffers of so many bytes instead of pictures.
    pub bytes: Option<u64>,
    /// Frames per second; 0 is flat out.
    pub rate: f64,
    /// How many; 0 is without end.
    pub frames: u64,
    /// Slots of the pool.
    pub pool: u32,
}

impl Default for TestOptions {
    /// 300 frames of 1280x720 NV12, flat out.
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

/// The `test` source. A frame is born when its drawing begins; paced, that is
/// its due time or when the source got to it.
pub struct Test {
    layout: Layout,
    draws: bool,
    pool: Pool,
    info: StreamInfo,
    pace: Option<Pace>,
    frames: u64,
    next_seq: u64,
}

impl Test {
    /// A source with a pool of its own.
    ///
    /// # Errors
    /// A picture or a pool that cannot be made.
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
            info: StreamInfo::of_frames(&layout, frame_rate),
            pace: Pace::of_rate(options.rate),
            frames: if options.frames == 0 { u64::MAX } else { options.frames },
            next_seq: 0,
        })
    }
}

impl Source for Test {
    fn info(&self) -> StreamInfo {
        self.info
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, Failure> {
        if self.next_seq >= self.frames {
            return Ok(false);
        }
        let birth_ns = match &mut self.pace {
            Some(pace) => {
                if !pace.wait_for(self.next_seq) {
                    return Ok(false);
                }
                out.birth()
            }
            None => out.birth_at_last(),
        };
        let mut frame = self.pool.acquire().map_err(|e| out.fail(e))?;
        if self.draws {
            frame.set_layout(&self.layout).map_err(|e| out.fail(e))?;
            pattern::draw(&mut frame, self.next_seq);
        }
        let meta = FrameMeta { seq: self.next_seq, birth_ns, pts: Some(self.next_seq as i64), duration: 1 };
        self.next_seq += 1;
        out.push(Item::Frame(frame.freeze(meta)))?;
        Ok(true)
    }
}

/// A rate as a fraction: whole where it is, thousandths otherwise.
fn rate_of(hz: f64) -> Rational {
    if hz.fract() == 0.0 && hz < f64::from(i32::MAX) {
        Rational::new(hz as i32, 1)
    } else {
        Rational::new((hz * 1000.0).round().clamp(1.0, f64::from(i32::MAX)) as i32, 1000)
    }
}
