// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node's two queues of buffers.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::call::call;
use super::{Node, Region, V4l2Error, abi};
use crate::memory::pool::Plane;

/// One of the two queues of a V4L2 node. The names are V4L2's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Queue of buffers with data for the device.
    Output,
    /// Queue of buffers with data from the device.
    Capture,
}

/// Memory of a buffer to queue.
#[derive(Clone, Copy, Debug)]
pub enum QueuedMemory<'a> {
    /// Memory of the driver, which belongs to the buffer.
    Driver,
    /// Dmabuf and its size in bytes.
    DmaBuf(BorrowedFd<'a>, usize),
    /// Slot of a region, by the region and the slot's number; the driver gets the slot's address (user
    /// pointer). For either queue.
    Slot(&'a Region, u32),
    /// Pixels of a frame; the driver gets their address (user pointer). Only for OUTPUT, whose buffers the
    /// device only reads.
    Pixels(Plane<'a>),
}

/// Buffer that the device returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dequeued {
    /// Number of the buffer in its queue, from 0.
    pub index: u32,
    /// Number of bytes of the payload, which starts at `offset`.
    pub bytes: usize,
    /// Number of bytes in the buffer before the payload.
    pub offset: usize,
    /// Number of the frame in the queue; gaps are frames that the driver dropped.
    pub sequence: u32,
    /// Timestamp in microseconds: CLOCK_MONOTONIC if `monotonic` is true, otherwise usually the value that
    /// was queued with the buffer's data.
    pub timestamp_us: u64,
    /// True if the timestamp is of CLOCK_MONOTONIC, not copied from another buffer.
    pub monotonic: bool,
    /// True if the driver reports the payload as damaged (V4L2_BUF_FLAG_ERROR).
    pub failed: bool,
    /// True if no buffer follows until the decoder or the queue is restarted: the end of a drain, or the
    /// end of the old format (V4L2_BUF_FLAG_LAST).
    pub last: bool,
}

/// Memory type of buffers, as used by REQBUFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Driver,
    User,
    DmaBuf,
}

impl Memory {
    fn number(self) -> u32 {
        match self {
            Memory::Driver => abi::MEMORY_MMAP,
            Memory::User => abi::MEMORY_USERPTR,
            Memory::DmaBuf => abi::MEMORY_DMABUF,
        }
    }
}

impl QueuedMemory<'_> {
    fn memory(&self) -> Memory {
        match self {
            QueuedMemory::Driver => Memory::Driver,
            QueuedMemory::DmaBuf(..) => Memory::DmaBuf,
            QueuedMemory::Slot(..) | QueuedMemory::Pixels(_) => Memory::User,
        }
    }

    fn place(&self) -> (abi::RawMemory, u32) {
        match *self {
            QueuedMemory::Driver => (abi::RawMemory::default(), 0),
            QueuedMemory::DmaBuf(fd, bytes) => {
                // The other half of the union is not read, but must have a value.
                let mut place = abi::RawMemory::default();
                place.fd = fd.as_raw_fd();
                (place, bytes as u32)
            }
            QueuedMemory::Slot(region, slot) => {
                (abi::RawMemory { userptr: region.slot_address(slot) }, region.slot_bytes() as u32)
            }
            QueuedMemory::Pixels(plane) => {
                (abi::RawMemory { userptr: plane.as_ptr() as usize }, plane.len() as u32)
            }
        }
    }
}

/// Position and size of a buffer of the driver's memory, for mmap(2) of the node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mappable {
    /// Offset to pass to mmap(2).
    pub(super) offset: u64,
    /// Size of the buffer, bytes; at least 1.
    pub(super) bytes: usize,
}

impl Node {
    /// Requests `count` buffers for a queue (0 frees all its buffers). Returns the number of buffers that
    /// the driver made, which may differ.
    pub(super) fn request(&self, direction: Direction, memory: Memory, count: u32) -> Result<u32, V4l2Error> {
        let mut request = abi::RequestBuffers {
            count,
            kind: self.kind(direction),
            memory: memory.number(),
            ..Default::default()
        };
        // SAFETY: the structure of the ioctl. Buffers that are freed while mapped keep their
        // memory until they are unmapped.
        unsafe { self.call("VIDIOC_REQBUFS", abi::REQBUFS, &mut request) }?;
        Ok(request.count)
    }

    /// Returns the position of buffer `index` of a queue in the driver's memory. Fails with the
    /// driver's error, or if the driver reports 0 bytes.
    pub(super) fn query(&self, direction: Direction, index: u32) -> Result<Mappable, V4l2Error> {
        let mut planes = [abi::RawPlane::default(); abi::MOST_PLANES];
        let mut buffer = self.buffer(direction, index, Memory::Driver, &mut planes);
        // SAFETY: the structure of the ioctl; its planes are `planes`.
        unsafe { self.call("VIDIOC_QUERYBUF", abi::QUERYBUF, &mut buffer) }?;
        let (place, bytes) = match self.has_planes() {
            true => (planes[0].m, planes[0].length),
            false => (buffer.m, buffer.length),
        };
        // SAFETY: buffers of the driver's memory have an offset, and any bit pattern of the union
        // is a valid number.
        let offset = unsafe { place.offset };
        if bytes == 0 {
            let what = format!("has buffer {index} of 0 bytes");
            return Err(V4l2Error::Driver { node: self.path().to_owned(), what });
        }
        Ok(Mappable { offset: offset.into(), bytes: bytes as usize })
    }

