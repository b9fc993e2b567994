// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of a screen or window: waits for damage, keeps the rate, and captures.

use std::ops::Range;

use framepath_model::changed_rows::ChangedRows;
use framepath_model::format::Layout;
use framepath_model::stream::StreamInfo;
use framepath_os::process::{signal, stop};
use framepath_os::time::now_ns;
use x11rb::NONE;
use x11rb::protocol::damage::ConnectionExt as _;
use x11rb::protocol::xfixes::{ConnectionExt as _, CursorNotifyMask};
use x11rb::protocol::xinput::{self, ConnectionExt as _};
use x11rb::protocol::xproto::{ConnectionExt as _, Rectangle};
use x11rb::protocol::{ErrorKind, Event};

use super::X11Options;
use super::images::{self, Images};
use super::pointer::{PointerImage, PointerPlace};
use super::server::{XFailure, XServer};
use super::stale_rows::StaleRows;
use super::target::Target;
use super::windows;
use crate::device::SLICE;
use crate::error::StageError;
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::request::{Answered, Request};
use crate::source::screen_numbers::ScreenNumbers;
use crate::source::screen_options::answer;
use crate::source::screen_ticks::ScreenTicks;
use crate::source::{PaceWait, Source};

/// XInput's number for the events of all pointers together.
const ALL_MASTER_DEVICES: xinput::DeviceId = 1;

/// The `x11` source. A frame's birth is the time when this process learned of the first change that the frame shows. The
/// server reports a change at once, but the report waits while the thread is in later hops.
pub(super) struct X11 {
    server: XServer,
    target: Target,
    /// Description of the target for the user.
    title: String,
    images: Images,
    stale: StaleRows,
    /// Rows that have changed since the last frame.
    unsent: ChangedRows,
    layout: Layout,
    /// Number of slots of a pool.
    slots: u32,
    /// True if the server maps the pools.
    shares: bool,
    shows_pointer: bool,
    /// Place of the pointer in the last frame, and the rows that it covers; `None` if it was outside, and before the
    /// first frame.
    drawn: Option<(PointerPlace, Range<u32>)>,
    changes: Changes,
    ticks: ScreenTicks,
    info: StreamInfo,
    /// Number of frames still to emit; `u64::MAX` at the start if there is no limit.
    left: u64,
    numbers: ScreenNumbers,
    notes: Notes,
}

/// Changes that the server has reported since the last frame.
struct Changes {
    /// Time when the server's first report of changed pixels was read, CLOCK_MONOTONIC nanoseconds; the server knows which
    /// pixels. `None` if there is no report.
    pixels: Option<u64>,
    /// True if all pixels count as changed: before the first frame, and after the target was measured.
    whole: bool,
    /// True if the pointer has moved or has another shape.
    pointer: bool,
    /// True if the size may be another, or a window was shown or hidden.
    size: bool,
    /// True if the window was closed.
    closed: bool,
}

/// Reason why a capture has made no frame.
enum NoImage {
    /// The capture is to be repeated, or there is nothing new to show.
    Nothing,
    /// A signal or a stop request ends the run.
    Ended,
    /// A request waits for the thread.
    Request,
    /// The server has refused a request, maybe because the target has changed.
    Refused(StageError),
    Failed(StageError),
}

impl From<XFailure> for NoImage {
    fn from(failure: XFailure) -> NoImage {
        match failure {
            XFailure::Interrupted => NoImage::Ended,
            XFailure::Refused(_, error) => NoImage::Refused(error),
            other => NoImage::Failed(other.into_error()),
        }
    }
}

impl From<StageError> for NoImage {
    fn from(error: StageError) -> NoImage {
        NoImage::Failed(error)
    }
}

impl X11 {
    /// Connects to the server and prepares the capture. `notes` receives the lines for the user.
    pub(super) fn open(options: &X11Options, notes: Notes) -> Result<X11, StageError> {
        let region = options.screen.region.as_deref().map(str::parse).transpose()?;
        let server = XServer::connect(options.display.as_deref())?;
        server.must_have(&["DAMAGE", "XFIXES"])?;
        let root = server.screen()?.root;
        let window = options.window.as_deref().map(|text| windows::find(&server, root, text)).transpose()?;
        let target = Target::open(&server, window.as_ref(), region)?;
        if options.screen.cursor {
            watch_pointer(&server, root)?;
        }
        let layout = target.layout()?;
        let shares = images::shares_memory(&server)?;
        let images = Images::new(&server, &layout, options.screen.pool, shares)?;
        if !shares {
            notes.add(
                "x11: the X server does not share memory (MIT-SHM 1.2): each frame is copied".to_owned(),
            );
        }
        let info = options.screen.stream_info(&layout);
        Ok(X11 {
            server,
            target,
            title: window.map_or("the screen".to_owned(), |window| format!("window {window}")),
            images,
            stale: StaleRows::new(options.screen.pool, layout.height),
            unsent: ChangedRows::default(),
            layout,
            slots: options.screen.pool,
            shares,
            shows_pointer: options.screen.cursor,
            drawn: None,
            changes: Changes { pixels: None, whole: true, pointer: false, size: false, closed: false },
            ticks: ScreenTicks::new(options.screen.rate),
            info,
            left: options.screen.most_frames(),
            numbers: ScreenNumbers::default(),
            notes,
        })
    }

