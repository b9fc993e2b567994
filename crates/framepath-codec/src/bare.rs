// SPDX-License-Identifier: MIT OR Apache-2.0
//! Baseline for comparisons: libavcodec decodes a file with its own buffers. There is no pool, no
//! conversion and no frame. AV1 uses FFmpeg's wrapper of dav1d, as the `ffmpeg` tool does.

use std::ffi::c_int;
use std::path::Path;
use std::ptr;

use ffmpeg_sys_next as ff;

use crate::codec::software_decoder;
use crate::error::libav_message;
use crate::libav::{CodecContext, PictureRef};
use crate::{Codec, CodecError, DecoderThreads, Demuxer, TrackInfo};

/// Decodes the video of `path` and discards it. Returns the number of pictures.
///
/// # Errors
/// As [`Demuxer::open`] and [`Demuxer::read`]. Also if libavcodec has no software decoder for the
/// codec (for AV1, FFmpeg's wrapper of dav1d), cannot set up the decoder, or rejects a packet.
pub fn decode(path: &Path, threads: DecoderThreads) -> Result<u64, CodecError> {
    let mut demuxer = Demuxer::open(path)?;
    let track = demuxer.info().clone();
    let codec = find(&track)?;
    let mut context = CodecContext::new(&track, codec, threads)?;
    context.open(track.codec.name(), codec)?;
    let picture = PictureRef::new(track.codec.name())?;
    let mut run = Run { context, picture, codec: track.codec, packets: 0, pictures: 0 };
    while let Some(packet) = demuxer.read()? {
        run.send(packet.as_ptr())?;
        run.packets += 1;
        run.receive()?;
    }
    run.send(ptr::null())?;
    run.receive()?;
    Ok(run.pictures)
}

fn find(track: &TrackInfo) -> Result<*const ff::AVCodec, CodecError> {
    // SAFETY: both search static tables; the name is a C string.
    let found = unsafe {
        match track.codec {
            Codec::Av1 => ff::avcodec_find_decoder_by_name(c"libdav1d".as_ptr()),
            codec => software_decoder(codec.id()).unwrap_or(ptr::null()),
        }
    };
    if found.is_null() { Err(CodecError::NoDecoder { codec: track.codec.name() }) } else { Ok(found) }
}

struct Run {
    context: CodecContext,
    picture: PictureRef,
    codec: Codec,
    packets: u64,
    pictures: u64,
}

impl Run {
    fn send(&mut self, packet: *const ff::AVPacket) -> Result<(), CodecError> {
        // SAFETY: an open context, and a packet, or null for the end.
        self.check(unsafe { ff::avcodec_send_packet(self.context.as_ptr(), packet) })
    }

    fn receive(&mut self) -> Result<(), CodecError> {
        loop {
            // SAFETY: an open context and an allocated frame.
            let code = unsafe { ff::avcodec_receive_frame(self.context.as_ptr(), self.picture.as_ptr()) };
            if code == ff::AVERROR(libc::EAGAIN) || code == ff::AVERROR_EOF {
                return Ok(());
            }
            self.check(code)?;
            self.pictures += 1;
        }
    }

    fn check(&self, code: c_int) -> Result<(), CodecError> {
        if code >= 0 {
            return Ok(());
        }
        Err(CodecError::Rejected {
            codec: self.codec.name(),
            packet: self.packets,
            in_flight: 0,
            message: libav_message(code),
        })
    }
}
