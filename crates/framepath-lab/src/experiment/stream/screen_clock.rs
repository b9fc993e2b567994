// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clock on a screen: a window with a desktop's content, whose barcode shows the number of each picture.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use framepath_os::time::now_ns;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    ConnectionExt, CreateGCAux, CreateWindowAux, Gcontext, ImageFormat, Window, WindowClass,
};
use x11rb::rust_connection::RustConnection;

use super::barcode::{self, PIXEL};
use super::desktop::{AREA, DesktopPictures, SIZE};
use super::screen_error::x_error;
use crate::error::LabError;

/// Depth of the window's pixels, bits.
const DEPTH: u8 = 24;
/// Rows of an upload: less than the 256 KiB that every X server accepts in one request.
const ROWS: usize = 16;

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
        let (connection, screen) = x11rb::connect(Some(display)).map_err(x_error)?;
        let drawing = Drawing::new(connection, screen)?;
        let stop = Arc::new(AtomicBool::new(false));
        let held = Arc::new(AtomicBool::new(false));
        let of_thread = [stop.clone(), held.clone()];
        let thread =
            thread::spawn(move || drawing.run(rate, scroll, of_thread.each_ref().map(AsRef::as_ref)));
        Ok(ScreenClock { stop, held, thread: Some(thread) })
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

/// The window's connection and resources.
struct Drawing {
    connection: RustConnection,
    window: Window,
    /// Content of the scrolling area, twice below each other.
    content: u32,
    /// Barcode of the next picture, which is drawn there first: the window then changes at once, as that of a program which
    /// draws its picture completely and then shows it.
    bars: u32,
    gc: Gcontext,
}

impl Drawing {
    fn new(connection: RustConnection, screen: usize) -> Result<Drawing, LabError> {
        let root = &connection.setup().roots[screen];
        if root.root_depth != DEPTH {
            return Err(LabError::Unknown(format!(
                "the X screen has {} bits a pixel, not {DEPTH}",
                root.root_depth
            )));
        }
        let root = root.root;
        let new_id = || connection.generate_id().map_err(x_error);
        let (window, content, bars, gc) = (new_id()?, new_id()?, new_id()?, new_id()?);
        let (width, height) = SIZE;
        // Without a window manager's frame.
        let options = CreateWindowAux::new().override_redirect(1).background_pixel(0);
        connection
            .create_window(
                DEPTH,
                window,
                root,
                0,
                0,
                width,
                height,
                0,
                WindowClass::INPUT_OUTPUT,
                0,
                &options,
            )
            .map_err(x_error)?;
        connection.create_gc(gc, window, &CreateGCAux::new().graphics_exposures(0)).map_err(x_error)?;
        let (_, _, area_width, area_height) = AREA;
        connection.create_pixmap(DEPTH, content, window, area_width, area_height * 2).map_err(x_error)?;
        let (bars_width, bars_height) = (barcode::WIDTH as u16, barcode::HEIGHT as u16);
        connection.create_pixmap(DEPTH, bars, window, bars_width, bars_height).map_err(x_error)?;
        connection.map_window(window).map_err(x_error)?;
        let drawing = Drawing { connection, window, content, bars, gc };
        let pictures = DesktopPictures::new();
        drawing.upload(window, &pictures.base_bgr0(), width, 0)?;
        let scrolling = pictures.scrolling_bgr0();
        drawing.upload(content, &scrolling, area_width, 0)?;
        drawing.upload(content, &scrolling, area_width, area_height as i16)?;
        // A reply says that all requests before it are done.
        drawing.connection.get_input_focus().map_err(x_error)?.reply().map_err(x_error)?;
        Ok(drawing)
    }

    fn upload(&self, to: u32, pixels: &[u8], width: u16, y: i16) -> Result<(), LabError> {
        let stride = usize::from(width) * PIXEL;
        for (index, rows) in pixels.chunks(stride * ROWS).enumerate() {
            let y = y + (index * ROWS) as i16;
            self.put(to, rows, width, (rows.len() / stride) as u16, 0, y)?;
        }
        Ok(())
    }

    fn put(&self, to: u32, pixels: &[u8], width: u16, height: u16, x: i16, y: i16) -> Result<(), LabError> {
        self.connection
            .put_image(ImageFormat::Z_PIXMAP, to, self.gc, width, height, x, y, 0, DEPTH, pixels)
            .map_err(x_error)?;
        Ok(())
    }

    fn run(self, rate: u32, scroll: u32, [stop, held]: [&AtomicBool; 2]) -> Result<Vec<u64>, LabError> {
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
            let number = drawn.len() as u32;
            let (x, y, width, height) = AREA;
            let from = (u64::from(number) * u64::from(scroll) % u64::from(height)) as i16;
            let (bars_width, bars_height) = (barcode::WIDTH as u16, barcode::HEIGHT as u16);
            self.put(self.bars, &barcode::draw(number), bars_width, bars_height, 0, 0)?;
            self.connection.flush().map_err(x_error)?;
            drawn.push(now_ns());
            let copy = |from, (source_y, width, height), x, y| {
                self.connection.copy_area(from, self.window, self.gc, 0, source_y, x, y, width, height)
            };
            copy(self.content, (from, width, height), x, y).map_err(x_error)?;
            copy(self.bars, (0, bars_width, bars_height), 0, 0).map_err(x_error)?;
            self.connection.flush().map_err(x_error)?;
        }
        Ok(drawn)
    }
}
