// SPDX-License-Identifier: MIT OR Apache-2.0
//! Iterator over the frames of a pipeline.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use framepath_model::stream::{SeekTo, StreamInfo};
use framepath_os::memory::pool::Frame;
use framepath_os::process::stop::Stop;
use framepath_os::sync::queue::{Leaky, Received, Receiver, Sender, Waker, queue};

use crate::error::{RunError, StageError};
use crate::item::Item;
use crate::options::Options;
use crate::out::{HopFailure, Out};
use crate::pipeline::Pipeline;
use crate::report::Report;
use crate::request::{Request, RequestError};
use crate::requests::Requests;
use crate::stage::Stage;

/// Depth in frames of the queue between the pipeline and the iterator.
const DEPTH: usize = 2;

/// Maximum number of frames that a program may keep while it calls `next`. The pools of built-in sources and
/// stages are large enough for them, except the default pool of `fixture`, and unless an option such as `pool=`
/// makes them smaller.
const KEPT: u32 = 4;

/// Maximum number of frames behind the last hop: those in the queue, one in the sending thread, and those
/// that the program keeps.
pub(crate) const FRAMES_BEHIND: u32 = DEPTH as u32 + 1 + KEPT;

/// The frames of a running pipeline, in the order of its last hop: behind a decoder, the order of
/// presentation (with `lowdelay=1` only for streams without B pictures).
///
/// The pipeline runs in threads of its own, and is ahead of the program by at most the frames that its
/// queues, workers and decoders keep. A [`Frame`] holds a buffer of a pool. A program that keeps more than
/// 4 frames may wait forever in `next`; it should copy the pixels that it needs longer.
///
/// An error of the pipeline is returned once, after the frames before it; then the iterator ends. Dropping
/// the iterator stops the pipeline and waits for its threads.
///
/// [`seek`](Frames::seek) goes to another time, also behind the last frame:
///
/// ```
/// use std::time::Duration;
/// use framepath::{Pipeline, SeekTo};
///
/// // 30 frames a second.
/// let mut frames = Pipeline::parse("test frames=90 size=64x48")?.frames()?;
/// for (second, expected) in [(1, Some(30)), (2, Some(60)), (9, None), (0, Some(0))] {
///     frames.seek(Duration::from_secs(second), SeekTo::Exact)?;
///     let frame = frames.next().transpose()?;
///     assert_eq!(frame.and_then(|frame| frame.meta().pts), expected);
/// }
/// # Ok::<(), framepath::RunError>(())
/// ```
pub struct Frames {
    /// Queue of the run's messages; `None` once the iterator has seen the end of the run.
    receiver: Option<Receiver<Sent>>,
    /// Thread of the run; `None` once it was joined.
    run: Mutex<Option<JoinHandle<Report>>>,
    stop: Stop,
    requests: Requests,
    report: OnceLock<Report>,
    /// Number of the last seek or flush that `next` knows; 0 before the first. `next` discards frames that
    /// were sent before it.
    generation: u64,
    /// True if `next` has reached the end of the stream or of the run. A later seek or flush resets it while
    /// the run is open.
    at_end: bool,
    /// True if `next` returned a frame, or this iterator requested a seek or flush: then an end without
    /// frames is no error.
    had_any: bool,
    /// Stream at the end of the pipeline, as its hops know it before the first frame.
    stream: Option<StreamInfo>,
    duration: Option<Duration>,
}

/// Finding of [`Frames::next_unless`].
#[derive(Debug)]
pub enum NextFrame {
    /// The next frame, or the error that ended the pipeline.
    Frame(Result<Frame, RunError>),
    /// The stream has ended; a seek may go back.
    End,
    /// No frame was there, and `news` returned true.
    News,
}

/// Handle that makes a waiting [`Frames::next_unless`] call its function again, from any thread.
pub struct FramesWaker(Option<Waker<Sent>>);

impl FramesWaker {
    /// Makes the waiting thread call its function again. Make the function's result true before this call. Costs a system
    /// call only if that thread sleeps; does nothing after the end of the run.
    pub fn wake(&self) {
        if let Some(waker) = &self.0 {
            waker.wake();
        }
    }
}

