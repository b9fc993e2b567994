// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage with an encoder of libavcodec.

use framepath_codec::{EncodeError, Encoder, EncoderApi, EncoderOptions, RateBuffer, RateControl};
use framepath_model::format::Layout;
use framepath_model::stream::StreamInfo;
use framepath_os::memory::pool::Frame;

use crate::congestion::Congestion;
use crate::error::StageError;
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::recorder::Gap;
use crate::request::{Answered, Request};
use crate::stage::Stage;

/// Bit rates that a request can set, bits per second: those of the option `bitrate`. A requester may be in a worker.
const BIT_RATES: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000;

/// APIs of the encoder to try, and the receiver of the note about those that failed.
pub(super) struct EncoderChoice {
    /// APIs in the order in which to try them.
    pub(super) apis: Vec<EncoderApi>,
    pub(super) notes: Notes,
}

/// Stage that encodes. The encoder is opened for the first frame, and again, with a keyframe, when frames change their
/// format, size or colours, after a seek or flush, and for a request that the open encoder cannot follow.
///
/// In the ledger, encoding by the stage's thread counts for the frame, and is `pool` if the library has threads.
/// The time in which an encoder keeps a frame is `held`.
pub(super) struct Encode {
    options: EncoderOptions,
    choice: EncoderChoice,
    /// Bit rate without a limit, bits per second; `None` for constant quality.
    target: Option<u64>,
    /// Lowest bit rate to which [`Request::Bandwidth`] leads, bits per second.
    lowest: u64,
    /// Most that the network carries, bits per second.
    bandwidth: u64,
    congestion: Congestion,
    /// Description of the input; `None` before the start.
    info: Option<StreamInfo>,
    /// Present encoder, and the layout of the frames that it takes; `None` before the first frame, and after a seek,
    /// flush or drain.
    encoder: Option<(Encoder, Layout)>,
    /// True if a keyframe was requested since the last frame.
    wants_key: bool,
    /// True if a frame's packet has not come out at once: then the ledger shows how long each frame is inside.
    delays: bool,
}

impl Encode {
    pub(super) fn new(
        options: EncoderOptions,
        lowest: u64,
        choice: EncoderChoice,
        congestion: Congestion,
    ) -> Encode {
        let target = match options.rate {
            RateControl::BitRate(bits, _) => Some(bits),
            RateControl::Quality(_) => None,
        };
        Encode {
            options,
            choice,
            target,
            lowest,
            bandwidth: u64::MAX,
            congestion,
            info: None,
            encoder: None,
            wants_key: false,
            delays: false,
        }
    }

    /// Opens the first encoder that works. Adds a note with the reasons why others do not, and keeps to the API that
    /// works. Fails with the last reason.
    fn open(&mut self, layout: &Layout, info: &StreamInfo) -> Result<Encoder, EncodeError> {
        let mut reasons = Vec::new();
        let apis = self.choice.apis.clone();
        let (last, others) =
            apis.split_last().map_or((EncoderApi::Software, &[][..]), |(last, rest)| (*last, rest));
        for api in others {
            self.options.api = *api;
            match Encoder::open(layout, info, &self.options) {
                Ok(encoder) => {
                    self.choice.apis = vec![*api];
                    return Ok(encoder);
                }
                Err(error) => reasons.push(error.to_string()),
            }
        }
        self.options.api = last;
        let encoder = Encoder::open(layout, info, &self.options)?;
        if !reasons.is_empty() {
            self.choice.notes.add(format!("encode api=auto: in {last}, because {}", reasons.join("; ")));
        }
        self.choice.apis = vec![last];
        Ok(encoder)
    }

    /// Makes the encoder fit frames of `layout` and the requested bit rate. Passes on the packets of an encoder that
    /// does not.
    fn prepare(&mut self, layout: &Layout, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let described = |l: &Layout| (l.format, l.width, l.height, l.colors);
        let mut fits = self.encoder.as_ref().is_some_and(|(_, known)| described(known) == described(layout));
        if let Some((bits, buffer)) = self.changed_rate() {
            let follows =
                fits && self.encoder.as_mut().is_some_and(|(encoder, _)| encoder.set_bit_rate(bits, buffer));
            if follows || self.is_worth_a_keyframe(bits) {
                self.options.rate = RateControl::BitRate(bits, buffer);
                fits &= follows;
            }
        }
        let follows_key = self.encoder.as_ref().is_some_and(|(encoder, _)| encoder.follows_key_requests());
        fits &= follows_key || !self.wants_key;
        if !fits {
            self.end_encoder(out)?;
            let Some(info) = self.info else { return Err(out.fail(StageError::Downstream)) };
            let encoder = self.open(layout, &info).map_err(|error| out.fail(error))?;
            log::info!("encode: {}", encoder.name());
            self.encoder = Some((encoder, *layout));
        }
        Ok(())
    }