    /// Waits until there is a change to show and the rate allows a frame, until the run or the stream ends, or until
    /// a request arrives for the thread.
    fn wait(&mut self, has_request: impl Fn() -> bool) -> Result<PaceWait, XFailure> {
        loop {
            if signal::interrupted() {
                return Ok(PaceWait::Ended);
            }
            if has_request() {
                return Ok(PaceWait::Request);
            }
            self.handle_events()?;
            if self.changes.closed {
                self.notes.add(format!("x11: {} was closed, so the stream has ended", self.title));
                return Ok(PaceWait::Ended);
            }
            if self.changes.size {
                self.measure()?;
            }
            let Changes { pixels, whole, pointer, .. } = self.changes;
            let is_new = pixels.is_some() || whole || pointer && self.shows_pointer;
            if !is_new || self.target.drawable.is_none() {
                // Programs can move the pointer without an event, so an idle source looks for it.
                self.changes.pointer |= !self.server.wait(SLICE, &has_request)?;
            } else if now_ns() >= self.ticks.earliest_ns() {
                return Ok(PaceWait::Now);
            } else {
                stop::sleep_unless(self.ticks.earliest_ns(), &has_request);
            }
        }
    }

    fn handle_events(&mut self) -> Result<(), XFailure> {
        let (changes, target) = (&mut self.changes, &self.target);
        let window = target.window;
        let mut failure = None;
        self.server.events(|event| match event {
            Event::DamageNotify(_) => drop(changes.pixels.get_or_insert_with(now_ns)),
            Event::XinputRawMotion(_) | Event::XfixesCursorNotify(_) => changes.pointer = true,
            Event::ConfigureNotify(event) if event.window == window => {
                changes.size |= !target.has_size(&event);
                // A window that moves under the pointer.
                changes.pointer = true;
            }
            Event::MapNotify(event) if event.window == window => changes.size = true,
            // A window whose parent was hidden and is shown again has another pixmap.
            Event::VisibilityNotify(event) if event.window == window => changes.size |= !target.is_screen(),
            Event::UnmapNotify(event) if event.window == window => changes.size = true,
            Event::DestroyNotify(event) if event.window == window => changes.closed = true,
            // A request that was sent while the window ended.
            Event::Error(error)
                if matches!(error.error_kind, ErrorKind::DamageBadDamage | ErrorKind::Window) => {}
            Event::Error(error) => failure = Some(format!("it refuses a request: {:?}", error.error_kind)),
            _ => {}
        })?;
        match failure {
            Some(what) => Err(XFailure::Lost(self.server.error(what))),
            None => Ok(()),
        }
    }

    /// Measures the target again after a change of its size, and makes a new pool if a slot is too small.
    fn measure(&mut self) -> Result<(), XFailure> {
        self.changes.size = false;
        match self.target.measure(&self.server) {
            Err(XFailure::Refused(..)) if self.has_closed()? => return Ok(()),
            measured => measured?,
        }
        self.changes.whole = true;
        self.layout = self.target.layout().map_err(XFailure::Lost)?;
        self.stale = StaleRows::new(self.slots, self.layout.height);
        self.unsent = ChangedRows::default();
        if self.layout.size > self.images.pool.slot_bytes() {
            let images = Images::new(&self.server, &self.layout, self.slots, self.shares);
            let old = std::mem::replace(&mut self.images, images.map_err(XFailure::Lost)?);
            old.detach(&self.server)?;
        }
        Ok(())
    }

    /// Returns true if the window was closed.
    fn has_closed(&mut self) -> Result<bool, XFailure> {
        self.handle_events()?;
        Ok(self.changes.closed)
    }

    /// Returns true if the target was closed, hidden or resized after it was last measured, so that a refused
    /// request is to be repeated or forgotten.
    fn was_outdated(&mut self) -> Result<bool, XFailure> {
        let before = (self.target.drawable.is_some(), self.target.area());
        if !self.has_closed()? {
            self.measure()?;
        }
        Ok(self.changes.closed || before != (self.target.drawable.is_some(), self.target.area()))
    }

