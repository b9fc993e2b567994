// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of an output: has the compositor copy it when it changes, and keeps the rate.

use std::time::Duration;

use framepath_model::changed_rows::ChangedRows;
use framepath_model::format::Layout;
use framepath_model::stream::StreamInfo;
use framepath_os::process::{signal, stop};
use framepath_os::time::now_ns;

use super::WaylandOptions;
use super::compositor::{ChosenOutput, Compositor, CopyEvents, CopyState, PATIENCE};
use super::images::WaylandImages;
use crate::device::SLICE;
use crate::error::StageError;
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::request::{Answered, Request};
use crate::source::Source;
use crate::source::screen_area::ScreenArea;
use crate::source::screen_numbers::ScreenNumbers;
use crate::source::screen_options::answer;
use crate::source::screen_ticks::ScreenTicks;

/// Longest wait for the first copy, if it waits for a change.
const FIRST_CHANGE: Duration = Duration::from_millis(100);
/// Time from a copy that has failed to the next one. A copy fails when the output's size or mode has changed since it was asked for, and while
/// the output is switched off.
const FAILED_PAUSE: Duration = Duration::from_millis(20);

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
    /// Time since which all copies have failed, CLOCK_MONOTONIC nanoseconds; `None` if the last one has not.
    failing_since_ns: Option<u64>,
    /// Number of frames still to emit; `u64::MAX` at the start if there is no limit.
    left: u64,
    numbers: ScreenNumbers,
    notes: Notes,
}

/// Outcome of a capture.
enum Captured {
    Frame(Item),
    /// Only pixels outside of the region have changed.
    Unchanged,
    /// The compositor did not copy the output, which may be switched off.
    Failed,
    /// A request waits for the thread, or the output is gone.
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
        let info = options.screen.stream_info(&layout);
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
            failing_since_ns: None,
            left: options.screen.most_frames(),
            numbers: ScreenNumbers::default(),
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
        let at_once = self.whole && !is_first;
        // Idle outputs have no changes for any time; a copy without a wait is done with the next refresh.
        let limit = match (is_first, at_once) {
            (true, _) => FIRST_CHANGE,
            (_, true) => PATIENCE,
            _ => Duration::MAX,
        };
        let until_ns = now_ns().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        copy.start(buffer, &self.images.form, at_once);
        while self.compositor.copy().is_some_and(|copy| copy.state == CopyState::Waiting) {
            if signal::interrupted() {
                return Ok(Captured::Ended);
            }
            let left_ns = until_ns.saturating_sub(now_ns());
            // The compositor may have answered already, and count the change as told.
            self.whole |= out.has_request();
            if out.has_request() || !self.compositor.has(&self.output) {
                return Ok(Captured::Nothing);
            }
            if left_ns == 0 {
                self.whole = true;
                return Ok(if is_first { Captured::Unchanged } else { Captured::Failed });
            }
            self.compositor.wait(SLICE.min(Duration::from_nanos(left_ns)), || out.has_request())?;
        }
        let Some(CopyEvents { state: CopyState::Done, damage, is_upside_down, .. }) =
            self.compositor.take_copy()
        else {
            return Ok(Captured::Failed);
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
        let meta = self.numbers.next(now, birth_ns);
        let frame = slot.freeze(&self.layout, meta, Some(changed)).map_err(StageError::from)?;
        Ok(Captured::Frame(Item::Frame(frame)))
    }

    /// Captures until there is a frame or none is needed, the run ends or a request waits. An output that is switched off is waited for, but not before
    /// the first frame.
    fn next(&mut self, out: &mut Out<'_>) -> Result<Captured, StageError> {
        loop {
            let captured = self.capture(out)?;
            if !self.compositor.has(&self.output) {
                let name = &self.output.name;
                self.notes.add(format!("wayland: the output {name} is gone, so the stream has ended"));
                return Ok(Captured::Ended);
            }
            let Captured::Failed = captured else {
                if let Captured::Frame(_) = captured {
                    self.failing_since_ns = None;
                }
                return Ok(captured);
            };
            let now = now_ns();
            let since_ns = *self.failing_since_ns.get_or_insert(now);
            if !self.numbers.has_begun() && now - since_ns >= PATIENCE.as_nanos() as u64 {
                let name = &self.output.name;
                return Err(StageError::Screen(format!("the compositor fails to copy its output {name}")));
            }
            self.whole = true;
            stop::sleep_unless(now + FAILED_PAUSE.as_nanos() as u64, || out.has_request());
            if signal::interrupted() {
                return Ok(Captured::Ended);
            }
            if out.has_request() {
                return Ok(Captured::Nothing);
            }
        }
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

    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        Ok(answer(request, &mut self.whole))
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
            Captured::Unchanged | Captured::Failed | Captured::Nothing => Ok(true),
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