    fn buffer(
        &self,
        direction: Direction,
        index: u32,
        memory: Memory,
        planes: &mut [abi::RawPlane; abi::MOST_PLANES],
    ) -> abi::Buffer {
        let mut buffer =
            abi::Buffer { index, kind: self.kind(direction), memory: memory.number(), ..Default::default() };
        if self.has_planes() {
            buffer.m = abi::RawMemory { planes: planes.as_mut_ptr() };
            buffer.length = abi::MOST_PLANES as u32;
        }
        buffer
    }

    /// Queues buffer `index` with its memory. For OUTPUT, `bytes` is the size of the payload and
    /// `timestamp_us` its timestamp in microseconds; both are 0 for CAPTURE.
    ///
    /// # Errors
    /// The error of the driver: memory that it cannot use, a buffer that is already queued.
    pub(super) fn queue_buffer(
        &self,
        direction: Direction,
        index: u32,
        memory_of_buffer: QueuedMemory<'_>,
        bytes: usize,
        timestamp_us: u64,
    ) -> Result<(), V4l2Error> {
        let mut planes = [abi::RawPlane::default(); abi::MOST_PLANES];
        let mut buffer = self.buffer(direction, index, memory_of_buffer.memory(), &mut planes);
        let (place, length) = memory_of_buffer.place();
        buffer.seconds = (timestamp_us / 1_000_000) as i64;
        buffer.microseconds = (timestamp_us % 1_000_000) as i64;
        if direction == Direction::Output {
            buffer.field = abi::FIELD_NONE;
        }
        if self.has_planes() {
            buffer.length = 1;
            planes[0].m = place;
            planes[0].length = length;
            planes[0].bytesused = bytes as u32;
            // Set again, after the planes got the values that the kernel reads.
            buffer.m = abi::RawMemory { planes: planes.as_mut_ptr() };
        } else {
            buffer.m = place;
            buffer.length = length;
            buffer.bytesused = bytes as u32;
        }
        // SAFETY: the structure of the ioctl; its planes are `planes`. The device may write the
        // driver's memory, a dmabuf or a region, to none of which a reference exists. Pixels of
        // frames go only to OUTPUT, where they are read. The kernel keeps the pages of an
        // address.
        unsafe { self.call("VIDIOC_QBUF", abi::QBUF, &mut buffer) }
    }

    /// Takes back a buffer from a queue; `None` if no buffer is finished, or after a buffer with
    /// [`Dequeued::last`]. Does not wait.
    ///
    /// # Errors
    /// The error of the driver.
    pub(super) fn take(&self, direction: Direction, memory: Memory) -> Result<Option<Dequeued>, V4l2Error> {
        let mut planes = [abi::RawPlane::default(); abi::MOST_PLANES];
        let mut buffer = self.buffer(direction, 0, memory, &mut planes);
        // SAFETY: the structure of the ioctl; its planes are `planes`.
        match unsafe { call(self.fd(), abi::DQBUF, &mut buffer) } {
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::PIPE) => return Ok(None),
            Err(errno) => return Err(self.error("VIDIOC_DQBUF", errno)),
        }
        let (offset, bytes) = match self.has_planes() {
            true => (planes[0].data_offset as usize, planes[0].bytesused as usize),
            false => (0, buffer.bytesused as usize),
        };
        let (seconds, micros) = (buffer.seconds.max(0) as u64, buffer.microseconds.max(0) as u64);
        Ok(Some(Dequeued {
            index: buffer.index,
            bytes: bytes.saturating_sub(offset),
            offset,
            sequence: buffer.sequence,
            timestamp_us: seconds.saturating_mul(1_000_000).saturating_add(micros),
            monotonic: buffer.flags & abi::BUF_FLAG_TIMESTAMP_MASK == abi::BUF_FLAG_TIMESTAMP_MONOTONIC,
            failed: buffer.flags & abi::BUF_FLAG_ERROR != 0,
            last: buffer.flags & abi::BUF_FLAG_LAST != 0,
        }))
    }

    /// Exports buffer `index` of a queue in the driver's memory as a dmabuf, for reading and writing. Fails,
    /// for example, if the driver does not support this.
    pub(super) fn export(&self, direction: Direction, index: u32) -> Result<OwnedFd, V4l2Error> {
        let flags = (rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::RDWR).bits();
        let mut export =
            abi::ExportBuffer { kind: self.kind(direction), index, flags, fd: -1, ..Default::default() };
        // SAFETY: the structure of the ioctl.
        unsafe { self.call("VIDIOC_EXPBUF", abi::EXPBUF, &mut export) }?;
        if export.fd < 0 {
            let what = format!("exported buffer {index} without a descriptor");
            return Err(V4l2Error::Driver { node: self.path().to_owned(), what });
        }
        // SAFETY: a new descriptor that the kernel made for this process.
        Ok(unsafe { OwnedFd::from_raw_fd(export.fd) })
    }

    /// Starts (`on` is true) or stops a queue. A stopped queue returns all its buffers to the program.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn stream(&self, direction: Direction, on: bool) -> Result<(), V4l2Error> {
        let mut kind = self.kind(direction) as i32;
        let (name, opcode) = match on {
            true => ("VIDIOC_STREAMON", abi::STREAMON),
            false => ("VIDIOC_STREAMOFF", abi::STREAMOFF),
        };
        // SAFETY: an int, as both ioctls require.
        unsafe { self.call(name, opcode, &mut kind) }
    }
}
