// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoder: takes packets and outputs frames, through any of the decoder libraries.

use std::fmt;

use framepath_model::stream::FrameMeta;
use framepath_os::measure::frame_threads::PictureWork;
use framepath_os::measure::library_threads::LibraryThreads;
use framepath_os::memory::pool::{Frame, GiveBack};

use crate::dav1d::Dav1dDecoder;
use crate::hardware::{Download, HardwareDecoder};
use crate::libav::LibavDecoder;
use crate::slots::Slots;
use crate::surface::output_format;
use crate::{Codec, CodecError, Hardware, OutputFormat, Packet, ProviderRef, TrackInfo};

/// Number of threads of a decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecoderThreads {
    /// Number chosen for the machine that decodes: libavcodec chooses its own; for dav1d, one
    /// thread per processor, at most 256.
    #[default]
    Auto,
    /// Fixed number: from 1 to 64 for libavcodec, from 1 to 256 for dav1d. 0 counts as 1, a larger
    /// number as the maximum. libavcodec uses fewer threads for some codecs. With 1, the caller's
    /// thread decodes.
    Count(u32),
}

/// Kind of a decoder's threads, if it has more than one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecoderThreading {
    /// The library's choice: libavcodec uses frame threads if the codec has them, otherwise slice
    /// threads.
    #[default]
    Auto,
    /// Each thread decodes a picture of its own. Each thread but one delays the output by a
    /// picture. If the codec has no frame threads, libavcodec decodes with one thread. For dav1d as
    /// `Auto`.
    Frame,
    /// All threads share one picture, without a delay, if the stream divides its pictures into
    /// slices or tiles. In libavcodec, one thread does all the work if a picture has one slice, or
    /// the codec has no slice threads.
    Slice,
}

/// Options of a [`Decoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderOptions {
    /// Number of the library's threads; ignored by a hardware decoder.
    pub threads: DecoderThreads,
    /// Kind of the library's threads. dav1d divides its threads itself, and with `Slice` works on one picture
    /// at a time. Ignored by a hardware decoder.
    pub threading: DecoderThreading,
    /// True: the decoder outputs each picture as soon as it is decoded. libavcodec then has no frame threads and
    /// no delay for presentation order, so pictures of a stream with B pictures can be missing or in the wrong
    /// order (AV_CODEC_FLAG_LOW_DELAY); dav1d works on one picture at a time. Ignored by a hardware decoder.
    pub low_delay: bool,
    /// Pixel format of the frames.
    pub output: OutputFormat,
    /// Number of slots of the pool; `None` selects a number sufficient for any stream of the codec,
    /// or for a hardware decoder two more than `downstream_frames` (at most 4096). Only used slots
    /// take memory, unless `vm.overcommit_memory` is 2.
    pub pool_slots: Option<u32>,
    /// Maximum number of frames that later stages hold at a time, queues included. If `pool_slots`
    /// is `None`, the pool gets that many additional slots, at most 4096.
    pub downstream_frames: u32,
    /// True: after a packet that cannot be decoded, decoding continues, and damaged pictures are
    /// output as the library conceals them, with [`FrameMeta::is_damaged`] if the library reports
    /// the damage. False: both are errors that end decoding. A lack of memory always ends decoding.
    /// A hardware decoder ignores this option: a packet that it rejects is an error, and it outputs
    /// damaged pictures unmarked.
    ///
    /// [`FrameMeta::is_damaged`]: framepath_model::stream::FrameMeta::is_damaged
    pub conceals: bool,
    /// Collector of the frames that another process reads and releases; makes the frames usable for
    /// [`Frame::export`]. With `None`, only this process can use the pool.
    pub give_back: Option<&'static GiveBack>,
    /// Provider of the memory to decode into; `None` for the decoder's own pool. With a provider,
    /// `output`, `pool_slots` and `give_back` are ignored, and only pictures in YUV420P and
    /// YUV420P10 can be decoded. A hardware decoder ignores the provider.
    pub provider: Option<ProviderRef>,
}

