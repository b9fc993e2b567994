// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window of a clock on an X server.

use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    ConnectionExt, CreateGCAux, CreateWindowAux, Gcontext, ImageFormat, Window, WindowClass,
};
use x11rb::rust_connection::RustConnection;

use super::barcode::{self, PIXEL};
use super::desktop::{AREA, DesktopPictures, SIZE};
use super::screen_clock::ClockWindow;
use super::screen_error::x_error;
use crate::error::LabError;

/// Depth of the window's pixels, bits.
const DEPTH: u8 = 24;
/// Rows of an upload: less than the 256 KiB that every X server accepts in one request.
const ROWS: usize = 16;
/// Size of the barcode, pixels.
const BARS: (u16, u16) = (barcode::WIDTH as u16, barcode::HEIGHT as u16);

/// The window of a clock on an X server.
pub(super) struct XClock {
    connection: RustConnection,
    window: Window,
    /// Content of the scrolling area, twice below each other.
    content: u32,
    /// Barcode of the next picture, which is drawn there first: the window then changes at once, as that of a program which
    /// draws its picture completely and then shows it.
    bars: u32,
    gc: Gcontext,
    /// Rows by which the content scrolls for each picture, and the first row of the prepared one.
    scroll: u32,
    from: i16,
}

impl XClock {
    /// Opens the window on the X display `display`, at its upper left corner.
    ///
    /// # Errors
    /// [`LabError::Unknown`]: the display cannot be used.
    pub(super) fn open(display: &str, scroll: u32) -> Result<XClock, LabError> {
        let (connection, screen) = x11rb::connect(Some(display)).map_err(x_error)?;
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
        connection.create_pixmap(DEPTH, bars, window, BARS.0, BARS.1).map_err(x_error)?;
        connection.map_window(window).map_err(x_error)?;
        let drawing = XClock { connection, window, content, bars, gc, scroll, from: 0 };
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
}

impl ClockWindow for XClock {
    fn prepare(&mut self, number: u32) -> Result<(), LabError> {
        let height = u64::from(AREA.3);
        self.from = (u64::from(number) * u64::from(self.scroll) % height) as i16;
        self.put(self.bars, &barcode::draw(number), BARS.0, BARS.1, 0, 0)?;
        self.connection.flush().map_err(x_error)
    }

    fn show(&mut self) -> Result<(), LabError> {
        let (x, y, width, height) = AREA;
        let copy = |from, (source_y, width, height), x, y| {
            self.connection.copy_area(from, self.window, self.gc, 0, source_y, x, y, width, height)
        };
        copy(self.content, (self.from, width, height), x, y).map_err(x_error)?;
        copy(self.bars, (0, BARS.0, BARS.1), 0, 0).map_err(x_error)?;
        self.connection.flush().map_err(x_error)
    }
}
