// SPDX-License-Identifier: MIT OR Apache-2.0
//! `play`: frames in a window, each at its time.
//!
//! The thread that pushes frames to this sink reads the viewer's keys once for each frame. It sleeps until the
//! frame is due; if the screen takes frames ahead of their times, the thread sleeps once for several frames. A
//! frame that is more than half an interval late is dropped before it is painted or uploaded (but after a
//! conversion or rotation), unless no frame was shown for a second. So is a frame for which the screen's refresh
//! rate is too low.
//! With `sync=0`, which is the default behind a live source, each frame is shown on arrival, and none is dropped.
//! A `queue depth=1 leaky=downstream` in front then has the newest frame only.

mod ahead;
mod clock;
#[cfg(feature = "play")]
mod fit;
#[cfg(feature = "play")]
mod presented;
#[cfg(feature = "play")]
mod refresh;
#[cfg(feature = "play")]
mod texture;
#[cfg(feature = "play")]
mod window;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use framepath_codec::Painter;
use framepath_model::format::{ColorFamily, PixelFormat};
use framepath_model::orientation::Orientation;
use framepath_model::path::{Arg, DefaultValue, Definition, Hop, ValueKind};
use framepath_model::stream::{Rational, StreamInfo};
use framepath_os::measure::meter;
use framepath_os::memory::pool::Frame;
use framepath_os::process::signal;
use framepath_os::time::{now_ns, sleep_until};

use crate::copy_pool::CopyPool;
use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::outcomes::Played;
use crate::sink::unheld::{HeldFields, HeldProperties, UnheldNote};
use crate::stage::Stage;
use crate::stage::convert::Convert;
use crate::stage::turn::{Turner, turned_aspect};
use ahead::Ahead;
use clock::Clock;

static DEFINITION: Definition = Definition::sink(
    "play",
    "shows frames in a window, live ones at once; q or Esc ends, space pauses, f: full screen",
)
.args(&[
    Arg::option(
        "autorotate",
        ValueKind::Flag,
        DefaultValue::Is("1"),
        "0 shows the pictures as they are coded, without the rotation that the file declares",
    ),
    Arg::option(
        "driver",
        ValueKind::choice(&["auto", "software", "opengl", "opengles2", "null"]),
        DefaultValue::Is("auto"),
        "renderer: the CPU (software) or a GPU (opengl, opengles2); `auto` uses the first that works; `null` \
         waits for the times and shows nothing",
    ),
    Arg::option("fullscreen", ValueKind::Flag, DefaultValue::Is("0"), "start in full screen"),
    Arg::option(
        "sync",
        ValueKind::Flag,
        DefaultValue::Unset(
            "0 behind a live source (`recv`, `rtp`, `screen`, `url rtsp://`, `v4l2`, `x11`), else 1",
        ),
        "1 shows each frame at its time; 0 shows every frame as soon as it arrives, and drops none",
    ),
    Arg::option(
        "title",
        ValueKind::Text("a window's title"),
        DefaultValue::Unset("framepath"),
        "title of the window",
    ),
])
.known_as(&["autovideosink", "ximagesink", "glimagesink", "waylandsink", "kmssink"]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, make)
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<Play, StageError> {
    let played = Arc::new(Played::default());
    // One `play` per path, because SDL has one thread for all windows of a program.
    if place.outcomes.played.set(played.clone()).is_err() {
        return Err(StageError::Option("a path can have only one `play`".to_owned()));
    }
    let is_live = place.outcomes.is_live.load(Ordering::Relaxed);
    Play::new(PlayOptions::of(hop, is_live), played, place.outcomes.notes.clone())
}

/// Command of the viewer, by keys or by the window's close button. Without SDL always
/// [`ViewerCommand::Watch`].
#[cfg_attr(not(feature = "play"), allow(dead_code))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewerCommand {
    /// Continue the playback.
    Watch,
    /// Pause the playback.
    Pause,
    /// End the playback.
    End,
}