/// Message from the run to the iterator.
struct Sent {
    /// Next frame; `None` at the end of a stream that is held open for a seek.
    frame: Option<Frame>,
    /// Number of the last seek or flush before this message; 0 without one.
    generation: u64,
}

impl Pipeline {
    /// Runs the pipeline in a new thread. Returns an iterator of the frames at the end of the pipeline.
    ///
    /// ```
    /// use framepath::Pipeline;
    ///
    /// let mut frames = 0;
    /// for frame in Pipeline::parse("test frames=5 size=64x48")?.frames()? {
    ///     assert_eq!(frame?.layout().width, 64);
    ///     frames += 1;
    /// }
    /// assert_eq!(frames, 5);
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    ///
    /// # Errors
    /// The pipeline has a sink already, a stage cannot start on its input, or the thread cannot be started.
    /// Later errors are items of the iterator.
    pub fn frames(self) -> Result<Frames, RunError> {
        self.frames_with(Options::default())
    }

    /// [`frames`](Pipeline::frames) with options. Dropping the iterator before its end requests
    /// [`Options::stop`], and so also stops other runs that share this handle.
    ///
    /// # Errors
    /// As [`frames`](Pipeline::frames).
    pub fn frames_with(self, options: Options) -> Result<Frames, RunError> {
        let (sender, receiver) = queue(DEPTH, Leaky::No);
        let stream = Arc::<OnceLock<StreamInfo>>::default();
        let mut pipeline = self.sink(Sending { sender, stream: stream.clone() }).named("frames");
        pipeline.prepare(&options)?;
        let (stream, duration) = (stream.get().copied(), pipeline.source.duration());
        let stop = options.stop.clone();
        let run = std::thread::Builder::new().name("framepath".to_owned());
        let requests = pipeline.requests();
        // The program may seek at the end.
        requests.hold_open(true);
        let run = run.spawn(move || pipeline.run_prepared(&options)).map_err(|error| RunError::Thread {
            hop: "frames".to_owned(),
            detail: format!("cannot start: {error}"),
        })?;
        Ok(Frames {
            receiver: Some(receiver),
            run: Mutex::new(Some(run)),
            stop,
            requests,
            report: OnceLock::new(),
            generation: 0,
            at_end: false,
            had_any: false,
            stream,
            duration,
        })
    }
}

impl Frames {
    /// Returns the stream at the end of the pipeline, its time base among others; `None` if its hops know it only with the first frame.
    ///
    /// ```
    /// use framepath::{Pipeline, Rational};
    ///
    /// let frames = Pipeline::parse("test frames=3 rate=50 size=64x48")?.frames()?;
    /// assert_eq!(frames.stream().map(|stream| stream.frame_rate), Some(Rational::new(50, 1)));
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn stream(&self) -> Option<StreamInfo> {
        self.stream
    }

    /// Returns the time from the start of the source's stream to its end, as its container declares it; `None` if that is not known,
    /// as for elementary and live streams. Options such as `start` and hops that drop frames do not change it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use framepath::Pipeline;
    ///
    /// let frames = Pipeline::parse("test frames=50 rate=25 size=64x48")?.frames()?;
    /// assert_eq!(frames.duration(), Some(Duration::from_secs(2)));
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn duration(&self) -> Option<Duration> {
        self.duration
    }

