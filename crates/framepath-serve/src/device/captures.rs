// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client's CAPTURE buffers: lent to the worker that decodes into them,
//! and given to the client when they are finished.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use framepath_model::buffer_request::{BufferRequest, LentFormat};
use framepath_model::format::PixelFormat;
use framepath_os::memory::pool::Frame;
use framepath_os::v4l2::attach::{Drained, FrameInfo, NextCapture, Refusal, Stream, StreamFormat};
use framepath_os::v4l2::{Fourcc, V4l2Colors};

use framepath::host::for_serve::{BufferProvider, LentSlots, Loan};

/// Longest time until a change is seen that comes without an event.
const SOON: Duration = Duration::from_millis(5);

/// Time for a decoder to announce its format, which it does after the head of the first picture. A
/// decoder that has not done so by then has found no picture.
const FORMAT_TIME: Duration = Duration::from_millis(500);

/// State of a stream's CAPTURE queue.
pub(super) struct Captures {
    stream: Arc<Stream>,
    state: Mutex<CapturesState>,
    changed: Condvar,
}

#[derive(Default)]
struct CapturesState {
    on: Option<On>,
    buffers: Vec<Buffer>,
    loan: Option<Current>,
    loans: u64,
    /// The last announced format, and its epoch.
    said: Option<(u32, BufferRequest)>,
    /// Sessions of older epochs are over.
    epoch: u32,
    /// True if no more events come.
    closed: bool,
}

#[derive(Clone, Copy)]
struct On {
    count: u32,
    pixelformat: u32,
    length: u32,
}

/// A loan that a worker has mapped, or will soon.
struct Current {
    number: u64,
    generations: Vec<u32>,
    /// `None` until the worker has mapped it.
    slots: Option<LentSlots>,
    wanted: u32,
}

#[derive(Default)]
struct Buffer {
    generation: u32,
    /// The client has queued the buffer, and has not got it back.
    queued: bool,
    /// The buffer was given to the worker of the present loan.
    at_worker: bool,
    /// The frame that the client has, and the number of its loan.
    frame: Option<(u64, Frame)>,
}

/// Effect of a CAPTURE event on the session that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureEffect {
    /// No effect.
    Nothing,
    /// Sessions of epochs before this are over.
    Flushed(u32),
    /// The memory of the worker's loan is not used any more.
    Stale,
}

