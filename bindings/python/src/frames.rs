// SPDX-License-Identifier: MIT OR Apache-2.0
//! Iterator over the frames of a path.

use std::ffi::CString;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use framepath::{Frames, NextFrame, Report, SeekTo, Stop, StreamInfo};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::error::{Error, LossWarning, exception};
use crate::frame::{FrameSource, PyFrame};
use crate::held::KeptSlots;
use crate::report::PyReport;

/// Time of a wait after which it ends when a signal interrupts it, for a look at Python's signals: a look needs the GIL.
const LOOK: Duration = Duration::from_millis(1);
/// Time after which a wait ends for such a look without a signal: a signal that came just before the wait does not interrupt it.
const POLL: Duration = Duration::from_millis(50);

/// Frames of a running path.
#[pyclass(frozen, name = "Frames", module = "framepath")]
pub struct PyFrames {
    /// `None` once the iterator is closed.
    frames: Mutex<Option<Frames>>,
    stop: Stop,
    /// Stream as it was known before the first frame.
    stream: Option<StreamInfo>,
    duration: Option<Duration>,
    source: Arc<FrameSource>,
    /// Process that opened the iterator: the child of a fork has none of its threads.
    pid: u32,
    /// Report, once the frames have ended or the iterator is closed.
    report: Mutex<Option<Py<PyReport>>>,
}

impl PyFrames {
    /// Makes the iterator of a path that has the number `kept`.
    pub(crate) fn new(mut frames: Frames, kept: &Arc<KeptSlots>) -> PyFrames {
        frames.set_longest_sleep(Some(POLL));
        let (stream, stop, duration) = (frames.stream(), frames.stop_handle(), frames.duration());
        let source = FrameSource::new(stream.map(|stream| stream.time_base), kept);
        let frames = Mutex::new(Some(frames));
        PyFrames { frames, stop, stream, duration, source, pid: process::id(), report: Mutex::new(None) }
    }

    /// Waits for the other threads' calls. Call it without the GIL.
    fn lock(&self) -> MutexGuard<'_, Option<Frames>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_process(&self) -> PyResult<()> {
        match process::id() == self.pid {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err(
                "this process was forked from the one that has opened the frames, and has no decoder; open the file again here",
            )),
        }
    }

    /// Takes the next frame; `None` at the end.
    fn take(&self, py: Python<'_>) -> PyResult<Option<PyFrame>> {
        self.check_process()?;
        loop {
            let next = py.detach(|| {
                let looked = Instant::now();
                let mut frames = self.lock();
                let frames = frames.as_mut()?;
                Some(frames.next_unless(|| looked.elapsed() >= LOOK))
            });
            match next {
                Some(NextFrame::Frame(Ok(frame))) => return PyFrame::new(frame, &self.source).map(Some),
                Some(NextFrame::Frame(Err(error))) => return Err(exception(py, &error)),
                Some(NextFrame::News) => py.check_signals()?,
                Some(NextFrame::End) | None => return Ok(None),
            }
        }
    }
}

#[pymethods]
impl PyFrames {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyFrame>> {
        self.take(py)
    }

    /// Goes to a time, in seconds from the stream's start.
    #[pyo3(signature = (seconds, *, exact=true))]
    fn seek(&self, py: Python<'_>, seconds: f64, exact: bool) -> PyResult<()> {
        self.check_process()?;
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| PyValueError::new_err(format!("a time of {seconds:?} s is not possible")))?;
        // Rounded down, so that the time of a frame (`frame.time`) finds this frame and not the next one.
        let to = Duration::from_nanos((seconds * 1e9).floor() as u64);
        let mode = if exact { SeekTo::Exact } else { SeekTo::KeyframeBefore };
        let sought = py.detach(|| self.lock().as_mut().map(|frames| frames.seek(to, mode)));
        match sought {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(Error::new_err(error.to_string())),
            None => Err(Error::new_err("the frames are closed")),
        }
    }

    /// Returns the first frame that is not before a time, in seconds from the stream's start; `None` behind the last one.
    fn at(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<PyFrame>> {
        self.seek(py, seconds, true)?;
        self.take(py)
    }

    /// Ends the decoder and its processes, and returns the report. Frames that the program has stay.
    fn close(&self, py: Python<'_>) -> PyResult<Option<Py<PyReport>>> {
        if process::id() != self.pid {
            return Ok(None);
        }
        // A thread that has the iterator waits for a frame, which may not come.
        let is_waited_for = self
            .frames
            .try_lock()
            .map_or(true, |frames| frames.as_ref().is_some_and(|frames| !frames.has_ended()));
        if is_waited_for {
            self.stop.stop();
        }
        let report = py.detach(|| self.lock().take().and_then(Frames::into_report));
        if let Some(report) = report {
            warn_of_losses(py, &report)?;
            let report = Py::new(py, PyReport::new(report))?;
            *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        }
        Ok(self.report(py))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py).map(|_| ())
    }

    /// Bytes that were copied because the program keeps many frames, or has asked for copies (`rgb`).
    #[getter]
    fn copied_bytes(&self) -> u64 {
        self.source.copied_bytes.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[getter]
    fn width(&self) -> Option<u32> {
        self.stream.map(|stream| stream.width).filter(|width| *width > 0)
    }

    #[getter]
    fn height(&self) -> Option<u32> {
        self.stream.map(|stream| stream.height).filter(|height| *height > 0)
    }

    #[getter]
    fn rate(&self) -> Option<f64> {
        self.stream?.frame_rate.value()
    }

    /// Seconds from the start of the source's stream to its end; `None` if that is not known.
    #[getter]
    fn duration(&self) -> Option<f64> {
        self.duration.map(|duration| duration.as_secs_f64())
    }

    /// Report of the run; `None` before `close()`.
    #[getter]
    fn report(&self, py: Python<'_>) -> Option<Py<PyReport>> {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.as_ref().map(|report| report.clone_ref(py))
    }
}

/// Warns of what was lost and damaged.
pub(crate) fn warn_of_losses(py: Python<'_>, report: &Report) -> PyResult<()> {
    let mut texts: Vec<String> = report.losses().iter().map(ToString::to_string).collect();
    if !report.damage.is_none() {
        texts.push(report.damage.to_string());
    }
    for text in texts {
        let text = CString::new(text).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<LossWarning>(), &text, 1)?;
    }
    Ok(())
}

impl Drop for PyFrames {
    /// Ends the decoder, unless this is the child of a fork, which does not have it.
    fn drop(&mut self) {
        let frames = self.frames.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(frames) = frames else { return };
        if process::id() != self.pid {
            std::mem::forget(frames);
            return;
        }
        if !frames.has_ended() {
            self.stop.stop();
        }
        let mut frames = Some(frames);
        let ended = Python::try_attach(|py| {
            // The threads may wait for the GIL, in a function of the program.
            let report = py.detach(|| frames.take().and_then(Frames::into_report));
            if let Some(Err(warned)) = report.map(|report| warn_of_losses(py, &report)) {
                // Warnings are errors, and there is no caller.
                warned.write_unraisable(py, None);
            }
        });
        if ended.is_none() {
            // The interpreter ends, and the process with it.
            std::mem::forget(frames);
        }
    }
}
