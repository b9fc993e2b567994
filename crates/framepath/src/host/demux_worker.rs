// SPDX-License-Identifier: MIT OR Apache-2.0
//! A demuxer in its worker: packets of one file, for one caller.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use framepath_codec::{Demuxer, MediaFile, Packet};
use framepath_model::wire::{Completion, Demux, Message};
use framepath_os::crash;
use framepath_os::crossing::{Area, Bell, CellWriter, PacketPool, Sizes, Socket, completions};

use super::HostError;
use super::fault::Faults;
use super::remote_demuxer::MOST_TRACK_BYTES;
use super::say::say;
use super::tally::Tally;

/// Reads `file` and hands its packets to the caller, whose memory is behind
/// `memory`. Returns only where the caller broke the rules: it ends its worker
/// when it has what it wants.
pub(super) fn demux(
    demux: &Demux,
    memory: OwnedFd,
    file: MediaFile,
    socket: &Arc<Socket>,
    tally: Option<Tally>,
) -> Result<(), HostError> {
    let mut stream = match DemuxedFile::open(demux, memory, file, tally) {
        Ok((stream, opened)) => {
            say(socket, &opened, None)?;
            stream
        }
        Err(error) => {
            say(socket, &Message::Refused { text: error.to_string() }, None)?;
            crash::hang()
        }
    };
    let last = match stream.run() {
        Ok(()) => Completion::End,
        Err(Stopped::Caller(error)) => return Err(error),
        Err(Stopped::File(text)) => {
            // Before the cell, so that who reads the cell finds the text.
            say(socket, &Message::Failed { text, seq: None }, None)?;
            Completion::Failed
        }
    };
    stream.complete(&last)?;
    // What was handed over is still read.
    crash::hang()
}

/// Why no more packets come.
enum Stopped {
    /// The file cannot be read further: news for the caller.
    File(String),
    /// The caller broke the rules.
    Caller(HostError),
}

struct DemuxedFile {
    demuxer: Demuxer,
    pool: PacketPool,
    completions: CellWriter,
    room: Bell,
    loops_left: u64,
    faults: Faults,
    /// What the service wants counted: packets.
    tally: Option<Tally>,
}

impl DemuxedFile {
    fn open(
        demux: &Demux,
        memory: OwnedFd,
        file: MediaFile,
        tally: Option<Tally>,
    ) -> Result<(DemuxedFile, Message), Box<dyn std::error::Error>> {
        let sizes = Sizes { cells: demux.cells, packet_bytes: demux.packet_bytes };
        let area = Arc::new(Area::open(memory, sizes)?);
        let faults = demux.faults.parse()?;
        let demuxer = Demuxer::new(file)?;
        let track = demuxer.info().to_bytes();
        let too_long = format!("the track's description of {} bytes is too long", track.len());
        let pool = (track.len() <= MOST_TRACK_BYTES).then(|| PacketPool::new(area.clone(), &track));
        let pool = pool.flatten().ok_or(too_long)?;
        let opened = Message::Demuxed { track_bytes: track.len() as u32, stream: demuxer.info().stream };
        let (completions, room) = (completions(&area).0, Bell::of_completion_room(&area));
        let loops_left = demux.loops - 1;
        Ok((DemuxedFile { demuxer, pool, completions, room, loops_left, faults, tally }, opened))
    }

    fn run(&mut self) -> Result<(), Stopped> {
        let mut packets = 0;
        let mut first_of_this_loop = 0;
        let file = |error: framepath_codec::CodecError| Stopped::File(error.to_string());
        loop {
            if let Some(packet) = self.demuxer.read().map_err(file)? {
                self.faults.strike(packets);
                if let Some(tally) = &mut self.tally {
                    tally.took(packets);
                }
                packets += 1;
                self.send(&packet)?;
                continue;
            }
            if self.loops_left == 0 {
                return Ok(());
            }
            // It would loop for ever.
            if packets == first_of_this_loop {
                return Err(file(self.demuxer.nothing_to_repeat()));
            }
            self.loops_left -= 1;
            first_of_this_loop = packets;
            self.demuxer.rewind().map_err(file)?;
        }
    }

    fn send(&mut self, packet: &Packet) -> Result<(), Stopped> {
        // The demuxer's own packets always have bytes of this process.
        let bytes = packet.bytes().unwrap_or_default();
        if bytes.len() > self.pool.largest() {
            let (bytes, most) = (bytes.len(), self.pool.largest());
            return Err(Stopped::File(HostError::PacketSize { bytes, most }.to_string()));
        }
        let caller = |error: HostError| Stopped::Caller(error);
        let placed = loop {
            match self.pool.put(bytes).map_err(|breach| caller(breach.into()))? {
                Some(placed) => break placed,
                None => self.pool.wait(None),
            };
        };
        let meta = packet.meta();
        self.complete(&Completion::Packet {
            pts: meta.pts,
            duration: meta.duration,
            offset: placed.offset,
            len: bytes.len() as u32,
            id: placed.id,
            key: packet.is_key(),
            transit: placed.transit,
        })
        .map_err(caller)
    }

    /// Hands over a cell; waits while the ring is full.
    fn complete(&mut self, completion: &Completion) -> Result<(), HostError> {
        let cell = completion.encode();
        while !self.completions.push(&cell)? {
            let completions = &self.completions;
            self.room.sleep_unless(|| completions.room() != Ok(0), None);
        }
        Ok(())
    }
}
