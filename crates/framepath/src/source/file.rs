// SPDX-License-Identifier: MIT OR Apache-2.0
//! `file`: packets of the first video track of whatever libavformat opens.

use framepath_codec::{Demuxer, TrackInfo};
use framepath_model::stream::StreamInfo;

use crate::error::StageError;
use crate::item::Item;
use crate::out::{Failure, Out};
use crate::source::{Pace, Source};

/// A packet is born when the reader begins to read it; paced, that is its due
/// time or when the reader got to it.
pub(crate) struct File {
    demuxer: Demuxer,
    /// Times the file is still to be played after this one.
    loops_left: u64,
    next_seq: u64,
    packets_of_this_loop: u64,
    pace: Option<Pace>,
}

impl File {
    /// `rate` packets a second; 0 is flat out.
    pub(crate) fn open(path: &str, loops: u64, rate: f64) -> Result<File, StageError> {
        let demuxer = Demuxer::open(path.as_ref())?;
        let loops_left = loops.saturating_sub(1);
        Ok(File { demuxer, loops_left, next_seq: 0, packets_of_this_loop: 0, pace: Pace::of_rate(rate) })
    }

    pub(crate) fn track(&self) -> &TrackInfo {
        self.demuxer.info()
    }
}

impl Source for File {
    fn info(&self) -> StreamInfo {
        self.demuxer.info().stream
    }

    fn give(&mut self, out: &mut Out<'_>) -> Result<bool, Failure> {
        if let Some(pace) = &mut self.pace {
            pace.wait_for(self.next_seq);
        }
        let birth_ns = out.birth();
        loop {
            if let Some(mut packet) = self.demuxer.read().map_err(|e| out.fail(e))? {
                packet.meta_mut().seq = self.next_seq;
                packet.meta_mut().birth_ns = birth_ns;
                self.next_seq += 1;
                self.packets_of_this_loop += 1;
                out.push(Item::Packet(packet))?;
                return Ok(true);
            }
            // A file without packets would loop for ever.
            if self.loops_left == 0 || self.packets_of_this_loop == 0 {
                return Ok(false);
            }
            self.loops_left -= 1;
            self.packets_of_this_loop = 0;
            self.demuxer.rewind().map_err(|e| out.fail(e))?;
        }
    }
}
