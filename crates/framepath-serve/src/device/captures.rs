// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client's CAPTURE buffers: provided to the worker, which decodes into them,
//! and given to the client when they are finished.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use framepath_model::buffer_request::{BufferRequest, ProvidedFormat};
use framepath_model::format::PixelFormat;
use framepath_os::memory::pool::Frame;
use framepath_os::v4l2::attach::{Drained, FrameInfo, NextCapture, Refusal, Stream, StreamFormat};
use framepath_os::v4l2::{Fourcc, V4l2Colors};

use framepath::host::for_serve::{BufferProvider, ProvidedBuffers, ProvidedSlots};

/// Interval between two attempts to give the kernel a frame or the answer to a drain that it does
/// not accept yet. The kernel may accept them later without an event.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Time limit for a decoder to announce its frame format after the first packet of a session. After this
/// time, the packet returns to the client although no format is known: it may contain no picture.
const FORMAT_TIME: Duration = Duration::from_millis(500);

/// State of a stream's CAPTURE queue: the client's buffers for decoded frames.
pub(super) struct Captures {
    stream: Arc<Stream>,
    state: Mutex<CapturesState>,
    /// Notified after each event of the CAPTURE queue, an announced format, a flush and the close, and by
    /// [`Captures::recheck`].
    changed: Condvar,
}

#[derive(Default)]
struct CapturesState {
    /// Setup of the CAPTURE queue; `None` while the queue does not stream, and from the announcement of
    /// another layout in the same epoch until the queue streams again.
    setup: Option<QueueSetup>,
    /// State of each of the client's buffers, by index.
    buffers: Vec<Buffer>,
    /// Buffers that were provided last, to whichever worker of the stream; `None` before the first time.
    loan: Option<CurrentBuffers>,
    /// Number of times that buffers were provided to workers of the stream so far.
    loans: u64,
    /// Epoch and request of the last announced format; `None` before the first.
    announced: Option<(u32, BufferRequest)>,
    /// Present epoch; a flush of the client starts the next epoch. Sessions of older epochs are
    /// over.
    epoch: u32,
    /// True once the stream is over: closed by the client, failed or stopped.
    closed: bool,
}

#[derive(Clone, Copy)]
struct QueueSetup {
    /// Number of CAPTURE buffers.
    count: u32,
    /// V4L2 pixel format of the buffers.
    pixelformat: u32,
    /// Minimum size of a buffer, bytes.
    length: u32,
}

/// Buffers that were provided to the stream's latest worker for its latest request.
struct CurrentBuffers {
    /// Number of times, this time included, that buffers were provided to workers of the stream.
    number: u64,
    /// Generation of each buffer's memory when the buffers were provided, by the buffer's index.
    generations: Vec<u32>,
    /// Slots by which the buffers are released to the worker; `None` until the worker has mapped the buffers.
    slots: Option<ProvidedSlots>,
    /// Number of buffers that the worker requested, or of all provided buffers if that is lower.
    needed: u32,
}

#[derive(Default)]
struct Buffer {
    /// Generation of the buffer's memory when the client queued the buffer last.
    generation: u32,
    /// True from the queueing of the buffer by the client until the buffer is delivered with a
    /// frame or with the end of a drain, or until the CAPTURE queue stops.
    queued: bool,
    /// True from the release of the buffer to the latest worker until the buffer is delivered with a frame
    /// or with the end of a drain, or until buffers are provided again.
    at_worker: bool,
    /// Last frame delivered in the buffer, with [`CurrentBuffers::number`] at the delivery; `None` before the
    /// first frame, and after the client's queueing of the buffer has released the buffer to a worker.
    frame: Option<(u64, Frame)>,
}

/// Effect of a CAPTURE event on the running session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureEffect {
    /// The session continues unchanged.
    Nothing,
    /// The client has flushed: sessions of epochs before this number are over.
    Flushed(u32),
    /// The client has queued a buffer with new memory, and the worker now has fewer usable buffers than it
    /// needs.
    Stale,
}

