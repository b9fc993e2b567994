// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compressed packets, from libavformat or from other code.

use std::borrow::Cow;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::slice;

use ffmpeg_sys_next as ff;
use framepath_model::stream::{FrameMeta, Preroll};
use framepath_os::crossing::{Breach, PacketArea, SharedBytes};
use framepath_os::measure::meter;

use crate::TrackInfo;

/// Compressed packet of a video, usually the bytes of one picture. It may move between threads.
#[derive(Debug)]
pub struct Packet(Box<Body>);

/// Content of a [`Packet`]. Boxed, so that the handle is one pointer and passes in a register.
#[derive(Debug)]
struct Body {
    meta: FrameMeta,
    raw: NonNull<ff::AVPacket>,
    /// True if another process can write the bytes.
    shared: bool,
    preroll: Preroll,
    /// Description of the track from this packet on; `None` if the packet has none.
    track: Option<Box<TrackInfo>>,
}

// SAFETY: only this value owns the packet, and libavutil counts references to its buffer
// atomically, so any thread may free it.
unsafe impl Send for Packet {}

impl Packet {
    /// Makes an empty packet; `None` if there is not enough memory.
    pub(crate) fn new() -> Option<Packet> {
        // SAFETY: no arguments; the result is owned by the new value.
        let raw = NonNull::new(unsafe { ff::av_packet_alloc() })?;
        Some(Packet(Box::new(Body {
            meta: FrameMeta::default(),
            raw,
            shared: false,
            preroll: Preroll::default(),
            track: None,
        })))
    }

    /// Returns the packet's metadata, such as sequence number, birth, presentation time, duration
    /// and orientation.
    pub fn meta(&self) -> FrameMeta {
        self.0.meta
    }

    /// Returns the metadata, mutable. The demuxer sets `pts`, `duration` and `orientation`; the
    /// source stage sets `seq` and `birth_ns`, and for a live stream replaces `pts`; the stage
    /// `decode` sets `is_damaged`.
    pub fn meta_mut(&mut self) -> &mut FrameMeta {
        &mut self.0.meta
    }

    /// Returns which pictures a decoder decodes but does not output from this packet on, and
    /// whether the stream continues at another place. The picture of this packet is discarded if it
    /// is before the target of a seek or excluded by the file's edit list. A number of frames is
    /// skipped after a seek in a stream without timestamps, where only the decoder knows which
    /// pictures are before the target.
    pub fn preroll(&self) -> Preroll {
        self.0.preroll
    }

    /// Returns the value of [`preroll`](Packet::preroll), mutable, for the demuxer and for code
    /// that forwards packets.
    pub fn preroll_mut(&mut self) -> &mut Preroll {
        &mut self.0.preroll
    }

    /// Returns the description of the track from this packet on. Only the first packet of an
    /// [`Encoder`](crate::Encoder), here or in a worker, has one; the packets of a demuxer are described by
    /// [`Demuxer::info`](crate::Demuxer::info).
    pub fn track(&self) -> Option<&TrackInfo> {
        self.0.track.as_deref()
    }

    /// Sets the description of the track from this packet on, for the encoder and for code that forwards
    /// its packets.
    pub fn set_track(&mut self, track: TrackInfo) {
        self.0.track = Some(Box::new(track));
    }

    /// Returns the packet for calls into libav; valid while `self` lives.
    pub(crate) fn as_ptr(&self) -> *mut ff::AVPacket {
        self.0.raw.as_ptr()
    }

