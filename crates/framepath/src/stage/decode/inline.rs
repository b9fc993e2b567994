// SPDX-License-Identifier: MIT OR Apache-2.0
//! A decoder in the thread of the stage: FFmpeg's or dav1d's, or a hardware decoder by
//! libavcodec, with one of the first two as fallback.

use framepath_codec::{
    CodecError, Decoder, DecoderOptions, DecoderOutput, Hardware, HardwareApi, Packet, TrackInfo,
};
use framepath_model::stream::StreamInfo;

use crate::error::StageError;
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

/// A decoder. In the ledger, the time a frame spends inside while the decoder
/// works on others (reordering, frame threads) is `queue`.
pub(crate) struct Decode {
    track: TrackInfo,
    options: DecoderOptions,
    decoder: Option<Decoder>,
    /// True if the decoder got no packet since it was opened or flushed.
    is_fresh: bool,
    wish: Option<HardwareFallback>,
    trial: Option<Trial>,
}

/// The hardware decoders to try.
pub(crate) struct HardwareFallback {
    /// Value of the option `api`.
    pub(crate) asked: String,
    pub(crate) apis: Vec<HardwareApi>,
    /// Reasons why other decoders are not tried.
    pub(crate) reasons: Vec<String>,
    /// Gets the note that software decodes.
    pub(crate) notes: Notes,
}

/// A hardware decoder that has given no frame yet: only the stream shows
/// if the driver can decode it.
struct Trial {
    wish: HardwareFallback,
    /// Packets sent so far, to send them again.
    packets: Vec<Packet>,
}

impl HardwareFallback {
    /// Notes that software decodes, and why.
    fn given_up(self) {
        let why = self.reasons.join("; ");
        self.notes.add(format!("decode api={}: in software, because {why}", self.asked));
    }
}

impl Decode {
    pub(crate) fn new(track: TrackInfo, options: DecoderOptions, wish: Option<HardwareFallback>) -> Decode {
        Decode { track, options, decoder: None, is_fresh: true, wish, trial: None }
    }

    /// Opens the first of the wished decoders that can be opened.
    fn machines_decoder(&mut self, mut wish: HardwareFallback) -> Option<Decoder> {
        for api in std::mem::take(&mut wish.apis) {
            let opened =
                Hardware::open(api).and_then(|device| Decoder::on(&device, &self.track, &self.options));
            match opened {
                Ok(decoder) => {
                    log::info!("decode api={}: trying {api}", wish.asked);
                    self.trial = Some(Trial { wish, packets: Vec::new() });
                    return Some(decoder);
                }
                Err(error) => wish.reasons.push(error.to_string()),
            }
        }
        wish.given_up();
        None
    }

    /// Pushes the decoded frames. A hardware decoder that fails before its first
    /// frame is replaced by software, which gets all packets so far.
    fn forward_all(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Ok(()) };
            match decoder.receive() {
                Ok(DecoderOutput::Frame(frame)) => {
                    self.trial = None;
                    out.resume(frame.meta().seq);
                    out.push(Item::Frame(frame))?;
                    out.mark();
                }
                Ok(DecoderOutput::NeedsPacket | DecoderOutput::End) => return Ok(()),
                Err(error) => match self.trial.take() {
                    Some(trial) => return self.instead(trial, &error, out),
                    None => return Err(out.fail(error)),
                },
            }
        }
    }

    fn instead(&mut self, mut trial: Trial, error: &CodecError, out: &mut Out<'_>) -> Result<(), HopFailure> {
        trial.wish.reasons.push(error.to_string());
        trial.wish.given_up();
        self.decoder = Some(Decoder::open(&self.track, &self.options).map_err(|e| out.fail(e))?);
        for packet in trial.packets {
            self.send(packet, out)?;
        }
        Ok(())
    }

    /// Sends the decoder a packet, and pushes the resulting frames.
    fn send(&mut self, packet: Packet, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let Some(decoder) = &mut self.decoder else {
            return Err(out.fail(StageError::Downstream));
        };
        match decoder.send(packet) {
            Ok(()) => self.forward_all(out),
            Err(error) => match self.trial.take() {
                Some(trial) => self.instead(trial, &error, out),
                None => Err(self.fail(error, out)),
            },
        }
    }

    /// Delivers the frames decoded before `error`, then fails with it.
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
        let decoder = match self.wish.take() {
            Some(wish) => self.machines_decoder(wish),
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
        if packet.preroll().restarts && !self.is_fresh {
            // The file is repeated: pictures of the loop before are still inside.
            self.drain(out)?;
            if let Some(decoder) = &mut self.decoder {
                decoder.flush();
            }
        }
        self.is_fresh = false;
        out.hold(packet.meta().seq);
        if let Some(trial) = &mut self.trial {
            match packet.share() {
                Some(shared) => trial.packets.push(shared),
                // Without memory for a handle there is no second attempt.
                None => self.trial = None,
            }
        }
        self.send(packet, out)
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if let Some(trial) = &mut self.trial {
            trial.packets.clear();
        }
        out.flushed(self.decoder.as_mut().map_or(0, Decoder::flush));
        self.is_fresh = true;
        Ok(())
    }

    fn threads(&self) -> u32 {
        self.decoder.as_ref().map_or(1, Decoder::threads)
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        out.mark();
        // If a trial fails here, the new decoder has to be drained too.
        for _ in 0..2 {
            if let Some(decoder) = &mut self.decoder {
                decoder.drain().map_err(|e| out.fail(e))?;
            }
            self.forward_all(out)?;
        }
        Ok(())
    }
}
