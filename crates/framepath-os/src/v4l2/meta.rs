// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the frames that passed through the measuring node, from `/dev/framepath-meta`.

use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, opcode};

use super::V4l2Error;
use super::call::call;
use crate::c_layout::{Facts, numbers, structure};

/// Device node that provides the records of the kernel module.
pub const META_NODE: &str = "/dev/framepath-meta";

/// Ioctl that returns the number of records that a reader missed (FRAMEPATH_IOC_META_MISSED).
const MISSED: Opcode = opcode::read::<u64>(0xfb, 0x20);
/// Ioctl by which a reader declares the size of its records, and learns the size that it gets
/// (FRAMEPATH_IOC_META_BYTES).
const META_BYTES: Opcode = opcode::read_write::<u32>(0xfb, 0x21);
/// Size of a record in modules that do not support [`META_BYTES`], bytes.
const META_BYTES_FIRST: usize = 104;

/// Numbers of the measuring node, as in `kernel/uapi/framepath.h`. The node applies the values that its
/// controls have when an OUTPUT buffer is queued.
pub mod measuring {
    const CID_BASE: u32 = 0x0098_0900 + 0x1e00;
    /// Control: number of the frame at its source, 64 bits; the node copies it to the frame's record.
    pub const CID_SRC_SEQUENCE: u32 = CID_BASE;
    /// Control: algorithm that the node applies, `ALGO_*`.
    pub const CID_ALGO: u32 = CID_BASE + 1;
    /// Control: level of the threshold algorithm, 0 to 255.
    pub const CID_THRESHOLD: u32 = CID_BASE + 2;
    /// Control: left edge of the region to which the algorithm applies, pixels.
    pub const CID_ROI_LEFT: u32 = CID_BASE + 3;
    /// Control: upper edge of the region to which the algorithm applies, pixels.
    pub const CID_ROI_TOP: u32 = CID_BASE + 4;
    /// Control: width of the region to which the algorithm applies, pixels; 0 means up to the frame's
    /// edge.
    pub const CID_ROI_WIDTH: u32 = CID_BASE + 5;
    /// Control: height of the region to which the algorithm applies, pixels; 0 means up to the frame's
    /// edge.
    pub const CID_ROI_HEIGHT: u32 = CID_BASE + 6;
    /// Control: 1 requests work in place, which the node does for frames whose OUTPUT and CAPTURE buffers
    /// have the same memory; 0 requests copies.
    pub const CID_IN_PLACE: u32 = CID_BASE + 7;
    /// Control: 1 makes the node put a CRC-32 of the CAPTURE frame into the record, unless the work on the
    /// frame failed.
    pub const CID_CRC32: u32 = CID_BASE + 8;

    /// Value of [`CID_ALGO`]: no algorithm.
    pub const ALGO_NONE: u32 = 0;
    /// Value of [`CID_ALGO`]: pixels of the region at or above the level become 255, the region's other
    /// pixels become 0.
    pub const ALGO_THRESHOLD: u32 = 1;

    /// Status of a record: the work on the frame was done.
    pub const STATUS_DONE: u32 = 0;
    /// Status of a record: the work was done, but only for the part of the region that is inside the frame.
    pub const STATUS_ROI_CLAMPED: u32 = 1;
    /// Status of a record: the work on the frame failed.
    pub const STATUS_FAILED: u32 = 2;

    /// Flag of a record: the node worked in place, so OUTPUT and CAPTURE have the same memory.
    pub const META_IN_PLACE: u32 = 1;
    /// Flag of a record: its fields `crc32` and `checksum_ns` are valid.
    pub const META_CRC32: u32 = 2;
}

/// Record of one frame of the measuring node, as in `kernel/uapi/framepath.h`. Times are
/// CLOCK_MONOTONIC nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaRecord {
    /// Number of the record, from 0 since the module was loaded.
    pub number: u64,
    /// Number of the frame at its source, from the control [`measuring::CID_SRC_SEQUENCE`].
    pub source_sequence: u64,
    /// Time at which the frame's OUTPUT buffer was queued.
    pub queued_ns: u64,
    /// Time at which both the OUTPUT and the CAPTURE buffer were queued.
    pub ready_ns: u64,
    /// Time at which the node's work on the frame began.
    pub start_ns: u64,
    /// Time at which the pixels of the CAPTURE buffer were complete.
    pub end_ns: u64,
    /// Time at which the OUTPUT buffer was returned; the CAPTURE buffer is returned just afterwards.
    pub done_ns: u64,
    /// Number of the open file of the measuring node that the frame passed through; not reused while the
    /// module is loaded.
    pub context: u32,
    /// Algorithm that the node applied to the frame: `measuring::ALGO_*`.
    pub algo: u32,
    /// Result of the work on the frame: `measuring::STATUS_*`.
    pub status: u32,
    /// Bits `measuring::META_*` that are set for the frame.
    pub flags: u32,
    /// Region that the algorithm used: left, top, width, height in pixels; 0 without an algorithm.
    pub roi: [u32; 4],
    /// Result of the threshold algorithm: level, number of pixels that were set to 255.
    pub value: [u32; 2],
    /// Number of bytes that the node copied for the frame.
    pub copied: u64,
    /// Time at which the checksum was complete; 0 without a checksum.
    pub checksum_ns: u64,
    /// CRC-32 (IEEE 802.3) of the CAPTURE frame; 0 without a checksum.
    pub crc32: u32,
    /// Reserved field of the kernel's structure; always 0.
    pub reserved: u32,
}