impl Default for DecoderOptions {
    fn default() -> DecoderOptions {
        DecoderOptions {
            threads: DecoderThreads::Auto,
            threading: DecoderThreading::Auto,
            low_delay: false,
            output: OutputFormat::Native,
            pool_slots: None,
            downstream_frames: 2,
            conceals: false,
            give_back: None,
            provider: None,
        }
    }
}

impl DecoderOptions {
    /// Returns the minimum number of frames that later stages hold while a software decoder of
    /// `codec` with these options waits for a slot of its own pool. At least 1. The decoder itself
    /// may need all other slots. Ignores `provider`.
    pub fn least_out(&self, codec: Codec) -> u32 {
        let threads = match self.threads {
            DecoderThreads::Count(count) => count,
            // One thread per processor of the decoder's machine, whose number is not known here.
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
    /// A picture, in presentation order; the order may differ with [`DecoderOptions::low_delay`].
    Frame(Frame),
    /// A packet cannot be decoded, and decoding continues; only from a software decoder with
    /// [`DecoderOptions::conceals`].
    Undecoded {
        /// Metadata of the packet; if the library does not report which packet it could not decode,
        /// metadata of a packet sent shortly before or after it (default metadata if the decoder
        /// has already forgotten this packet).
        packet: FrameMeta,
        /// Error with which the library rejected the packet.
        error: CodecError,
    },
    /// No picture is ready; the decoder needs the next packet, or the drain at the end of the
    /// stream.
    NeedsPacket,
    /// The last picture was output after the drain, or the error of a failure was returned. No
    /// further picture follows before a flush.
    End,
}

/// Way in which a decoder divides the work on pictures among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkDivision {
    /// The thread that calls the decoder decodes, mostly inside [`Decoder::send`]. Also stands for
    /// a hardware decoder.
    Caller,
    /// Each picture is decoded by one of several threads of the library (libavcodec's frame
    /// threads).
    FrameThreads,
    /// Several threads of the library share the work on the pictures (dav1d, libavcodec's slice
    /// threads).
    Pool,
}

enum Backend {
    Libav(Box<LibavDecoder>),
    Dav1d(Box<Dav1dDecoder>),
    Hardware(Box<HardwareDecoder>),
}

/// Decoder of one video track. Its frames are slots of its own pool, or of a provider's memory. A
/// decoder may move between threads.
///
/// Send a packet, then receive until [`DecoderOutput::NeedsPacket`]. At the end of the stream
/// drain, then receive until [`DecoderOutput::End`]. A frame has the `meta` of its packet, with the
/// damage, the field order and the orientation that the decoder reports. The pixels of a frame do
/// not change as long as the frame lives, unless another process writes to a provider's memory.
///
/// A decoder may be dropped at any time, even while all of its frames are held and its threads
/// wait for one of them.
///
/// Pictures that are [preroll](Packet::preroll) are decoded and not output.
///
/// Damage is a failure unless [`DecoderOptions::conceals`] is set. After a failure of a software
/// decoder, `receive` first returns the frames that were finished before the failure. Then
/// `receive` returns the error once, and [`DecoderOutput::End`] afterwards. If the pool is too
/// small, an AV1 decoder returns the error without these frames. `receive` returns an error about
/// the layout of a finished picture at once, and decoding can continue. A hardware decoder returns
/// every error at once, from `send` or `receive`.
pub struct Decoder {
    backend: Backend,
    threads: LibraryThreads,
}

impl Decoder {
    /// Makes a software decoder for `track`.
    ///
    /// # Errors
    /// The installed libraries cannot decode the track, the track's declared pixel format cannot
    /// become the requested output, or the decoder cannot be set up (for example without memory).
    /// If the track declares no format, `receive` returns the error about the output.
    pub fn open(track: &TrackInfo, options: &DecoderOptions) -> Result<Decoder, CodecError> {
        let codec = track.codec.name();
        if let (Some(decoded), None) = (track.stream.format, options.provider) {
            output_format(codec, decoded, options.output)?;
        }
        let slots = |threads| {
            let advised = default_slots(track.codec, threads, options.downstream_frames);
            let slots = options.pool_slots.unwrap_or(advised);
            let slots = Slots::new(codec, options.output, slots, advised, options.give_back);
            match options.provider {
                Some(provider) => slots.with_provider(provider, slots_from_provider(track.codec, threads)),
                None => slots,
            }
        };
        let open = || match track.codec {
            Codec::Av1 => Dav1dDecoder::open(options, slots).map(|decoder| Backend::Dav1d(Box::new(decoder))),
            _ => LibavDecoder::open(track, options, slots).map(|decoder| Backend::Libav(Box::new(decoder))),
        };
        let (backend, threads) = LibraryThreads::started_by(open);
        let backend = backend?;
        log::debug!("decoder for {codec}, threads {:?}, output {:?}", options.threads, options.output);
        Ok(Decoder { backend, threads })
    }

