// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of a screen to which the portal gives access: copies each new picture, and keeps the rate.

use framepath_model::format::Layout;
use framepath_model::stream::StreamInfo;
use framepath_os::display::pipewire_screen::{PipewireScreen, ScreenState};
use framepath_os::display::screen_pool::ScreenPool;
use framepath_os::memory::pool::Frame;
use framepath_os::process::{cancel, signal, stop};
use framepath_os::time::now_ns;

use super::PortalOptions;
use super::access::PortalAccess;
use crate::device::{PATIENCE, SLICE};
use crate::error::StageError;
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::request::{Answered, Request};
use crate::source::Source;
use crate::source::screen_numbers::ScreenNumbers;
use crate::source::screen_options::answer;
use crate::source::screen_ticks::ScreenTicks;

/// The `portal` source. A frame's birth is the time when this process learned of its picture.
pub(super) struct Portal {
    screen: PipewireScreen,
    pool: ScreenPool,
    layout: Layout,
    /// Number of slots of a pool.
    slots: u32,
    ticks: ScreenTicks,
    info: StreamInfo,
    /// Frame before, for a request while nothing changes; `None` before the first.
    last: Option<Frame>,
    /// True if a frame is wanted even if nothing changes.
    wants_frame: bool,
    /// Number of frames still to emit; `u64::MAX` at the start if there is no limit.
    left: u64,
    numbers: ScreenNumbers,
    notes: Notes,
    _access: PortalAccess,
}

fn failed(error: std::io::Error) -> StageError {
    StageError::Screen(format!("{error}"))
}

fn pool_of(layout: &Layout, slots: u32) -> Result<ScreenPool, StageError> {
    let what = format!("memory for {slots} pictures of {} bytes", layout.size);
    ScreenPool::new(layout.size, slots).map_err(|error| StageError::Io { what, error })
}

impl Portal {
    /// Asks the user for a screen, and waits until its form is known. `notes` receives the lines for the user.
    pub(super) fn open(options: &PortalOptions, notes: Notes) -> Result<Portal, StageError> {
        if options.screen.region.is_some() {
            // The user may choose a window of any size.
            return Err(StageError::Option(
                "region= is not supported by the portal; cut the part out behind it: `! crop roi=X,Y,W,H`"
                    .to_owned(),
            ));
        }
        log::info!("portal: waits for a choice in the desktop's dialog");
        let (access, granted) = PortalAccess::ask(options.kind, options.screen.cursor)?;
        let mut screen = PipewireScreen::connect(granted.remote, granted.node).map_err(failed)?;
        let until_ns = now_ns() + PATIENCE.as_nanos() as u64;
        let layout = loop {
            screen.dispatch().map_err(failed)?;
            match screen.state() {
                ScreenState::Ready(layout) => break layout,
                ScreenState::Failed(text) => return Err(StageError::Screen(text)),
                ScreenState::Ended => {
                    return Err(StageError::Screen("the access has ended".to_owned()));
                }
                ScreenState::Connecting if now_ns() >= until_ns => {
                    let seconds = PATIENCE.as_secs();
                    return Err(StageError::Screen(format!(
                        "PipeWire has sent nothing for {seconds} s; does a session manager such as WirePlumber run?"
                    )));
                }
                ScreenState::Connecting => {}
            }
            if signal::interrupted() {
                return Err(StageError::io("wait for PipeWire")(cancel::canceled()));
            }
            stop::wait_for_socket(screen.fd(), false, SLICE, || false)
                .map_err(StageError::io("wait for PipeWire"))?;
        };
        let rate = options.screen.rate;
        let slots = options.screen.pool;
        Ok(Portal {
            screen,
            pool: pool_of(&layout, slots)?,
            layout,
            slots,
            ticks: ScreenTicks::new(rate),
            info: options.screen.stream_info(&layout),
            last: None,
            wants_frame: false,
            left: options.screen.most_frames(),
            numbers: ScreenNumbers::default(),
            notes,
            _access: access,
        })
    }

    /// Copies the next picture; `None` if a request waits for the thread, or a signal, a stop request or the other side ends the run, which
    /// the second value says.
    fn next(&mut self, out: &mut Out<'_>) -> Result<(Option<Frame>, bool), StageError> {
        loop {
            if signal::interrupted() {
                return Ok((None, true));
            }
            if out.has_request() {
                return Ok((None, false));
            }
            let now = now_ns();
            if now < self.ticks.earliest_ns() {
                stop::sleep_unless(self.ticks.earliest_ns(), || out.has_request());
                continue;
            }
            self.screen.dispatch().map_err(failed)?;
            match self.screen.state() {
                ScreenState::Ready(layout) if layout != self.layout => {
                    self.pool = pool_of(&layout, self.slots)?;
                    (self.layout, self.last) = (layout, None);
                }
                ScreenState::Ready(_) | ScreenState::Connecting => {}
                ScreenState::Ended => {
                    self.notes.add("portal: the access has ended, and so has the stream".to_owned());
                    return Ok((None, true));
                }
                ScreenState::Failed(text) => return Err(StageError::Screen(text)),
            }
            let Some(mut slot) = self.pool.acquire(SLICE) else {
                // It may be the one that is missing.
                self.last = None;
                continue;
            };
            if let Some(picture) = self.screen.take() {
                let now = now_ns();
                let birth_ns = out.recorder().captured(now, now);
                picture.copy_into(&mut slot, &self.layout).map_err(failed)?;
                // The other side can use its memory again.
                drop(picture);
                self.ticks.take(now);
                let meta = self.numbers.next(now, birth_ns);
                let frame = slot.freeze(&self.layout, meta, None)?;
                self.last = Some(frame.share());
                self.wants_frame = false;
                return Ok((Some(frame), false));
            }
            let wanted = if std::mem::take(&mut self.wants_frame) { self.last.as_ref() } else { None };
            if let Some(last) = wanted {
                let now = now_ns();
                let birth_ns = out.recorder().captured(now, now);
                slot.write(0, &last.plane(0).to_vec());
                let frame = slot.freeze(&self.layout, self.numbers.next(now, birth_ns), None)?;
                return Ok((Some(frame), false));
            }
            drop(slot);
            stop::wait_for_socket(self.screen.fd(), false, SLICE, || out.has_request())
                .map_err(StageError::io("wait for PipeWire"))?;
        }
    }
}

impl Source for Portal {
    fn info(&self) -> StreamInfo {
        self.info
    }

    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        Ok(answer(request, &mut self.wants_frame))
    }

    fn is_live(&self) -> bool {
        true
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        if self.left == 0 {
            return Ok(false);
        }
        out.mark();
        let (frame, has_ended) = self.next(out).map_err(|error| out.fail(error))?;
        if let Some(frame) = frame {
            self.left -= 1;
            out.push(Item::Frame(frame))?;
        }
        Ok(!has_ended)
    }
}