/// Result of delivering a finished buffer to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// The buffer reached the client.
    Done,
    /// The frame did not reach the client, because the client has replaced the buffer's memory, the frame's
    /// epoch or the stream is over, or the frame is in none of the provided buffers.
    Over,
}

impl Captures {
    pub(super) fn new(stream: Arc<Stream>, epoch: u32) -> Captures {
        let state = CapturesState { epoch, ..CapturesState::default() };
        Captures { stream, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn locked(&self) -> MutexGuard<'_, CapturesState> {
        // A panic leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next event of the CAPTURE queue from the kernel, handles the event, and returns its
    /// effect on the session.
    ///
    /// # Errors
    /// The client has closed the stream or begun another, the stream has failed or was stopped, or the kernel
    /// module reports an unknown event.
    pub(super) fn next(&self) -> io::Result<CaptureEffect> {
        let event = self.stream.next_capture()?;
        let mut state = self.locked();
        let effect = match event {
            NextCapture::On { count, pixelformat, length } => {
                state.setup = Some(QueueSetup { count, pixelformat, length });
                state.buffers.resize_with(count as usize, Buffer::default);
                CaptureEffect::Nothing
            }
            NextCapture::Off => {
                state.setup = None;
                state.buffers.iter_mut().for_each(|buffer| buffer.queued = false);
                CaptureEffect::Nothing
            }
            NextCapture::Queued { index, generation } => state.queued(index as usize, generation),
            NextCapture::Flush { epoch } => {
                state.epoch = epoch;
                CaptureEffect::Flushed(epoch)
            }
        };
        drop(state);
        self.changed.notify_all();
        Ok(effect)
    }

    /// Records the new epoch, which ends the sessions of earlier epochs, and wakes waiting threads.
    pub(super) fn flush(&self, epoch: u32) {
        self.locked().epoch = epoch;
        self.changed.notify_all();
    }

    /// Records the end of the stream (closed by the client, failed or stopped), which ends all sessions, and
    /// wakes waiting threads.
    pub(super) fn close(&self) {
        self.locked().closed = true;
        self.changed.notify_all();
    }

    /// Delivers a finished buffer to the client. Waits while the kernel does not accept the buffer, for
    /// example because the CAPTURE queue does not stream.
    ///
    /// # Errors
    /// The kernel refuses the buffer for another reason than that it does not accept the buffer
    /// yet, that the epoch is over, or that the memory of the buffer was replaced.
    pub(super) fn deliver(&self, frame: Frame, info: &FrameInfo) -> io::Result<Delivery> {
        let index = frame.slot();
        let mut state = self.locked();
        loop {
            let Some(loan) = &state.loan else { return Ok(Delivery::Over) };
            let (number, generation) = (loan.number, loan.generations.get(index as usize).copied());
            let Some(generation) = generation else { return Ok(Delivery::Over) };
            if state.is_over(info.epoch) {
                return Ok(Delivery::Over);
            }
            // Called under the lock, so that the event for the buffer's next queueing is handled after the
            // buffer is marked as the client's.
            match self.stream.frame(&FrameInfo { index, generation, ..*info }) {
                Ok(()) => {
                    let Some(buffer) = state.buffers.get_mut(index as usize) else {
                        return Ok(Delivery::Over);
                    };
                    (buffer.queued, buffer.at_worker) = (false, false);
                    buffer.frame = Some((number, frame));
                    return Ok(Delivery::Done);
                }
                // With a timeout, because there is no event when a client continues after a LAST buffer.
                Err(error) if Refusal::of(&error) == Refusal::Busy => {
                    let waited = self.changed.wait_timeout(state, CHECK_INTERVAL);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Err(error) if Refusal::of(&error) == Refusal::Stale => return Ok(Delivery::Over),
                Err(error) => return Err(error),
            }
        }
    }

    /// Announces the format of `request` to the client, unless the epoch's last announcement had the same
    /// layout. If that announcement had another layout, first reports to the kernel module that no frame with
    /// the old layout follows. The client then replaces its buffers if they do not fit the new format.
    fn announce_format(&self, request: &BufferRequest, epoch: u32) -> io::Result<()> {
        let sample = request.decoded.luma_bytes() as u32;
        let V4l2Colors { colorspace, xfer_func, ycbcr_enc, quantization } = request.colors.into();
        let format = StreamFormat {
            epoch,
            depth: if request.decoded == PixelFormat::Yuv420p10 { 10 } else { 8 },
            width: request.width.next_multiple_of(2).min(request.stride / sample),
            height: request.rows,
            bytesperline: request.stride,
            visible_width: request.width,
            visible_height: request.height,
            sizeimage_native: request.native_bytes,
            sizeimage_packed: request.packed_bytes,
            min_buffers: request.buffers,
            colorspace,
            xfer_func,
            ycbcr_enc,
            quantization,
            ..StreamFormat::default()
        };
        let mut state = self.locked();
        match state.announced {
            // The format was announced already, for another worker or sequence.
            Some((of, known)) if of == epoch && known.same_layout(request) => return Ok(()),
            Some((of, _)) if of == epoch => {
                state.setup = None;
                drop(state);
                self.drained(epoch, Drained::Change)?;
            }
            _ => drop(state),
        }
        self.stream.format(&format)?;
        self.locked().announced = Some((epoch, *request));
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until the client has set up CAPTURE for the format of the epoch, the epoch or the
    /// stream is over, or `over` returns true. Waits at most [`FORMAT_TIME`] for the announcement
    /// of a format.
    ///
    /// The first packet must not return to the client earlier, for two reasons. The client then expects
    /// to find the format. And while the client has neither a queued packet nor a streaming CAPTURE
    /// queue, poll(2) returns an error, which GStreamer takes for the end of the stream.
    pub(super) fn wait_for_setup(&self, epoch: u32, over: impl Fn() -> bool) {
        let until = Instant::now() + FORMAT_TIME;
        let mut state = self.locked();
        while !state.is_over(epoch) && !over() {
            let is_announced = state.announced.is_some_and(|(of, _)| of == epoch);
            let left = until.saturating_duration_since(Instant::now());
            state = match is_announced {
                true if state.setup.is_some() => return,
                true => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                false if left.is_zero() => return,
                false => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Wakes the threads that wait, so that they check their conditions again.
    pub(super) fn recheck(&self) {
        drop(self.locked());
        self.changed.notify_all();
    }

    /// Answers a drain of the client. If the client is about to set up CAPTURE for another format,
    /// waits for the setup. Polls, because no event reports that the client has canceled its drain;
    /// the kernel's answer does. Gives up without an error if the epoch or the stream is over.
    ///
    /// # Errors
    /// The kernel refuses the answer for another reason than that the answer is too early, for example
    /// because the client has canceled its drain.
    pub(super) fn drained_at_end(&self, epoch: u32) -> io::Result<()> {
        loop {
            match self.drained(epoch, Drained::End) {
                Err(error) if Refusal::of(&error) == Refusal::Busy => {
                    let state = self.locked();
                    if state.is_over(epoch) {
                        return Ok(());
                    }
                    drop(self.changed.wait_timeout(state, CHECK_INTERVAL));
                }
                answer => return answer,
            }
        }
    }

    /// Reports to the kernel module that no frame of `epoch` is left, for the reason `why`. At the end of a
    /// drain, a CAPTURE buffer carries this news to the client, and then belongs to the client.
    fn drained(&self, epoch: u32, why: Drained) -> io::Result<()> {
        let mut state = self.locked();
        if let Some(index) = self.stream.drained(epoch, why)? {
            if let Some(buffer) = state.buffers.get_mut(index as usize) {
                (buffer.queued, buffer.at_worker) = (false, false);
            }
        }
        Ok(())
    }

    fn provide(&self, request: &BufferRequest, epoch: u32) -> Result<ProvidedBuffers, String> {
        self.announce_format(request, epoch)
            .map_err(|error| format!("announce the format to the device: {error}"))?;
        let mut state = self.locked();
        loop {
            if state.is_over(epoch) {
                return Err("the stream is over".to_owned());
            }
            if let Some(QueueSetup { count, pixelformat, length }) = state.setup {
                let lent = if Fourcc(pixelformat) == Fourcc::YU12 {
                    ProvidedFormat::Native
                } else {
                    ProvidedFormat::Packed
                };
                if length >= request.bytes(lent) {
                    match self.exported(count) {
                        Ok((generations, buffers)) => {
                            state.loans += 1;
                            let (number, needed) = (state.loans, request.buffers.min(count));
                            state.loan = Some(CurrentBuffers { number, generations, slots: None, needed });
                            state.buffers.iter_mut().for_each(|buffer| buffer.at_worker = false);
                            return Ok(ProvidedBuffers { buffers, lent });
                        }
                        // Waits, because an imported buffer has no memory before it is queued.
                        Err(error) if Refusal::of(&error) == Refusal::Unknown => {}
                        Err(error) => return Err(format!("export a CAPTURE buffer: {error}")),
                    }
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn exported(&self, count: u32) -> io::Result<(Vec<u32>, Vec<std::os::fd::OwnedFd>)> {
        let exported: io::Result<Vec<_>> =
            (0..count).map(|index| self.stream.export_capture(index)).collect();
        Ok(exported?.into_iter().unzip())
    }

    fn mapped(&self, slots: ProvidedSlots) {
        let mut state = self.locked();
        let CapturesState { loan, buffers, .. } = &mut *state;
        let Some(loan) = loan else { return };
        for (index, (buffer, generation)) in buffers.iter_mut().zip(&loan.generations).enumerate() {
            if buffer.queued && buffer.generation == *generation {
                buffer.at_worker = true;
                slots.release(index as u32);
            }
        }
        loan.slots = Some(slots);
    }
}

impl CapturesState {
    /// Returns true if the sessions of `epoch` are over, because the client has flushed since or the stream
    /// is over.
    fn is_over(&self, epoch: u32) -> bool {
        self.closed || epoch < self.epoch
    }

    fn queued(&mut self, index: usize, generation: u32) -> CaptureEffect {
        let Some(buffer) = self.buffers.get_mut(index) else { return CaptureEffect::Nothing };
        (buffer.queued, buffer.generation) = (true, generation);
        let Some(loan) = &self.loan else { return CaptureEffect::Nothing };
        if loan.generations.get(index) != Some(&generation) {
            // The buffer got new memory after the buffers were provided, so the worker cannot use it. That
            // matters only if the worker has too few other buffers.
            let usable = self.buffers.iter().zip(&loan.generations);
            let usable = usable.filter(|(buffer, known)| buffer.generation == **known).count();
            return if usable < loan.needed as usize { CaptureEffect::Stale } else { CaptureEffect::Nothing };
        }
        let Some(slots) = &loan.slots else { return CaptureEffect::Nothing };
        if !buffer.at_worker {
            buffer.at_worker = true;
            match buffer.frame.take() {
                // Dropping the frame releases the buffer to the worker.
                Some((number, frame)) if number == loan.number => drop(frame),
                _ => slots.release(index as u32),
            }
        }
        CaptureEffect::Nothing
    }
}

/// Provider of the client's CAPTURE buffers for the workers of one session.
pub(super) struct SessionBuffers {
    pub(super) captures: Arc<Captures>,
    pub(super) epoch: u32,
}

impl BufferProvider for SessionBuffers {
    fn provide(&self, request: &BufferRequest) -> Result<ProvidedBuffers, String> {
        self.captures.provide(request, self.epoch)
    }

    fn mapped(&self, slots: ProvidedSlots) {
        self.captures.mapped(slots);
    }
}
