// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers of an OUTPUT queue: packets or frames for a device.

use std::sync::Arc;

use super::capture::driver_region;
use super::region::{CpuAccess, Region};
use super::{Dequeued, Direction, Io, Node, QueuedMemory, V4l2Error};
use crate::measure::meter;
use crate::memory::pool::{Frame, Plane};

/// Result of [`OutputBuffers::collect`]: buffers that the device has processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReturnedOutputs {
    /// Number of returned buffers.
    pub count: u32,
    /// Timestamp, as queued, microseconds, of the first buffer that the device could not use; `None` if it
    /// used all of them.
    pub failed: Option<u64>,
}

/// All buffers of an OUTPUT queue.
pub struct OutputBuffers {
    node: Arc<Node>,
    io: Io,
    /// Mapped memory of the driver; `None` unless `io` is [`Io::Mmap`].
    region: Option<Region>,
    /// Numbers of the buffers that are not queued.
    free: Vec<u32>,
    /// Frame that the device still reads, by the number of its buffer; `None` for a free buffer, and for a
    /// copy in the driver's memory.
    queued_frames: Vec<Option<Frame>>,
}

impl OutputBuffers {
    /// Makes `count` buffers, or as many as the driver requires.
    ///
    /// # Errors
    /// The driver does not support this kind of memory, its queue is in use, or its memory cannot be mapped.
    pub fn new(node: &Arc<Node>, io: Io, count: u32) -> Result<OutputBuffers, V4l2Error> {
        let count = node.request(Direction::Output, io.memory(), count)?;
        if count == 0 {
            let what = format!("accepts no buffers for io={io}");
            return Err(V4l2Error::Driver { node: node.path().to_owned(), what });
        }
        let region = match io {
            Io::Mmap => Some(driver_region(node, Direction::Output, count, CpuAccess::Write)?),
            Io::DmaBuf | Io::UserPtr => None,
        };
        let free = (0..count).rev().collect();
        Ok(OutputBuffers {
            node: node.clone(),
            io,
            region,
            free,
            queued_frames: (0..count).map(|_| None).collect(),
        })
    }

    /// Returns true if a buffer is free.
    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns the number of buffers that are queued in the device.
    pub fn queued(&self) -> usize {
        self.queued_frames.len() - self.free.len()
    }

    /// Takes back the buffers that the device has processed so far; does not wait.
    ///
    /// # Errors
    /// The error of the driver, or the driver returned a buffer that does not exist.
    pub fn collect(&mut self) -> Result<ReturnedOutputs, V4l2Error> {
        let mut collected = ReturnedOutputs::default();
        while let Some(taken) = self.node.take(Direction::Output, self.io.memory())? {
            let Some(held) = self.queued_frames.get_mut(taken.index as usize) else {
                let what = format!("returned OUTPUT buffer {} of {}", taken.index, self.queued_frames.len());
                return Err(V4l2Error::Driver { node: self.node.path().to_owned(), what });
            };
            *held = None;
            if !self.free.contains(&taken.index) {
                self.free.push(taken.index);
            }
            collected.count += 1;
            if taken.failed {
                collected.failed.get_or_insert(taken.timestamp_us);
            }
        }
        Ok(collected)
    }

    /// Makes all buffers free and drops their frames. Call this after the queue was stopped
    /// ([`Node::stream`]).
    pub fn reclaim(&mut self) {
        self.queued_frames.iter_mut().for_each(|held| *held = None);
        self.free = (0..self.queued_frames.len() as u32).rev().collect();
    }

