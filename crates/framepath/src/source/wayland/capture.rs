// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of an output: has the compositor copy it when it changes, and keeps the rate.

use std::time::Duration;

use framepath_model::changed_rows::ChangedRows;
use framepath_model::format::Layout;
use framepath_model::stream::{FrameMeta, Rational, StreamInfo};
use framepath_os::process::{signal, stop};
use framepath_os::time::now_ns;

use super::WaylandOptions;
use super::compositor::{ChosenOutput, Compositor, CopyEvents, CopyState};
use super::images::WaylandImages;
use crate::device::SLICE;
use crate::error::StageError;
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::request::{Answered, Request};
use crate::source::Source;
use crate::source::screen_area::ScreenArea;
use crate::source::screen_ticks::ScreenTicks;
use crate::source::test::rate_of;

/// Seconds in a tick of the frames' times.
const TIME_BASE: Rational = Rational::new(1, 1_000_000);
/// Longest wait for the first copy, if it waits for a change, nanoseconds.
const FIRST_CHANGE_NS: u64 = 100_000_000;
/// Maximum number of copies in a row that fail. A copy fails when the output's size or mode has changed since it was asked for.
const MOST_FAILURES: u32 = 20;

/// The `wayland` source. A frame's birth is the time when this process learned that the compositor has copied it.
pub(super) struct Wayland {
    compositor: Compositor,
    output: ChosenOutput,
    /// Part of the output to capture; `None` for all. The compositor copies the whole output: a compositor's reports of changes in
    /// parts do not agree about their coordinates.
    region: Option<ScreenArea>,
    images: WaylandImages,
    /// Layout of the part in the pictures.
    layout: Layout,
    /// Number of slots of a pool.
    slots: u32,
    shows_pointer: bool,
    ticks: ScreenTicks,
    info: StreamInfo,
    /// True if the next frame does not wait for a change, and all its rows count as changed.
    whole: bool,
    /// True before the first copy.
    is_first: bool,
    /// Number of frames still to emit; `u64::MAX` at the start if there is no limit.
    left: u64,
    next_seq: u64,
    /// CLOCK_MONOTONIC time of the first frame, nanoseconds; `None` before.
    first_ns: Option<u64>,
    notes: Notes,
}

/// Outcome of a capture.
enum Captured {
    Frame(Item),
    /// Only pixels outside of the region have changed.
    Unchanged,
    /// A request waits for the thread, or a copy has failed and is to be repeated.
    Nothing,
    /// A signal or a stop request ends the run, or the output is gone.
    Ended,
}

impl Wayland {
    /// Connects to the compositor and prepares the capture. `notes` receives the lines for the user.
    pub(super) fn open(options: &WaylandOptions, notes: Notes) -> Result<Wayland, StageError> {
        let region = options.screen.region.as_deref().map(str::parse).transpose()?;
        let mut compositor = Compositor::connect()?;
        let (output, names) = compositor.output(options.output.as_deref())?;
        if options.output.is_none() && names.len() > 1 {
            notes.add(format!("wayland: captures {} of {}", output.name, names.join(", ")));
        }
        let copy = compositor.begin_copy(&output, options.screen.cursor, true)?;
        compositor.wait_for(|state| state.copy_state() != CopyState::Asked)?;
        let images = images(&compositor, options.screen.pool)?;
        drop(copy);
        let layout = layout(&images, region)?;
        let frame_rate =
            if options.screen.rate > 0.0 { rate_of(options.screen.rate) } else { Rational::new(0, 1) };
        let info = StreamInfo { time_base: TIME_BASE, ..StreamInfo::from_layout(&layout, frame_rate) };
        Ok(Wayland {
            compositor,
            output,
            region,
            images,
            layout,
            slots: options.screen.pool,
            shows_pointer: options.screen.cursor,
            ticks: ScreenTicks::new(options.screen.rate),
            info,
            whole: true,
            is_first: true,
            left: if options.screen.frames == 0 { u64::MAX } else { options.screen.frames },
            next_seq: 0,
            first_ns: None,
            notes,
        })
    }

