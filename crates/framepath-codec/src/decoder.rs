// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets in, frames out, by any of the decoder libraries.

use std::fmt;

use framepath_os::memory::pool::{Frame, GiveBack};

use crate::dav1d::Dav1dDecoder;
use crate::hardware::{Download, HardwareDecoder};
use crate::libav::LibavDecoder;
use crate::slots::Slots;
use crate::surface::output_format;
use crate::{Codec, CodecError, Hardware, Packet, ProviderRef, TrackInfo};

/// Number of threads of a decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecoderThreads {
    /// The library's own choice for this machine.
    #[default]
    Auto,
    /// This many; 1 decodes in the caller's thread.
    Count(u32),
}

/// The pixel format of the frames given out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// The decoder's own format; nothing is copied.
    #[default]
    Native,
    /// NV12 of 8-bit 4:2:0: luma where the decoder wrote it, chroma copied
    /// into interleaved order.
    Nv12,
    /// P010 of 10-bit 4:2:0: luma and chroma copied, because P010 has its ten bits at the
    /// other end and the decoder still reads its own planes.
    P010,
}

impl fmt::Display for OutputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OutputFormat::Native => "native",
            OutputFormat::Nv12 => "nv12",
            OutputFormat::P010 => "p010",
        })
    }
}

/// Options of a [`Decoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderOptions {
    /// Threads of the library.
    pub threads: DecoderThreads,
    /// Pixel format of the frames.
    pub output: OutputFormat,
    /// Slots of the pool; `None` takes as many as any stream of the codec can
    /// need. Memory is taken only by slots that are used.
    pub pool_slots: Option<u32>,
    /// Frames that later stages hold at a time, queues included. The pool gets
    /// that many slots more.
    pub downstream_frames: u32,
    /// Makes the frames fit for [`Frame::export`]: another process gives them back here.
    /// With `None` only this process can use the pool.
    pub give_back: Option<&'static GiveBack>,
    /// Provider of the memory to decode into; `None` for the decoder's own pool. With a
    /// provider, `output`, `pool_slots` and `give_back` are ignored.
    pub lender: Option<ProviderRef>,
}

impl Default for DecoderOptions {
    fn default() -> DecoderOptions {
        DecoderOptions {
            threads: DecoderThreads::Auto,
            output: OutputFormat::Native,
            pool_slots: None,
            downstream_frames: 2,
            give_back: None,
            lender: None,
        }
    }
}

impl DecoderOptions {
    /// Returns the least number of frames that later stages hold while a decoder of
    /// `codec` waits for a slot of its pool: the decoder can need all other slots for
    /// itself. At least 1. Ignores `lender`.
    pub fn least_out(&self, codec: Codec) -> u32 {
        let threads = match self.threads {
            DecoderThreads::Count(count) => count,
            // One per processor of the decoder's machine, whose number is not known here.
            DecoderThreads::Auto => u32::MAX,
        };
        let out = match self.pool_slots {
            None => self.downstream_frames.min(MOST_DOWNSTREAM),
            Some(slots) => slots.saturating_sub(default_slots(codec, threads, 0)),
        };
        out.max(1)
    }
}

/// Result of [`Decoder::receive`].
#[derive(Debug)]
pub enum DecoderOutput {
    /// A picture, in the order of presentation.
    Frame(Frame),
    /// No picture before the next packet.
    NeedsPacket,
    /// The last picture was given out.
    End,
}

enum Backend {
    Libav(LibavDecoder),
    Dav1d(Dav1dDecoder),
    Hardware(Box<HardwareDecoder>),
}

/// A decoder that writes into a pool of its own. May move between threads.
///
/// Send a packet, then receive until [`DecoderOutput::NeedsPacket`]; at the end of
/// the stream drain, then receive until [`DecoderOutput::End`]. A frame carries the
/// `meta` of the packet it came from. Its pixels stay as they are for as long
/// as it lives, whatever the decoder does.
///
/// A decoder may be dropped at any time, also while all of its frames are held and its
/// threads wait for one of them.
///
/// Pictures that are [preroll](Packet::preroll) are decoded and not given out.
///
/// After a failure the frames the decoder finished before it are still given
/// out; then `receive` returns the error, once, and afterwards the end.
pub struct Decoder {
    backend: Backend,
}

