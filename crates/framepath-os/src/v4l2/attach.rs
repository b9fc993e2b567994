// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/framepath`: how a decoder in user space serves the kernel module's decoder node. The interface, with
//! the same names, is `kernel/uapi/framepath.h`.

pub(crate) mod layout;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, Setter, Updater, ioctl, opcode};

/// Version of the kernel module's interface that this crate uses.
pub const VERSION: u32 = 2;
/// File with the module's version of the interface, such as `attach-2`.
const MODULE_VERSION: &str = "/sys/module/framepath/version";
/// Size of a stream's stash, the file in which decoders keep their state of the stream, bytes.
pub const STASH_BYTES: u64 = 64 << 20;
/// Bit of [`Accept`]'s flags, FRAMEPATH_ACCEPT_LIMITED: the client's user has a limited number of streams.
const LIMITED: u32 = 1;
/// Queue of an [`Export`], FRAMEPATH_QUEUE_CAPTURE: the buffer is one of CAPTURE.
const CAPTURE: u32 = 1;
/// Value of `enum fp_packet_kind`: [`NextPacket::Packet`].
const PACKET: u32 = 1;
/// Value of `enum fp_packet_kind`: [`NextPacket::Drain`].
const DRAIN: u32 = 2;
/// Value of `enum fp_packet_kind`: [`NextPacket::Flush`].
const FLUSH: u32 = 3;
/// Value of `enum fp_capture_kind`: [`NextCapture::On`].
const CAPTURE_ON: u32 = 1;
/// Value of `enum fp_capture_kind`: [`NextCapture::Off`].
const CAPTURE_OFF: u32 = 2;
/// Value of `enum fp_capture_kind`: [`NextCapture::Queued`].
const CAPTURE_QUEUED: u32 = 3;
/// Value of `enum fp_capture_kind`: [`NextCapture::Flush`].
const CAPTURE_FLUSH: u32 = 4;
/// Number of packets that one call of [`Stream::delivered`] reports on.
pub const DELIVERED: u64 = 1024;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attach {
    version: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Accept {
    id: u64,
    codec: u32,
    stream: i32,
    stash: i32,
    width: u32,
    height: u32,
    epoch: u32,
    uid: u32,
    flags: u32,
}

/// `struct fp_mark`: data of a packet that the decoder returns unchanged with the packet's frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketMark {
    /// Timestamp of the packet, set by the client, nanoseconds.
    pub timestamp: u64,
    /// Buffer flags of the packet, `V4L2_BUF_FLAG_*`.
    pub flags: u32,
    /// Field order of the packet, `enum v4l2_field`.
    pub field: u32,
    /// Time code of the packet, `struct v4l2_timecode`.
    pub timecode: [u8; 16],
}

impl PacketMark {
    /// Returns the mark as bytes, for storage.
    pub fn to_bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.timestamp.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.field.to_le_bytes());
        bytes[16..].copy_from_slice(&self.timecode);
        bytes
    }

    /// Reads the bytes that [`PacketMark::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8; 32]) -> PacketMark {
        let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside"));
        let (low, high) = (word(0), word(4));
        let mut mark = PacketMark {
            timestamp: u64::from(low) | u64::from(high) << 32,
            flags: word(8),
            field: word(12),
            timecode: [0; 16],
        };
        mark.timecode.copy_from_slice(&bytes[16..]);
        mark
    }
}

/// Packet that the decoder has to decode, in an OUTPUT buffer: `struct fp_packet`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketInfo {
    kind: u32,
    /// Epoch of the stream: its number of flushes so far.
    pub epoch: u32,
    /// Number of the packet in its stream, from 0; flushes do not reset it.
    pub seq: u64,
    /// Number of the OUTPUT buffer with the packet.
    pub index: u32,
    /// Generation of the OUTPUT buffer's memory: another number means other memory.
    pub generation: u32,
    /// Number of bytes in the buffer before the payload.
    pub offset: u32,
    /// Size of the payload, bytes.
    pub bytes: u32,
    /// Mark of the packet, to copy to its frame.
    pub mark: PacketMark,
}