impl MetaRecord {
    /// Size of a record with all fields, bytes.
    pub const BYTES: usize = size_of::<MetaRecord>();

    /// Parses a record in the kernel's format.
    pub fn from_bytes(bytes: &[u8; MetaRecord::BYTES]) -> MetaRecord {
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        MetaRecord {
            number: long(offset_of!(MetaRecord, number)),
            source_sequence: long(offset_of!(MetaRecord, source_sequence)),
            queued_ns: long(offset_of!(MetaRecord, queued_ns)),
            ready_ns: long(offset_of!(MetaRecord, ready_ns)),
            start_ns: long(offset_of!(MetaRecord, start_ns)),
            end_ns: long(offset_of!(MetaRecord, end_ns)),
            done_ns: long(offset_of!(MetaRecord, done_ns)),
            context: word(offset_of!(MetaRecord, context)),
            algo: word(offset_of!(MetaRecord, algo)),
            status: word(offset_of!(MetaRecord, status)),
            flags: word(offset_of!(MetaRecord, flags)),
            roi: std::array::from_fn(|i| word(offset_of!(MetaRecord, roi) + 4 * i)),
            value: std::array::from_fn(|i| word(offset_of!(MetaRecord, value) + 4 * i)),
            copied: long(offset_of!(MetaRecord, copied)),
            checksum_ns: long(offset_of!(MetaRecord, checksum_ns)),
            crc32: word(offset_of!(MetaRecord, crc32)),
            reserved: word(offset_of!(MetaRecord, reserved)),
        }
    }

    /// Returns the checksum; `None` if the record has none.
    pub fn checksum(&self) -> Option<u32> {
        (self.flags & measuring::META_CRC32 != 0).then_some(self.crc32)
    }
}

pub(super) fn list_layout(facts: &mut Facts) {
    use measuring::*;

    structure!(facts, None, MetaRecord = "struct fp_meta_record" {
        number = "number", source_sequence = "source_sequence", queued_ns = "queued_ns",
        ready_ns = "ready_ns", start_ns = "start_ns", end_ns = "end_ns", done_ns = "done_ns",
        context = "context", algo = "algo", status = "status", flags = "flags", roi = "roi",
        value = "value", copied = "copied", checksum_ns = "checksum_ns", crc32 = "crc32",
        reserved = "reserved",
    });
    numbers!(facts {
        MISSED => "FRAMEPATH_IOC_META_MISSED",
        META_BYTES => "FRAMEPATH_IOC_META_BYTES",
        META_BYTES_FIRST => "FRAMEPATH_META_BYTES_FIRST",
        CID_SRC_SEQUENCE => "FRAMEPATH_CID_SRC_SEQUENCE",
        CID_ALGO => "FRAMEPATH_CID_ALGO",
        CID_THRESHOLD => "FRAMEPATH_CID_THRESHOLD",
        CID_ROI_LEFT => "FRAMEPATH_CID_ROI_LEFT",
        CID_ROI_TOP => "FRAMEPATH_CID_ROI_TOP",
        CID_ROI_WIDTH => "FRAMEPATH_CID_ROI_WIDTH",
        CID_ROI_HEIGHT => "FRAMEPATH_CID_ROI_HEIGHT",
        CID_IN_PLACE => "FRAMEPATH_CID_IN_PLACE",
        CID_CRC32 => "FRAMEPATH_CID_CRC32",
        ALGO_NONE => "FRAMEPATH_ALGO_NONE",
        ALGO_THRESHOLD => "FRAMEPATH_ALGO_THRESHOLD",
        STATUS_DONE => "FRAMEPATH_STATUS_DONE",
        STATUS_ROI_CLAMPED => "FRAMEPATH_STATUS_ROI_CLAMPED",
        STATUS_FAILED => "FRAMEPATH_STATUS_FAILED",
        META_IN_PLACE => "FRAMEPATH_META_IN_PLACE",
        META_CRC32 => "FRAMEPATH_META_CRC32",
    });
}

