// SPDX-License-Identifier: MIT OR Apache-2.0
//! The captured screen or window: its size, its pixels' format, and its damage.

use std::ops::Range;

use framepath_model::format::{Layout, PixelFormat};
use x11rb::connection::Connection;
use x11rb::protocol::composite::{ConnectionExt as _, Redirect};
use x11rb::protocol::damage::{ConnectionExt as _, ReportLevel};
use x11rb::protocol::xfixes::ConnectionExt as _;
use x11rb::protocol::xproto::{
    ChangeWindowAttributesAux, ConfigureNotifyEvent, ConnectionExt as _, EventMask, ImageOrder, Visualid,
    Window,
};

use super::server::{XFailure, XServer};
use super::windows::NamedWindow;
use crate::error::StageError;
use crate::source::screen_area::ScreenArea;

/// Screen or window that is captured.
pub(super) struct Target {
    /// The window, or the screen's root window.
    pub(super) window: Window,
    pub(super) root: Window,
    /// Part to capture; `None` for all.
    pub(super) region: Option<ScreenArea>,
    /// Id of the server's record of changes, level NonEmpty.
    pub(super) damage: u32,
    /// Id of the server's region that receives the changed rectangles.
    pub(super) changed: u32,
    /// Drawable with the pixels: the root window, or the pixmap of a redirected window. `None` while the window is
    /// unmapped.
    pub(super) drawable: Option<u32>,
    /// Number of bits of a pixel.
    pub(super) depth: u8,
    /// Width of the border that the drawable has around the pixels.
    border: u32,
    /// Width and height without the border, pixels.
    size: (u32, u32),
}

impl Target {
    /// Prepares the capture of `window`, or of the screen if it is `None`.
    ///
    /// # Errors
    /// The server lacks an extension, the pixels have an unknown format, the region is outside, or the window is not
    /// visible or has ended.
    pub(super) fn open(
        server: &XServer,
        window: Option<&NamedWindow>,
        region: Option<ScreenArea>,
    ) -> Result<Target, StageError> {
        let root = server.screen()?.root;
        let window = window.map_or(root, |window| window.id);
        if window != root {
            server.must_have(&["Composite"])?;
        }
        let prepare = server.ask(|connection| {
            connection.damage_query_version(1, 1)?.reply()?;
            connection.xfixes_query_version(5, 0)?.reply()?;
            let events = ChangeWindowAttributesAux::new()
                .event_mask(EventMask::STRUCTURE_NOTIFY | EventMask::VISIBILITY_CHANGE);
            connection.change_window_attributes(window, &events)?.check()?;
            if window != root {
                connection.composite_query_version(0, 4)?.reply()?;
                connection.composite_redirect_window(window, Redirect::AUTOMATIC)?.check()?;
            }
            let damage = connection.generate_id()?;
            connection.damage_create(damage, window, ReportLevel::NON_EMPTY)?.check()?;
            let changed = connection.generate_id()?;
            connection.xfixes_create_region(changed, &[])?.check()?;
            let geometry = connection.get_geometry(window)?.reply()?;
            let attributes = connection.get_window_attributes(window)?.reply()?;
            Ok((damage, changed, geometry.depth, attributes.visual))
        });
        let (damage, changed, depth, visual) = prepare.map_err(XFailure::into_error)?;
        must_be_bgr(server, depth, visual)?;
        let mut target =
            Target { window, root, region, damage, changed, drawable: None, depth, border: 0, size: (0, 0) };
        target.measure(server).map_err(XFailure::into_error)?;
        if target.drawable.is_none() {
            return Err(server.error(format!("window {window:#x} is not visible; show it first")));
        }
        Ok(target)
    }

    pub(super) fn is_screen(&self) -> bool {
        self.window == self.root
    }

