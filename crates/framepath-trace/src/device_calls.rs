// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls with which a program exchanges buffers with a V4L2 device: VIDIOC_QBUF and VIDIOC_DQBUF.
//!
//! Source of the offsets: struct v4l2_buffer and struct v4l2_plane in linux/videodev2.h, for 64 bits.

/// Number of words of a record: those in front of the buffer, and a struct v4l2_buffer.
pub(crate) const RECORD_WORDS: usize = HEAD_WORDS + BUFFER_WORDS;

/// Number of words in front of the buffer.
pub(crate) const HEAD_WORDS: usize = 8;

/// Number of words of a struct v4l2_buffer.
pub(crate) const BUFFER_WORDS: usize = 11;

/// Offset of the address of the planes in a struct v4l2_buffer.
pub(crate) const PLANES: i16 = 64;

/// Types of buffers with frames or packets (enum v4l2_buf_type).
mod types {
    pub(super) const CAPTURE: u32 = 1;
    pub(super) const OUTPUT: u32 = 2;
    pub(super) const CAPTURE_PLANES: u32 = 9;
    pub(super) const OUTPUT_PLANES: u32 = 10;
}

/// Flags of a buffer.
mod flags {
    pub(super) const ERROR: u32 = 0x40;
    pub(super) const TIMESTAMP: u32 = 0xe000;
    pub(super) const TIMESTAMP_MONOTONIC: u32 = 0x2000;
    pub(super) const LAST: u32 = 0x0010_0000;
}

/// Greatest number of a device's minor.
const MINORS: u64 = 1 << 20;

/// Queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DeviceQueue {
    /// Buffers that the device fills.
    Capture,
    /// Buffers that the program fills.
    Output,
}

/// Open file of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DeviceFile {
    pub(crate) process: i32,
    /// Minor number of the device; `None` if the kernel does not tell.
    pub(crate) minor: Option<u32>,
    /// First argument of ioctl.
    pub(crate) descriptor: i32,
}

/// Successful call. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceCall {
    /// For VIDIOC_QBUF, the time at which the device's queue got the buffer: the device may have been done with it before the
    /// call's end, which stands for it in drivers without videobuf2. For VIDIOC_DQBUF, the call's end.
    pub(crate) at_ns: u64,
    pub(crate) thread: i32,
    pub(crate) file: DeviceFile,
    pub(crate) queue: DeviceQueue,
    /// True for VIDIOC_DQBUF, false for VIDIOC_QBUF.
    pub(crate) is_dequeue: bool,
    /// Index of the buffer in its queue.
    pub(crate) index: u32,
    /// Address of the kernel's own record of the buffer; 0 for a driver without videobuf2.
    pub(crate) buffer: u64,
    /// For VIDIOC_DQBUF, the time at which the driver was done with the buffer; `None` if that is not known.
    pub(crate) done_ns: Option<u64>,
    /// Number of bytes in the buffer, of its first plane.
    pub(crate) bytes: u32,
    /// Number of the frame that the driver gave.
    pub(crate) sequence: u32,
    /// Time stamp of the buffer: seconds and microseconds.
    pub(crate) timestamp: (i64, i64),
    /// Its flags (V4L2_BUF_FLAG_...).
    pub(crate) flags: u32,
}

impl DeviceCall {
    /// Reads a record; `None` for buffers without frames or packets.
    pub(crate) fn parse(words: &[u64], is_dequeue: bool) -> Option<DeviceCall> {
        let words: &[u64; RECORD_WORDS] = words.try_into().ok()?;
        let [end_ns, ids, _, minor, descriptor, buffer, time_ns, plane] = *words.first_chunk()?;
        let of_buffer = |word: usize| words[HEAD_WORDS + word];
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        let (queue, has_planes) = match high(of_buffer(0)) {
            types::CAPTURE => (DeviceQueue::Capture, false),
            types::OUTPUT => (DeviceQueue::Output, false),
            types::CAPTURE_PLANES => (DeviceQueue::Capture, true),
            types::OUTPUT_PLANES => (DeviceQueue::Output, true),
            _ => return None,
        };
        let minor = (minor < MINORS).then_some(minor as u32);
        let file = DeviceFile { process: high(ids) as i32, minor, descriptor: descriptor as i32 };
        let time_ns = (1..=end_ns).contains(&time_ns).then_some(time_ns);
        Some(DeviceCall {
            at_ns: time_ns.filter(|_| !is_dequeue).unwrap_or(end_ns),
            thread: low(ids) as i32,
            file,
            queue,
            is_dequeue,
            index: low(of_buffer(0)),
            buffer,
            done_ns: time_ns.filter(|_| is_dequeue),
            bytes: low(if has_planes { plane } else { of_buffer(1) }),
            sequence: low(of_buffer(7)),
            timestamp: (of_buffer(3) as i64, of_buffer(4) as i64),
            flags: high(of_buffer(1)),
        })
    }