/// Time at which to hand a frame to the screen. Without SDL the only screen is that of `driver=null`, which
/// takes all frames ahead of their times.
#[cfg_attr(not(feature = "play"), allow(dead_code))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PresentTime {
    /// At the due time of the frame, until which the caller sleeps; at once if the frame has no due time.
    Due,
    /// Ahead of the due time: the screen shows the frame at the refresh with this number by itself.
    Ahead(u64),
    /// Never: the frame is too late, or the screen's refresh rate is too low to show this frame.
    Never,
    /// Now, again: the frame was shown before, and the window has lost its content.
    Again,
}

/// Counts of the frames that a screen has finished with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    /// Number of frames shown.
    pub(crate) seen: u64,
    /// Number of frames that were handed over and not shown.
    pub(crate) lost: u64,
}

/// Options of `play`.
#[cfg_attr(not(feature = "play"), allow(dead_code))]
#[derive(Clone, Debug)]
pub(crate) struct PlayOptions {
    /// True: makes pictures upright, as the file declares. False: shows them as they are coded.
    pub(crate) autorotate: bool,
    /// `auto`, `software`, `null`, or an SDL renderer's name.
    pub(crate) driver: String,
    pub(crate) fullscreen: bool,
    /// True: shows each frame at the presentation time. False: shows each frame on arrival.
    pub(crate) sync: bool,
    pub(crate) title: String,
}

impl PlayOptions {
    /// Returns the options of `hop`, behind a live source if `is_live`.
    pub(crate) fn of(hop: &Hop, is_live: bool) -> PlayOptions {
        PlayOptions {
            autorotate: hop.flag("autorotate"),
            driver: hop.choice("driver").to_owned(),
            fullscreen: hop.flag("fullscreen"),
            sync: if hop.is_set("sync") { hop.flag("sync") } else { !is_live },
            title: if hop.is_set("title") { hop.text("title").to_owned() } else { "framepath".to_owned() },
        }
    }
}

pub(crate) struct Play {
    options: PlayOptions,
    info: Option<StreamInfo>,
    clock: Option<Clock>,
    screen: PlayTarget,
    ahead: Ahead,
    played: Arc<Played>,
    /// Converter for the formats that no screen takes; `None` before the first such frame.
    converter: Option<Convert>,
    turner: Turner,
    note: UnheldNote,
}

/// Properties of frames that a window shows. Without `autorotate`, the user does not want the orientation.
const HELD: HeldProperties =
    HeldProperties { orientation: true, fields: HeldFields::Progressive, times: true, alpha: false };

/// A frame as a screen shows it.
struct Upright {
    frame: Frame,
    /// Width of a pixel over its height; 0/1 if not known.
    #[cfg_attr(not(feature = "play"), allow(dead_code))]
    sample_aspect: Rational,
}

/// Screen of `play`, as the option `driver` chooses it.
enum PlayTarget {
    /// No output. Takes frames ahead of their times, as a window with the Present extension does. The counts
    /// are those since the last [`PlayTarget::presented`].
    Null(Shown),
    /// A window of the thread that pushes frames.
    #[cfg(feature = "play")]
    Window(window::ThreadWindow),
}

impl PlayTarget {
    fn of(options: &PlayOptions) -> Result<PlayTarget, StageError> {
        match options.driver.as_str() {
            "null" => Ok(PlayTarget::Null(Shown::default())),
            #[cfg(feature = "play")]
            _ => match framepath_os::display::sdl::load() {
                Ok(()) => Ok(PlayTarget::Window(window::ThreadWindow::default())),
                Err(error) => Err(StageError::Window(error.to_string())),
            },
            #[cfg(not(feature = "play"))]
            _ => Err(StageError::Window(
                "this framepath was built without the feature `play`: build it with default features, as `make build` \
                 does; `play driver=null` needs no window"
                    .to_owned(),
            )),
        }
    }

    /// Returns when to hand the screen a frame that is due at `due_ns` (CLOCK_MONOTONIC).
    #[cfg_attr(not(feature = "play"), allow(unused_variables))]
    fn present_time(&mut self, due_ns: u64) -> PresentTime {
        match self {
            PlayTarget::Null(_) => PresentTime::Ahead(0),
            #[cfg(feature = "play")]
            PlayTarget::Window(window) => window.present_time(due_ns),
        }
    }