    /// Makes a packet with bytes in memory that another process can write, so that
    /// [`bytes`](Packet::bytes) returns `None`. `key` is true if decoding can start at the packet.
    /// `bytes` is dropped with the last reference to the packet's buffer, also libavcodec's, on any
    /// thread. Returns `None` if there is not enough memory, or for 2 GiB or more.
    pub fn shared(bytes: SharedBytes, meta: FrameMeta, key: bool) -> Option<Packet> {
        let mut packet = Packet::new()?;
        packet.0.meta = meta;
        packet.0.shared = true;
        let (data, len) = (bytes.as_ptr(), bytes.len());
        let size = c_int::try_from(len).ok()?;
        let owner = Box::into_raw(Box::new(bytes));
        // SAFETY: the bytes are valid until `release` drops their owner, and zeroed padding
        // follows them.
        let buffer = unsafe {
            ff::av_buffer_create(data, len, Some(release), owner.cast(), ff::AV_BUFFER_FLAG_READONLY as c_int)
        };
        if buffer.is_null() {
            // SAFETY: libav did not take the box.
            drop(unsafe { Box::from_raw(owner) });
            return None;
        }
        // SAFETY: a valid, empty packet of our own.
        unsafe {
            let raw = packet.0.raw.as_mut();
            raw.buf = buffer;
            raw.data = data;
            raw.size = size;
            raw.flags = if key { ff::AV_PKT_FLAG_KEY as c_int } else { 0 };
        }
        Some(packet)
    }

    /// Makes a packet with a copy of `bytes`; the meter counts the copy. `key` is true if
    /// decoding can start at the packet. Returns `None` if there is not enough memory, or for 2 GiB
    /// or more.
    pub fn copied(bytes: &[u8], meta: FrameMeta, key: bool) -> Option<Packet> {
        let mut packet = Packet::new()?;
        packet.0.meta = meta;
        let size = c_int::try_from(bytes.len()).ok()?;
        // SAFETY: a valid, empty packet of our own; after success it has `size`
        // bytes, and padding, at `data`.
        unsafe {
            let raw = packet.0.raw.as_ptr();
            if ff::av_new_packet(raw, size) < 0 {
                return None;
            }
            (*raw).flags = if key { ff::AV_PKT_FLAG_KEY as c_int } else { 0 };
            meter::copy(bytes.len(), || ptr::copy_nonoverlapping(bytes.as_ptr(), (*raw).data, bytes.len()));
        }
        Some(packet)
    }

    /// Adds `count` bytes, all 0, at the end, and returns them to be filled; `None` if there is not enough memory,
    /// or if the packet would have 2 GiB or more. Only for a packet of this process that nobody shares.
    pub(crate) fn grow(&mut self, count: usize) -> Option<&mut [u8]> {
        let added = c_int::try_from(count).ok()?;
        let before = self.len();
        // SAFETY: a valid packet, borrowed exclusively. After success its buffer, which only it refers to, has
        // `count` more bytes behind the `before` first ones.
        unsafe {
            let raw = self.as_ptr();
            if ff::av_grow_packet(raw, added) < 0 {
                return None;
            }
            let start = (*raw).data.add(before);
            ptr::write_bytes(start, 0, count);
            Some(slice::from_raw_parts_mut(start, count))
        }
    }

    /// Flags the packet as one at which decoding can start.
    pub(crate) fn set_key(&mut self) {
        // SAFETY: `raw` is a valid packet, borrowed exclusively.
        unsafe { self.0.raw.as_mut() }.flags |= ff::AV_PKT_FLAG_KEY as c_int;
    }

    /// Copies the bytes into `area`, from which a process at the other end reads packets; the meter
    /// counts the bytes. Returns their offset in the area, or `None` if there is no room until that
    /// process releases packets; always `None` for more bytes than [`PacketArea::largest`].
    ///
    /// # Errors
    /// The other process violated the protocol of the area.
    pub fn copy_into(&self, area: &mut PacketArea) -> Result<Option<u64>, Breach> {
        let (data, len) = self.data();
        // SAFETY: `len` bytes that are valid while `self` lives, in a mapping or a heap outside
        // of the area. Shared bytes may change at the same time; nothing here depends on them.
        unsafe { area.push_raw(data, len) }
    }