/// Result of [`Stream::next_packet`].
#[derive(Clone, Copy, Debug)]
pub enum NextPacket {
    /// Next packet, in an OUTPUT buffer.
    Packet(PacketInfo),
    /// The client drains: deliver the frames of all earlier packets, then call [`Stream::drained`].
    Drain {
        /// Epoch of the stream: its number of flushes so far.
        epoch: u32,
    },
    /// The client stopped OUTPUT (a seek): drop the packets taken earlier, and their frames.
    Flush {
        /// New epoch of the stream: its number of flushes so far.
        epoch: u32,
    },
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PacketDone {
    seq: u64,
    index: u32,
    failed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CaptureInfo {
    kind: u32,
    epoch: u32,
    index: u32,
    generation: u32,
    count: u32,
    pixelformat: u32,
    length: u32,
    reserved: u32,
}

/// Result of [`Stream::next_capture`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextCapture {
    /// The CAPTURE queue streams now; its buffers have this number, format and size.
    On {
        /// Number of CAPTURE buffers.
        count: u32,
        /// V4L2 pixel format of the buffers.
        pixelformat: u32,
        /// Minimum size of a buffer, bytes.
        length: u32,
    },
    /// The CAPTURE queue no longer streams for the decoder: the client stopped it, or has to set it up for
    /// another format. The client owns all its buffers.
    Off,
    /// The client queued a CAPTURE buffer. The decoder may write into it until the buffer leaves the decoder:
    /// by [`Stream::frame`], with the end of a drain, or with [`NextCapture::Off`].
    Queued {
        /// Number of the CAPTURE buffer.
        index: u32,
        /// Generation of the buffer's memory: another number means other memory.
        generation: u32,
    },
    /// The client flushed the stream, as in [`NextPacket::Flush`].
    Flush {
        /// New epoch of the stream: its number of flushes so far.
        epoch: u32,
    },
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Export {
    queue: u32,
    index: u32,
    generation: u32,
    fd: i32,
}

/// `struct fp_format`: format of the stream's decoded pictures.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFormat {
    /// Epoch of the stream: its number of flushes so far.
    pub epoch: u32,
    /// Number of bits of a sample: 8 (the client may choose YU12 or NV12) or 10 (P010).
    pub depth: u32,
    /// Coded width of the pictures, pixels.
    pub width: u32,
    /// Number of luma rows in a buffer, even.
    pub height: u32,
    /// Number of bytes from one luma row to the next.
    pub bytesperline: u32,
    /// Left edge of the pictures' visible part, pixels.
    pub left: u32,
    /// Upper edge of the pictures' visible part, pixels.
    pub top: u32,
    /// Width of the pictures' visible part, pixels.
    pub visible_width: u32,
    /// Height of the pictures' visible part, pixels.
    pub visible_height: u32,
    /// Size of a buffer with YU12, bytes.
    pub sizeimage_native: u32,
    /// Size of a buffer with NV12 or P010, bytes; may include the decoder's scratch memory behind the pixels.
    pub sizeimage_packed: u32,
    /// Minimum number of CAPTURE buffers that decoding needs, up to 32.
    pub min_buffers: u32,
    /// Colour space, `enum v4l2_colorspace`; 0 if unknown.
    pub colorspace: u32,
    /// Transfer function, `enum v4l2_xfer_func`; 0 if unknown.
    pub xfer_func: u32,
    /// Matrix from RGB to YCbCr, `enum v4l2_ycbcr_encoding`; 0 if unknown.
    pub ycbcr_enc: u32,
    /// Full or limited range, `enum v4l2_quantization`; 0 if unknown.
    pub quantization: u32,
}

/// `struct fp_frame`: finished CAPTURE buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameInfo {
    /// Number of the frame's packet in the stream.
    pub seq: u64,
    /// Epoch of the stream: its number of flushes so far.
    pub epoch: u32,
    /// Number of the CAPTURE buffer.
    pub index: u32,
    /// Generation of the buffer's memory into which the frame was written.
    pub generation: u32,
    /// 1 if the client gets the buffer with an error flag, otherwise 0.
    pub failed: u32,
    /// Number of bytes of pixels that the decoder copied for the frame.
    pub copied: u32,
    /// Reserved field of the kernel's structure; always 0.
    pub reserved: u32,
    /// Mark of the frame's packet.
    pub mark: PacketMark,
}

