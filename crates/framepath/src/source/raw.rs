// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rawfile`: frames of a file without a header: the planes of each one after the other, without padding.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;

use framepath_model::format::{Layout, PixelFormat};
use framepath_model::path::{Arg, DefaultValue, Definition, Hop, ValueKind};
use framepath_model::stream::{FrameMeta, SeekTo, StreamInfo};
use framepath_os::measure::meter;
use framepath_os::memory::pool::{FrameMut, Pool};
use framepath_os::process::cancel;

use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::request::{Answered, Request};
use crate::source::test::rate_of;
use crate::source::{Pace, PaceWait, Source};

static DEFINITION: Definition = Definition::source("rawfile", "frames of a file without a header")
    .args(&[
        Arg::word(
            "path",
            ValueKind::Text("the path of a file, or `-`"),
            "the file to read; `-` is standard input",
        ),
        Arg::option("size", ValueKind::Size, DefaultValue::Required, "size of the pictures"),
        Arg::option(
            "format",
            ValueKind::Text("the name of a pixel format"),
            DefaultValue::Is("yuv420p"),
            "pixel format; FFmpeg's names are known, too",
        ),
        Arg::option(
            "fps",
            ValueKind::Rate,
            DefaultValue::Is("25"),
            "frames per second of the stream; more than 0",
        ),
        Arg::option(
            "rate",
            ValueKind::Rate,
            DefaultValue::Is("0"),
            "frames per second to read; 0: as fast as possible",
        ),
    ])
    .known_as(&["rawvideoparse"]);

pub(crate) fn element() -> Element {
    Element::source(&DEFINITION, make)
}

/// Number of slots of the source's pool. The source waits while all are in use.
const SLOTS: u32 = 8;

fn make(hop: &Hop, _: &HopPlace<'_>) -> Result<RawFile, StageError> {
    let (width, height) = hop.size("size");
    let format: PixelFormat = hop.text("format").parse()?;
    let layout = Layout::packed(format, width, height)?;
    let fps = hop.rate("fps");
    if fps <= 0.0 {
        return Err(StageError::Option("fps= must be more than 0".to_owned()));
    }
    let path = hop.text("path");
    let (name, file) = match path {
        "-" => {
            let input = io::stdin().as_fd().try_clone_to_owned().map_err(StageError::io("standard input"))?;
            ("standard input".to_owned(), File::from(input))
        }
        _ => (path.to_owned(), meter::blocked(|| cancel::open(path.as_ref())).map_err(StageError::io(path))?),
    };
    RawFile::new(name, file, layout, fps, hop.rate("rate"))
}

/// Source that reads each frame of the file directly into a slot.
struct RawFile {
    name: String,
    file: File,
    /// Position of the first frame, bytes: that of the file when the source was made.
    start: u64,
    /// Number of whole frames from `start` on; `None` if it is not a regular file, which cannot seek.
    frames: Option<u64>,
    layout: Layout,
    pool: Pool,
    info: StreamInfo,
    pace: Option<Pace>,
    /// Number of the next frame; goes on after a seek.
    next_seq: u64,
    /// Number of the next frame, counted from `start`.
    position: u64,
}

impl RawFile {
    fn new(name: String, mut file: File, layout: Layout, fps: f64, rate: f64) -> Result<RawFile, StageError> {
        let metadata = file.metadata().map_err(StageError::io(&name))?;
        let (mut start, mut frames) = (0, None);
        if metadata.is_file() {
            // A program may have read the first bytes of standard input before.
            start = file.stream_position().map_err(StageError::io(&name))?;
            frames = Some(metadata.len().saturating_sub(start) / layout.size as u64);
        }
        Ok(RawFile {
            name,
            file,
            start,
            frames,
            layout,
            pool: Pool::new(layout.size, SLOTS)?,
            info: StreamInfo::from_layout(&layout, rate_of(fps)),
            pace: Pace::from_rate(rate),
            next_seq: 0,
            position: 0,
        })
    }