    /// Returns a packet whose bytes belong only to this process. If another process could write the
    /// bytes, this is a copy, which the meter counts, with the same metadata, preroll and flags,
    /// without side data; otherwise it is the packet itself. Returns `None` if there is not enough
    /// memory.
    pub fn private(self) -> Option<Packet> {
        if !self.0.shared {
            return Some(self);
        }
        let (from, len) = self.data();
        let packet = Packet::new()?;
        // SAFETY: a valid, empty packet of our own, which has `len` bytes at `data` after
        // success. The bytes of `self` are valid while it lives. Raw pointers may be read while
        // another process writes, because only the copy is used.
        unsafe {
            let raw = packet.as_ptr();
            if ff::av_new_packet(raw, c_int::try_from(len).ok()?) < 0 {
                return None;
            }
            (*raw).flags = (*self.as_ptr()).flags;
            meter::copy(len, || ptr::copy_nonoverlapping(from, (*raw).data, len));
        }
        let mut packet = packet;
        (packet.0.meta, packet.0.preroll) = (self.0.meta, self.0.preroll);
        Some(packet)
    }

    /// Makes a packet of `before` and the bytes of this packet, with the same metadata, preroll and
    /// flags, without side data. The meter counts the copy of all bytes. Returns `None` if there is
    /// not enough memory, or for 2 GiB or more.
    pub fn prefixed(&self, before: &[u8]) -> Option<Packet> {
        let (from, len) = self.data();
        let mut packet = Packet::new()?;
        let size = c_int::try_from(before.len().checked_add(len)?).ok()?;
        // SAFETY: a valid, empty packet of our own; after success it has `size` bytes, and
        // padding, at `data`. The bytes at `from` are valid while `self` lives. Raw pointers may
        // be read while another process writes, because only the copy is used.
        unsafe {
            let raw = packet.as_ptr();
            if ff::av_new_packet(raw, size) < 0 {
                return None;
            }
            if ff::av_packet_copy_props(raw, self.as_ptr()) < 0 {
                return None;
            }
            ff::av_packet_free_side_data(raw);
            meter::copy(before.len() + len, || {
                ptr::copy_nonoverlapping(before.as_ptr(), (*raw).data, before.len());
                ptr::copy_nonoverlapping(from, (*raw).data.add(before.len()), len);
            });
        }
        (packet.0.meta, packet.0.preroll) = (self.0.meta, self.0.preroll);
        Some(packet)
    }

    /// Returns another packet with the same bytes, metadata and preroll, without a copy of the
    /// bytes; `None` if there is not enough memory.
    pub fn share(&self) -> Option<Packet> {
        let mut packet = Packet::new()?;
        (packet.0.meta, packet.0.shared) = (self.0.meta, self.0.shared);
        packet.0.preroll = self.0.preroll;
        packet.0.track.clone_from(&self.0.track);
        // SAFETY: both are valid; the bytes are reference-counted.
        let code = unsafe { ff::av_packet_ref(packet.as_ptr(), self.as_ptr()) };
        (code >= 0).then_some(packet)
    }

    /// Returns the address of the first byte, and the number of bytes; for an empty packet, an
    /// address that must not be read, and 0.
    pub(crate) fn data(&self) -> (*const u8, usize) {
        // SAFETY: `raw` is a valid packet.
        let packet = unsafe { self.0.raw.as_ref() };
        match usize::try_from(packet.size) {
            Ok(size) if !packet.data.is_null() => (packet.data, size),
            _ => (NonNull::<u8>::dangling().as_ptr().cast_const(), 0),
        }
    }

    /// Returns the number of compressed bytes.
    pub fn len(&self) -> usize {
        self.data().1
    }

    /// Returns the memory size of the packet's content, bytes: the compressed bytes and the side
    /// data.
    pub fn content_bytes(&self) -> usize {
        // SAFETY: `raw` is a valid packet; libav keeps `side_data_elems` parts at `side_data`,
        // which this handle borrows.
        let parts = unsafe {
            let raw = self.0.raw.as_ref();
            match usize::try_from(raw.side_data_elems) {
                Ok(count) if count > 0 && !raw.side_data.is_null() => {
                    std::slice::from_raw_parts(raw.side_data, count)
                }
                _ => &[],
            }
        };
        self.len() + parts.iter().map(|part| part.size).sum::<usize>()
    }