    /// Makes a decoder for `track` that uses the device of `hardware`. Each picture is copied once
    /// into the pool; the meter counts the copy. Native output is the first format that the driver
    /// offers and framepath can copy, usually NV12 or P010. The options `threads`, `threading`,
    /// `low_delay`, `conceals` and `provider` are ignored.
    ///
    /// # Errors
    /// libavcodec cannot decode the track with this API, or the decoder cannot be set up. `send`
    /// and `receive` return the driver's errors about the stream.
    pub fn on(
        hardware: &Hardware,
        track: &TrackInfo,
        options: &DecoderOptions,
    ) -> Result<Decoder, CodecError> {
        // One slot for the picture being written, and one for a caller that requests the next
        // frame.
        let advised = options.downstream_frames.min(MOST_DOWNSTREAM) + 2;
        let slots = options.pool_slots.unwrap_or(advised);
        let download = Download { slots, output: options.output, give_back: options.give_back };
        let (decoder, threads) =
            LibraryThreads::started_by(|| HardwareDecoder::open(track, hardware, download));
        Ok(Decoder { backend: Backend::Hardware(Box::new(decoder?)), threads })
    }

    /// Sends the next packet to the decoder. Ignores empty packets, and packets after the drain; a
    /// software decoder also ignores packets after a failure. With a software decoder, the call may
    /// wait until a later stage releases a frame, and with more than one thread also for the
    /// library's threads.
    ///
    /// # Errors
    /// [`CodecError::NotDrained`] if frames of earlier packets were not received. The error of a
    /// rejected packet comes from `receive`; with a hardware decoder, it may come from `send`.
    pub fn send(&mut self, packet: Packet) -> Result<(), CodecError> {
        match &mut self.backend {
            Backend::Libav(decoder) => decoder.send(packet),
            Backend::Dav1d(decoder) => decoder.send(packet),
            Backend::Hardware(decoder) => decoder.send(packet),
        }
    }

    /// Announces that no packet follows before a flush: `receive` then returns the pending pictures
    /// and the end. Never returns an error.
    pub fn drain(&mut self) -> Result<(), CodecError> {
        match &mut self.backend {
            Backend::Libav(decoder) => decoder.drain(),
            Backend::Dav1d(decoder) => decoder.drain(),
            Backend::Hardware(decoder) => decoder.drain(),
        }
        Ok(())
    }

    /// Returns the next finished picture as a frame, or the reason why there is none. May wait for
    /// the library's threads, and until a later stage releases a frame.
    ///
    /// # Errors
    /// Decoding failed: a rejected packet, a damaged picture, an unsupported format, an invalid
    /// layout, a failed pool or provider. A software decoder returns the error after the frames
    /// that precede it, with exceptions (see [`Decoder`]).
    pub fn receive(&mut self) -> Result<DecoderOutput, CodecError> {
        match &mut self.backend {
            Backend::Libav(decoder) => decoder.receive(),
            Backend::Dav1d(decoder) => decoder.receive(),
            Backend::Hardware(decoder) => decoder.receive(),
        }
    }

