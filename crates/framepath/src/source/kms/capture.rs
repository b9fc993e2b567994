// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of a screen: at each refresh, the buffer that the kernel scans out.

use std::os::fd::AsFd;
use std::time::Duration;

use framepath_model::format::Layout;
use framepath_model::stream::StreamInfo;
use framepath_os::memory::pool::Frame;
use framepath_os::process::{signal, stop};
use framepath_os::time::now_ns;

use super::KmsOptions;
use super::card::{Card, CardScreen, Committed, ScannedOut, ScreenRefresh, first_with_screen};
use super::refresh_clock::{RefreshClock, shown};
use super::scanout::Scanout;
use crate::device::SLICE;
use crate::error::StageError;
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::request::{Answered, Request};
use crate::source::Source;
use crate::source::screen_area::ScreenArea;
use crate::source::screen_numbers::ScreenNumbers;
use crate::source::screen_ticks::ScreenTicks;

/// The `kms` source. A frame's birth is the time of the refresh, by the kernel.
pub(super) struct Kms {
    card: Card,
    screen: CardScreen,
    /// Part to capture; `None` for all.
    region: Option<ScreenArea>,
    scanout: Scanout,
    ticks: ScreenTicks,
    info: StreamInfo,
    /// True while the card owes the event of a refresh.
    is_asked: bool,
    /// Number of frames still to emit; `u64::MAX` at the start if there is no limit.
    left: u64,
    numbers: ScreenNumbers,
    clock: RefreshClock,
    /// Picture that the last refresh has shown; `None` before the first, and while the screen is off.
    before: Option<Committed>,
    /// True if each refresh is to have a frame, and the number of those without one because the path was busy.
    wants_each: bool,
    missed: u64,
    notes: Notes,
}

/// Outcome of a wait for a refresh.
enum Waited {
    /// A refresh, what was committed shortly before it (`None`: not known), and the time since which the thread had waited,
    /// CLOCK_MONOTONIC nanoseconds.
    Refreshed(ScreenRefresh, Option<Committed>, u64),
    /// A request waits for the thread, or the screen is off.
    Nothing,
    /// A signal or a stop request ends the run.
    Ended,
}

impl Kms {
    /// Opens the card and looks at what its screen shows. `notes` receives the lines for the user.
    pub(super) fn open(options: &KmsOptions, notes: Notes) -> Result<Kms, StageError> {
        let region = options.screen.region.as_deref().map(str::parse).transpose()?;
        let path = options.card.clone().or_else(first_with_screen).ok_or_else(|| {
            StageError::Screen(
                "found no card with a screen that is on in /dev/dri, or may not open it; captures need root"
                    .to_owned(),
            )
        })?;
        let card = Card::open(&path)?;
        let (screen, names) = card.screen(options.output.as_deref())?;
        if options.output.is_none() && names.len() > 1 {
            notes.add(format!("kms: captures {} of {}", screen.name, names.join(", ")));
        }
        let committed = card.committed(&screen)?;
        let found = committed.map(|committed| card.picture(&screen, &committed)).transpose()?.flatten();
        let found = found.ok_or_else(|| StageError::Screen(format!("{} shows nothing", screen.name)))?;
        let layout = layout(&found, region)?;
        let rate = options.screen.rate;
        let clock = card.last_refresh(&screen).map(RefreshClock::of).unwrap_or_default();
        Ok(Kms {
            card,
            screen,
            region,
            scanout: Scanout::default(),
            ticks: ScreenTicks::new(rate),
            info: options.screen.stream_info(&layout),
            is_asked: false,
            left: options.screen.most_frames(),
            numbers: ScreenNumbers::default(),
            clock,
            before: None,
            wants_each: rate <= 0.0,
            missed: 0,
            notes,
        })
    }

