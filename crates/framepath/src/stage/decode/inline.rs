// SPDX-License-Identifier: MIT OR Apache-2.0
//! A decoder in the thread of the stage: FFmpeg's or dav1d's, or a hardware decoder by
//! libavcodec, with one of the first two as fallback.

use std::collections::VecDeque;

use framepath_codec::{
    Codec, CodecError, Decoder, DecoderOptions, DecoderOutput, Hardware, HardwareApi, Packet, TrackInfo,
    WorkDivision,
};
use framepath_model::stream::{FrameMeta, StreamInfo};
use framepath_os::measure::meter::Level;
use framepath_os::time::now_ns;

use crate::damage::DamageLog;
use crate::error::StageError;
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::recorder::Gap;
use crate::stage::Stage;

/// Stage with a decoder. In the ledger, decoding by the stage's thread or by a frame thread counts for the
/// picture's own frame, and the time in which the decoder keeps the finished picture is `held`. In a decoder
/// whose threads share the pictures, the work of the stage's thread in the call for a packet counts for the packet's
/// frame, and the time until the output is `pool`.
pub(crate) struct Decode {
    track: TrackInfo,
    options: DecoderOptions,
    /// Present decoder; `None` before the start.
    decoder: Option<Decoder>,
    /// True if the decoder got no packet since it was opened or flushed.
    is_fresh: bool,
    /// Hardware decoders to try at the start; `None` for software, and after the start.
    fallback: Option<HardwareFallback>,
    damage: DamageHandling,
    /// Metadata of the last packet; the default before the first.
    last: FrameMeta,
    /// True if the decoder has rejected a packet since it was opened or flushed.
    has_rejected: bool,
    /// True after damage with [`DamageMode::Skip`], until the next random access point or a flush.
    is_skipping: bool,
    /// Times of the last packets.
    sent: SendTimes,
    /// True while [`Stage::drain`] runs.
    is_draining: bool,
    /// CPU time of the decoder's threads that the ledger already has, in rows or as time without a
    /// frame, nanoseconds.
    recorded_cpu_ns: u64,
    /// State of a hardware decoder that has not yet emitted a frame. `None` for another decoder, and if memory
    /// for a handle to a packet was short: then there is no fallback to software.
    probe: Option<Probe>,
}

/// Times at which the last packets were sent to a decoder that works in threads of its own, recorded at ledger
/// level `full`. In a drain, at every level, also the time of each picture that comes out.
#[derive(Default)]
struct SendTimes(VecDeque<u64>);

impl SendTimes {
    /// Number of times kept: the maximum number of threads of a decoder.
    const MOST: usize = 256;

    /// Records the present time, at which a packet is sent or a drain has output a picture; forgets the oldest time
    /// if [`SendTimes::MOST`] are kept.
    fn record(&mut self) {
        if self.0.len() == SendTimes::MOST {
            self.0.pop_front();
        }
        self.0.push_back(now_ns());
    }

    /// Returns the time at which the packet was sent after which `count` more were sent, CLOCK_MONOTONIC
    /// nanoseconds; 0 if fewer are known.
    fn before_last(&self, count: usize) -> u64 {
        let at = self.0.len().checked_sub(count + 1);
        at.and_then(|at| self.0.get(at)).copied().unwrap_or(0)
    }
}

/// Reaction to damage of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DamageMode {
    /// The decoder conceals damage, and its frames are delivered.
    Show,
    /// No frame is delivered from the damage to the next random access point. If the decoder reports the
    /// damage, the pictures that it has not finished are dropped, too.
    Skip,
    /// The run fails.
    Stop,
}

impl DamageMode {
    /// Returns the mode with this name in path text; `Show` for an unknown name.
    pub(super) fn named(name: &str) -> DamageMode {
        match name {
            "skip" => DamageMode::Skip,
            "stop" => DamageMode::Stop,
            _ => DamageMode::Show,
        }
    }
}

/// Reaction to damage, and the log of damage.
pub(super) struct DamageHandling {
    pub(super) mode: DamageMode,
    pub(super) log: DamageLog,
}

/// The hardware decoders to try, and the note about the fallback to software.
pub(crate) struct HardwareFallback {
    /// Value of the option `api`.
    pub(crate) requested: String,
    /// Interfaces of libavcodec's hardware decoders, in the order in which to try them.
    pub(crate) apis: Vec<HardwareApi>,
    /// Reasons why other hardware decoders are not used.
    pub(crate) reasons: Vec<String>,
    /// Receiver of the note that software decodes.
    pub(crate) notes: Notes,
}

/// State of a hardware decoder before its first frame, for the fallback to software: some drivers accept a
/// stream and then fail to decode it.
struct Probe {
    fallback: HardwareFallback,
    /// Packets sent since the start or the last flush. The software decoder gets these packets if the
    /// hardware fails.
    packets: Vec<Packet>,
}