    /// Drops the pending pictures, and restarts with the next packet, which has to be a random
    /// access point. Allowed after the end and after a failure too. Returns the number of dropped
    /// pictures that would have been output; pictures at the start that only a
    /// [preroll](Packet::preroll) count would have withheld are included.
    pub fn flush(&mut self) -> u64 {
        match &mut self.backend {
            Backend::Libav(decoder) => decoder.flush(),
            Backend::Dav1d(decoder) => decoder.flush(),
            Backend::Hardware(decoder) => decoder.flush(),
        }
    }

    /// Returns the number of threads with which the library decodes; 1 for a hardware decoder.
    pub fn threads(&self) -> u32 {
        match &self.backend {
            Backend::Libav(decoder) => decoder.threads(),
            Backend::Dav1d(decoder) => decoder.threads(),
            Backend::Hardware(_) => 1,
        }
    }

    /// Returns the way in which the decoder divides the work on pictures among threads.
    pub fn division(&self) -> WorkDivision {
        match &self.backend {
            Backend::Libav(decoder) if decoder.frame_threads() > 1 => WorkDivision::FrameThreads,
            Backend::Libav(decoder) if decoder.threads() > 1 => WorkDivision::Pool,
            Backend::Dav1d(decoder) if decoder.threads() > 1 => WorkDivision::Pool,
            Backend::Libav(_) | Backend::Dav1d(_) | Backend::Hardware(_) => WorkDivision::Caller,
        }
    }

    /// Returns the CPU time of the library's threads since the decoder was opened, nanoseconds; 0 if there
    /// are none, or if `/proc` cannot be read, as in a sandbox.
    pub fn threads_cpu_ns(&self) -> u64 {
        self.threads.cpu_ns()
    }

    /// Returns the work of a frame thread on the frame that `receive` returned last; `None` if it
    /// is not known: without frame threads, before a packet was sent by a thread that has the
    /// ledger's level `full`, if the CPU clock of the frame thread cannot be read, and in a second
    /// call for the same frame. The work on a thread's first picture lacks the time before
    /// libavcodec requested memory for the picture.
    pub fn work(&self) -> Option<PictureWork> {
        match &self.backend {
            Backend::Libav(decoder) => decoder.work(),
            Backend::Dav1d(_) | Backend::Hardware(_) => None,
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

/// Maximum number of slots for frames held downstream in a pool whose size the caller does not set.
const MOST_DOWNSTREAM: u32 = 4096;

/// Returns a number of slots that is sufficient for any stream of `codec`. It covers the reference
/// pictures, the pictures kept for reordering, two per thread (the one being written, and one not
/// yet released) and two for the calling thread (together at most 512), those held downstream (at
/// most [`MOST_DOWNSTREAM`]), the picture being output, and the picture with film grain applied.
fn default_slots(codec: Codec, threads: u32, downstream_frames: u32) -> u32 {
    let (references, reordered) = match codec {
        Codec::H264 | Codec::Hevc => (16, 16),
        Codec::Vp8 => (4, 0),
        // Eight references and three more that the decoder keeps.
        Codec::Vp9 => (11, 0),
        // Eight references and the picture selected for output.
        Codec::Av1 => (9, 0),
        // Older standards have two references. Some decoders keep a picture of their own.
        Codec::Other(_) => (4, 2),
    };
    references
        + reordered
        + 2 * threads.saturating_add(1).min(256)
        + downstream_frames.min(MOST_DOWNSTREAM)
        + 2
}

/// Returns a number of slots that is sufficient for decoding alone, for providers with little
/// memory. The caller adds the `references` of [`Padded`](crate::slots::Padded), which the decoder
/// reports for the stream.
fn slots_from_provider(codec: Codec, threads: u32) -> u32 {
    // `Padded::references` includes the number of references for H.264, and the reorder delay for
    // H.264 and HEVC.
    let references = match codec {
        Codec::H264 => 2,
        Codec::Hevc => 16,
        Codec::Vp8 => 4,
        Codec::Vp9 => 11,
        Codec::Av1 => 9,
        Codec::Other(_) => 4,
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