    /// Returns the bit rate of the next frame and its buffer if they are not those of the last: the requested rate, or what the
    /// network carries, but at least the lowest. On a network that carries no more, a large frame would be late.
    fn changed_rate(&self) -> Option<(u64, RateBuffer)> {
        let target = self.target?;
        let bits = target.min(self.bandwidth.max(self.lowest));
        let buffer = if bits < target { RateBuffer::Frame } else { RateBuffer::Twelfth };
        (self.options.rate != RateControl::BitRate(bits, buffer)).then_some((bits, buffer))
    }

    /// Returns true if an encoder that cannot change its bit rate should be opened again for this one, bits per second. The keyframe
    /// is a burst of bits, so that the bandwidth's small changes are not followed.
    fn is_worth_a_keyframe(&self, bits: u64) -> bool {
        match self.options.rate {
            RateControl::BitRate(present, _) if Some(bits) != self.target => {
                bits < present / 5 * 4 || bits > present / 2 * 3
            }
            _ => true,
        }
    }

    /// Passes on the packets of all frames inside, and closes the encoder.
    fn end_encoder(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if let Some((encoder, _)) = &mut self.encoder {
            encoder.drain().map_err(|error| out.fail(error))?;
            self.pass_packets(out)?;
        }
        self.encoder = None;
        Ok(())
    }

    /// Passes on the packets that are ready.
    fn pass_packets(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let Some((encoder, _)) = &mut self.encoder else { return Ok(()) };
        let gap = if encoder.has_threads() { Gap::Pool } else { Gap::Held };
        while let Some(packet) = encoder.receive().map_err(|error| out.fail(error))? {
            if self.delays || gap == Gap::Pool {
                out.resume_after(packet.meta().seq, gap);
            }
            out.push(Item::Packet(packet))?;
            out.mark();
        }
        Ok(())
    }

    fn encode(&mut self, frame: Frame, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let seq = frame.meta().seq;
        let key = std::mem::take(&mut self.wants_key);
        let Some((encoder, _)) = &mut self.encoder else { return Ok(()) };
        encoder.send(frame, key).map_err(|error| out.fail(error))?;
        let has_threads = encoder.has_threads();
        if self.delays || has_threads {
            out.hold(seq);
        }
        self.pass_packets(out)?;
        let is_inside = self.encoder.as_ref().is_some_and(|(encoder, _)| encoder.frames_inside() > 0);
        if is_inside && !self.delays && !has_threads {
            self.delays = true;
            out.hold(seq);
        }
        Ok(())
    }
}

impl Stage for Encode {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.info = Some(*info);
        Ok(StreamInfo { format: None, ..*info })
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        if self.congestion.drops(&frame.meta(), self.encoder.is_none(), out) {
            return Ok(());
        }
        let layout = *frame.layout();
        self.prepare(&layout, out)?;
        self.encode(frame, out)
    }

    /// Returns the number of threads that encode. The frames of a worker that died are encoded again by one thread if the next
    /// one dies, too.
    fn threads(&self) -> u32 {
        let auto = || std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        self.options.threads.unwrap_or_else(auto)
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        out.mark();
        self.end_encoder(out)?;
        self.congestion.report();
        Ok(())
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let inside = self.encoder.take().map_or(0, |(encoder, _)| encoder.frames_inside());
        out.flushed(inside as u64);
        Ok(())
    }

    /// Remembers the request for the next frame. A request for a keyframe goes on to the source: a screen that does not change
    /// has no next frame without it.
    fn request(&mut self, request: &Request) -> Answered {
        match request {
            Request::Keyframe => self.wants_key = true,
            Request::BitRate(bits) => {
                self.target = Some((*bits).clamp(*BIT_RATES.start(), *BIT_RATES.end()));
                return Answered::Done;
            }
            Request::Bandwidth(bits) => {
                self.bandwidth = (*bits).max(*BIT_RATES.start());
                return Answered::Done;
            }
            Request::Congested(is_congested) => return self.congestion.request(*is_congested),
            _ => {}
        }
        Answered::PassOn
    }
}
