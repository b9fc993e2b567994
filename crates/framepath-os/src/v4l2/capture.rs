// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers of a CAPTURE queue as frames. A released frame is queued again, on any thread.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use framepath_model::format::Layout;
use framepath_model::stream::FrameMeta;

use super::heap::{Heap, sync};
use super::queue::Memory;
use super::region::{CpuAccess, Region};
use super::{Dequeued, Direction, Node, QueuedMemory, V4l2Error};
use crate::measure::meter;
use crate::memory::pool::{ForeignError, ForeignPool, Frame, Returns};
use crate::process::stop;
use crate::process::stop::Stop;
use crate::time::now_ns;

/// Memory type of a queue's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Memory of the driver (mmap).
    Mmap,
    /// Dmabufs of an exporter other than the driver.
    DmaBuf,
    /// Memory of this process (user pointer).
    UserPtr,
}

impl Io {
    pub(super) fn memory(self) -> Memory {
        match self {
            Io::Mmap => Memory::Driver,
            Io::DmaBuf => Memory::DmaBuf,
            Io::UserPtr => Memory::User,
        }
    }
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Io::Mmap => "mmap",
            Io::DmaBuf => "dmabuf",
            Io::UserPtr => "userptr",
        })
    }
}

/// Buffer that the device has filled. The program owns it until it becomes a
/// [frame](CaptureBuffers::frame) or is [returned](CaptureBuffers::give_back).
pub type Delivered = Dequeued;

/// All buffers of a CAPTURE queue, and the pool of the frames in them.
pub struct CaptureBuffers {
    shared: Arc<Shared>,
    frames: ForeignPool,
}

/// Part of [`CaptureBuffers`] that the frames keep: queues a buffer again when its frame is dropped.
struct Shared {
    node: Arc<Node>,
    io: Io,
    region: Arc<Region>,
    state: Mutex<CaptureState>,
    /// Notified when a buffer was returned.
    returned: Condvar,
}

struct CaptureState {
    /// True until the queue was stopped or dropped. Buffers that return later are not queued again.
    live: bool,
    /// Number of buffers that are queued in the device and not yet dequeued.
    queued: u32,
    /// Run to wake when the next buffer returns, also if its wait has ended by then; `None` if no
    /// thread of a run has waited since the last return.
    waiting: Option<Stop>,
    /// First error of a buffer that could not be queued again, for the next [`CaptureBuffers::dequeue`];
    /// `None` if there was none since the last call.
    failed: Option<V4l2Error>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, CaptureState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queued_memory(&self, slot: u32) -> QueuedMemory<'_> {
        match (self.io, self.region.dmabuf_given(slot)) {
            (Io::DmaBuf, Some(fd)) => QueuedMemory::DmaBuf(fd, self.region.slot_bytes()),
            (Io::UserPtr, _) => QueuedMemory::Slot(&self.region, slot),
            _ => QueuedMemory::Driver,
        }
    }

    fn queue(&self, state: &mut CaptureState, slot: u32) {
        match self.node.queue_buffer(Direction::Capture, slot, self.queued_memory(slot), 0, 0) {
            Ok(()) => state.queued += 1,
            Err(error) => {
                state.failed.get_or_insert(error);
            }
        }
    }
}

impl Returns for Shared {
    fn give_back(&self, slot: u32) {
        if let (Io::DmaBuf, Some(fd)) = (self.io, self.region.dmabuf_given(slot)) {
            sync(fd, CpuAccess::Read, true);
        }
        let mut state = self.state();
        if state.live {
            self.queue(&mut state, slot);
        }
        let waiting = state.waiting.take();
        drop(state);
        self.returned.notify_one();
        waiting.iter().for_each(Stop::wake);
    }
}

impl CaptureBuffers {
    /// Makes `count` buffers, or as many as the driver requires, of the present format, and
    /// queues them. `heap` provides the dmabufs if `io` is [`Io::DmaBuf`], and is not used otherwise.
    ///
    /// # Errors
    /// The driver does not support this kind of memory, the queue is in use by another program or by frames
    /// of an earlier queue, the memory cannot be mapped, or `heap` is missing or has no memory left.
    pub fn new(node: &Arc<Node>, io: Io, count: u32, heap: &Heap) -> Result<CaptureBuffers, V4l2Error> {
        let direction = Direction::Capture;
        let bytes = node.format(direction)?.bytes as usize;
        let count = node.request(direction, io.memory(), count)?;
        if count == 0 {
            let what = format!("provides no buffers for io={io}");
            return Err(V4l2Error::Driver { node: node.path().to_owned(), what });
        }
        let region = match io {
            Io::Mmap => driver_region(node, direction, count, CpuAccess::Read)?,
            Io::DmaBuf => heap.region(bytes, count, CpuAccess::Read)?,
            Io::UserPtr => Heap::Pages.region(bytes, count, CpuAccess::Write)?,
        };
        let region = Arc::new(region);
        let shared = Arc::new(Shared {
            node: node.clone(),
            io,
            region: region.clone(),
            state: Mutex::new(CaptureState { live: true, queued: 0, waiting: None, failed: None }),
            returned: Condvar::new(),
        });
        let mut state = shared.state();
        for slot in 0..count {
            shared.queue(&mut state, slot);
        }
        let failed = state.failed.take();
        drop(state);
        if let Some(error) = failed {
            // The queue must not keep buffers that nobody takes.
            let _ = node.request(direction, io.memory(), 0);
            return Err(error);
        }
        Ok(CaptureBuffers { frames: ForeignPool::from_region(region, shared.clone()), shared })
    }