    /// Takes the next frame as `next` does, but returns [`NextFrame::News`] if there is none yet and `news` returns true. `news` is
    /// called again when a signal has interrupted the wait, when a [waker](Frames::waker) has, and after the time that
    /// [`set_longest_sleep`](Frames::set_longest_sleep) sets; it should be quick.
    ///
    /// ```
    /// use framepath::{NextFrame, Pipeline};
    ///
    /// let mut frames = Pipeline::parse("test frames=2 size=64x48")?.frames()?;
    /// assert!(matches!(frames.next_unless(|| false), NextFrame::Frame(Ok(_))));
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn next_unless(&mut self, news: impl Fn() -> bool) -> NextFrame {
        // The seek may have been sent by another handle.
        let generation = self.requests.generation();
        if generation > self.generation && self.receiver.is_some() {
            // After the seek, the end of the stream is reported again.
            (self.generation, self.at_end) = (generation, false);
        }
        while !self.at_end {
            let Some(receiver) = self.receiver.as_mut() else { return NextFrame::End };
            match receiver.recv_unless(&news) {
                Received::Value(Sent { generation, .. }) if generation < self.generation => {
                    self.requests.count_flushed(1);
                }
                Received::Value(Sent { frame: Some(frame), .. }) => {
                    self.had_any = true;
                    return NextFrame::Frame(Ok(frame));
                }
                // An end before any frame may be an error, which `finish` returns.
                Received::Value(Sent { frame: None, .. }) if self.had_any => self.at_end = true,
                Received::News => return NextFrame::News,
                Received::Value(_) | Received::Closed => {
                    return self.finish().err().map_or(NextFrame::End, |error| NextFrame::Frame(Err(error)));
                }
            }
        }
        NextFrame::End
    }

    /// Sets the time after which a waiting [`next_unless`](Frames::next_unless) calls its function again, even if nothing has
    /// woken it; `None`, the value at first, for no such time. A signal that arrives just before the wait does not interrupt it,
    /// so a function that looks for signals needs such a time.
    pub fn set_longest_sleep(&mut self, longest: Option<Duration>) {
        if let Some(receiver) = &mut self.receiver {
            receiver.set_longest_sleep(longest);
        }
    }

    /// Returns a handle by which another thread makes a waiting [`next_unless`](Frames::next_unless) call its function again.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// use framepath::{NextFrame, Pipeline};
    ///
    /// static CANCELLED: AtomicBool = AtomicBool::new(false);
    ///
    /// // 50 s between two frames.
    /// let mut frames = Pipeline::parse("test frames=0 rate=0.02 size=64x48")?.frames()?;
    /// frames.next();
    /// let waker = frames.waker();
    /// let other = std::thread::spawn(move || {
    ///     CANCELLED.store(true, Ordering::Relaxed);
    ///     waker.wake();
    /// });
    /// assert!(matches!(frames.next_unless(|| CANCELLED.load(Ordering::Relaxed)), NextFrame::News));
    /// other.join().unwrap();
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn waker(&self) -> FramesWaker {
        FramesWaker(self.receiver.as_ref().map(Receiver::waker))
    }

    /// Returns a handle that stops the pipeline from any thread. The iterator still returns the frames
    /// inside the pipeline, for at most about 0.4 s after the stop.
    ///
    /// ```
    /// use framepath::Pipeline;
    ///
    /// let frames = Pipeline::parse("test frames=0 rate=100 size=64x48")?.frames()?;
    /// let stop = frames.stop_handle();
    /// std::thread::spawn(move || stop.stop());
    /// for frame in frames {
    ///     frame?;
    /// }
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn stop_handle(&self) -> Stop {
        self.stop.clone()
    }

    /// Seeks to a time, counted from the stream's start. With [`SeekTo::Exact`] the next frame is the
    /// first frame that is not before this time; otherwise it is the random access point at or before it.
    /// A seek to a time after the last frame ends the iterator until the next seek.
    ///
    /// In a stream without timestamps (`.h264`, `.hevc`) the time of a frame is its number divided
    /// by the frame rate.
    ///
    /// # Errors
    /// [`RequestError::CannotSeek`], which has no effect on the frames; [`RequestError::Ended`] after the
    /// end of the run or of its source, for example after an error, a stop or a call of
    /// [`report`](Frames::report) that returned the report. The iterator returns read errors of the file.
    pub fn seek(&mut self, to: Duration, mode: SeekTo) -> Result<(), RequestError> {
        self.request(Request::Seek { to, mode })
    }

    /// Discards the frames inside the pipeline, for example the old frames of a live source. The next frame
    /// is the next frame of the source, or in a compressed stream the next random access point.
    ///
    /// # Errors
    /// [`RequestError::Ended`] after the end of the run or of its source, as for [`seek`](Frames::seek).
    pub fn flush(&mut self) -> Result<(), RequestError> {
        self.request(Request::Flush)
    }