    /// Copies `parts` one after the other into a free buffer of the driver's memory; the meter
    /// counts the bytes. Returns the number of bytes, for [`OutputBuffers::send`].
    ///
    /// # Errors
    /// The parts do not fit.
    ///
    /// # Panics
    /// No buffer is free, or the queue does not use the driver's memory.
    pub fn fill<'a>(&mut self, parts: impl Iterator<Item = Plane<'a>>) -> Result<usize, V4l2Error> {
        let index = *self.free.last().expect("a free buffer");
        let region = self.region.as_ref().expect("the driver's memory");
        let mut at = 0;
        for part in parts {
            let (bytes, most) = (at + part.len(), region.slot_bytes());
            if bytes > most {
                return Err(V4l2Error::TooLong { node: self.node.path().to_owned(), bytes, most });
            }
            meter::copy(part.len(), || {
                let mut offset = at;
                part.visit(|bytes| {
                    // SAFETY: mapped writable, and the program owns the buffer; this is its only
                    // user.
                    unsafe { region.copy_in(index, offset, bytes) };
                    offset += bytes.len();
                });
            });
            at = bytes;
        }
        Ok(at)
    }

    /// Queues the buffer that [`OutputBuffers::fill`] filled with `bytes` bytes. The device copies
    /// `timestamp_us`, microseconds, to its result.
    ///
    /// # Errors
    /// The error of the driver.
    ///
    /// # Panics
    /// No buffer is free.
    pub fn send(&mut self, bytes: usize, timestamp_us: u64) -> Result<(), V4l2Error> {
        let index = *self.free.last().expect("a free buffer");
        self.node.queue_buffer(Direction::Output, index, QueuedMemory::Driver, bytes, timestamp_us)?;
        self.free.pop();
        Ok(())
    }

    /// Queues a frame's first plane without a copy. The frame is kept until the device has
    /// processed it. The device copies `timestamp_us`, microseconds, to its result.
    ///
    /// # Errors
    /// The queue uses dmabufs, and the frame's memory is not a dmabuf or its first plane does not start at
    /// the first byte; the driver's error.
    ///
    /// # Panics
    /// No buffer is free, or the queue uses the driver's memory.
    pub fn queue_frame(&mut self, frame: &Frame, timestamp_us: u64) -> Result<(), V4l2Error> {
        let index = *self.free.last().expect("a free buffer");
        let plane = frame.plane(0);
        let (queued_frames, bytes) = match self.io {
            Io::Mmap => panic!("a frame cannot be queued in the driver's memory"),
            Io::UserPtr => (QueuedMemory::Pixels(plane), plane.len()),
            Io::DmaBuf => match frame.dmabuf() {
                Some((fd, bytes)) if frame.layout().planes()[0].offset == 0 => {
                    (QueuedMemory::DmaBuf(fd, bytes), plane.len())
                }
                _ => {
                    let what = "cannot use a frame whose memory is not a dmabuf".to_owned();
                    return Err(V4l2Error::Driver { node: self.node.path().to_owned(), what });
                }
            },
        };
        self.node.queue_buffer(Direction::Output, index, queued_frames, bytes, timestamp_us)?;
        self.free.pop();
        self.queued_frames[index as usize] = Some(frame.share());
        Ok(())
    }
}

/// CAPTURE queue for work in place: the device writes into the frame that it reads.
pub struct InPlace {
    node: Arc<Node>,
}

impl InPlace {
    /// Makes the queue's only buffer.
    ///
    /// # Errors
    /// The driver accepts no dmabufs, or its queue is in use.
    pub fn new(node: &Arc<Node>) -> Result<InPlace, V4l2Error> {
        if node.request(Direction::Capture, Io::DmaBuf.memory(), 1)? == 0 {
            let what = "provides no buffers for dmabufs".to_owned();
            return Err(V4l2Error::Driver { node: node.path().to_owned(), what });
        }
        Ok(InPlace { node: node.clone() })
    }

    /// Queues `frame` for the device to write into. The frame is foreign, so its pixels may change while a
    /// handle exists.
    ///
    /// # Errors
    /// The frame's memory is not a dmabuf; the driver's error.
    pub fn queue_frame(&self, frame: &Frame) -> Result<(), V4l2Error> {
        let Some((fd, bytes)) = frame.dmabuf() else {
            let what = "cannot use a frame whose memory is not a dmabuf".to_owned();
            return Err(V4l2Error::Driver { node: self.node.path().to_owned(), what });
        };
        self.node.queue_buffer(Direction::Capture, 0, QueuedMemory::DmaBuf(fd, bytes), 0, 0)
    }

    /// Takes the buffer back from the device; `None` if the device has not finished it. Does not wait.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn take(&self) -> Result<Option<Dequeued>, V4l2Error> {
        self.node.take(Direction::Capture, Io::DmaBuf.memory())
    }
}