    /// Returns the time stamp, if it is one of CLOCK_MONOTONIC that is not in the call's future.
    pub(crate) fn captured_ns(&self) -> Option<u64> {
        if self.flags & flags::TIMESTAMP != flags::TIMESTAMP_MONOTONIC {
            return None;
        }
        let (seconds, microseconds) = self.timestamp;
        let ns = seconds.checked_mul(1_000_000_000)?.checked_add(microseconds.checked_mul(1000)?)?;
        u64::try_from(ns).ok().filter(|ns| *ns > 0 && *ns <= self.at_ns)
    }

    /// False for a buffer that only says that the stream has ended, or that a frame is lost.
    pub(crate) fn has_frame(&self) -> bool {
        self.bytes > 0 || self.flags & (flags::LAST | flags::ERROR) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Record of process 7 and thread 8 at 5 s, from minor 3 and descriptor 4: a captured buffer with index 2, 100 bytes,
    /// number 9, and a stamp of CLOCK_MONOTONIC at 4.000001 s.
    fn record() -> [u64; RECORD_WORDS] {
        let mut words = [0; RECORD_WORDS];
        words[..HEAD_WORDS].copy_from_slice(&[
            5_000_000_000,
            7 << 32 | 8,
            0,
            3,
            4,
            0xff00,
            4_500_000_000,
            33,
        ]);
        words[HEAD_WORDS] = 2 | 1 << 32;
        words[HEAD_WORDS + 1] = 100 | 0x2001 << 32;
        words[HEAD_WORDS + 3] = 4;
        words[HEAD_WORDS + 4] = 1;
        words[HEAD_WORDS + 7] = 9 | 1 << 32;
        words
    }

    #[test]
    fn a_record_is_read_where_the_kernel_has_the_fields() {
        let file = DeviceFile { process: 7, minor: Some(3), descriptor: 4 };
        let wanted = DeviceCall {
            at_ns: 5_000_000_000,
            thread: 8,
            file,
            queue: DeviceQueue::Capture,
            is_dequeue: true,
            index: 2,
            buffer: 0xff00,
            done_ns: Some(4_500_000_000),
            bytes: 100,
            sequence: 9,
            timestamp: (4, 1),
            flags: 0x2001,
        };
        assert_eq!(DeviceCall::parse(&record(), true), Some(wanted));
        assert_eq!(wanted.captured_ns(), Some(4_000_001_000));
        let mut planes = record();
        planes[HEAD_WORDS] = 2 | 10 << 32;
        let call = DeviceCall::parse(&planes, false).unwrap();
        assert_eq!((call.queue, call.bytes, call.is_dequeue), (DeviceQueue::Output, 33, false));
        assert_eq!((call.at_ns, call.done_ns), (4_500_000_000, None));
        // The vertical blanking interval, and a record that is too short.
        planes[HEAD_WORDS] = 2 | 4 << 32;
        assert_eq!(DeviceCall::parse(&planes, true), None);
        assert_eq!(DeviceCall::parse(&record()[1..], true), None);
    }

    #[test]
    fn what_cannot_be_true_is_not_known() {
        let mut words = record();
        words[3] = 0xffff_8880_0000_0000;
        words[6] = 5_000_000_001;
        let call = DeviceCall::parse(&words, true).unwrap();
        assert_eq!((call.file.minor, call.done_ns), (None, None));
        // A copied stamp, one in the future, and one before the clock's begin.
        for (flags, seconds) in [(0x4001, 4), (0x2001, 6), (0x2001, -4), (0x2001, i64::MAX), (0x2001, 0)] {
            let call = DeviceCall { flags, timestamp: (seconds, 0), ..call };
            assert_eq!(call.captured_ns(), None, "{flags:x} {seconds}");
        }
    }

    #[test]
    fn an_empty_buffer_at_the_end_has_no_frame() {
        let call = DeviceCall::parse(&record(), true).unwrap();
        assert!(call.has_frame() && DeviceCall { bytes: 0, ..call }.has_frame());
        assert!(!DeviceCall { bytes: 0, flags: flags::LAST, ..call }.has_frame());
        assert!(!DeviceCall { bytes: 0, flags: flags::ERROR, ..call }.has_frame());
        assert!(DeviceCall { flags: flags::LAST, ..call }.has_frame());
    }
}