impl Decoder {
    /// Makes a decoder for `track`.
    ///
    /// # Errors
    /// The libraries here cannot decode the track, or not into the requested output.
    pub fn open(track: &TrackInfo, options: &DecoderOptions) -> Result<Decoder, CodecError> {
        let codec = track.codec.name();
        if let (Some(decoded), None) = (track.stream.format, options.lender) {
            output_format(codec, decoded, options.output)?;
        }
        let slots = |threads| {
            let advised = default_slots(track.codec, threads, options.downstream_frames);
            let slots = options.pool_slots.unwrap_or(advised);
            let slots = Slots::new(codec, options.output, slots, advised, options.give_back);
            match options.lender {
                Some(lender) => slots.lent_by(lender, lent_slots(track.codec, threads)),
                None => slots,
            }
        };
        let backend = match track.codec {
            Codec::Av1 => Backend::Dav1d(Dav1dDecoder::open(options.threads, slots)?),
            _ => Backend::Libav(LibavDecoder::open(track, options.threads, slots)?),
        };
        log::debug!("decoder for {codec}, threads {:?}, output {:?}", options.threads, options.output);
        Ok(Decoder { backend })
    }

    /// Makes a decoder for `track` that uses the machine's own. Each picture is brought
    /// into the pool by one copy, counted; native output is the device's format, NV12 or
    /// P010. `threads` and `lender` are ignored.
    ///
    /// # Errors
    /// libavcodec cannot decode the track in this way. The driver's errors on the stream
    /// show in `send` and `receive`.
    pub fn on(
        hardware: &Hardware,
        track: &TrackInfo,
        options: &DecoderOptions,
    ) -> Result<Decoder, CodecError> {
        // One slot being written, and one for a caller that asks for the next frame.
        let advised = options.downstream_frames.min(MOST_DOWNSTREAM) + 2;
        let slots = options.pool_slots.unwrap_or(advised);
        let download = Download { slots, output: options.output, give_back: options.give_back };
        let decoder = HardwareDecoder::open(track, hardware, download)?;
        Ok(Decoder { backend: Backend::Hardware(Box::new(decoder)) })
    }

    /// Gives the decoder the next packet. With more than one thread this may wait for the
    /// library's threads, and for a later stage to release a frame.
    ///
    /// # Errors
    /// [`CodecError::NotDrained`] if frames of the last packet were not
    /// received. A packet the decoder rejects shows in `receive`.
    pub fn send(&mut self, packet: Packet) -> Result<(), CodecError> {
        match &mut self.backend {
            Backend::Libav(decoder) => decoder.send(packet),
            Backend::Dav1d(decoder) => decoder.send(packet),
            Backend::Hardware(decoder) => decoder.send(packet),
        }
    }

    /// Reports that no packet follows.
    pub fn drain(&mut self) -> Result<(), CodecError> {
        match &mut self.backend {
            Backend::Libav(decoder) => decoder.drain(),
            Backend::Dav1d(decoder) => decoder.drain(),
            Backend::Hardware(decoder) => decoder.drain(),
        }
        Ok(())
    }

    /// Returns the next finished picture, if there is one.
    ///
    /// # Errors
    /// The decoder rejected a packet, or the pool is too small for it. Earlier frames
    /// were given out.
    pub fn receive(&mut self) -> Result<DecoderOutput, CodecError> {
        match &mut self.backend {
            Backend::Libav(decoder) => decoder.receive(),
            Backend::Dav1d(decoder) => decoder.receive(),
            Backend::Hardware(decoder) => decoder.receive(),
        }
    }

