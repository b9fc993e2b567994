// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clock on a screen: a window with a desktop's content, whose barcode shows the number of each picture.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use framepath_os::time::now_ns;

use super::x_clock::XClock;
use crate::error::LabError;

/// The clock's window, on a display server.
pub(super) trait ClockWindow: Send + 'static {
    /// Prepares picture `number`: what can be done before its time.
    ///
    /// # Errors
    /// The display server has failed.
    fn prepare(&mut self, number: u32) -> Result<(), LabError>;

    /// Shows the prepared picture, at once and as a whole.
    ///
    /// # Errors
    /// The display server has failed.
    fn show(&mut self) -> Result<(), LabError>;
}

/// A running clock. Its window closes when this value is dropped.
pub(super) struct ScreenClock {
    stop: Arc<AtomicBool>,
    /// True while the screen stands still.
    held: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<u64>, LabError>>>,
}

impl ScreenClock {
    /// Opens the window on the X display `display`, at its upper left corner, and shows `rate` pictures a second, which scroll by
    /// `scroll` rows each.
    ///
    /// # Errors
    /// [`LabError::Unknown`]: the display cannot be used.
    pub(super) fn start(display: &str, rate: u32, scroll: u32) -> Result<ScreenClock, LabError> {
        Ok(ScreenClock::of(XClock::open(display, scroll)?, rate))
    }

    /// Shows `rate` pictures a second in a window.
    pub(super) fn of(mut window: impl ClockWindow, rate: u32) -> ScreenClock {
        let stop = Arc::new(AtomicBool::new(false));
        let held = Arc::new(AtomicBool::new(false));
        let of_thread = [stop.clone(), held.clone()];
        let thread = thread::spawn(move || run(&mut window, rate, of_thread.each_ref().map(AsRef::as_ref)));
        ScreenClock { stop, held, thread: Some(thread) }
    }

    /// Stops drawing. The screen keeps the last picture.
    pub(super) fn hold(&self) {
        self.held.store(true, Ordering::Release);
    }

    /// Stops the clock. Returns the time at which each picture was drawn, by its number: CLOCK_MONOTONIC, nanoseconds.
    ///
    /// # Errors
    /// [`LabError::Unknown`]: the display has failed.
    pub(super) fn stop(mut self) -> Result<Vec<u64>, LabError> {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().map(JoinHandle::join);
        thread
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(LabError::Unknown("the screen's clock panicked".to_owned())))
    }
}

impl Drop for ScreenClock {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // An error was of no interest to the caller.
            let _ = thread.join();
        }
    }
}

fn run(
    window: &mut dyn ClockWindow,
    rate: u32,
    [stop, held]: [&AtomicBool; 2],
) -> Result<Vec<u64>, LabError> {
    let interval = Duration::from_secs(1) / rate;
    let began = now_ns();
    let mut drawn = Vec::new();
    while !stop.load(Ordering::Acquire) {
        if held.load(Ordering::Acquire) {
            thread::sleep(interval);
            continue;
        }
        let due = began + interval.as_nanos() as u64 * drawn.len() as u64;
        thread::sleep(Duration::from_nanos(due.saturating_sub(now_ns())));
        window.prepare(drawn.len() as u32)?;
        drawn.push(now_ns());
        window.show()?;
    }
    Ok(drawn)
}