    /// Returns true if the packet has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the compressed bytes; `None` if another process could write them.
    pub fn bytes(&self) -> Option<&[u8]> {
        let (data, len) = self.data();
        if self.0.shared {
            return None;
        }
        // SAFETY: `len` bytes that belong only to this process, and change only through `&mut
        // self` or never.
        Some(if len == 0 { &[] } else { unsafe { slice::from_raw_parts(data, len) } })
    }

    /// Returns at most `most` bytes from the start, in a copy if another process could write them.
    /// The copy is only for inspection, so the meter does not count it.
    pub fn peek(&self, most: usize) -> Cow<'_, [u8]> {
        if let Some(bytes) = self.bytes() {
            return Cow::Borrowed(&bytes[..bytes.len().min(most)]);
        }
        let (from, len) = self.data();
        let len = len.min(most);
        let mut copy = vec![0; len];
        // SAFETY: `len` bytes at `from` are valid while `self` lives. Raw pointers may be read
        // while another process writes, because only the copy is used; the copy has `len` bytes
        // and belongs to this process.
        unsafe { ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), len) };
        Cow::Owned(copy)
    }

    /// Returns the codec's new head (libavcodec's `extradata`) if the container declares a change
    /// at this packet, otherwise `None`.
    pub(crate) fn new_head(&self) -> Option<&[u8]> {
        let mut size = 0;
        // SAFETY: a valid packet, whose side data this handle borrows.
        unsafe {
            let kind = ff::AVPacketSideDataType::AV_PKT_DATA_NEW_EXTRADATA;
            let data = ff::av_packet_get_side_data(self.as_ptr(), kind, &mut size);
            (!data.is_null()).then(|| slice::from_raw_parts(data, size))
        }
    }

    /// Returns true if the demuxer found the packet damaged: the container marks it as damaged, or
    /// ends or is damaged inside it, or packets of a network stream were lost before it. A damaged
    /// packet without bytes stands for a part of the file that the demuxer cannot read.
    pub fn is_damaged(&self) -> bool {
        // SAFETY: `raw` is a valid packet.
        unsafe { self.0.raw.as_ref() }.flags & ff::AV_PKT_FLAG_CORRUPT as c_int != 0
    }

    /// Marks the packet as damaged, for the demuxer and for code that forwards packets.
    pub fn set_damaged(&mut self) {
        // SAFETY: `raw` is a valid packet, borrowed exclusively.
        unsafe { self.0.raw.as_mut() }.flags |= ff::AV_PKT_FLAG_CORRUPT as c_int;
    }

    /// Removes the flag of a packet at which decoding can start.
    pub(crate) fn clear_key(&mut self) {
        // SAFETY: `raw` is a valid packet, borrowed exclusively.
        unsafe { self.0.raw.as_mut() }.flags &= !(ff::AV_PKT_FLAG_KEY as c_int);
    }

    /// Returns true if the packet is flagged as one at which decoding can start: by libavformat, or
    /// by the code that made the packet. The [`Demuxer`](crate::Demuxer) removes a flag that the
    /// packet's bytes refute.
    pub fn is_key(&self) -> bool {
        // SAFETY: `raw` is a valid packet.
        unsafe { self.0.raw.as_ref() }.flags & ff::AV_PKT_FLAG_KEY as c_int != 0
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        let mut raw = self.0.raw.as_ptr();
        // SAFETY: `raw` came from av_packet_alloc and is freed only here.
        unsafe { ff::av_packet_free(&mut raw) };
    }
}

/// Drops the bytes of a shared packet after the last reference. Called on any thread.
unsafe extern "C" fn release(owner: *mut c_void, _data: *mut u8) {
    // SAFETY: the box that `Packet::shared` attached to this buffer, freed once.
    drop(unsafe { Box::from_raw(owner.cast::<SharedBytes>()) });
}