    /// Reads the size, and names the pixmap of a window again, which the server replaces at each change of its size
    /// and when it is shown. Without an error, a window that is not visible then has no drawable.
    pub(super) fn measure(&mut self, server: &XServer) -> Result<(), XFailure> {
        if self.is_screen() {
            let geometry = server.ask(|connection| Ok(connection.get_geometry(self.root)?.reply()?))?;
            self.drawable = Some(self.root);
            return self.resize(server, (geometry.width.into(), geometry.height.into()), 0);
        }
        if let Some(old) = self.drawable.take() {
            server.ask(|connection| Ok(connection.free_pixmap(old)?.check()?))?;
        }
        let named = server.ask(|connection| {
            let pixmap = connection.generate_id()?;
            connection.composite_name_window_pixmap(self.window, pixmap)?.check()?;
            let border = connection.get_geometry(self.window)?.reply()?.border_width;
            let geometry = connection.get_geometry(pixmap)?.reply()?;
            Ok((pixmap, geometry, border))
        });
        let (pixmap, geometry, border) = match named {
            // The window is unmapped, or a parent is.
            Err(XFailure::Refused(x11rb::protocol::ErrorKind::Match, _)) => return Ok(()),
            named => named?,
        };
        self.drawable = Some(pixmap);
        let border = u32::from(border);
        let inner = |length: u16| u32::from(length).saturating_sub(2 * border);
        self.resize(server, (inner(geometry.width), inner(geometry.height)), border)
    }

    fn resize(&mut self, server: &XServer, size: (u32, u32), border: u32) -> Result<(), XFailure> {
        (self.size, self.border) = (size, border);
        match self.region {
            Some(region) if !region.is_inside(size) => Err(XFailure::Lost(server.error(format!(
                "{region} is outside of the {}, which has {}x{} pixels",
                if self.is_screen() { "screen" } else { "window" },
                size.0,
                size.1
            )))),
            _ if size.0 == 0 || size.1 == 0 => Err(XFailure::Lost(server.error("the picture has no pixels"))),
            _ => Ok(()),
        }
    }

    /// Returns true if the event has the known size.
    pub(super) fn has_size(&self, event: &ConfigureNotifyEvent) -> bool {
        let size = (u32::from(event.width), u32::from(event.height));
        self.size == size && (self.is_screen() || self.border == u32::from(event.border_width))
    }

    /// Returns the captured part.
    pub(super) fn area(&self) -> ScreenArea {
        self.region.unwrap_or(ScreenArea { x: 0, y: 0, width: self.size.0, height: self.size.1 })
    }

    /// Returns the rows `band` of the captured part in the coordinates of the drawable: place, width and height. `None`
    /// if the numbers are too large for a request.
    pub(super) fn rectangle(&self, band: &Range<u32>) -> Option<(i16, i16, u16, u16)> {
        let area = self.area();
        let place = |at: u32| i16::try_from(at + self.border).ok();
        let height = band.end - band.start;
        Some((
            place(area.x)?,
            place(area.y + band.start)?,
            area.width.try_into().ok()?,
            height.try_into().ok()?,
        ))
    }

    /// Returns the layout of a captured picture, as the server writes it: rows without padding.
    pub(super) fn layout(&self) -> Result<Layout, StageError> {
        let area = self.area();
        Ok(Layout::packed(PixelFormat::Bgr0, area.width, area.height)?)
    }
}

/// Succeeds if the server writes pixels of this depth and visual as four bytes: blue, green, red and an unused byte.
fn must_be_bgr(server: &XServer, depth: u8, visual: Visualid) -> Result<(), StageError> {
    let setup = server.setup();
    let is_wide = setup
        .pixmap_formats
        .iter()
        .any(|format| (format.depth, format.bits_per_pixel, format.scanline_pad) == (depth, 32, 32));
    let visuals = setup.roots.iter().flat_map(|root| &root.allowed_depths).flat_map(|depth| &depth.visuals);
    let is_bgr = visuals.filter(|known| known.visual_id == visual).any(|known| {
        (known.red_mask, known.green_mask, known.blue_mask) == (0x00ff_0000, 0x0000_ff00, 0x0000_00ff)
    });
    let is_little = setup.image_byte_order == ImageOrder::LSB_FIRST;
    if is_wide && is_bgr && is_little {
        return Ok(());
    }
    let order = if is_little { "little-endian" } else { "big-endian" };
    Err(server.error(format!(
        "pixels of depth {depth} with visual {visual:#x}, {order}, are not supported; supported: depths 24 and 32 with \
         8 bits of red, green and blue in 32 bits, little-endian"
    )))
}
