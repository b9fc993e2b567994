// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/framepath`: how a decoder in user space serves the kernel module's
//! decoder node. The interface is `kernel/uapi/framepath.h`; names and
//! meanings are those.

pub(crate) mod layout;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, Setter, Updater, ioctl, opcode};

/// Version of the interface.
pub const VERSION: u32 = 2;
/// File with the module's version of the interface, such as `attach-1`.
const MODULE_VERSION: &str = "/sys/module/framepath/version";
/// Bytes of a stream's stash.
pub const STASH_BYTES: u64 = 64 << 20;
/// FRAMEPATH_ACCEPT_LIMITED.
const LIMITED: u32 = 1;
/// FRAMEPATH_QUEUE_CAPTURE.
const CAPTURE: u32 = 1;
/// enum fp_packet_kind.
const PACKET: u32 = 1;
const DRAIN: u32 = 2;
const FLUSH: u32 = 3;
/// enum fp_capture_kind.
const CAPTURE_ON: u32 = 1;
const CAPTURE_OFF: u32 = 2;
const CAPTURE_QUEUED: u32 = 3;
const CAPTURE_FLUSH: u32 = 4;
/// Packets covered by one [`Stream::delivered`].
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

/// `struct fp_mark`: data that is copied unchanged from a packet to its frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketMark {
    /// The client's timestamp, nanoseconds.
    pub timestamp: u64,
    /// `V4L2_BUF_FLAG_*`.
    pub flags: u32,
    /// `enum v4l2_field`.
    pub field: u32,
    /// `struct v4l2_timecode`.
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

/// `struct fp_packet`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketInfo {
    kind: u32,
    /// Counts flushes.
    pub epoch: u32,
    /// Number of the packet in its stream.
    pub seq: u64,
    /// Number of the OUTPUT buffer.
    pub index: u32,
    /// Generation of the buffer's memory.
    pub generation: u32,
    /// Bytes in front of the payload.
    pub offset: u32,
    /// Bytes of payload.
    pub bytes: u32,
    /// Mark for the frame.
    pub mark: PacketMark,
}

/// Result of [`Stream::next_packet`].
#[derive(Clone, Copy, Debug)]
pub enum NextPacket {
    /// An OUTPUT buffer.
    Packet(PacketInfo),
    /// Deliver the frames of all packets before, then call [`Stream::drained`].
    Drain {
        /// Counts flushes.
        epoch: u32,
    },
    /// OUTPUT was stopped: forget the packets that were taken before.
    Flush {
        /// The new epoch.
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
    /// CAPTURE is streaming.
    On {
        /// Number of buffers.
        count: u32,
        /// V4L2's number of the buffers' format.
        pixelformat: u32,
        /// Bytes of a buffer, at least.
        length: u32,
    },
    /// CAPTURE is not streaming.
    Off,
    /// A buffer may be written.
    Queued {
        /// Number of the buffer.
        index: u32,
        /// Generation of the buffer's memory.
        generation: u32,
    },
    /// As [`NextPacket::Flush`].
    Flush {
        /// The new epoch.
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

/// `struct fp_format`: the stream's format.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFormat {
    /// Counts flushes.
    pub epoch: u32,
    /// Bits of a sample, 8 or 10.
    pub depth: u32,
    /// Pixels of a coded row.
    pub width: u32,
    /// Rows of luma in a buffer.
    pub height: u32,
    /// Bytes from one luma row to the next.
    pub bytesperline: u32,
    /// First visible pixel.
    pub left: u32,
    /// First visible row.
    pub top: u32,
    /// Pixels of a row to show.
    pub visible_width: u32,
    /// Rows to show.
    pub visible_height: u32,
    /// Bytes of a buffer of YU12.
    pub sizeimage_native: u32,
    /// Bytes of a buffer of NV12 or P010.
    pub sizeimage_packed: u32,
    /// CAPTURE buffers needed.
    pub min_buffers: u32,
    /// V4L2's number; 0 where not known. The same holds for the three fields below.
    pub colorspace: u32,
    /// See `colorspace`.
    pub xfer_func: u32,
    /// See `colorspace`.
    pub ycbcr_enc: u32,
    /// See `colorspace`.
    pub quantization: u32,
}

/// `struct fp_frame`: a CAPTURE buffer that is finished.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameInfo {
    /// Number of the packet that the frame came from.
    pub seq: u64,
    /// Counts flushes.
    pub epoch: u32,
    /// The buffer's number.
    pub index: u32,
    /// Generation of the buffer's memory.
    pub generation: u32,
    /// 1: the client finds an error flag.
    pub failed: u32,
    /// Bytes of pixels copied for the frame.
    pub copied: u32,
    /// 0.
    pub reserved: u32,
    /// Mark of the packet.
    pub mark: PacketMark,
}

/// Why a stream has no frame left: `enum fp_drained_why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// The client asked for it.
    End = 1,
    /// The stream goes on in another format.
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

/// Passes `value` to the kernel; repeats the call after a signal.
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

/// Passes `value` to the kernel and back, and waits where the call does; repeats the call
/// after a signal.
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

/// Makes the error of a module whose version is `theirs`.
fn other_version(theirs: Option<&str>) -> io::Error {
    let theirs = theirs.map_or("an unknown version", str::trim);
    let text = format!(
        "the module framepath.ko has {theirs} of the decoder interface, this program has attach-{VERSION}; \
         install both from one release"
    );
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Meaning of an error of a [`Stream`]'s calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// ENODEV: the client has closed, or begun another stream.
    Closed,
    /// ESTALE: the call names an old epoch, or old memory.
    Stale,
    /// EBUSY: not possible yet.
    Busy,
    /// ECANCELED: the client has canceled the request.
    CalledOff,
    /// EINVAL: the call names an object that does not exist.
    Unknown,
    /// Another error of the system.
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

/// Open device node of the kernel module. This process is attached and decodes all streams of the
/// device; a second process gets EBUSY.
#[derive(Debug)]
pub struct Attached(OwnedFd);

/// A client's stream that wants decoding.
#[derive(Debug)]
pub struct Offered {
    /// Number of the stream, which is never used again.
    pub id: u64,
    /// V4L2 pixel format of its packets.
    pub codec: u32,
    /// Width as the client has set it; 0 where it has not.
    pub width: u32,
    /// Height as the client has set it; 0 where it has not.
    pub height: u32,
    /// Flushes so far.
    pub epoch: u32,
    /// User that the client's streams are counted for; `None` for a privileged client,
    /// whose streams are not limited.
    pub limited_uid: Option<u32>,
    /// Packets and frames of the stream.
    pub stream: Stream,
    /// State that the last decoder kept of the stream: [`STASH_BYTES`], zeros at first.
    pub stash: File,
}

impl Attached {
    /// Attaches this process to the device at `path`.
    ///
    /// # Errors
    /// No such device, another decoder is attached (EBUSY), or the module has
    /// another version of the interface: the error names both versions.
    pub fn open(path: &Path) -> io::Result<Attached> {
        let device = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        match set::<ATTACH, _>(&device, Attach { version: VERSION, reserved: 0 }) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTO) => {
                Err(other_version(std::fs::read_to_string(MODULE_VERSION).ok().as_deref()))
            }
            done => done.map(|()| Attached(device)),
        }
    }