    /// Captures the output at its next change, or at once.
    fn capture(&mut self, out: &mut Out<'_>) -> Result<Captured, StageError> {
        // The compositor collects changes meanwhile.
        while now_ns() < self.ticks.earliest_ns() {
            if signal::interrupted() {
                return Ok(Captured::Ended);
            }
            if out.has_request() {
                return Ok(Captured::Nothing);
            }
            stop::sleep_unless(self.ticks.earliest_ns(), || out.has_request());
        }
        let copy = self.compositor.begin_copy(&self.output, self.shows_pointer, self.whole)?;
        self.compositor.wait_for(|state| state.copy_state() != CopyState::Asked)?;
        let form = self.compositor.copy().and_then(|copy| copy.form);
        if form.is_some_and(|form| form != self.images.form) {
            self.images = images(&self.compositor, self.slots)?;
            self.layout = layout(&self.images, self.region)?;
            self.whole = true;
        }
        let slot = loop {
            if signal::interrupted() {
                return Ok(Captured::Ended);
            }
            if out.has_request() {
                return Ok(Captured::Nothing);
            }
            if let Some(slot) = self.images.pool.acquire(SLICE) {
                break slot;
            }
        };
        let buffer = self.images.buffer(slot.number());
        // A compositor of the wlroots family answers the first wait for a change at once, with all pixels: without it, the second frame
        // would be the first one again. Others may wait.
        let is_first = std::mem::take(&mut self.is_first) && copy.may_begin_by_waiting();
        let until_ns = if is_first { now_ns() + FIRST_CHANGE_NS } else { u64::MAX };
        copy.start(buffer, &self.images.form, self.whole && !is_first);
        // Idle outputs have no changes for any time.
        while self.compositor.copy().is_some_and(|copy| copy.state == CopyState::Waiting) {
            if signal::interrupted() {
                return Ok(Captured::Ended);
            }
            let left_ns = until_ns.saturating_sub(now_ns());
            // The compositor may have answered already, and count the change as told.
            self.whole |= out.has_request();
            if left_ns == 0 || out.has_request() || !self.compositor.has(&self.output) {
                return Ok(Captured::Nothing);
            }
            self.compositor.wait(SLICE.min(Duration::from_nanos(left_ns)), || out.has_request())?;
        }
        let Some(CopyEvents { state: CopyState::Done, damage, is_upside_down, .. }) =
            self.compositor.take_copy()
        else {
            return Ok(Captured::Nothing);
        };
        if is_upside_down {
            return Err(StageError::Screen("the compositor's pictures are upside down".to_owned()));
        }
        let changed = match std::mem::take(&mut self.whole) {
            true => ChangedRows::all(self.layout.height),
            false => {
                let changed = changed_rows(&damage, self.region, &self.layout);
                if changed.is_empty() {
                    return Ok(Captured::Unchanged);
                }
                changed
            }
        };
        let now = now_ns();
        self.ticks.take(now);
        let birth_ns = out.recorder().captured(now, now);
        let time_us = (now - *self.first_ns.get_or_insert(now)) / 1000;
        let meta = FrameMeta {
            seq: self.next_seq,
            birth_ns,
            pts: i64::try_from(time_us).ok(),
            ..FrameMeta::default()
        };
        self.next_seq += 1;
        let frame = slot.freeze(&self.layout, meta, Some(changed)).map_err(StageError::from)?;
        Ok(Captured::Frame(Item::Frame(frame)))
    }

