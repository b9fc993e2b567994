// SPDX-License-Identifier: MIT OR Apache-2.0
//! `fixture`: repeats one picture from a file, in memory that devices
//! share. Each frame is one counted copy.

use framepath_model::format::{Layout, PixelFormat};
use framepath_model::path::{Arg, DefaultValue, Definition, ValueKind};
use framepath_model::stream::{FrameMeta, Rational, StreamInfo};
use framepath_os::v4l2::{DevicePool, Heap};

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::pgm::PgmPicture;
use crate::source::{HEAP, Source, frames, heap_of};

static DEFINITION: Definition =
    Definition::source("fixture", "repeats a GREY picture, in memory that devices share")
        .args(&[
            Arg::word(
                "file",
                ValueKind::Text("the path of a PGM picture"),
                "picture to repeat: binary PGM of 8 bits",
            ),
            frames("1"),
            Arg::option(
                "pool",
                ValueKind::count(1, 64),
                DefaultValue::Is("4"),
                "number of frames in the source's pool; while all are in use, the source waits",
            ),
            HEAP,
        ])
        .for_tests();

pub(crate) fn element() -> Element {
    Element::source(&DEFINITION, |hop, _| {
        Fixture::open(hop.text("file"), &heap_of(hop), hop.count("frames"), hop.count("pool") as u32)
    })
}

/// The `fixture` source. The birth of a frame is the time when the copy of the frame starts.
pub(crate) struct Fixture {
    picture: PgmPicture,
    layout: Layout,
    pool: DevicePool,
    /// Number of frames to emit; `u64::MAX`: no limit.
    frames: u64,
    next_seq: u64,
}

impl Fixture {
    /// Reads the picture in `file` and allocates memory for `slots` frames from `heap`. `frames` is the
    /// number of frames to emit; 0: no limit.
    pub(crate) fn open(file: &str, heap: &Heap, frames: u64, slots: u32) -> Result<Fixture, StageError> {
        let picture =
            PgmPicture::open(file.as_ref()).map_err(|error| StageError::Option(error.to_string()))?;
        let layout = Layout::packed(PixelFormat::Grey, picture.width as u32, picture.height as u32)?;
        let pool = DevicePool::new(heap, layout.size, slots)?;
        let frames = if frames == 0 { u64::MAX } else { frames };
        Ok(Fixture { picture, layout, pool, frames, next_seq: 0 })
    }
}

impl Source for Fixture {
    fn info(&self) -> StreamInfo {
        StreamInfo::from_layout(&self.layout, Rational::new(30, 1))
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        if self.next_seq >= self.frames {
            return Ok(false);
        }
        let mut slot = self.pool.acquire();
        let birth_ns = out.birth();
        slot.write(0, &self.picture.pixels);
        let meta = FrameMeta {
            seq: self.next_seq,
            birth_ns,
            pts: Some(self.next_seq as i64),
            duration: 1,
            ..FrameMeta::default()
        };
        let frame = slot.freeze(&self.layout, meta).map_err(|e| out.fail(e))?;
        self.next_seq += 1;
        out.push(Item::Frame(frame))?;
        Ok(true)
    }
}