    /// Forgets the pictures inside, and begins again with the next packet, which is a
    /// random access point. Also after the end and after a failure. Returns how many of
    /// the forgotten pictures would have been given out.
    pub fn flush(&mut self) -> u64 {
        match &mut self.backend {
            Backend::Libav(decoder) => decoder.flush(),
            Backend::Dav1d(decoder) => decoder.flush(),
            Backend::Hardware(decoder) => decoder.flush(),
        }
    }

    /// Returns the number of threads the library decodes with.
    pub fn threads(&self) -> u32 {
        match &self.backend {
            Backend::Libav(decoder) => decoder.threads(),
            Backend::Dav1d(decoder) => decoder.threads(),
            Backend::Hardware(_) => 1,
        }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let library = match self.backend {
            Backend::Libav(_) => "libavcodec",
            Backend::Dav1d(_) => "dav1d",
            Backend::Hardware(_) => "libavcodec with the machine's decoder",
        };
        f.debug_struct("Decoder").field("library", &library).field("threads", &self.threads()).finish()
    }
}

/// Most frames held downstream that a pool is made for.
const MOST_DOWNSTREAM: u32 = 4096;

/// Returns the number of slots that are enough for any stream of `codec`: its reference
/// pictures, the pictures it may keep back for reordering, two for each thread (the one
/// it writes, and one it has not yet released), two for the calling thread, those held
/// downstream, the picture being given out, and the one a film grain is applied into.
fn default_slots(codec: Codec, threads: u32, downstream_frames: u32) -> u32 {
    let (references, reordered) = match codec {
        Codec::H264 | Codec::Hevc => (16, 16),
        Codec::Vp8 => (4, 0),
        // Eight references and three more that the decoder keeps.
        Codec::Vp9 => (11, 0),
        // Eight references and the one chosen for output.
        Codec::Av1 => (9, 0),
    };
    references
        + reordered
        + 2 * threads.saturating_add(1).min(256)
        + downstream_frames.min(MOST_DOWNSTREAM)
        + 2
}

/// Returns the number of slots that are enough for decoding alone, where memory is
/// scarce: without the `references` that the stream declares in
/// [`Padded`](crate::slots::Padded).
fn lent_slots(codec: Codec, threads: u32) -> u32 {
    // libavcodec tells the number of references for H.264, and the depth of reordering
    // for both.
    let references = match codec {
        Codec::H264 => 2,
        Codec::Hevc => 16,
        Codec::Vp8 => 4,
        Codec::Vp9 => 11,
        Codec::Av1 => 9,
    };
    references + 2 * threads.saturating_sub(1).min(256) + 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_grow_with_references_threads_and_what_is_held() {
        assert_eq!(default_slots(Codec::Vp8, 1, 2), 12);
        assert_eq!(default_slots(Codec::H264, 1, 2), 40);
        assert!(default_slots(Codec::Av1, 8, 2) > default_slots(Codec::Av1, 2, 2));
        assert!(default_slots(Codec::Av1, 2, 9) == default_slots(Codec::Av1, 2, 2) + 7);
        assert!(default_slots(Codec::Hevc, u32::MAX, u32::MAX) < 1 << 14);
    }
    #[test]
    fn a_decoder_waits_only_where_others_hold_what_its_pool_has_for_them() {
        let options = |pool_slots| DecoderOptions {
            threads: DecoderThreads::Count(1),
            pool_slots,
            downstream_frames: 8,
            ..DecoderOptions::default()
        };
        let own = default_slots(Codec::H264, 1, 0);
        for (slots, least) in [(None, 8), (Some(1), 1), (Some(own + 1), 1), (Some(own + 5), 5)] {
            assert_eq!(options(slots).least_out(Codec::H264), least, "{slots:?}");
        }
        let unknown = DecoderOptions { threads: DecoderThreads::Auto, ..options(Some(64)) };
        assert_eq!(unknown.least_out(Codec::H264), 1);
    }
}
