// SPDX-License-Identifier: MIT OR Apache-2.0
//! Observer of a screen: reads the barcode of the pictures that are shown, as often as it can, and notes when it first saw each
//! number. It knows nothing of the program that shows them.

use std::thread;
use std::time::{Duration, Instant};

use framepath_os::process::signal;
use framepath_os::time::now_ns;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ConnectionExt, ImageFormat, Window};
use x11rb::rust_connection::RustConnection;

use super::barcode::{self, PIXEL};
use super::screen_error::x_error;
use crate::error::LabError;

/// Pause between two readings, so that the observer takes little of the X server's time. It is the error of a time stamp.
const PAUSE: Duration = Duration::from_micros(300);
/// Interval between two searches of the whole screen.
const SEARCH: Duration = Duration::from_millis(50);

/// A picture that was seen: its number, and the time of the reading that first showed it;
/// CLOCK_MONOTONIC, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) number: u32,
    /// Start of the reading before, which did not show it.
    pub(super) after_ns: u64,
    pub(super) at_ns: u64,
}

/// Pictures seen in a period of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WatchedScreen {
    /// The numbers in the order in which they were seen, each as often as it replaced another.
    pub(super) seen: Vec<Seen>,
    /// Number of times that the barcode became unreadable: a damaged picture.
    pub(super) damaged: u64,
    /// End of the period; CLOCK_MONOTONIC, nanoseconds.
    pub(super) end_ns: u64,
}

/// Connection to the screen.
pub(super) struct ScreenObserver {
    connection: RustConnection,
    root: Window,
    size: (u16, u16),
    /// Pixel at the left edge of the barcode.
    place: Option<(usize, usize)>,
}

impl ScreenObserver {
    /// Connects to the X display `display`.
    ///
    /// # Errors
    /// [`LabError::Unknown`]: the display cannot be used.
    pub(super) fn new(display: &str) -> Result<ScreenObserver, LabError> {
        let (connection, screen) = x11rb::connect(Some(display)).map_err(x_error)?;
        let root = &connection.setup().roots[screen];
        let (size, root) = ((root.width_in_pixels, root.height_in_pixels), root.root);
        Ok(ScreenObserver { connection, root, size, place: None })
    }

    /// Waits until the screen shows a barcode, at most `limit`. Returns whether it does.
    ///
    /// # Errors
    /// [`LabError::Unknown`]: the display has failed; [`LabError::Interrupted`].
    pub(super) fn find(&mut self, limit: Duration) -> Result<bool, LabError> {
        let since = Instant::now();
        while since.elapsed() < limit {
            if signal::interrupted() {
                return Err(LabError::Interrupted);
            }
            let (width, height) = self.size;
            let pixels = self.pixels(0, 0, width, height)?;
            self.place = barcode::find(&pixels, usize::from(width) * PIXEL);
            if self.place.is_some() {
                return Ok(true);
            }
            thread::sleep(SEARCH);
        }
        Ok(false)
    }

    /// Watches the barcode for `duration`.
    ///
    /// # Errors
    /// As [`find`](ScreenObserver::find); also if no barcode was found before.
    pub(super) fn watch(&mut self, duration: Duration) -> Result<WatchedScreen, LabError> {
        let (x, y) = self.place.ok_or_else(|| LabError::Unknown("no barcode on the screen".to_owned()))?;
        let mut watched = WatchedScreen::default();
        let mut was_readable = true;
        let since = Instant::now();
        let mut after_ns = now_ns();
        while since.elapsed() < duration {
            if signal::interrupted() {
                return Err(LabError::Interrupted);
            }
            let begin_ns = now_ns();
            let row = self.pixels(x as i16, y as i16, barcode::WIDTH as u16, 1)?;
            let at_ns = now_ns();
            let number = barcode::read(&row);
            watched.damaged += u64::from(was_readable && number.is_none());
            was_readable = number.is_some();
            let is_same = |number: &u32| watched.seen.last().is_some_and(|last| last.number == *number);
            if let Some(number) = number.filter(|number| !is_same(number)) {
                watched.seen.push(Seen { number, after_ns, at_ns });
            }
            after_ns = begin_ns;
            thread::sleep(PAUSE);
        }
        watched.end_ns = now_ns();
        Ok(watched)
    }

    fn pixels(&self, x: i16, y: i16, width: u16, height: u16) -> Result<Vec<u8>, LabError> {
        let request = self.connection.get_image(ImageFormat::Z_PIXMAP, self.root, x, y, width, height, !0);
        Ok(request.map_err(x_error)?.reply().map_err(x_error)?.data)
    }
}