    /// Reads the next frame. Returns false at the end of the file; fails if the file cannot be read, or ends
    /// inside a frame.
    fn fill(&mut self, frame: &mut FrameMut) -> Result<bool, StageError> {
        let mut done = 0;
        for index in 0..self.layout.planes().len() {
            let bytes = frame.plane_mut(index);
            let mut filled = 0;
            while filled < bytes.len() {
                let count = meter::blocked(|| cancel::read(&self.file, &mut bytes[filled..]));
                match count.map_err(StageError::io(&self.name))? {
                    0 if done == 0 && filled == 0 => return Ok(false),
                    0 => {
                        let missing = self.layout.size - done - filled;
                        return Err(StageError::Option(format!(
                            "{}: the file ends inside frame {}, {missing} of {} bytes are missing; check size= and format=",
                            self.name, self.position, self.layout.size
                        )));
                    }
                    count => filled += count,
                }
            }
            done += filled;
        }
        Ok(true)
    }
}

impl Source for RawFile {
    fn info(&self) -> StreamInfo {
        self.info
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        match self.pace.as_mut().map(|pace| pace.wait_for(self.next_seq, out)) {
            None | Some(PaceWait::Now) => {}
            Some(PaceWait::Ended) => return Ok(false),
            Some(PaceWait::Request) => return Ok(true),
        }
        let birth_ns = out.birth();
        let mut frame = self.pool.acquire().map_err(|error| out.fail(error))?;
        frame.set_layout(&self.layout).map_err(|error| out.fail(error))?;
        if !self.fill(&mut frame).map_err(|error| out.fail(error))? {
            return Ok(false);
        }
        let pts = i64::try_from(self.position).ok();
        let meta = FrameMeta { seq: self.next_seq, birth_ns, pts, duration: 1, ..FrameMeta::default() };
        self.next_seq += 1;
        self.position += 1;
        out.push(Item::Frame(frame.freeze(meta)))?;
        Ok(true)
    }

    fn can_seek(&self) -> Result<(), &'static str> {
        self.frames.map(drop).ok_or("the input is a pipe or a device; only regular files are seekable")
    }

    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        match (*request, self.frames) {
            (Request::Seek { to, mode }, Some(frames)) => {
                // Each frame is a random access point.
                let (before, exact) = self.info.time_base.ticks_around(to).unwrap_or((i64::MAX, i64::MAX));
                let position = u64::try_from(if mode == SeekTo::Exact { exact } else { before }).unwrap_or(0);
                self.position = position.min(frames);
                let byte = self.start + self.position * self.layout.size as u64;
                self.file.seek(SeekFrom::Start(byte)).map_err(StageError::io(&self.name))?;
            }
            (Request::Flush, _) => {}
            _ => return Ok(Answered::PassOn),
        }
        self.pace.iter_mut().for_each(Pace::restart);
        Ok(Answered::Done)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_seek_counts_from_the_position_that_the_file_had_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw");
        std::fs::write(&path, [9, 9, 9, 10, 11, 12, 13]).unwrap();
        let mut file = File::open(&path).unwrap();
        file.seek(SeekFrom::Start(3)).unwrap();
        let layout = Layout::packed(PixelFormat::Grey, 1, 1).unwrap();
        let mut source = RawFile::new("raw".to_owned(), file, layout, 1.0, 0.0).unwrap();
        assert_eq!(source.frames, Some(4));
        let mut frame = source.pool.acquire().unwrap();
        frame.set_layout(&layout).unwrap();
        for (second, pixel) in [(2, 12), (0, 10)] {
            let to = Duration::from_secs(second);
            source.request(&Request::Seek { to, mode: SeekTo::Exact }).unwrap();
            assert!(source.fill(&mut frame).unwrap());
            assert_eq!(frame.plane_mut(0)[0], pixel);
        }
    }
}
