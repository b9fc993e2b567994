// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of an output: has the compositor copy it when it changes, and keeps the rate.

use framepath_model::changed_rows::ChangedRows;
use framepath_model::stream::{FrameMeta, Rational, StreamInfo};
use framepath_os::process::{signal, stop};
use framepath_os::time::now_ns;
use wayland_protocols_wlr::screencopy::v1::client::zwlr_screencopy_frame_v1::ZwlrScreencopyFrameV1;

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
/// Maximum number of copies in a row that fail. A copy fails when the output's size or mode has changed since it was asked for.
const MOST_FAILURES: u32 = 20;

/// The `wayland` source. A frame's birth is the time when this process learned that the compositor has copied it.
pub(super) struct Wayland {
    compositor: Compositor,
    output: ChosenOutput,
    /// Part of the output: x, y, width and height; `None` for all.
    part: Option<[i32; 4]>,
    images: WaylandImages,
    /// Number of slots of a pool.
    slots: u32,
    shows_pointer: bool,
    ticks: ScreenTicks,
    info: StreamInfo,
    /// True if the next frame does not wait for a change, and all its rows count as changed.
    whole: bool,
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
    /// A request waits for the thread, or a copy has failed and is to be repeated.
    Nothing,
    /// A signal or a stop request ends the run, or the output is gone.
    Ended,
}

/// Copy that the compositor was asked for. Dropping it cancels the copy: the compositor handles requests in order, so it no longer
/// writes the buffer when it has done a later one.
struct Copy(ZwlrScreencopyFrameV1);

impl Drop for Copy {
    fn drop(&mut self) {
        self.0.destroy();
    }
}

impl Wayland {
    /// Connects to the compositor and prepares the capture. `notes` receives the lines for the user.
    pub(super) fn open(options: &WaylandOptions, notes: Notes) -> Result<Wayland, StageError> {
        let part = options.screen.region.as_deref().map(part_of).transpose()?;
        let mut compositor = Compositor::connect()?;
        let (output, names) = compositor.output(options.output.as_deref())?;
        if options.output.is_none() && names.len() > 1 {
            notes.add(format!("wayland: captures {} of {}", output.name, names.join(", ")));
        }
        let copy = Copy(compositor.begin_copy(&output, part, options.screen.cursor)?);
        compositor.wait_for(|state| state.copy_state() != CopyState::Asked)?;
        let images = images(&compositor, options.screen.pool)?;
        drop(copy);
        let frame_rate =
            if options.screen.rate > 0.0 { rate_of(options.screen.rate) } else { Rational::new(0, 1) };
        let info = StreamInfo { time_base: TIME_BASE, ..StreamInfo::from_layout(&images.layout, frame_rate) };
        Ok(Wayland {
            compositor,
            output,
            part,
            images,
            slots: options.screen.pool,
            shows_pointer: options.screen.cursor,
            ticks: ScreenTicks::new(options.screen.rate),
            info,
            whole: true,
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
        let copy = Copy(self.compositor.begin_copy(&self.output, self.part, self.shows_pointer)?);
        self.compositor.wait_for(|state| state.copy_state() != CopyState::Asked)?;
        let form = self.compositor.copy().and_then(|copy| copy.form);
        if form.is_some_and(|form| form != self.images.form) {
            self.images = images(&self.compositor, self.slots)?;
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
        match self.whole {
            true => copy.0.copy(buffer),
            false => copy.0.copy_with_damage(buffer),
        }
        // Idle outputs have no changes for any time.
        while self.compositor.copy().is_some_and(|copy| copy.state == CopyState::Waiting) {
            if signal::interrupted() {
                return Ok(Captured::Ended);
            }
            if out.has_request() || !self.compositor.has(&self.output) {
                return Ok(Captured::Nothing);
            }
            self.compositor.wait(SLICE, || out.has_request())?;
        }
        let Some(CopyEvents { state: CopyState::Done, damage, is_upside_down, .. }) =
            self.compositor.take_copy()
        else {
            return Ok(Captured::Nothing);
        };
        if is_upside_down {
            return Err(StageError::Screen("the compositor's pictures are upside down".to_owned()));
        }
        let now = now_ns();
        self.ticks.take(now);
        let birth_ns = out.recorder().captured(now, now);
        let height = self.images.layout.height;
        let mut changed = ChangedRows::default();
        match std::mem::take(&mut self.whole) {
            true => changed = ChangedRows::all(height),
            false => {
                for [_, y, _, rows] in damage {
                    changed.add(y.min(height)..y.saturating_add(rows).min(height));
                }
            }
        }
        let time_us = (now - *self.first_ns.get_or_insert(now)) / 1000;
        let meta = FrameMeta {
            seq: self.next_seq,
            birth_ns,
            pts: i64::try_from(time_us).ok(),
            ..FrameMeta::default()
        };
        self.next_seq += 1;
        let frame = slot.freeze(&self.images.layout, meta, Some(changed)).map_err(StageError::from)?;
        Ok(Captured::Frame(Item::Frame(frame)))
    }

    /// Captures until there is a frame, the run ends or a request waits.
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
        None => Err(StageError::Screen(
            "the compositor copies the output into no shared memory; a part outside of it has no pixels"
                .to_owned(),
        )),
    }
}

/// Reads the option `region=`.
fn part_of(text: &str) -> Result<[i32; 4], StageError> {
    let ScreenArea { x, y, width, height } = text.parse()?;
    let number = |value: u32| {
        i32::try_from(value)
            .map_err(|_| StageError::Option(format!("region={text}: outside of every output")))
    };
    Ok([number(x)?, number(y)?, number(width)?, number(height)?])
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
            Captured::Nothing => Ok(true),
            Captured::Ended => Ok(false),
        }
    }
}