/// Result of giving a finished buffer to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// The buffer reached the client.
    Done,
    /// The buffer's loan or epoch is over.
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

    /// Takes the next event from the kernel.
    pub(super) fn next(&self) -> io::Result<CaptureEffect> {
        let event = self.stream.next_capture()?;
        let mut state = self.locked();
        let news = match event {
            NextCapture::On { count, pixelformat, length } => {
                state.on = Some(On { count, pixelformat, length });
                state.buffers.resize_with(count as usize, Buffer::default);
                CaptureEffect::Nothing
            }
            NextCapture::Off => {
                state.on = None;
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
        Ok(news)
    }

    /// Ends sessions of epochs before `epoch`.
    pub(super) fn flush(&self, epoch: u32) {
        self.locked().epoch = epoch;
        self.changed.notify_all();
    }

    /// Closes it: no more events come.
    pub(super) fn close(&self) {
        self.locked().closed = true;
        self.changed.notify_all();
    }

    /// Gives a finished buffer to the client; waits where CAPTURE is stopped.
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
            // Called under the lock: the event that the client has queued the buffer again must not be
            // handled before the buffer is marked as the client's.
            match self.stream.frame(&FrameInfo { index, generation, ..*info }) {
                Ok(()) => {
                    let Some(buffer) = state.buffers.get_mut(index as usize) else {
                        return Ok(Delivery::Over);
                    };
                    (buffer.queued, buffer.at_worker) = (false, false);
                    buffer.frame = Some((number, frame));
                    return Ok(Delivery::Done);
                }
                // Does not wait only for an event: after a LAST buffer no event tells that the client
                // goes on.
                Err(error) if Refusal::of(&error) == Refusal::Busy => {
                    let waited = self.changed.wait_timeout(state, SOON);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Err(error) if Refusal::of(&error) == Refusal::Stale => return Ok(Delivery::Over),
                Err(error) => return Err(error),
            }
        }
    }

    /// Announces the stream's format from here on. A client with buffers for another format is told
    /// to make others.
    fn announce_format(&self, want: &BufferRequest, epoch: u32) -> io::Result<()> {
        let sample = want.decoded.luma_bytes() as u32;
        let V4l2Colors { colorspace, xfer_func, ycbcr_enc, quantization } = want.colors.into();
        let format = StreamFormat {
            epoch,
            depth: if want.decoded == PixelFormat::Yuv420p10 { 10 } else { 8 },
            width: want.width.next_multiple_of(2).min(want.stride / sample),
            height: want.rows,
            bytesperline: want.stride,
            visible_width: want.width,
            visible_height: want.height,
            sizeimage_native: want.native_bytes,
            sizeimage_packed: want.packed_bytes,
            min_buffers: want.buffers,
            colorspace,
            xfer_func,
            ycbcr_enc,
            quantization,
            ..StreamFormat::default()
        };
        let mut state = self.locked();
        match state.said {
            // Another worker, or another sequence, has the same format.
            Some((said, known)) if said == epoch && known.same_layout(want) => return Ok(()),
            Some((said, _)) if said == epoch => {
                state.on = None;
                drop(state);
                self.drained(epoch, Drained::Change)?;
            }
            _ => drop(state),
        }
        self.stream.format(&format)?;
        self.locked().said = Some((epoch, *want));
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until the client has set CAPTURE up for the format of the epoch,
    /// or `over` is true; without an announced format, no longer than [`FORMAT_TIME`].
    /// A client that gets its first packet back expects to find the format. And for a client
    /// that has neither a packet queued nor CAPTURE streaming, poll() returns an error, which GStreamer
    /// takes for the end.
    pub(super) fn wait_for_setup(&self, epoch: u32, over: impl Fn() -> bool) {
        let until = Instant::now() + FORMAT_TIME;
        let mut state = self.locked();
        while !state.is_over(epoch) && !over() {
            let said = state.said.is_some_and(|(said, _)| said == epoch);
            let left = until.saturating_duration_since(Instant::now());
            state = match said {
                true if state.on.is_some() => return,
                true => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                false if left.is_zero() => return,
                false => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Wakes the threads that wait here: their wait may be over.
    pub(super) fn recheck(&self) {
        drop(self.locked());
        self.changed.notify_all();
    }

    /// Answers a drain. If the client is about to set CAPTURE up for another
    /// format, the end comes after that. Asks again and again, because no event tells
    /// that the client has called its drain off; only the answer does.
    pub(super) fn drained_at_end(&self, epoch: u32) -> io::Result<()> {
        loop {
            match self.drained(epoch, Drained::End) {
                Err(error) if Refusal::of(&error) == Refusal::Busy => {
                    let state = self.locked();
                    if state.is_over(epoch) {
                        return Ok(());
                    }
                    drop(self.changed.wait_timeout(state, SOON));
                }
                answer => return answer,
            }
        }
    }

    /// Tells the client that no frame is left.
    fn drained(&self, epoch: u32, why: Drained) -> io::Result<()> {
        let mut state = self.locked();
        if let Some(index) = self.stream.drained(epoch, why)? {
            if let Some(buffer) = state.buffers.get_mut(index as usize) {
                (buffer.queued, buffer.at_worker) = (false, false);
            }
        }
        Ok(())
    }

    fn provide(&self, want: &BufferRequest, epoch: u32) -> Result<Loan, String> {
        self.announce_format(want, epoch)
            .map_err(|error| format!("the device refuses the format: {error}"))?;
        let mut state = self.locked();
        loop {
            if state.is_over(epoch) {
                return Err("the stream is over".to_owned());
            }
            if let Some(On { count, pixelformat, length }) = state.on {
                let lent =
                    if Fourcc(pixelformat) == Fourcc::YU12 { LentFormat::Native } else { LentFormat::Packed };
                if length >= want.bytes(lent) {
                    match self.exported(count) {
                        Ok((generations, buffers)) => {
                            state.loans += 1;
                            let (number, wanted) = (state.loans, want.buffers.min(count));
                            state.loan = Some(Current { number, generations, slots: None, wanted });
                            state.buffers.iter_mut().for_each(|buffer| buffer.at_worker = false);
                            return Ok(Loan { buffers, lent });
                        }
                        // An imported buffer has no memory before it is
                        // queued.
                        Err(error) if Refusal::of(&error) == Refusal::Unknown => {}
                        Err(error) => return Err(format!("a CAPTURE buffer cannot be had: {error}")),
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

    fn mapped(&self, slots: LentSlots) {
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
    /// True if nothing of that epoch is wanted any more.
    fn is_over(&self, epoch: u32) -> bool {
        self.closed || epoch < self.epoch
    }

    fn queued(&mut self, index: usize, generation: u32) -> CaptureEffect {
        let Some(buffer) = self.buffers.get_mut(index) else { return CaptureEffect::Nothing };
        (buffer.queued, buffer.generation) = (true, generation);
        let Some(loan) = &self.loan else { return CaptureEffect::Nothing };
        if loan.generations.get(index) != Some(&generation) {
            // The buffer has other memory than at the loan. It stays unused while enough buffers of the
            // loan are left.
            let usable = self.buffers.iter().zip(&loan.generations);
            let usable = usable.filter(|(buffer, known)| buffer.generation == **known).count();
            return if usable < loan.wanted as usize { CaptureEffect::Stale } else { CaptureEffect::Nothing };
        }
        let Some(slots) = &loan.slots else { return CaptureEffect::Nothing };
        if !buffer.at_worker {
            buffer.at_worker = true;
            match buffer.frame.take() {
                // Dropping the frame gives the buffer to the worker.
                Some((number, frame)) if number == loan.number => drop(frame),
                _ => slots.release(index as u32),
            }
        }
        CaptureEffect::Nothing
    }
}

/// Provider of buffers for one session.
pub(super) struct SessionLender {
    pub(super) captures: Arc<Captures>,
    pub(super) epoch: u32,
}

impl BufferProvider for SessionLender {
    fn provide(&self, want: &BufferRequest) -> Result<Loan, String> {
        self.captures.provide(want, self.epoch)
    }

    fn mapped(&self, slots: LentSlots) {
        self.captures.mapped(slots);
    }
}