    /// Waits for the next stream.
    ///
    /// # Errors
    /// From the system.
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

/// A stream's packets and CAPTURE buffers. Every call may be made from any thread; one
/// thread waits for packets, another for buffers.
///
/// All calls fail with ENODEV once the client has closed, and with ESHUTDOWN
/// after [`Stream::stop`].
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

    /// Reads the payload of a packet that is not yet done. The client may change the
    /// payload meanwhile.
    pub fn payload(&self, packet: &PacketInfo) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; packet.bytes as usize];
        let at = u64::from(packet.index) << 32 | u64::from(packet.offset);
        crate::measure::meter::copy(bytes.len(), || self.0.read_exact_at(&mut bytes, at))?;
        Ok(bytes)
    }

    /// Gives an OUTPUT buffer back.
    pub fn packet_done(&self, packet: &PacketInfo, failed: bool) -> io::Result<()> {
        let PacketInfo { seq, index, .. } = *packet;
        set::<PACKET_DONE, _>(&self.0, PacketDone { seq, index, failed: failed.into() })
    }

    /// Waits for an event of CAPTURE: started, stopped, a buffer queued, or a flush.
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

    /// Exports a CAPTURE buffer's memory: the memory's generation, and a dmabuf.
    pub fn export_capture(&self, index: u32) -> io::Result<(u32, OwnedFd)> {
        let mut export = Export { queue: CAPTURE, index, ..Export::default() };
        update::<EXPORT, _>(&self.0, &mut export)?;
        // SAFETY: the kernel has just made it for this process.
        Ok((export.generation, unsafe { OwnedFd::from_raw_fd(export.fd) }))
    }

    /// Declares the stream's format. EBUSY where the stream has another format and was
    /// not [drained](Stream::drained) for a change.
    pub fn format(&self, format: &StreamFormat) -> io::Result<()> {
        set::<FORMAT, _>(&self.0, *format)
    }

    /// Gives a finished buffer to the client.
    pub fn frame(&self, frame: &FrameInfo) -> io::Result<()> {
        set::<FRAME, _>(&self.0, *frame)
    }

    /// Reports that no frame is left. Returns the CAPTURE buffer that went to the client
    /// with the report, if one did. ECANCELED where the client has canceled its drain.
    pub fn drained(&self, epoch: u32, why: Drained) -> io::Result<Option<u32>> {
        let mut info = DrainedInfo { epoch, why: why as u32, ..DrainedInfo::default() };
        update::<DRAINED, _>(&self.0, &mut info)?;
        Ok(u32::try_from(info.index).ok())
    }

    /// Reports that the stream cannot continue.
    pub fn fail(&self) -> io::Result<()> {
        set::<FAIL, _>(&self.0, Fail { error: Errno::IO.raw_os_error(), reserved: 0 })
    }

    /// Returns one bit for each of the [`DELIVERED`] packets from `first` on, set if any
    /// decoder has given all of its frames to the client; bit 0 of word 0 is `first`.
    pub fn delivered(&self, first: u64) -> io::Result<[u64; 16]> {
        let mut delivered = Delivered { first, ..Delivered::default() };
        update::<DELIVERED_IOC, _>(&self.0, &mut delivered)?;
        Ok(delivered.bits)
    }

    /// Ends the waits of all threads, for good.
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
