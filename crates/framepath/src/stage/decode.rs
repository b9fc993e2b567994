// SPDX-License-Identifier: MIT OR Apache-2.0
//! `decode host=inline`: FFmpeg's or dav1d's decoder in the caller's thread.

use framepath_codec::{CodecError, Decoder, DecoderOptions, Received, TrackInfo};
use framepath_model::stream::StreamInfo;

use crate::error::StageError;
use crate::item::Item;
use crate::out::{Failure, Out};
use crate::stage::{Stage, packet_of};

/// A decoder. In the ledger, the time a frame spends inside while the decoder
/// works on others (reordering, frame threads) is `queue`.
pub(crate) struct Decode {
    track: TrackInfo,
    options: DecoderOptions,
    decoder: Option<Decoder>,
}

impl Decode {
    pub(crate) fn new(track: TrackInfo, options: DecoderOptions) -> Decode {
        Decode { track, options, decoder: None }
    }

    fn forward_all(&mut self, out: &mut Out<'_>) -> Result<(), Failure> {
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        loop {
            match decoder.receive().map_err(|e| out.fail(e))? {
                Received::Frame(frame) => {
                    out.resume(frame.meta().seq);
                    out.push(Item::Frame(frame))?;
                    out.mark();
                }
                Received::NeedsPacket | Received::End => return Ok(()),
            }
        }
    }

    /// Delivers what was decoded before `error`, then fails with it.
    fn give_up(&mut self, error: CodecError, out: &mut Out<'_>) -> Failure {
        let drained = self.decoder.as_mut().is_some_and(|d| d.drain().is_ok());
        if drained {
            // A second failure on the way out says nothing new.
            let _ = self.forward_all(out);
        }
        out.fail(error)
    }
}

impl Stage for Decode {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        let decoder = Decoder::open(&self.track, &self.options)?;
        self.decoder = Some(decoder);
        Ok(StreamInfo { format: None, ..*info })
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), Failure> {
        let packet = packet_of(item).map_err(|e| out.fail(e))?;
        let seq = packet.meta().seq;
        let Some(decoder) = &mut self.decoder else {
            return Err(out.fail(StageError::Downstream));
        };
        let sent = decoder.send(packet);
        out.hold(seq);
        if let Err(error) = sent {
            return Err(self.give_up(error, out));
        }
        self.forward_all(out)
    }

    fn threads(&self) -> u32 {
        self.decoder.as_ref().map_or(1, Decoder::threads)
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), Failure> {
        out.mark();
        if let Some(decoder) = &mut self.decoder {
            decoder.drain().map_err(|e| out.fail(e))?;
        }
        self.forward_all(out)
    }
}