    /// Does all work on a frame that is possible before `present`: opens the window for the first frame, and
    /// paints or uploads the frame.
    #[cfg_attr(not(feature = "play"), allow(unused_variables))]
    fn prepare(&mut self, picture: &Upright, options: &PlayOptions) -> Result<(), StageError> {
        match self {
            PlayTarget::Null(_) => Ok(()),
            #[cfg(feature = "play")]
            PlayTarget::Window(window) => window.prepare(&picture.frame, options, picture.sample_aspect),
        }
    }

    #[cfg_attr(not(feature = "play"), allow(unused_variables))]
    fn present(&mut self, time: PresentTime) -> Result<(), StageError> {
        match self {
            PlayTarget::Null(shown) => shown.seen += 1,
            #[cfg(feature = "play")]
            PlayTarget::Window(window) => window.present(time)?,
        }
        Ok(())
    }

    /// Returns the counts of the frames that the screen has finished with since the last call.
    fn presented(&mut self) -> Result<Shown, StageError> {
        match self {
            PlayTarget::Null(shown) => Ok(std::mem::take(shown)),
            #[cfg(feature = "play")]
            PlayTarget::Window(window) => window.presented(),
        }
    }

    /// Waits until the screen has finished with all frames that were handed over.
    fn finish(&mut self) -> Result<(), StageError> {
        match self {
            PlayTarget::Null(_) => Ok(()),
            #[cfg(feature = "play")]
            PlayTarget::Window(window) => window.finish(),
        }
    }

    /// Handles the window's events, and returns the viewer's present command.
    fn control(&mut self) -> ViewerCommand {
        match self {
            PlayTarget::Null(_) => ViewerCommand::Watch,
            #[cfg(feature = "play")]
            PlayTarget::Window(window) => window.control(),
        }
    }

    /// Sleeps until there is an event of the window or a second has passed. Shows `frame` again if the
    /// window has lost its content. Returns the viewer's present command. Without a window, returns at once.
    #[cfg_attr(not(feature = "play"), allow(unused_variables))]
    fn wait(&mut self, frame: &Frame) -> Result<ViewerCommand, StageError> {
        match self {
            PlayTarget::Null(_) => Ok(ViewerCommand::Watch),
            #[cfg(feature = "play")]
            PlayTarget::Window(window) => window.wait(frame),
        }
    }

    fn close(&mut self) {
        match self {
            PlayTarget::Null(_) => {}
            #[cfg(feature = "play")]
            PlayTarget::Window(window) => window.close(),
        }
    }
}

impl Play {
    fn new(options: PlayOptions, played: Arc<Played>, notes: Notes) -> Result<Play, StageError> {
        let screen = PlayTarget::of(&options)?;
        Ok(Play {
            options,
            info: None,
            clock: None,
            screen,
            ahead: Ahead::default(),
            played,
            converter: None,
            turner: Turner::new(CopyPool::new()),
            note: UnheldNote::new("play", HELD, notes),
        })
    }

    /// Returns `frame` in a format that the screens take, and upright unless `autorotate=0`. Converts other
    /// formats to YUV420P (YUV) or RGBA (all others).
    fn displayable(&mut self, frame: Frame) -> Result<Upright, StageError> {
        let (format, meta) = (frame.layout().format, frame.meta());
        let turn = if self.options.autorotate { meta.orientation } else { Orientation::Upright };
        let sample_aspect = self.info.map_or(Rational::new(0, 1), |info| info.sample_aspect);
        let sample_aspect = turned_aspect(turn, sample_aspect);
        let frame = if Painter::paints(format) && Turner::takes(turn, format) {
            frame
        } else {
            let is_yuv = format.family() == ColorFamily::Yuv;
            let to = if is_yuv { PixelFormat::Yuv420p } else { PixelFormat::Rgba };
            Convert::frame_in(to, frame, &mut self.converter)?
        };
        if turn == Orientation::Upright {
            return Ok(Upright { frame, sample_aspect });
        }
        Ok(Upright { frame: self.turner.turned(turn, &frame)?.freeze(meta), sample_aspect })
    }