    /// Captures until there is a frame or none is needed, the run ends or a request waits.
    fn next(&mut self, out: &mut Out<'_>) -> Result<Captured, StageError> {
        for _ in 0..MOST_FAILURES {
            let captured = self.capture(out)?;
            if !self.compositor.has(&self.output) {
                let name = &self.output.name;
                self.notes.add(format!("wayland: the output {name} is gone, so the stream has ended"));
                return Ok(Captured::Ended);
            }
            match captured {
                Captured::Nothing if !out.has_request() => self.whole = true,
                captured => return Ok(captured),
            }
        }
        Err(StageError::Screen(format!("the compositor fails to copy its output {}", self.output.name)))
    }
}

/// Makes a pool for the present copy.
fn images(compositor: &Compositor, slots: u32) -> Result<WaylandImages, StageError> {
    match compositor.copy().and_then(|copy| copy.form) {
        Some(form) => WaylandImages::new(compositor, form, slots),
        None => Err(StageError::Screen("the compositor copies the output into no shared memory".to_owned())),
    }
}

/// Returns the layout of a part of the pictures; `None` is all.
fn layout(images: &WaylandImages, region: Option<ScreenArea>) -> Result<Layout, StageError> {
    let Some(part) = region else { return Ok(images.layout) };
    let (width, height) = (images.layout.width, images.layout.height);
    if !part.is_inside((width, height)) {
        return Err(StageError::Screen(format!(
            "{part} is outside of the output, which has {width}x{height} pixels"
        )));
    }
    let cropped = images.layout.cropped(part.x, part.y, part.width, part.height);
    cropped.map_err(|error| StageError::Screen(format!("the output's picture: {error}")))
}

/// Returns the changed rows of a part of the output with this layout. Without a report, all may have changed.
fn changed_rows(damage: &[[u32; 4]], region: Option<ScreenArea>, layout: &Layout) -> ChangedRows {
    if damage.is_empty() {
        return ChangedRows::all(layout.height);
    }
    let part = region.unwrap_or(ScreenArea { x: 0, y: 0, width: layout.width, height: layout.height });
    let mut changed = ChangedRows::default();
    for rectangle in damage {
        changed.add(part.rows_of(rectangle.map(i64::from)));
    }
    changed
}

impl Source for Wayland {
    fn info(&self) -> StreamInfo {
        self.info
    }

    /// A keyframe needs a frame, even if nothing changes; and so does the end of a congestion in which the last change was dropped.
    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        match request {
            Request::Keyframe | Request::Congested(false) => self.whole = true,
            Request::Flush => {}
            _ => return Ok(Answered::PassOn),
        }
        Ok(Answered::Done)
    }

    fn is_live(&self) -> bool {
        true
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        if self.left == 0 {
            return Ok(false);
        }
        out.mark();
        match self.next(out).map_err(|error| out.fail(error))? {
            Captured::Frame(item) => {
                self.left -= 1;
                out.push(item)?;
                Ok(true)
            }
            Captured::Unchanged | Captured::Nothing => Ok(true),
            Captured::Ended => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use framepath_model::format::PixelFormat;

    use super::*;

    #[test]
    fn changes_of_the_output_become_rows_of_the_region() {
        let layout = |height| Layout::packed(PixelFormat::Bgr0, 320, height).unwrap();
        let region = Some(ScreenArea { x: 0, y: 110, width: 320, height: 60 });
        let is = |damage: &[[u32; 4]], rows: &[(u32, u32)]| {
            let changed = changed_rows(damage, region, &layout(60));
            changed.bands().iter().map(|band| (band.start, band.end)).eq(rows.iter().copied())
        };
        assert!(is(&[[40, 130, 260, 20]], &[(20, 40)]));
        assert!(is(&[[40, 0, 10, 111], [0, 169, 1, 500]], &[(0, 1), (59, 60)]));
        assert!(is(&[[0, 0, 320, 110]], &[]));
        // A compositor that does not say what has changed.
        assert!(is(&[], &[(0, 60)]));
        assert_eq!(changed_rows(&[[5, 6, 1, 1]], None, &layout(180)).count(), 1);
    }
}
