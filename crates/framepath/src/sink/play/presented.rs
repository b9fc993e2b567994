// SPDX-License-Identifier: MIT OR Apache-2.0
//! A window's pictures by X's Present extension (presentproto 1.2): painted
//! into memory that the X server shares, and handed over with the number of the
//! refresh at which they are to be seen.
//!
//! SDL has one piece of memory for a window, and waits for the server after each
//! picture. This module has several and does not wait after a picture: the server reports later which
//! pictures it has shown and which memory it has released, in events that are read when this
//! thread is awake anyway. The thread waits for the server only if all memory is in use, before a repeated
//! picture, and at the end.

use framepath_codec::{PaintArea, Painter, PixelOrder};
use framepath_os::display::canvas::Canvas;
use framepath_os::measure::meter;
use framepath_os::memory::pool::Frame;
use framepath_os::time::{now_ns, sleep_until};
use raw_window_handle::{HasWindowHandle, RawWindowHandle};
use sdl2::video;
use x11rb::connection::{Connection, RequestConnection};
use x11rb::errors::ReplyError;
use x11rb::protocol::Event;
use x11rb::protocol::present::{self, ConnectionExt as _};
use x11rb::protocol::shm::ConnectionExt as _;
use x11rb::protocol::xfixes::ConnectionExt as _;
use x11rb::protocol::xproto::{self, ConnectionExt as _, Rectangle};
use x11rb::rust_connection::RustConnection;

use super::ahead;
use super::refresh::{Nearest, Refresh};
use super::{PresentTime, Shown};
use crate::error::StageError;

/// Number of pictures: those that wait for their refresh, one being painted, and one on the screen.
const PICTURES: usize = ahead::FRAMES + 2;

/// Time limit for the server to release or show a picture, nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Interval of checks for the server's events during a wait, nanoseconds.
const NAP_NS: u64 = 2_000_000;

/// Refreshes whose reports are requested, counted from the first reported refresh. The reports determine the
/// screen's clock.
const LESSON: [u64; 3] = [2, 10, 18];

/// Bit in the serial of a picture that is to be shown at a refresh of its own.
const AT_REFRESH: u32 = 1 << 31;

/// Bit in the serial of a picture that was shown before.
const AGAIN: u32 = 1 << 30;

/// A window of an X server, and the pictures painted for the window.
pub(super) struct Presented {
    // Closed before the window is.
    server: Server,
    pub(super) window: video::Window,
    order: PixelOrder,
    painter: Painter,
    pictures: Option<Pictures>,
    /// Index of the painted picture that was not handed over yet; `None` if there is none.
    painted: Option<usize>,
    refresh: Refresh,
    /// Number of pictures that were handed over and that the server has not reported yet.
    pending: u32,
    shown: Shown,
}

/// Connection to the window's X server, besides that of SDL. It receives the events of pictures; SDL's
/// connection receives the keys.
pub(super) struct Server {
    connection: RustConnection,
    window: xproto::Window,
    depth: u8,
    /// Id of the XFixes region for the part of the window that a picture changes.
    region: u32,
}

/// Memory for pictures of a window's size.
struct Pictures {
    canvas: Canvas,
    /// Pixmaps in the canvas, by the picture's index.
    pixmaps: Vec<xproto::Pixmap>,
    segment: u32,
    /// Indices of the pictures into which a frame may be painted: the server does not use them, and they hold no
    /// painted frame that is still to be handed over.
    free: Vec<usize>,
    /// Width and height of the window, pixels.
    size: (u32, u32),
    /// Place of the picture in the window.
    area: PaintArea,
    /// True if the bars beside the picture have to be shown, too.
    bars: bool,
}

impl Presented {
    pub(super) fn new(server: Server, window: video::Window, order: PixelOrder) -> Presented {
        Presented {
            server,
            window,
            order,
            painter: Painter::new(),
            pictures: None,
            painted: None,
            refresh: Refresh::default(),
            pending: 0,
            shown: Shown::default(),
        }
    }

