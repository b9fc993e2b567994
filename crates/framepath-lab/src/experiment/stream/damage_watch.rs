// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times at which the X server reports that its screen has changed: the earliest moments at which a capture can know of a
//! picture.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use framepath_os::time::now_ns;
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::damage::{ConnectionExt, Damage, ReportLevel};
use x11rb::rust_connection::RustConnection;

use super::screen_error::x_error;
use crate::error::LabError;

/// Pause between two looks for a report. It is the error of a time.
const PAUSE: Duration = Duration::from_micros(200);

/// A running watch of a screen.
pub(super) struct DamageWatch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<u64>, LabError>>>,
}

impl DamageWatch {
    /// Watches the X display `display`.
    ///
    /// # Errors
    /// [`LabError::Unknown`]: the display cannot be used.
    pub(super) fn start(display: &str) -> Result<DamageWatch, LabError> {
        let (connection, screen) = x11rb::connect(Some(display)).map_err(x_error)?;
        connection.damage_query_version(1, 1).map_err(x_error)?.reply().map_err(x_error)?;
        let damage = connection.generate_id().map_err(x_error)?;
        let root = connection.setup().roots[screen].root;
        connection.damage_create(damage, root, ReportLevel::NON_EMPTY).map_err(x_error)?;
        connection.flush().map_err(x_error)?;
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = stop.clone();
        let thread = thread::spawn(move || reports(&connection, damage, &of_thread));
        Ok(DamageWatch { stop, thread: Some(thread) })
    }

    /// Stops the watch. Returns the time of each report; CLOCK_MONOTONIC, nanoseconds.
    ///
    /// # Errors
    /// [`LabError::Unknown`]: the display has failed.
    pub(super) fn stop(mut self) -> Result<Vec<u64>, LabError> {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().map(JoinHandle::join);
        thread.and_then(Result::ok).unwrap_or_else(|| {
            Err(LabError::Unknown("the watch of the screen's changes panicked".to_owned()))
        })
    }
}

impl Drop for DamageWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // An error was of no interest to the caller.
            let _ = thread.join();
        }
    }
}

fn reports(connection: &RustConnection, damage: Damage, stop: &AtomicBool) -> Result<Vec<u64>, LabError> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Acquire) {
        while let Some(event) = connection.poll_for_event().map_err(x_error)? {
            if let Event::DamageNotify(_) = event {
                times.push(now_ns());
                // So that the next change is reported again.
                connection.damage_subtract(damage, x11rb::NONE, x11rb::NONE).map_err(x_error)?;
                connection.flush().map_err(x_error)?;
            }
        }
        thread::sleep(PAUSE);
    }
    Ok(times)
}

/// Returns the times from each drawing in `drawn` to its first report in `reported`, nanoseconds. Both are in rising order.
pub(super) fn delays(drawn: &[u64], reported: &[u64]) -> Vec<u64> {
    let first = |at: usize| {
        let next = drawn.get(at + 1).copied().unwrap_or(u64::MAX);
        let report = reported[reported.partition_point(|time| *time < drawn[at])..].first()?;
        (*report < next).then(|| report - drawn[at])
    };
    (0..drawn.len()).filter_map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_belongs_to_the_drawing_before_it() {
        // Drawing 200 has no report of its own.
        assert_eq!(delays(&[100, 200, 300], &[90, 110, 120, 305, 310]), [10, 5]);
        assert!(delays(&[100], &[]).is_empty());
    }
}