impl HardwareFallback {
    /// Adds a note that software decodes, with the reasons.
    fn report(self) {
        let why = self.reasons.join("; ");
        self.notes.add(format!("decode api={}: in software, because {why}", self.requested));
    }
}

impl Decode {
    pub(crate) fn new(
        track: TrackInfo,
        options: DecoderOptions,
        fallback: Option<HardwareFallback>,
        damage: DamageHandling,
    ) -> Decode {
        let last = FrameMeta::default();
        let (decoder, probe, is_fresh, is_skipping) = (None, None, true, false);
        Decode {
            track,
            options,
            decoder,
            is_fresh,
            has_rejected: false,
            fallback,
            damage,
            last,
            is_skipping,
            sent: SendTimes::default(),
            is_draining: false,
            recorded_cpu_ns: 0,
            probe,
        }
    }

    /// Opens the first hardware decoder that can be opened, and starts its probe. Returns `None`, and adds a
    /// note for the user, if none can.
    fn open_hardware(&mut self, mut fallback: HardwareFallback) -> Option<Decoder> {
        for api in std::mem::take(&mut fallback.apis) {
            let opened =
                Hardware::open(api).and_then(|device| Decoder::on(&device, &self.track, &self.options));
            match opened {
                Ok(decoder) => {
                    log::info!("decode api={}: trying {api}", fallback.requested);
                    self.probe = Some(Probe { fallback, packets: Vec::new() });
                    return Some(decoder);
                }
                Err(error) => fallback.reasons.push(error.to_string()),
            }
        }
        fallback.report();
        None
    }

    /// Pushes the frames that the decoder has ready, and records their damage. Replaces a hardware decoder
    /// that fails before its first frame by software. With [`DamageMode::Skip`], damage starts the skipping
    /// and is no error.
    fn forward_all(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Ok(()) };
            match decoder.receive() {
                Ok(DecoderOutput::Frame(frame)) => {
                    self.probe = None;
                    self.damage.log.frame(&frame.meta());
                    let gap = match decoder.division() {
                        WorkDivision::Caller => Gap::Held,
                        WorkDivision::FrameThreads => {
                            let work = decoder.work();
                            self.recorded_cpu_ns += work.as_ref().map_or(0, |work| work.cpu_ns);
                            let depth = decoder.threads() as usize - 1;
                            Gap::FrameThread { work, depth_since_ns: self.sent.before_last(depth) }
                        }
                        WorkDivision::Pool => Gap::Pool,
                    };
                    out.resume_after(frame.meta().seq, gap);
                    out.push(Item::Frame(frame))?;
                    out.mark();
                    if self.is_draining {
                        // Each picture that the drain outputs takes the place of a packet.
                        self.sent.record();
                    }
                }
                Ok(DecoderOutput::Undecoded { packet, error }) => {
                    self.has_rejected = true;
                    self.damage.log.undecodable(&packet, Some(error.to_string()));
                }
                Ok(DecoderOutput::NeedsPacket | DecoderOutput::End) => return Ok(()),
                Err(error) => match self.probe.take() {
                    Some(probe) => return self.fall_back(probe, &error, out),
                    None if self.damage.mode == DamageMode::Skip && error.is_damage() => {
                        self.skip_from_here(Some(error.to_string()));
                        return Ok(());
                    }
                    None => return Err(out.fail(error)),
                },
            }
        }
    }

    /// Drops what is inside the decoder, and skips packets from now on up to the next random access point.
    /// Counts the last packet as undecodable, for this `reason`.
    fn skip_from_here(&mut self, reason: Option<String>) {
        self.damage.log.undecodable(&self.last, reason);
        let dropped = self.decoder.as_mut().map_or(0, Decoder::flush);
        // The last packet is among the dropped ones, and counts as undecodable already.
        self.damage.log.skipped(&self.last, dropped.saturating_sub(1));
        (self.is_skipping, self.is_fresh, self.has_rejected) = (true, true, false);
    }

    /// Handles a packet that the demuxer found damaged. Returns the packet if it is to be decoded; an error
    /// with [`DamageMode::Stop`].
    fn on_damaged(&mut self, mut packet: Packet, out: &mut Out<'_>) -> Result<Option<Packet>, HopFailure> {
        match self.damage.mode {
            DamageMode::Stop => {
                let error =
                    CodecError::DamagedPacket { codec: self.track.codec.name(), packet: self.last.seq };
                Err(self.fail(error, out))
            }
            DamageMode::Skip => {
                // The frames before the damage are whole.
                self.drain(out)?;
                self.skip_from_here(None);
                Ok(None)
            }
            DamageMode::Show if packet.is_empty() => {
                self.damage.log.undecodable(&self.last, None);
                Ok(None)
            }
            DamageMode::Show => {
                packet.meta_mut().is_damaged = true;
                self.damage.log.damaged(&self.last);
                Ok(Some(packet))
            }
        }
    }

    /// Replaces a hardware decoder, which failed with `error`, by software, and adds a note. Sends the
    /// packets of `probe` again, and pushes the resulting frames.
    fn fall_back(
        &mut self,
        mut probe: Probe,
        error: &CodecError,
        out: &mut Out<'_>,
    ) -> Result<(), HopFailure> {
        probe.fallback.reasons.push(error.to_string());
        probe.fallback.report();
        self.decoder = Some(Decoder::open(&self.track, &self.options).map_err(|e| out.fail(e))?);
        for packet in probe.packets {
            self.send(packet, out)?;
        }
        Ok(())
    }

    /// Sends the decoder a packet, and pushes the resulting frames. If the decoder rejects the packet,
    /// replaces a hardware decoder before its first frame by software; pushes the frames before the error and
    /// fails otherwise.
    fn send(&mut self, packet: Packet, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let Some(decoder) = &mut self.decoder else {
            return Err(out.fail(StageError::Downstream));
        };
        let seq = packet.meta().seq;
        let division = decoder.division();
        let has_thread_of_its_own = division == WorkDivision::FrameThreads;
        if has_thread_of_its_own {
            // From here on, the work is that of the decoder's threads.
            out.hold(seq);
        }
        if division != WorkDivision::Caller && out.recorder().level() == Level::Full {
            self.sent.record();
        }
        match decoder.send(packet) {
            Ok(()) => {
                if !has_thread_of_its_own {
                    // This call decoded the picture, alone or with the threads that share it. Another frame may come out next.
                    out.hold(seq);
                }
                self.forward_all(out)
            }
            Err(error) => match self.probe.take() {
                Some(probe) => self.fall_back(probe, &error, out),
                None => Err(self.fail(error, out)),
            },
        }
    }

    /// Drains the decoder, and pushes the frames that were decoded before `error`. Returns the failure of this
    /// stage with `error`.
    fn fail(&mut self, error: CodecError, out: &mut Out<'_>) -> HopFailure {
        let drained = self.decoder.as_mut().is_some_and(|d| d.drain().is_ok());
        if drained {
            // A second failure has no new information.
            let _ = self.forward_all(out);
        }
        out.fail(error)
    }
}

