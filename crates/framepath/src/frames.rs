// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frames of a pipeline as an iterator.

use std::fmt;
use std::thread::JoinHandle;

use framepath_model::stream::StreamInfo;
use framepath_os::pool::Frame;
use framepath_os::queue::{Leaky, Receiver, Sender, queue};
use framepath_os::stop::Stop;

use crate::error::{RunError, StageError};
use crate::item::Item;
use crate::options::Options;
use crate::out::{Failure, Out};
use crate::pipeline::Pipeline;
use crate::report::Report;
use crate::stage::Stage;

/// Frames that wait for the iterator; more let the pipeline wait.
const DEPTH: usize = 2;

/// Frames that a program may keep from [`Frames`] while it asks for more: pools are
/// made so large.
const KEPT: u32 = 4;

/// Frames that the iterator keeps from the pools of the pipeline: those that wait,
/// one in the hands of the thread, and those that the program keeps.
pub(crate) const FRAMES_BEHIND: u32 = DEPTH as u32 + 1 + KEPT;

/// The frames of a running pipeline, in the order of presentation.
///
/// The pipeline runs in threads of its own and is never more than a few frames ahead.
/// A [`Frame`] holds a buffer of a pool: a program that keeps more than 4 frames
/// while it asks for the next one may wait for ever, so it copies what it needs
/// longer. An error of the pipeline comes after the frames before it, once; then the
/// iterator ends. Dropping the iterator stops the pipeline and waits for its threads.
pub struct Frames {
    /// `None` once the frames have ended.
    receiver: Option<Receiver<Frame>>,
    run: Option<JoinHandle<Report>>,
    stop: Stop,
    report: Option<Report>,
}

impl Pipeline {
    /// Runs the pipeline in a thread of its own and returns its frames one by one.
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
    /// The pipeline has a sink already, or its stages do not fit together. What
    /// happens later is an item of the iterator.
    pub fn frames(self) -> Result<Frames, RunError> {
        self.frames_with(Options::default())
    }

    /// [`frames`](Pipeline::frames) with options.
    ///
    /// # Errors
    /// As [`frames`](Pipeline::frames).
    pub fn frames_with(self, options: Options) -> Result<Frames, RunError> {
        let (sender, receiver) = queue(DEPTH, Leaky::No);
        let mut pipeline = self.sink(Sending(sender)).named("frames");
        pipeline.prepare(&options)?;
        let stop = options.stop.clone();
        let run = std::thread::Builder::new().name("framepath".to_owned());
        let run = run.spawn(move || pipeline.run_prepared(&options)).map_err(|error| RunError::Thread {
            hop: "frames".to_owned(),
            detail: format!("cannot start: {error}"),
        })?;
        Ok(Frames { receiver: Some(receiver), run: Some(run), stop, report: None })
    }
}

impl Frames {
    /// Stops the pipeline from any thread. The frames that are inside still come.
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

    /// The ledger of the run; `None` before the last frame was returned.
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
        self.report.as_ref()
    }

    /// Waits for the end of the run.
    fn join(&mut self) -> Result<(), RunError> {
        self.receiver = None;
        let Some(run) = self.run.take() else { return Ok(()) };
        let panicked = |_| RunError::Thread {
            hop: "frames".to_owned(),
            detail: "ended in a panic, which is a bug".to_owned(),
        };
        let mut report = run.join().map_err(panicked)?;
        let error = report.error.take();
        self.report = Some(report);
        error.map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").field("has_ended", &self.run.is_none()).finish_non_exhaustive()
    }
}

impl Iterator for Frames {
    type Item = Result<Frame, RunError>;

    fn next(&mut self) -> Option<Result<Frame, RunError>> {
        match self.receiver.as_mut()?.recv() {
            Some(frame) => Some(Ok(frame)),
            None => self.join().err().map(Err),
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // A request that other runs share is not made for one that has ended.
        if self.run.is_some() {
            self.stop.stop();
        }
        // An error that nobody asked for any more.
        let _ = self.join();
    }
}

/// The sink that sends frames to the iterator.
struct Sending(Sender<Frame>);

impl Stage for Sending {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), Failure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        // Fails once the iterator was dropped.
        self.0.send(frame).map(|_| ()).map_err(|_| out.fail(StageError::Downstream))
    }
}