/// Reason why the decoder has no frame left for now: `enum fp_drained_why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// The client requested a drain, which ends now.
    End = 1,
    /// The stream continues in another format, which the decoder declares next, with [`Stream::format`].
    Change = 2,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct DrainedInfo {
    epoch: u32,
    why: u32,
    index: i32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Fail {
    error: i32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Delivered {
    first: u64,
    next: u64,
    bits: [u64; 16],
}

const MAGIC: u8 = 0xfb;
const ATTACH: Opcode = opcode::write::<Attach>(MAGIC, 0x01);
const ACCEPT: Opcode = opcode::read::<Accept>(MAGIC, 0x02);
const NEXT_PACKET: Opcode = opcode::read::<PacketInfo>(MAGIC, 0x10);
const PACKET_DONE: Opcode = opcode::write::<PacketDone>(MAGIC, 0x11);
const NEXT_CAPTURE: Opcode = opcode::read::<CaptureInfo>(MAGIC, 0x12);
const EXPORT: Opcode = opcode::read_write::<Export>(MAGIC, 0x13);
const FORMAT: Opcode = opcode::write::<StreamFormat>(MAGIC, 0x14);
const FRAME: Opcode = opcode::write::<FrameInfo>(MAGIC, 0x15);
const DRAINED: Opcode = opcode::read_write::<DrainedInfo>(MAGIC, 0x16);
const FAIL: Opcode = opcode::write::<Fail>(MAGIC, 0x17);
const DELIVERED_IOC: Opcode = opcode::read_write::<Delivered>(MAGIC, 0x18);
const STOP: Opcode = opcode::none(MAGIC, 0x19);

/// Calls the ioctl `OPCODE` on `fd` with `value`, which the kernel only reads; repeats the call after a
/// signal.
fn set<const OPCODE: Opcode, T: Copy>(fd: impl AsFd, value: T) -> io::Result<()> {
    loop {
        // SAFETY: OPCODE is one of those above, each with the structure that
        // kernel/uapi/framepath.h has for it; the kernel only reads it.
        match unsafe { ioctl(&fd, Setter::<OPCODE, T>::new(value)) } {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Calls the ioctl `OPCODE` on `fd` with `value`, to which the kernel writes the result; repeats the call
/// after a signal. Sleeps if the ioctl waits.
fn update<const OPCODE: Opcode, T: Copy>(fd: impl AsFd, value: &mut T) -> io::Result<()> {
    loop {
        // SAFETY: as in `set`; the kernel may write the structure too, and any
        // bits are a value of it.
        match unsafe { ioctl(&fd, Updater::<OPCODE, T>::new(value)) } {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Makes the error of a kernel module with another version of the decoder interface. `theirs` is the text
/// of the module's version, such as `attach-7`; `None` if it is unknown.
fn other_version(theirs: Option<&str>) -> io::Error {
    let theirs = theirs.map_or("an unknown version", str::trim);
    let text = format!(
        "the module framepath.ko has {theirs} of the decoder interface, this program has attach-{VERSION}; \
         install both from one release"
    );
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Meaning of an error that a call of a [`Stream`] returns to the decoder process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// ENODEV: this process no longer has the stream, because the client has closed it or begun another, the
    /// stream has failed, or the process has detached from the device.
    Closed,
    /// ESTALE: the call names an old epoch, or replaced memory of a buffer.
    Stale,
    /// EBUSY: the call is not possible yet.
    Busy,
    /// ECANCELED: the client has canceled the drain that the call would end.
    CalledOff,
    /// EINVAL: the call names an object that does not exist, or passes an invalid value.
    Unknown,
    /// Any other error, such as ESHUTDOWN after [`Stream::stop`].
    Other,
}

impl Refusal {
    /// Returns the meaning of `error`.
    pub fn of(error: &io::Error) -> Refusal {
        match Errno::from_io_error(error) {
            Some(Errno::NODEV) => Refusal::Closed,
            Some(Errno::STALE) => Refusal::Stale,
            Some(Errno::BUSY) => Refusal::Busy,
            Some(Errno::CANCELED) => Refusal::CalledOff,
            Some(Errno::INVAL) => Refusal::Unknown,
            _ => Refusal::Other,
        }
    }
}

/// Open device node of the kernel module, by which this process is attached: the process gets all streams of
/// the device to decode, and another attempt to attach fails with EBUSY. Dropping this value detaches.
#[derive(Debug)]
pub struct Attached(OwnedFd);

/// Stream of a client, to be decoded.
#[derive(Debug)]
pub struct Offered {
    /// Number of the stream; not reused while the kernel module is loaded.
    pub id: u64,
    /// V4L2 format of the stream's packets.
    pub codec: u32,
    /// Width in pixels, as set by the client; 0 if not set.
    pub width: u32,
    /// Height in pixels, as set by the client; 0 if not set.
    pub height: u32,
    /// Epoch of the stream: its number of flushes so far.
    pub epoch: u32,
    /// User id for which the stream counts against a limit: the client's or, for a client in a user
    /// namespace, that of the owner of its outermost namespace; `None` for a privileged client without a
    /// limit.
    pub limited_uid: Option<u32>,
    /// Handle for the stream's packets and CAPTURE buffers.
    pub stream: Stream,
    /// File of [`STASH_BYTES`] bytes with the last decoder's state of the stream; zeros at first.
    pub stash: File,
}

impl Attached {
    /// Attaches this process to the device at `path`.
    ///
    /// # Errors
    /// There is no such device, access is denied, another decoder is attached (EBUSY), or the module has
    /// another version of the interface. The error about a version names both versions.
    pub fn open(path: &Path) -> io::Result<Attached> {
        let device = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        match set::<ATTACH, _>(&device, Attach { version: VERSION, reserved: 0 }) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTO) => {
                Err(other_version(std::fs::read_to_string(MODULE_VERSION).ok().as_deref()))
            }
            done => done.map(|()| Attached(device)),
        }
    }

    /// Waits without a limit for the next stream of a client.
    ///
    /// # Errors
    /// The error of the kernel, for example because this process has no free descriptor.
    pub fn accept(&self) -> io::Result<Offered> {
        let mut accept = Accept::default();
        update::<ACCEPT, _>(&self.0, &mut accept)?;
        // SAFETY: the kernel has just made the two for this process.
        let (stream, stash) =
            unsafe { (OwnedFd::from_raw_fd(accept.stream), OwnedFd::from_raw_fd(accept.stash)) };
        let Accept { id, codec, width, height, epoch, uid, flags, .. } = accept;
        let limited_uid = (flags & LIMITED != 0).then_some(uid);
        let (stream, stash) = (Stream(stream.into()), stash.into());
        Ok(Offered { id, codec, width, height, epoch, limited_uid, stream, stash })
    }
}

/// Handle for a stream's packets and CAPTURE buffers. Every call may be made from any thread, also while
/// other threads wait in [`Stream::next_packet`] and [`Stream::next_capture`].
///
/// All calls fail with ESHUTDOWN after [`Stream::stop`]. Otherwise, all calls fail with ENODEV once the
/// client has closed the stream or begun another, the stream has failed, or [`Attached`] was dropped.
/// `docs/device-uapi.md` lists all errors of each call.
#[derive(Debug)]
pub struct Stream(File);

impl Stream {
    /// Waits for a packet, a drain or a flush.
    pub fn next_packet(&self) -> io::Result<NextPacket> {
        let mut info = PacketInfo::default();
        update::<NEXT_PACKET, _>(&self.0, &mut info)?;
        let epoch = info.epoch;
        match info.kind {
            PACKET => Ok(NextPacket::Packet(info)),
            DRAIN => Ok(NextPacket::Drain { epoch }),
            FLUSH => Ok(NextPacket::Flush { epoch }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Returns a copy of the payload of a packet that is not yet done; the meter counts the copy. The client
    /// may change the payload during the copy, so the copy may be inconsistent.
    pub fn payload(&self, packet: &PacketInfo) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; packet.bytes as usize];
        let at = u64::from(packet.index) << 32 | u64::from(packet.offset);
        crate::measure::meter::copy(bytes.len(), || self.0.read_exact_at(&mut bytes, at))?;
        Ok(bytes)
    }

    /// Returns the OUTPUT buffer of `packet` to the client; `failed` sets its error flag. Fails with ESTALE
    /// if the packet was flushed or is already done, and with EINVAL if the decoder does not have the packet.
    pub fn packet_done(&self, packet: &PacketInfo, failed: bool) -> io::Result<()> {
        let PacketInfo { seq, index, .. } = *packet;
        set::<PACKET_DONE, _>(&self.0, PacketDone { seq, index, failed: failed.into() })
    }

    /// Waits for an event of the CAPTURE queue: started, stopped, a buffer queued, or a flush of the stream.
    pub fn next_capture(&self) -> io::Result<NextCapture> {
        let mut info = CaptureInfo::default();
        update::<NEXT_CAPTURE, _>(&self.0, &mut info)?;
        let CaptureInfo { kind, epoch, index, generation, count, pixelformat, length, .. } = info;
        match kind {
            CAPTURE_ON => Ok(NextCapture::On { count, pixelformat, length }),
            CAPTURE_OFF => Ok(NextCapture::Off),
            CAPTURE_QUEUED => Ok(NextCapture::Queued { index, generation }),
            CAPTURE_FLUSH => Ok(NextCapture::Flush { epoch }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Exports the memory of CAPTURE buffer number `index`. Returns the memory's generation and a dmabuf.
    /// Fails with EINVAL if there is no such buffer, or if it is an imported buffer that was never queued.
    pub fn export_capture(&self, index: u32) -> io::Result<(u32, OwnedFd)> {
        let mut export = Export { queue: CAPTURE, index, ..Export::default() };
        update::<EXPORT, _>(&self.0, &mut export)?;
        // SAFETY: the kernel has just made it for this process.
        Ok((export.generation, unsafe { OwnedFd::from_raw_fd(export.fd) }))
    }

    /// Declares the stream's format, before its first frame: once after [`Attached::accept`], after each
    /// flush, and after each call of [`Stream::drained`] for a change. Fails with EBUSY if the format was
    /// already declared, with EINVAL if a value is out of its range, and with ESTALE if the epoch is old.
    pub fn format(&self, format: &StreamFormat) -> io::Result<()> {
        set::<FORMAT, _>(&self.0, *format)
    }

    /// Gives a finished CAPTURE buffer to the client. Fails with EINVAL if there is no such buffer, a field
    /// has an invalid value or no format is declared, with ESTALE if the epoch or the generation is old, with
    /// EBUSY if the client owns the buffer or CAPTURE does not stream for the decoder, and with ERANGE if the
    /// frame's packet is not among the latest 8192 packets of the stream.
    pub fn frame(&self, frame: &FrameInfo) -> io::Result<()> {
        set::<FRAME, _>(&self.0, *frame)
    }

    /// Reports that no frame of `epoch` is left, for the reason `why`. Returns the number of the CAPTURE
    /// buffer that carried the end of a drain to the client and that the decoder no longer has; `None` if
    /// there was no such buffer, and for a change. Fails with ECANCELED if the client has canceled its
    /// drain, with EBUSY if packets from before the drain are not [done](Stream::packet_done) or CAPTURE does
    /// not stream for the current format, with EINVAL for a change while no format is declared, and with
    /// ESTALE if `epoch` is old.
    pub fn drained(&self, epoch: u32, why: Drained) -> io::Result<Option<u32>> {
        let mut info = DrainedInfo { epoch, why: why as u32, ..DrainedInfo::default() };
        update::<DRAINED, _>(&self.0, &mut info)?;
        Ok(u32::try_from(info.index).ok())
    }

    /// Reports that the stream cannot continue: both queues of the client fail with EIO until the client
    /// stops them, and all later calls of this stream fail with ENODEV.
    pub fn fail(&self) -> io::Result<()> {
        set::<FAIL, _>(&self.0, Fail { error: Errno::IO.raw_os_error(), reserved: 0 })
    }

    /// Returns one bit for each of the [`DELIVERED`] packets from number `first` on; bit 0 of word 0 is
    /// `first`. A bit is set if a decoder has given a frame of the packet to the client. Fails with ERANGE
    /// if `first` is neither among the latest 8192 packets of the stream nor the number of its next packet.
    pub fn delivered(&self, first: u64) -> io::Result<[u64; 16]> {
        let mut delivered = Delivered { first, ..Delivered::default() };
        update::<DELIVERED_IOC, _>(&self.0, &mut delivered)?;
        Ok(delivered.bits)
    }

    /// Ends the waits of all threads. All later calls of this stream fail with ESHUTDOWN.
    pub fn stop(&self) -> io::Result<()> {
        // SAFETY: no argument.
        Ok(unsafe { ioctl(&self.0, NoArg::<STOP>::new()) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_the_kernels() {
        let sizes = [
            size_of::<Attach>(),
            size_of::<Accept>(),
            size_of::<PacketInfo>(),
            size_of::<PacketDone>(),
            size_of::<CaptureInfo>(),
            size_of::<Export>(),
            size_of::<StreamFormat>(),
            size_of::<FrameInfo>(),
            size_of::<DrainedInfo>(),
            size_of::<Delivered>(),
        ];
        assert_eq!(sizes, [8, 40, 64, 16, 32, 16, 64, 64, 16, 144]);
    }

    #[test]
    fn marks_are_kept_to_the_bit() {
        let mark = PacketMark { timestamp: 0x0102_0304_0506_0708, flags: 9, field: 10, timecode: [11; 16] };
        assert_eq!(PacketMark::from_bytes(&mark.to_bytes()), mark);
    }

    #[test]
    fn a_module_of_another_version_is_named() {
        let text = other_version(Some("attach-7\n")).to_string();
        assert!(text.contains("attach-7 of") && text.contains(&format!("attach-{VERSION};")), "{text}");
        let text = other_version(None).to_string();
        assert!(text.contains("unknown version") && text.contains(&format!("attach-{VERSION};")), "{text}");
    }

    #[test]
    fn the_version_is_that_of_the_modules_header() {
        let header = include_str!("../../../../kernel/uapi/framepath.h");
        let line = header.lines().find_map(|line| line.strip_prefix("#define FRAMEPATH_VERSION "));
        assert_eq!(line.unwrap().trim().parse(), Ok(VERSION));
    }

    #[test]
    fn a_machine_without_the_module_says_so() {
        let error = Attached::open(Path::new("/dev/framepath-not-here")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        // `/dev/null` is not the device and knows no such call.
        assert!(Attached::open(Path::new("/dev/null")).is_err());
    }
}