    /// Returns when to hand over a frame that is due at `due_ns`; assigns a refresh to the frame if the
    /// screen's clock is known.
    pub(super) fn present_time(&mut self, due_ns: u64) -> PresentTime {
        match self.refresh.nearest(due_ns) {
            Nearest::Unknown => PresentTime::Due,
            Nearest::At(number) => PresentTime::Ahead(number),
            Nearest::Taken => PresentTime::Never,
        }
    }

    /// Waits for a free picture, at most 1 s, and paints the frame into this picture. `frame` has the size
    /// `picture` on square pixels. If `stale` is true, because the window has lost its content, paints all of the
    /// frame, and the bars.
    ///
    /// # Errors
    /// The server fails, or releases no picture within 1 s; the pictures' memory cannot be made; or the frame
    /// cannot be painted.
    pub(super) fn prepare(
        &mut self,
        frame: &Frame,
        picture: (u32, u32),
        stale: bool,
    ) -> Result<(), StageError> {
        let size = self.window.size();
        let area = super::fit::area(picture, size);
        if self.pictures.as_ref().is_none_or(|pictures| (pictures.size, pictures.area) != (size, area)) {
            if let Some(old) = self.pictures.take() {
                old.free(&self.server).map_err(failed)?;
            }
            self.painter.forget();
            self.pictures = Some(Pictures::new(&self.server, size, area).map_err(StageError::Window)?);
        }
        let slot = self.free_picture()?;
        let pictures = self.pictures.as_mut().expect("made above");
        if stale {
            self.painter.forget();
            pictures.bars = true;
        }
        let stride = size.0 as usize * 4;
        let painted = self.painter.paint(frame, pictures.canvas.picture(slot), stride, area, self.order);
        if let Err(error) = painted {
            pictures.free.push(slot);
            return Err(error.into());
        }
        self.painted = Some(slot);
        Ok(())
    }

    /// Hands the painted picture over; does nothing if there is none. The server shows it at once, or at the
    /// refresh in `time`. [`PresentTime::Again`] first waits, at most 1 s, for the pictures that were handed
    /// over. A picture without changes is not handed over, and counts as shown unless it was shown before.
    pub(super) fn present(&mut self, time: PresentTime) -> Result<(), StageError> {
        if time == PresentTime::Again {
            // Otherwise an earlier picture would be shown after this one.
            self.wait_for(|presented| presented.pending == 0)?;
        }
        let (Some(slot), Some(pictures)) = (self.painted.take(), &mut self.pictures) else { return Ok(()) };
        let changed = self.painter.changed();
        if changed.is_empty() && !pictures.bars {
            pictures.free.push(slot);
            self.shown.seen += u64::from(time != PresentTime::Again);
            return Ok(());
        }
        let all = changed.iter().map(ExactSizeIterator::len).sum::<usize>() == pictures.size.1 as usize;
        let whole = std::mem::take(&mut pictures.bars) || all;
        let width = pictures.size.0 as u16;
        let rows = changed.iter().map(|rows| Rectangle {
            x: 0,
            y: rows.start as i16,
            width,
            height: rows.len() as u16,
        });
        let update = (!whole).then(|| rows.collect::<Vec<_>>());
        self.server.present(pictures.pixmaps[slot], update.as_deref(), time).map_err(failed)?;
        self.pending += 1;
        Ok(())
    }

    /// Returns the numbers of pictures that the server has shown and not shown since the last call.
    pub(super) fn presented(&mut self) -> Result<Shown, StageError> {
        self.handle_events()?;
        Ok(std::mem::take(&mut self.shown))
    }

    /// Waits until the server has shown its pictures. A picture that is not shown within a second counts
    /// as lost.
    pub(super) fn finish(&mut self) -> Result<(), StageError> {
        self.wait_for(|presented| presented.pending == 0)?;
        self.shown.lost += u64::from(std::mem::take(&mut self.pending));
        Ok(())
    }

    fn free_picture(&mut self) -> Result<usize, StageError> {
        let free = |presented: &mut Presented| presented.pictures.as_mut().and_then(|all| all.free.pop());
        if let Some(slot) = free(self) {
            return Ok(slot);
        }
        self.wait_for(|presented| presented.pictures.as_ref().is_some_and(|all| !all.free.is_empty()))?;
        free(self).ok_or_else(|| StageError::Window("the X server released no picture within 1 s".to_owned()))
    }