    fn request(&mut self, request: Request) -> Result<(), RequestError> {
        if self.receiver.is_none() || self.report.get().is_some() {
            return Err(RequestError::Ended);
        }
        self.requests.send(request)?;
        self.had_any = true;
        Ok(())
    }

    /// Returns a handle for other requests and for other threads. A seek with this handle affects later
    /// frames like [`seek`](Frames::seek).
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Returns the report of the run; `None` until `next` has returned `None` or an error, and if the run's
    /// thread panicked. From then on, this call ends the run if it is still open for a seek, waits for it, and
    /// a later seek is an error.
    ///
    /// ```
    /// use framepath::Pipeline;
    ///
    /// let mut frames = Pipeline::parse("test frames=3 size=64x48")?.frames()?;
    /// assert_eq!(frames.by_ref().count(), 3);
    /// assert!(frames.report().is_some_and(|report| report.cpu_ns > 0));
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn report(&self) -> Option<&Report> {
        if self.at_end && self.report.get().is_none() {
            if let Some(Ok(report)) = self.join() {
                let _ = self.report.set(report);
            }
        }
        self.report.get()
    }

    /// Returns true if `next` has returned `None` or an error, and no seek has followed.
    pub fn has_ended(&self) -> bool {
        self.at_end
    }

    /// Ends the iterator, and stops the pipeline if it runs, as dropping the iterator does. Returns the report of the run; `None` if
    /// the run's thread panicked.
    ///
    /// ```
    /// use framepath::Pipeline;
    ///
    /// let mut frames = Pipeline::parse("test frames=0 size=64x48")?.frames()?;
    /// assert!(frames.next().is_some());
    /// assert!(frames.into_report().is_some_and(|report| report.interrupted));
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn into_report(mut self) -> Option<Report> {
        if !self.at_end {
            self.stop.stop();
        }
        let error = self.finish().err();
        let mut report = self.report.take()?;
        report.error = error.or(report.error);
        Some(report)
    }

    /// Lets the run end at the end of the stream, and waits for the run. Returns its report, or an error if
    /// its thread panicked; `None` after the first call.
    fn join(&self) -> Option<Result<Report, RunError>> {
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        self.requests.hold_open(false);
        Some(run.join().map_err(|_| RunError::Thread {
            hop: "frames".to_owned(),
            detail: "ended in a panic, which is a bug".to_owned(),
        }))
    }

    /// Ends the iterator, waits for the run and keeps its report. Returns the run's error, in the first call
    /// only.
    fn finish(&mut self) -> Result<(), RunError> {
        (self.receiver, self.at_end) = (None, true);
        let mut report = match self.join() {
            None => return Ok(()),
            Some(report) => report?,
        };
        let error = report.error.take();
        let _ = self.report.set(report);
        error.map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").field("at_end", &self.at_end).finish_non_exhaustive()
    }
}

impl Iterator for Frames {
    type Item = Result<Frame, RunError>;

    fn next(&mut self) -> Option<Result<Frame, RunError>> {
        match self.next_unless(|| false) {
            NextFrame::Frame(frame) => Some(frame),
            NextFrame::End | NextFrame::News => None,
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // Skipped if this run has ended, because the `Stop` may be shared with other runs.
        if !self.at_end {
            self.stop.stop();
        }
        // The error is ignored, because the program did not wait for it.
        let _ = self.finish();
    }
}

/// The sink that sends frames to the iterator.
struct Sending {
    sender: Sender<Sent>,
    /// Set when the stage starts.
    stream: Arc<OnceLock<StreamInfo>>,
}

impl Sending {
    /// Sends a frame to the iterator, or with `None` the end of a stream that is held open. Fails with
    /// [`StageError::Downstream`] once the iterator has ended or was dropped.
    fn send(&mut self, frame: Option<Frame>, out: &Out<'_>) -> Result<(), HopFailure> {
        let sent = self.sender.send(Sent { frame, generation: out.generation() });
        sent.map(|_| ()).map_err(|_| out.fail(StageError::Downstream))
    }
}

impl Stage for Sending {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        // A second start has the same stream.
        let _ = self.stream.set(*info);
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        self.send(Some(frame), out)
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if out.holds() { self.send(None, out) } else { Ok(()) }
    }
}