/// Parses a record of any kernel module. A record of an older module may lack the last fields; missing
/// fields are 0.
fn padded(record: &[u8]) -> MetaRecord {
    let mut bytes = [0; MetaRecord::BYTES];
    bytes[..record.len()].copy_from_slice(record);
    MetaRecord::from_bytes(&bytes)
}

/// Open reader of the measuring node's records. Each reader has its own position in the records.
#[derive(Debug)]
pub struct MetaReader {
    fd: OwnedFd,
    path: PathBuf,
    /// Size of the records that the kernel module returns to this reader, bytes.
    record_bytes: usize,
}

impl MetaReader {
    /// Opens the node. The reader gets the records that are made from now on.
    ///
    /// # Errors
    /// The node does not exist, may not be read, or is not the node with the records; or the kernel's error.
    pub fn open(path: &Path) -> Result<MetaReader, V4l2Error> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())
            .map_err(|errno| V4l2Error::Open { node: path.to_owned(), errno })?;
        let mut reader = MetaReader { fd, path: path.to_owned(), record_bytes: META_BYTES_FIRST };
        if reader.missed().is_err() {
            return Err(V4l2Error::NoNode { node: reader.path });
        }
        let mut bytes = MetaRecord::BYTES as u32;
        // SAFETY: one u32, as the ioctl requires.
        match unsafe { call(reader.fd.as_fd(), META_BYTES, &mut bytes) } {
            Ok(_) => reader.record_bytes = bytes as usize,
            // An older module rejects the ioctl. Its records have META_BYTES_FIRST bytes.
            Err(Errno::NOTTY) => {}
            Err(errno) => return Err(V4l2Error::of(&reader.path, "FRAMEPATH_IOC_META_BYTES", errno)),
        }
        Ok(reader)
    }

    /// Appends all available records to `records`, without waiting.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn read(&self, records: &mut Vec<MetaRecord>) -> Result<(), V4l2Error> {
        let mut bytes = [0; MetaRecord::BYTES * 64];
        let batch = self.record_bytes * 64;
        loop {
            match rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut bytes[..batch])) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(()),
                Ok(count) => {
                    records.extend(bytes[..count].chunks_exact(self.record_bytes).map(padded));
                    if count < batch {
                        return Ok(());
                    }
                }
                Err(errno) => return Err(V4l2Error::of(&self.path, "read", errno)),
            }
        }
    }

    /// Waits for a record, for at most `time`. Returns true if a record is available. A signal ends the
    /// wait early.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn wait(&self, time: Duration) -> Result<bool, V4l2Error> {
        let limit = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(fds[0].revents().contains(PollFlags::IN)),
            Err(errno) => Err(V4l2Error::of(&self.path, "poll", errno)),
        }
    }

    /// Returns the number of records that this reader missed since it opened the node.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn missed(&self) -> Result<u64, V4l2Error> {
        let mut missed = 0u64;
        // SAFETY: one u64, as the ioctl requires. A file of another kind rejects the ioctl's
        // number.
        unsafe { call(self.fd.as_fd(), MISSED, &mut missed) }
            .map_err(|errno| V4l2Error::of(&self.path, "FRAMEPATH_IOC_META_MISSED", errno))?;
        Ok(missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_the_header_has_it() {
        // Each 32-bit word of the structure has its own index as value.
        let words: Vec<u8> = (0..30u32).flat_map(u32::to_ne_bytes).collect();
        let record = MetaRecord::from_bytes(words.as_slice().try_into().unwrap());
        let pair = |low: u32| {
            u64::from_ne_bytes([low.to_ne_bytes(), (low + 1).to_ne_bytes()].concat().try_into().unwrap())
        };
        assert_eq!((record.number, record.source_sequence, record.done_ns), (pair(0), pair(2), pair(12)));
        assert_eq!((record.context, record.algo, record.status, record.flags), (14, 15, 16, 17));
        assert_eq!((record.roi, record.value, record.copied), ([18, 19, 20, 21], [22, 23], pair(24)));
        assert_eq!((record.checksum_ns, record.crc32, record.reserved), (pair(26), 28, 29));

        let older = padded(&words[..META_BYTES_FIRST]);
        assert_eq!(older, MetaRecord { checksum_ns: 0, crc32: 0, reserved: 0, ..record });
    }

    #[test]
    fn another_file_is_refused() {
        assert!(matches!(MetaReader::open(Path::new("/dev/null")), Err(V4l2Error::NoNode { .. })));
        assert!(matches!(MetaReader::open(Path::new("/dev/none")), Err(V4l2Error::Open { .. })));
    }
}