    fn wait_for(&mut self, done: impl Fn(&Presented) -> bool) -> Result<(), StageError> {
        let until = now_ns() + PATIENCE_NS;
        loop {
            self.handle_events()?;
            let now = now_ns();
            if done(self) || now > until {
                return Ok(());
            }
            meter::blocked(|| sleep_until(now + NAP_NS));
        }
    }

    /// Reads the server's events; does not wait for more.
    fn handle_events(&mut self) -> Result<(), StageError> {
        while let Some(event) = self.server.connection.poll_for_event().map_err(failed)? {
            match event {
                Event::PresentCompleteNotify(event) if event.kind == present::CompleteKind::NOTIFY_MSC => {
                    let at_ns = event.ust * 1000;
                    match event.serial {
                        0 if now_ns().abs_diff(at_ns) < PATIENCE_NS => {
                            self.server.request_refreshes(event.msc).map_err(failed)?;
                        }
                        // Ignored, because the server's clock is not CLOCK_MONOTONIC.
                        0 => {}
                        _ => self.refresh.record_refresh(event.msc, at_ns),
                    }
                }
                Event::PresentCompleteNotify(event) => {
                    self.pending = self.pending.saturating_sub(1);
                    if event.serial & AGAIN != 0 {
                        continue;
                    }
                    if event.mode == present::CompleteMode::SKIP {
                        // The next picture must repeat the changes of the skipped one.
                        self.painter.forget();
                        self.pictures.iter_mut().for_each(|pictures| pictures.bars = true);
                        self.shown.lost += 1;
                        continue;
                    }
                    self.shown.seen += 1;
                    if event.serial & AT_REFRESH != 0 {
                        self.refresh.record_refresh(event.msc, event.ust * 1000);
                    }
                }
                Event::PresentIdleNotify(event) => {
                    // A pixmap of another size is ignored, because it is freed already.
                    if let Some(pictures) = &mut self.pictures {
                        let slot = pictures.pixmaps.iter().position(|pixmap| *pixmap == event.pixmap);
                        pictures.free.extend(slot);
                    }
                }
                Event::Error(error) => return Err(failed(format!("{error:?}"))),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Server {
    /// Connects to the window's X server.
    ///
    /// # Errors
    /// The window is not of an X server, the connection fails, or the server lacks a required extension, shared
    /// memory or 32-bit pixels.
    pub(super) fn of(window: &video::Window) -> Result<Server, String> {
        let id = match window.window_handle().map(|handle| handle.as_raw()) {
            Ok(RawWindowHandle::Xlib(handle)) => handle.window as xproto::Window,
            _ => return Err("not a window of an X server".to_owned()),
        };
        let (connection, _) = x11rb::connect(None).map_err(|error| error.to_string())?;
        let server = Server::connected(connection, id);
        server.map_err(|error| {
            error.unwrap_or_else(|| "the X server lacks the Present extension or shared memory".to_owned())
        })
    }

    /// Checks the server and prepares the connection. The error is `None` if the server lacks a feature.
    fn connected(connection: RustConnection, window: xproto::Window) -> Result<Server, Option<String>> {
        fn lacks(error: impl std::fmt::Display) -> Option<String> {
            Some(error.to_string())
        }
        for extension in [present::X11_EXTENSION_NAME, "MIT-SHM", "XFIXES"] {
            connection.extension_information(extension).map_err(lacks)?.ok_or(None)?;
        }
        let ask = || -> Result<_, ReplyError> {
            let shared = connection.shm_query_version()?.reply()?;
            connection.present_query_version(1, 2)?.reply()?;
            connection.xfixes_query_version(2, 0)?.reply()?;
            Ok((shared, connection.get_geometry(window)?.reply()?.depth))
        };
        let (shared, depth) = ask().map_err(lacks)?;
        let takes_memfds = (shared.major_version, shared.minor_version) >= (1, 2);
        let setup = connection.setup();
        let wide = setup
            .pixmap_formats
            .iter()
            .any(|format| (format.depth, format.bits_per_pixel, format.scanline_pad) == (depth, 32, 32));
        let little = setup.image_byte_order == xproto::ImageOrder::LSB_FIRST;
        if !shared.shared_pixmaps || !takes_memfds || !wide || little != cfg!(target_endian = "little") {
            return Err(None);
        }
        let begin = || -> Result<u32, x11rb::errors::ReplyOrIdError> {
            let (events, region) = (connection.generate_id()?, connection.generate_id()?);
            let mask = present::EventMask::COMPLETE_NOTIFY | present::EventMask::IDLE_NOTIFY;
            connection.present_select_input(events, window, mask)?.check()?;
            connection.xfixes_create_region(region, &[])?.check()?;
            connection.present_notify_msc(window, 0, 0, 0, 0)?;
            connection.flush()?;
            Ok(region)
        };
        let region = begin().map_err(lacks)?;
        Ok(Server { connection, window, depth, region })
    }

    /// Requests reports of the refreshes [`LESSON`], counted from refresh `now`.
    fn request_refreshes(&self, now: u64) -> Result<(), ReplyError> {
        for later in LESSON {
            self.connection.present_notify_msc(self.window, 1, now + later, 0, 0)?;
        }
        Ok(self.connection.flush()?)
    }

    fn present(
        &self,
        pixmap: xproto::Pixmap,
        update: Option<&[Rectangle]>,
        time: PresentTime,
    ) -> Result<(), ReplyError> {
        let region = match update {
            Some(rows) => {
                self.connection.xfixes_set_region(self.region, rows)?;
                self.region
            }
            None => x11rb::NONE,
        };
        let (serial, options, refresh) = match time {
            PresentTime::Ahead(refresh) => (AT_REFRESH, present::Option::NONE, refresh),
            PresentTime::Again => (AGAIN, present::Option::ASYNC, 0),
            // At once, because the frame is due and the next refresh may have another frame already.
            PresentTime::Due | PresentTime::Never => (0, present::Option::ASYNC, 0),
        };
        let (window, none) = (self.window, x11rb::NONE);
        // Only the changed region is valid, because the rest of the pixmap has an older picture.
        let sent = self.connection.present_pixmap(
            window,
            pixmap,
            serial,
            region,
            region,
            0,
            0,
            none,
            none,
            none,
            options.into(),
            refresh,
            0,
            0,
            &[],
        );
        sent?;
        Ok(self.connection.flush()?)
    }
}

impl Pictures {
    fn new(server: &Server, size: (u32, u32), area: PaintArea) -> Result<Pictures, String> {
        let each = size.0 as usize * size.1 as usize * 4;
        let canvas = Canvas::new(each, PICTURES).map_err(|error| error.to_string())?;
        let memory = canvas.memory().try_clone_to_owned().map_err(|error| error.to_string())?;
        let (connection, window) = (&server.connection, server.window);
        let share = || -> Result<_, x11rb::errors::ReplyOrIdError> {
            let segment = connection.generate_id()?;
            connection.shm_attach_fd(segment, memory, false)?.check()?;
            let mut pixmaps = Vec::new();
            for picture in 0..PICTURES {
                let (pixmap, offset) = (connection.generate_id()?, canvas.offset(picture) as u32);
                let (width, height) = (size.0 as u16, size.1 as u16);
                connection
                    .shm_create_pixmap(pixmap, window, width, height, server.depth, segment, offset)?
                    .check()?;
                pixmaps.push(pixmap);
            }
            Ok((segment, pixmaps))
        };
        let (segment, pixmaps) = share().map_err(|error| error.to_string())?;
        let free = (0..PICTURES).collect();
        Ok(Pictures { canvas, pixmaps, segment, free, size, area, bars: true })
    }

    /// Frees the pixmaps and the shared memory. The server keeps each pixmap until it has shown the pixmap.
    fn free(self, server: &Server) -> Result<(), ReplyError> {
        for pixmap in self.pixmaps {
            server.connection.free_pixmap(pixmap)?;
        }
        server.connection.shm_detach(self.segment)?;
        Ok(server.connection.flush()?)
    }
}

fn failed(error: impl std::fmt::Display) -> StageError {
    StageError::Window(format!("the X server: {error}"))
}