    /// Returns the number of buffers of the queue.
    pub fn count(&self) -> u32 {
        self.shared.region.slots()
    }

    /// Returns the size of a buffer, bytes: whole pages.
    pub fn bytes(&self) -> usize {
        self.shared.region.slot_bytes()
    }

    /// Returns the number of buffers that are queued in the device and not yet dequeued.
    pub fn queued(&self) -> u32 {
        self.shared.state().queued
    }

    /// Waits until a buffer is queued in the device, or could not be queued again, for at most `time`;
    /// the time is recorded as blocked. While all buffers are in frames downstream, the device can fill
    /// none. If the calling thread has entered a run, the wait also ends at the run's stop request, even one
    /// made before the call, or when the run is [woken](Stop::wake) or `awake` returns true. Otherwise
    /// `awake` is not called. May return early.
    pub fn wait_for_return(&self, time: Duration, awake: impl Fn() -> bool) {
        let has_returned = |state: &CaptureState| state.queued > 0 || state.failed.is_some();
        let mut state = self.shared.state();
        if has_returned(&state) {
            return;
        }
        let Some(run) = stop::current() else {
            drop(meter::blocked(|| self.shared.returned.wait_timeout(state, time)));
            return;
        };
        // Set under the lock that a returning buffer takes, so that its thread finds the run to
        // wake.
        state.waiting = Some(run);
        drop(state);
        let deadline_ns = now_ns().saturating_add(time.as_nanos() as u64);
        meter::blocked(|| {
            stop::sleep_unless(deadline_ns, || awake() || has_returned(&self.shared.state()));
        });
    }

    /// Takes the next filled buffer; `None` if there is none yet. Does not wait.
    ///
    /// # Errors
    /// The driver's error, the error of an earlier buffer that could not be queued again, or the driver
    /// returned a buffer that does not exist.
    pub fn dequeue(&self) -> Result<Option<Delivered>, V4l2Error> {
        let mut state = self.shared.state();
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        let taken = self.shared.node.take(Direction::Capture, self.shared.io.memory())?;
        let Some(taken) = taken else { return Ok(None) };
        state.queued = state.queued.saturating_sub(1);
        drop(state);
        if taken.index >= self.count() {
            let what = format!("returned buffer {} of {}", taken.index, self.count());
            return Err(V4l2Error::Driver { node: self.shared.node.path().to_owned(), what });
        }
        if let (Io::DmaBuf, Some(fd)) = (self.shared.io, self.shared.region.dmabuf_given(taken.index)) {
            sync(fd, CpuAccess::Read, false);
        }
        Ok(Some(taken))
    }

    /// Makes a frame of the picture in the dequeued buffer `taken`. The buffer is queued again when the
    /// last handle to the frame is dropped.
    ///
    /// # Errors
    /// The layout is larger than the buffer. The buffer is queued again.
    pub fn frame(&self, taken: &Delivered, layout: &Layout, meta: FrameMeta) -> Result<Frame, ForeignError> {
        self.frames.frame(taken.index, layout, meta).inspect_err(|_| self.give_back(taken))
    }

    /// Queues the buffer `taken` again, without using its picture. If that fails, the next
    /// [`CaptureBuffers::dequeue`] returns the error.
    pub fn give_back(&self, taken: &Delivered) {
        self.shared.give_back(taken.index);
    }

    /// Stops the queue and releases its buffers. Frames that are still held keep their memory.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn stop(self) -> Result<(), V4l2Error> {
        let mut state = self.shared.state();
        state.live = false;
        let node = &self.shared.node;
        node.stream(Direction::Capture, false)?;
        node.request(Direction::Capture, self.shared.io.memory(), 0).map(drop)
    }
}

impl Drop for CaptureBuffers {
    fn drop(&mut self) {
        // From now on, buffers of returned frames are not queued again, because the node may be closed.
        self.shared.state().live = false;
    }
}

/// Maps all `count` buffers of a queue of `node` in the driver's memory.
pub(super) fn driver_region(
    node: &Arc<Node>,
    direction: Direction,
    count: u32,
    access: CpuAccess,
) -> Result<Region, V4l2Error> {
    let places = (0..count)
        .map(|index| node.query(direction, index).map(|place| (place.offset, place.bytes)))
        .collect::<Result<Vec<(u64, usize)>, V4l2Error>>()?;
    Region::map_driver(node, direction, &places, access)
        .map_err(|errno| node.error("mmap of a buffer", errno))
}

impl Region {
    /// Returns the dmabuf of which slot `slot` was made; `None` if the slots were not made of dmabufs, or if
    /// there is no such slot.
    pub(super) fn dmabuf_given(&self, slot: u32) -> Option<BorrowedFd<'_>> {
        if self.is_given() { self.dmabuf(slot) } else { None }
    }
}