impl Stage for Decode {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        let decoder = match self.fallback.take() {
            Some(fallback) => self.open_hardware(fallback),
            None => None,
        };
        self.decoder = Some(match decoder {
            Some(decoder) => decoder,
            None => Decoder::open(&self.track, &self.options)?,
        });
        Ok(StreamInfo { format: None, ..*info })
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let packet = item.into_packet().map_err(|e| out.fail(e))?;
        // Behind some damaged packets, dav1d rejects all that follow, keyframes included.
        let is_stuck = self.has_rejected && self.track.codec == Codec::Av1 && packet.is_key();
        if packet.preroll().restarts && !self.is_fresh || is_stuck {
            // The file is repeated, or begins again for dav1d, and earlier pictures are still inside.
            self.drain(out)?;
            if let Some(decoder) = &mut self.decoder {
                decoder.flush();
            }
            self.has_rejected = false;
        }
        self.last = packet.meta();
        let packet = if packet.is_damaged() {
            let Some(packet) = self.on_damaged(packet, out)? else { return Ok(()) };
            packet
        } else {
            packet
        };
        if self.is_skipping && !packet.is_key() {
            self.damage.log.skipped(&self.last, 1);
            return Ok(());
        }
        (self.is_fresh, self.is_skipping) = (false, false);
        if let Some(probe) = &mut self.probe {
            match packet.share() {
                Some(shared) => probe.packets.push(shared),
                // Without memory for a handle, there is no fallback.
                None => self.probe = None,
            }
        }
        self.send(packet, out)
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if let Some(probe) = &mut self.probe {
            probe.packets.clear();
        }
        out.flushed(self.decoder.as_mut().map_or(0, Decoder::flush));
        self.damage.log.dropped();
        (self.is_fresh, self.has_rejected, self.is_skipping) = (true, false, false);
        Ok(())
    }

    fn threads(&self) -> u32 {
        self.decoder.as_ref().map_or(1, Decoder::threads)
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        out.mark();
        self.is_draining = true;
        // Twice, because a hardware decoder may fail here, and software must be drained, too.
        for _ in 0..2 {
            if let Some(decoder) = &mut self.decoder {
                decoder.drain().map_err(|e| out.fail(e))?;
            }
            self.forward_all(out)?;
        }
        self.is_draining = false;
        self.damage.log.drained();
        // What remains is time of hidden pictures, and of threads that share the pictures.
        let threads_cpu_ns = self.decoder.as_ref().map_or(0, Decoder::threads_cpu_ns);
        out.cpu_without_frame(threads_cpu_ns.saturating_sub(self.recorded_cpu_ns));
        self.recorded_cpu_ns = self.recorded_cpu_ns.max(threads_cpu_ns);
        Ok(())
    }
}