    /// Captures a frame if there is something new inside the captured part.
    fn capture(&mut self, out: &mut Out<'_>) -> Result<Item, NoImage> {
        // Before the capture, so that a frame which has waited for a slot shows the newest pixels.
        let mut slot = loop {
            if signal::interrupted() {
                return Err(NoImage::Ended);
            }
            if out.has_request() {
                return Err(NoImage::Request);
            }
            if let Some(slot) = self.images.pool.acquire(SLICE) {
                break slot;
            }
        };
        let now = now_ns();
        self.ticks.take(now);
        let whole = std::mem::take(&mut self.changes.whole);
        self.changes.pointer = false;
        let learned_ns = self.changes.pixels.take().unwrap_or(now);
        // The time since then is the wait for the rate or for a slot.
        let birth_ns = out.recorder().captured(learned_ns, now);
        let (target, wants_pointer) = (&self.target, self.shows_pointer);
        let (rectangles, pointer, origin) = self.server.ask(|connection| {
            // First, so that a later change is reported again.
            connection.damage_subtract(target.damage, NONE, target.changed)?;
            let rectangles = connection.xfixes_fetch_region(target.changed)?;
            let pointer = if wants_pointer { Some(connection.xfixes_get_cursor_image()?) } else { None };
            let origin = match wants_pointer && !target.is_screen() {
                true => Some(connection.translate_coordinates(target.window, target.root, 0, 0)?),
                false => None,
            };
            Ok((
                rectangles.reply()?.rectangles,
                pointer.map(|cookie| cookie.reply()).transpose()?,
                origin.map(|cookie| cookie.reply()).transpose()?,
            ))
        })?;
        let area = target.area();
        let size = (area.width, area.height);
        let mut changed = if whole { ChangedRows::all(area.height) } else { ChangedRows::default() };
        for Rectangle { x, y, width, height } in rectangles {
            changed.add(area.rows_of([x.into(), y.into(), width.into(), height.into()]));
        }
        self.stale.change(&changed);
        self.unsent.add_all(&changed);
        let (x, y) = origin.map_or((0, 0), |origin| (i32::from(origin.dst_x), i32::from(origin.dst_y)));
        let origin = (x + area.x as i32, y + area.y as i32);
        let pointer = pointer.and_then(|reply| PointerImage::of(reply, origin));
        let place = pointer.as_ref().and_then(|pointer| Some((pointer.place(size)?, pointer.rows(size))));
        if place != self.drawn {
            [&self.drawn, &place].into_iter().flatten().for_each(|(_, rows)| self.unsent.add(rows.clone()));
        }
        if self.unsent.is_empty() {
            return Err(NoImage::Nothing);
        }
        let number = slot.number();
        self.images.capture(&mut slot, &self.server, target, &self.layout, self.stale.of(number))?;
        let mut covered = ChangedRows::default();
        if let Some((pointer, (_, rows))) = pointer.as_ref().zip(place.as_ref()) {
            pointer.draw(&mut slot, size);
            covered.add(rows.clone());
        }
        self.stale.capture(number, covered);
        self.drawn = place;
        let meta = self.numbers.next(now, birth_ns);
        let changed = std::mem::take(&mut self.unsent);
        let frame = slot.freeze(&self.layout, meta, Some(changed)).map_err(StageError::from)?;
        Ok(Item::Frame(frame))
    }
}

impl Source for X11 {
    fn info(&self) -> StreamInfo {
        self.info
    }

    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        Ok(answer(request, &mut self.changes.whole))
    }

    fn is_live(&self) -> bool {
        true
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        if self.left == 0 {
            return Ok(false);
        }
        out.mark();
        loop {
            let waited = self.wait(|| out.has_request()).map_err(NoImage::from);
            let captured = match waited {
                Ok(PaceWait::Now) => self.capture(out),
                Ok(PaceWait::Ended) => Err(NoImage::Ended),
                Ok(PaceWait::Request) => Err(NoImage::Request),
                Err(none) => Err(none),
            };
            match captured {
                Ok(item) => {
                    self.left -= 1;
                    out.push(item)?;
                    return Ok(true);
                }
                Err(NoImage::Nothing) => {}
                Err(NoImage::Refused(error)) => match self.was_outdated().map_err(NoImage::from) {
                    Ok(true) => {}
                    Err(NoImage::Ended) => return Ok(false),
                    // The reason for the refusal, such as a region outside of a smaller screen.
                    Err(NoImage::Failed(reason)) => return Err(out.fail(reason)),
                    Ok(false) | Err(_) => return Err(out.fail(error)),
                },
                Err(NoImage::Ended) => return Ok(false),
                Err(NoImage::Request) => return Ok(true),
                Err(NoImage::Failed(error)) => return Err(out.fail(error)),
            }
        }
    }
}

/// Makes the server report when the pointer moves or changes its shape.
fn watch_pointer(server: &XServer, root: u32) -> Result<(), StageError> {
    server.must_have(&["XInputExtension"])?;
    let watched = server.ask(|connection| {
        connection.xinput_xi_query_version(2, 2)?.reply()?;
        let mask = vec![xinput::XIEventMask::RAW_MOTION];
        let masks = [xinput::EventMask { deviceid: ALL_MASTER_DEVICES, mask }];
        connection.xinput_xi_select_events(root, &masks)?.check()?;
        connection.xfixes_query_version(5, 0)?.reply()?;
        connection.xfixes_select_cursor_input(root, CursorNotifyMask::DISPLAY_CURSOR)?.check()?;
        Ok(())
    });
    watched.map_err(XFailure::into_error)
}
