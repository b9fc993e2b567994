// SPDX-License-Identifier: MIT OR Apache-2.0
//! The test's own X client, which draws and reads the screen over a connection of its own.

use framepath_testkit::display::Xvfb;
use x11rb::connection::Connection;
use x11rb::protocol::randr::{ConnectionExt as _, Rotation};
use x11rb::protocol::xproto::{
    AtomEnum, ChangeGCAux, ChangeWindowAttributesAux, ConfigureWindowAux, ConnectionExt as _, CreateGCAux,
    CreateWindowAux, Gcontext, ImageFormat, PropMode, Rectangle, Window, WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

/// Red, green and blue of a pixel, as X has them in a number.
pub const RED: u32 = 0x00ff_0000;
pub const GREEN: u32 = 0x0000_ff00;
pub const BLUE: u32 = 0x0000_00ff;

/// Client of an X server with a screen of depth 24.
pub struct DrawingClient {
    pub connection: RustConnection,
    pub root: Window,
    gc: Gcontext,
}

impl DrawingClient {
    pub fn connect(server: &Xvfb) -> DrawingClient {
        let (connection, screen) = x11rb::connect(Some(&server.name())).unwrap();
        let root = connection.setup().roots[screen].root;
        let gc = connection.generate_id().unwrap();
        connection.create_gc(gc, root, &CreateGCAux::new()).unwrap();
        DrawingClient { connection, root, gc }
    }

    /// Waits until the server has performed all requests.
    pub fn sync(&self) {
        self.connection.sync().unwrap();
    }

    /// Fills the rectangle of `window` with the colour.
    pub fn fill(&self, window: Window, (x, y, width, height): (i16, i16, u16, u16), colour: u32) {
        self.connection.change_gc(self.gc, &ChangeGCAux::new().foreground(colour)).unwrap();
        self.connection.poly_fill_rectangle(window, self.gc, &[Rectangle { x, y, width, height }]).unwrap();
        self.sync();
    }

    /// Draws a picture into the root window at (0, 0) in which each pixel has another colour.
    pub fn paint(&self, width: u16, height: u16) {
        let pixels = (0..u32::from(width) * u32::from(height)).map(|n| n.wrapping_mul(0x9e37_79b1) >> 8);
        let bytes: Vec<u8> = pixels.flat_map(u32::to_le_bytes).collect();
        let format = ImageFormat::Z_PIXMAP;
        self.connection
            .put_image(format, self.root, self.gc, width, height, 0, 0, 0, 24, &bytes)
            .unwrap()
            .check()
            .unwrap();
    }

    /// Returns blue, green and red of the pixels of a part of `window`.
    pub fn pixels(&self, window: Window, (x, y, width, height): (i16, i16, u16, u16)) -> Vec<[u8; 3]> {
        let format = ImageFormat::Z_PIXMAP;
        let image = self.connection.get_image(format, window, x, y, width, height, u32::MAX);
        of_bytes(&image.unwrap().reply().unwrap().data)
    }

    /// Shows a window of the colour, above all others.
    pub fn window(&self, name: &str, (x, y, width, height): (i16, i16, u16, u16), colour: u32) -> Window {
        let window = self.connection.generate_id().unwrap();
        let look = CreateWindowAux::new().background_pixel(colour).override_redirect(1);
        let (class, copied) = (WindowClass::INPUT_OUTPUT, x11rb::COPY_FROM_PARENT);
        self.connection
            .create_window(24, window, self.root, x, y, width, height, 0, class, copied, &look)
            .unwrap();
        let (mode, title, text) = (PropMode::REPLACE, AtomEnum::WM_NAME, AtomEnum::STRING);
        self.connection.change_property8(mode, window, title, text, name.as_bytes()).unwrap();
        self.connection.map_window(window).unwrap();
        self.sync();
        window
    }

    pub fn resize_window(&self, window: Window, width: u32, height: u32) {
        let size = ConfigureWindowAux::new().width(width).height(height);
        self.connection.configure_window(window, &size).unwrap();
        self.sync();
    }

    pub fn move_window(&self, window: Window, x: i32, y: i32) {
        self.connection.configure_window(window, &ConfigureWindowAux::new().x(x).y(y)).unwrap();
        self.sync();
    }

    pub fn hide(&self, window: Window) {
        self.connection.unmap_window(window).unwrap();
        self.sync();
    }

    pub fn show(&self, window: Window) {
        self.connection.map_window(window).unwrap();
        self.sync();
    }

    pub fn close(&self, window: Window) {
        self.connection.destroy_window(window).unwrap();
        self.sync();
    }

    /// Changes the size of the screen, to at most that with which the server was started.
    pub fn resize_screen(&self, width: u16, height: u16) {
        self.connection.randr_query_version(1, 5).unwrap().reply().unwrap();
        let all = self.connection.randr_get_screen_resources(self.root).unwrap().reply().unwrap();
        // A screen cannot be smaller than the picture of its output.
        let off = self.connection.randr_set_crtc_config(
            all.crtcs[0],
            0,
            all.config_timestamp,
            0,
            0,
            0,
            Rotation::ROTATE0,
            &[],
        );
        off.unwrap().reply().unwrap();
        let (wide, high) = (u32::from(width), u32::from(height));
        self.connection.randr_set_screen_size(self.root, width, height, wide, high).unwrap().check().unwrap();
        self.sync();
    }

    /// Gives the root window a pointer of 8x8 pixels of the colour, whose hot spot is its upper left pixel.
    pub fn set_pointer(&self, colour: u32) {
        let (pixmap, gc) = (self.connection.generate_id().unwrap(), self.connection.generate_id().unwrap());
        let cursor = self.connection.generate_id().unwrap();
        self.connection.create_pixmap(1, pixmap, self.root, 8, 8).unwrap();
        self.connection.create_gc(gc, pixmap, &CreateGCAux::new().foreground(1)).unwrap();
        let whole = Rectangle { x: 0, y: 0, width: 8, height: 8 };
        self.connection.poly_fill_rectangle(pixmap, gc, &[whole]).unwrap();
        let [blue, green, red, _] = colour.to_le_bytes().map(|value| u16::from(value) * 257);
        self.connection
            .create_cursor(cursor, pixmap, pixmap, red, green, blue, red, green, blue, 0, 0)
            .unwrap();
        let look = ChangeWindowAttributesAux::new().cursor(cursor);
        self.connection.change_window_attributes(self.root, &look).unwrap().check().unwrap();
    }
}

/// Returns blue, green and red of pixels of four bytes.
pub fn of_bytes(bytes: &[u8]) -> Vec<[u8; 3]> {
    bytes.chunks_exact(4).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
}

/// Returns blue, green and red of a colour.
pub fn bgr(colour: u32) -> [u8; 3] {
    let [blue, green, red, _] = colour.to_le_bytes();
    [blue, green, red]
}
