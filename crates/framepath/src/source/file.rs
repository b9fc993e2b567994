// SPDX-License-Identifier: MIT OR Apache-2.0
//! `file`: packets of the first video track of a media file.

use framepath_codec::{Demuxer, MediaFile, Packet, TrackInfo};
use framepath_model::stream::StreamInfo;

use crate::error::StageError;
use crate::host::{DemuxerSpec, RemoteDemuxer};
use crate::item::Item;
use crate::out::{Failure, Out};
use crate::source::{Pace, Source};

/// Where the file is demuxed.
enum Demuxing {
    /// In the thread that runs the source.
    Inline(Inline),
    /// In a worker, which may be packets ahead.
    Worker(Box<RemoteDemuxer>),
}

/// A demuxer in this process, with the loops that are left.
struct Inline {
    demuxer: Demuxer,
    /// Times the file is still to be read after this one.
    loops_left: u64,
    packets_of_this_loop: u64,
}

/// A packet is born when the path asks for it; paced, that is its due time or
/// when the path got to it. A worker may have read it long before.
pub(crate) struct File {
    demuxing: Demuxing,
    next_seq: u64,
    pace: Option<Pace>,
}

impl File {
    /// Opens `path`, to be read `loops` times. `rate` packets a second; 0 is flat
    /// out. Demuxes inline, where `spec` names no worker.
    pub(crate) fn open(
        path: &str,
        loops: u64,
        rate: f64,
        spec: Option<DemuxerSpec>,
    ) -> Result<File, StageError> {
        let file = MediaFile::open(path.as_ref())?;
        let demuxing = match spec {
            Some(spec) => Demuxing::Worker(Box::new(RemoteDemuxer::open(file, spec)?)),
            None => Demuxing::Inline(Inline {
                demuxer: Demuxer::new(file)?,
                loops_left: loops.saturating_sub(1),
                packets_of_this_loop: 0,
            }),
        };
        Ok(File { demuxing, next_seq: 0, pace: Pace::of_rate(rate) })
    }

    /// The video that it reads.
    pub(crate) fn track(&self) -> &TrackInfo {
        match &self.demuxing {
            Demuxing::Inline(inline) => inline.demuxer.info(),
            Demuxing::Worker(remote) => remote.track(),
        }
    }

    /// The worker that demuxes, where there is one.
    pub(crate) fn worker(&self) -> Option<&RemoteDemuxer> {
        match &self.demuxing {
            Demuxing::Inline(_) => None,
            Demuxing::Worker(remote) => Some(remote),
        }
    }
}

impl Inline {
    fn read(&mut self) -> Result<Option<Packet>, StageError> {
        loop {
            if let Some(packet) = self.demuxer.read()? {
                self.packets_of_this_loop += 1;
                return Ok(Some(packet));
            }
            if self.loops_left == 0 {
                return Ok(None);
            }
            // It would loop for ever.
            if self.packets_of_this_loop == 0 {
                return Err(self.demuxer.nothing_to_repeat().into());
            }
            self.loops_left -= 1;
            self.packets_of_this_loop = 0;
            self.demuxer.rewind()?;
        }
    }
}

impl Source for File {
    fn info(&self) -> StreamInfo {
        self.track().stream
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, Failure> {
        if self.pace.as_mut().is_some_and(|pace| !pace.wait_for(self.next_seq)) {
            return Ok(false);
        }
        let birth_ns = out.birth();
        let packet = match &mut self.demuxing {
            Demuxing::Inline(inline) => inline.read(),
            Demuxing::Worker(remote) => remote.read().map_err(StageError::from),
        };
        let Some(mut packet) = packet.map_err(|error| out.fail(error))? else { return Ok(false) };
        packet.meta_mut().seq = self.next_seq;
        packet.meta_mut().birth_ns = birth_ns;
        self.next_seq += 1;
        out.push(Item::Packet(packet))?;
        Ok(true)
    }
}