    /// Plays one frame: waits for its time, and shows or drops it. Returns `false` when the viewer has ended
    /// the playback, or a signal or stop request has ended a pause.
    fn play(&mut self, picture: &Upright) -> Result<bool, StageError> {
        let Some(clock) = &mut self.clock else { return Ok(true) };
        let frame = &picture.frame;
        match self.screen.control() {
            ViewerCommand::Watch => {}
            ViewerCommand::End => return Ok(false),
            ViewerCommand::Pause => {
                let since = now_ns();
                loop {
                    // Checked here, because another thread may have received the signal.
                    if signal::interrupted() {
                        return Ok(false);
                    }
                    match meter::blocked(|| self.screen.wait(frame))? {
                        ViewerCommand::Pause => {}
                        ViewerCommand::Watch => break,
                        ViewerCommand::End => return Ok(false),
                    }
                }
                clock.pause(now_ns() - since);
            }
        }
        let meta = frame.meta();
        let due = if self.options.sync { clock.due(&meta) } else { None };
        let time = match due {
            Some(due) if clock.is_late(due, now_ns()) => PresentTime::Never,
            Some(due) => self.screen.present_time(due),
            None => PresentTime::Due,
        };
        match (time, due) {
            (PresentTime::Never, _) => {
                add(&self.played.late, 1);
                return Ok(true);
            }
            (PresentTime::Ahead(_), Some(due)) => {
                if let Some(until) = self.ahead.wait(due, now_ns()) {
                    wait_until(until);
                }
                self.screen.prepare(picture, &self.options)?;
                self.ahead.gone(due);
            }
            _ => {
                self.screen.prepare(picture, &self.options)?;
                if let Some(due) = due {
                    wait_until(due);
                }
            }
        }
        self.screen.present(time)?;
        let seen = now_ns().max(due.unwrap_or(0));
        if clock.runs() {
            clock.record_presented(seen)
        } else {
            clock.start(&meta, seen)
        }
        self.count()?;
        Ok(true)
    }

    fn count(&mut self) -> Result<(), StageError> {
        let Shown { seen, lost } = self.screen.presented()?;
        add(&self.played.shown, seen);
        add(&self.played.late, lost);
        Ok(())
    }

    /// Waits until the screen has shown or lost all frames that were handed over, and counts them.
    fn finish(&mut self) -> Result<(), StageError> {
        if let Some(last) = self.ahead.last() {
            wait_until(last);
        }
        self.ahead = Ahead::default();
        self.screen.finish()?;
        self.count()
    }

    /// Finishes all frames as [`Play::finish`] does, and closes the window.
    fn end(&mut self) -> Result<(), StageError> {
        self.finish()?;
        self.screen.close();
        Ok(())
    }
}

/// Sleeps until `due_ns` (CLOCK_MONOTONIC, nanoseconds), or until a signal or a stop request ends the run.
/// The ledger counts the time as paced.
fn wait_until(due_ns: u64) {
    meter::paced(|| {
        while now_ns() < due_ns && !signal::interrupted() {
            sleep_until(due_ns);
        }
    });
}

fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

impl Stage for Play {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.clock = Some(Clock::new(info));
        self.info = Some(*info);
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|e| out.fail(e))?;
        self.note.look(&frame);
        let picture = self.displayable(frame).map_err(|e| out.fail(e))?;
        match self.play(&picture).map_err(|e| out.fail(e))? {
            true => Ok(()),
            false => {
                self.played.ended.store(1, Ordering::Relaxed);
                self.end().map_err(|e| out.fail(e))?;
                // Ends the run without an error, as if a next hop had ended.
                Err(out.fail(StageError::Downstream))
            }
        }
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        // Waits for the screen's frames, at most four. Otherwise they would be shown after the first frame
        // behind the seek.
        self.finish().map_err(|e| out.fail(e))?;
        self.clock.iter_mut().for_each(Clock::restart);
        Ok(())
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        // Shows the last frame for the duration of a frame.
        if let Some(clock) = self.clock.as_mut().filter(|clock| clock.runs() && self.options.sync) {
            let until = clock.due(&Default::default());
            if let Some(until) = until {
                wait_until(until);
            }
        }
        self.end().map_err(|e| out.fail(e))
    }
}