    /// Waits for the next refresh whose frame the rate allows.
    fn wait(&mut self, out: &Out<'_>) -> Result<Waited, StageError> {
        let mut late = None;
        loop {
            let since_ns = now_ns();
            if signal::interrupted() {
                return Ok(Waited::Ended);
            }
            if out.has_request() {
                return Ok(Waited::Nothing);
            }
            if !self.is_asked && !self.card.ask_for_refresh(&self.screen)? {
                // A screen that is off may be switched on again.
                self.before = None;
                stop::sleep_unless(since_ns + SLICE.as_nanos() as u64, || out.has_request());
                return Ok(Waited::Nothing);
            }
            self.is_asked = true;
            let before_next = self.clock.before_next(since_ns).filter(|_| late.is_none());
            // The picture before a refresh that will have no frame is of no use.
            let look = before_next.filter(|(_, next_ns)| *next_ns >= self.ticks.earliest_ns());
            let limit =
                look.map_or(SLICE, |(look_ns, _)| Duration::from_nanos(look_ns.saturating_sub(since_ns)));
            let waited = stop::wait_for_socket(self.card.as_fd(), false, limit, || out.has_request());
            if !waited.map_err(StageError::io("wait for a refresh of the screen"))? {
                if look.is_some_and(|(look_ns, _)| now_ns() >= look_ns) {
                    late = self.card.committed(&self.screen)?;
                }
                continue;
            }
            let Some(refresh) = self.card.take_refresh()? else { continue };
            self.is_asked = false;
            let passed = self.clock.add(refresh);
            if self.wants_each && self.numbers.has_begun() {
                self.numbers.leave_out(passed);
                self.missed += u64::from(passed);
            }
            if passed > 0 {
                self.before = None;
            }
            if refresh.at_ns >= self.ticks.earliest_ns() {
                return Ok(Waited::Refreshed(refresh, late, since_ns));
            }
            (self.before, late) = (late, None);
        }
    }

    /// Makes a frame of what a refresh has shown; `None` if there is none: the screen is switched off, or the path still uses the
    /// buffer.
    fn frame(
        &mut self,
        refresh: ScreenRefresh,
        late: Option<Committed>,
        birth_ns: u64,
        out: &Out<'_>,
    ) -> Result<Option<Frame>, StageError> {
        let Some(now) = self.card.committed(&self.screen)? else { return Ok(None) };
        let committed = shown(self.before.as_ref(), late, now);
        self.before = Some(committed);
        let Some(found) = self.card.picture(&self.screen, &committed)? else { return Ok(None) };
        let layout = layout(&found, self.region)?;
        let buffer = self.scanout.buffer(found)?;
        let drawn = buffer.wait_drawn(SLICE, || out.has_request());
        if !drawn.map_err(StageError::io("wait for the picture on the screen"))? {
            return Ok(None);
        }
        let meta = self.numbers.next(refresh.at_ns, birth_ns);
        let frame = buffer.frame(&layout, meta)?;
        match &frame {
            Some(_) => self.ticks.take(refresh.at_ns),
            None => self.missed += u64::from(self.wants_each),
        }
        Ok(frame)
    }

    /// Tells the user of refreshes without a frame.
    fn end(&mut self) {
        let missed = std::mem::take(&mut self.missed);
        if missed > 0 {
            self.notes.add(format!("kms: {missed} refreshes have no frame, because the path was busy"));
        }
    }
}

/// Returns the layout of the part of a buffer that the screen shows, and of its region.
fn layout(found: &ScannedOut, region: Option<ScreenArea>) -> Result<Layout, StageError> {
    let ScannedOut { buffer, visible, .. } = found;
    let part = region.unwrap_or(ScreenArea { x: 0, y: 0, ..*visible });
    if !part.is_inside((visible.width, visible.height)) {
        let (width, height) = (visible.width, visible.height);
        return Err(StageError::Screen(format!(
            "{part} is outside of the screen, which has {width}x{height} pixels"
        )));
    }
    let cropped = buffer.cropped(visible.x + part.x, visible.y + part.y, part.width, part.height);
    cropped.map_err(|error| StageError::Screen(format!("the screen's buffer: {error}")))
}

impl Source for Kms {
    fn info(&self) -> StreamInfo {
        self.info
    }

    /// The next refresh has a frame in any case.
    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        match request {
            Request::Keyframe | Request::Congested(_) | Request::Flush => Ok(Answered::Done),
            _ => Ok(Answered::PassOn),
        }
    }

    fn is_live(&self) -> bool {
        true
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        if self.left == 0 {
            self.end();
            return Ok(false);
        }
        out.mark();
        let (refresh, late, since_ns) = match self.wait(out).map_err(|error| out.fail(error))? {
            Waited::Refreshed(refresh, late, since_ns) => (refresh, late, since_ns),
            Waited::Nothing => return Ok(true),
            Waited::Ended => {
                self.end();
                return Ok(false);
            }
        };
        let birth_ns = out.recorder().captured(refresh.at_ns, since_ns);
        if let Some(frame) = self.frame(refresh, late, birth_ns, out).map_err(|error| out.fail(error))? {
            self.left -= 1;
            out.push(Item::Frame(frame))?;
        }
        Ok(true)
    }
}
