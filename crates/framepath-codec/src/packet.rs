// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compressed bytes, as libavformat handed them out.

use std::ptr::NonNull;
use std::slice;

use ffmpeg_sys_next as ff;
use framepath_model::stream::FrameMeta;

/// One packet: usually the bytes of one picture. May move between threads.
#[derive(Debug)]
pub struct Packet(Box<Body>);

/// In a box, so that the handle is one pointer and passes in a register.
#[derive(Debug)]
struct Body {
    meta: FrameMeta,
    raw: NonNull<ff::AVPacket>,
}

// SAFETY: the packet is owned by this value alone, and the buffer it refers to
// is counted atomically by libavutil, so it may be freed by any thread.
unsafe impl Send for Packet {}

impl Packet {
    /// An empty packet; `None` when memory is short.
    pub(crate) fn new() -> Option<Packet> {
        // SAFETY: no arguments; the result is owned by the new value.
        let raw = NonNull::new(unsafe { ff::av_packet_alloc() })?;
        Some(Packet(Box::new(Body { meta: FrameMeta::default(), raw })))
    }

    /// Sequence number, birth and presentation time.
    pub fn meta(&self) -> FrameMeta {
        self.0.meta
    }

    /// `pts` and `duration` are filled by the demuxer, the rest by whoever
    /// gives the packet its birth.
    pub fn meta_mut(&mut self) -> &mut FrameMeta {
        &mut self.0.meta
    }

    /// The packet for calls into libav; valid while `self` lives.
    pub(crate) fn as_ptr(&self) -> *mut ff::AVPacket {
        self.0.raw.as_ptr()
    }

    /// The compressed bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `raw` is a valid packet. Its data, where there is any, is
        // `size` bytes long and changes only through `&mut self` or never.
        unsafe {
            let packet = self.0.raw.as_ref();
            match usize::try_from(packet.size) {
                Ok(size) if !packet.data.is_null() => slice::from_raw_parts(packet.data, size),
                _ => &[],
            }
        }
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        let mut raw = self.0.raw.as_ptr();
        // SAFETY: `raw` came from av_packet_alloc and is freed only here.
        unsafe { ff::av_packet_free(&mut raw) };
    }
}
