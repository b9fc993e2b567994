// SPDX-License-Identifier: MIT OR Apache-2.0
//! A window by SDL2, on X11, Wayland or KMS.
//!
//! SDL requires one thread for all calls about a window, and a stage may
//! be made in another thread than the thread that pushes frames to the stage. So the window belongs to the
//! pushing thread, is opened with the first frame, and closed when the playback ends or the stage is dropped.

use std::cell::RefCell;
use std::path::Path;

use framepath_codec::{Painter, PixelOrder};
use framepath_model::stream::Rational;
use framepath_os::machine::nodes;
use framepath_os::memory::pool::Frame;
use sdl2::EventPump;
use sdl2::event::{Event, WindowEvent};
use sdl2::keyboard::Keycode;
use sdl2::pixels::PixelFormatEnum;
use sdl2::rect::Rect;
use sdl2::video::FullscreenType;

use super::presented::{Presented, Server};
use super::texture::Textured;
use super::{PlayOptions, PresentTime, Shown, ViewerCommand, fit};
use crate::error::StageError;

/// Longest sleep of the thread of a paused window, milliseconds. The thread then checks whether a signal or a
/// stop request has ended the run, because neither ends the sleep.
const NAP_MS: u32 = 1000;

thread_local! {
    static WINDOW: RefCell<Option<Window>> = const { RefCell::new(None) };
}

/// Handle on the window of the calling thread, which has one window at most. The window opens with the
/// first frame, and closes at [`ThreadWindow::close`] or when the handle is dropped.
#[derive(Default)]
pub(super) struct ThreadWindow(());

impl ThreadWindow {
    pub(super) fn prepare(
        &mut self,
        frame: &Frame,
        options: &PlayOptions,
        sample_aspect: Rational,
    ) -> Result<(), StageError> {
        WINDOW.with_borrow_mut(|slot| {
            let window = match slot {
                Some(window) => window,
                None => slot.insert(Window::open(frame, options, sample_aspect).map_err(StageError::Window)?),
            };
            window.sample_aspect = sample_aspect;
            window.prepare(frame)
        })
    }

    pub(super) fn present_time(&mut self, due_ns: u64) -> PresentTime {
        with(|window| window.present_time(due_ns)).unwrap_or(PresentTime::Due)
    }

    pub(super) fn present(&mut self, time: PresentTime) -> Result<(), StageError> {
        with(|window| window.present(time)).unwrap_or(Ok(()))
    }

    pub(super) fn presented(&mut self) -> Result<Shown, StageError> {
        with(Window::presented).unwrap_or(Ok(Shown::default()))
    }

    pub(super) fn finish(&mut self) -> Result<(), StageError> {
        with(Window::finish).unwrap_or(Ok(()))
    }

    pub(super) fn control(&mut self) -> ViewerCommand {
        with(Window::poll_events).unwrap_or(ViewerCommand::Watch)
    }

    pub(super) fn wait(&mut self, frame: &Frame) -> Result<ViewerCommand, StageError> {
        with(|window| window.wait(frame)).unwrap_or(Ok(ViewerCommand::Watch))
    }

    pub(super) fn close(&mut self) {
        // Fails only in a thread that is ending, where the window is closed already.
        let _ = WINDOW.try_with(|slot| slot.take());
    }
}

impl Drop for ThreadWindow {
    fn drop(&mut self) {
        self.close();
    }
}

fn with<R>(work: impl FnOnce(&mut Window) -> R) -> Option<R> {
    WINDOW.with_borrow_mut(|slot| slot.as_mut().map(work))
}

/// A window with its drawing method.
enum Surface {
    /// The CPU, directly into the window's memory, which SDL shows at once.
    Painted {
        window: sdl2::video::Window,
        painter: Box<Painter>,
        size: (u32, u32),
        /// True if the bars beside the picture have to be shown, too.
        bars: bool,
    },
    /// The CPU, into memory that an X server shows at the frame's time.
    Presented(Box<Presented>),
    /// One of SDL's renderers, by a GPU or its emulation.
    Textured(Box<Textured>),
}

struct Window {
    // Dropped in this order: SDL itself goes last.
    surface: Surface,
    pump: EventPump,
    /// Width of a pixel of the last picture over its height.
    sample_aspect: Rational,
    /// Size of the last picture on square pixels.
    picture: (u32, u32),
    paused: bool,
    ended: bool,
    /// True if the window may have lost its content.
    stale: bool,
    /// Counts of frames since the last [`Window::presented`], for surfaces that show frames at once; not used with
    /// [`Surface::Presented`], which has its own counts.
    shown: Shown,
}

impl Window {
    fn open(frame: &Frame, options: &PlayOptions, sample_aspect: Rational) -> Result<Window, String> {
        // SDL must not handle signals, which the program does, and only this module paints into the window's
        // memory.
        sdl2::hint::set("SDL_NO_SIGNAL_HANDLERS", "1");
        sdl2::hint::set("SDL_FRAMEBUFFER_ACCELERATION", "0");
        sdl2::hint::set("SDL_RENDER_SCALE_QUALITY", "linear");
        let sdl = sdl2::init().map_err(|error| format!("SDL: {error}"))?;
        let video = sdl.video().map_err(|error| format!("SDL: {error}{}", no_display()))?;
        refuse_blind(video.current_video_driver(), std::env::var_os("SDL_VIDEODRIVER").is_some())?;
        let pump = sdl.event_pump().map_err(|error| format!("SDL: {error}"))?;
        let picture = fit::square(frame.layout().width, frame.layout().height, sample_aspect);
        let screen = video.display_usable_bounds(0).map_or(picture, |bounds| bounds.size());
        let (width, height) = fit::window(picture, screen);
        let open = || {
            let mut builder = video.window(&options.title, width, height);
            builder.position_centered().resizable();
            if options.fullscreen {
                builder.fullscreen_desktop();
            }
            builder.build().map_err(|error| error.to_string())
        };
        let mut refusals = Vec::new();
        for driver in drivers(&options.driver) {
            match surface(open()?, &pump, driver) {
                Ok(surface) => {
                    return Ok(Window {
                        surface,
                        pump,
                        sample_aspect,
                        picture,
                        paused: false,
                        ended: false,
                        stale: false,
                        shown: Shown::default(),
                    });
                }
                Err(error) => refusals.push(format!("{driver}: {error}")),
            }
        }
        Err(format!("SDL on {}: {}", video.current_video_driver(), refusals.join("; ")))
    }

    /// Uploads or paints the frame, so that [`Window::present`] can show it.
    fn prepare(&mut self, frame: &Frame) -> Result<(), StageError> {
        let layout = frame.layout();
        self.picture = fit::square(layout.width, layout.height, self.sample_aspect);
        match &mut self.surface {
            Surface::Textured(textured) => {
                self.stale = false;
                textured.upload(frame).map_err(StageError::Window)
            }
            Surface::Presented(presented) => {
                presented.prepare(frame, self.picture, std::mem::take(&mut self.stale))
            }
            Surface::Painted { window, painter, size, bars } => {
                let mut surface = window.surface(&self.pump).map_err(StageError::Window)?;
                let now = surface.size();
                let area = fit::area(self.picture, now);
                let order = order_of(surface.pixel_format_enum()).map_err(StageError::Window)?;
                let stride = surface.pitch() as usize;
                let resized = std::mem::replace(size, now) != now;
                surface.with_lock_mut(|bytes| {
                    if resized {
                        bytes.fill(0);
                    }
                    if resized || self.stale {
                        painter.forget();
                        *bars = true;
                    }
                    painter.paint(frame, bytes, stride, area, order)
                })?;
                self.stale = false;
                Ok(())
            }
        }
    }

    /// Returns when to hand over a frame that is due at `due_ns`.
    fn present_time(&mut self, due_ns: u64) -> PresentTime {
        match &mut self.surface {
            Surface::Presented(presented) => presented.present_time(due_ns),
            _ => PresentTime::Due,
        }
    }

    fn presented(&mut self) -> Result<Shown, StageError> {
        match &mut self.surface {
            Surface::Presented(presented) => presented.presented(),
            _ => Ok(std::mem::take(&mut self.shown)),
        }
    }

    fn finish(&mut self) -> Result<(), StageError> {
        match &mut self.surface {
            Surface::Presented(presented) => presented.finish(),
            _ => Ok(()),
        }
    }

    fn present(&mut self, time: PresentTime) -> Result<(), StageError> {
        self.shown.seen += u64::from(time != PresentTime::Again);
        match &mut self.surface {
            Surface::Presented(presented) => return presented.present(time),
            Surface::Textured(textured) => {
                let size = textured.output_size().map_err(StageError::Window)?;
                textured.draw(fit::area(self.picture, size))
            }
            Surface::Painted { window, painter, size, bars } => {
                if std::mem::take(bars) {
                    let surface = window.surface(&self.pump).map_err(StageError::Window)?;
                    return surface.update_window().map_err(StageError::Window);
                }
                let width = size.0;
                let rows = painter.changed().iter();
                let changed: Vec<Rect> =
                    rows.map(|rows| Rect::new(0, rows.start as i32, width, rows.len() as u32)).collect();
                if changed.is_empty() {
                    return Ok(());
                }
                window.surface(&self.pump).and_then(|surface| surface.update_window_rects(&changed))
            }
        }
        .map_err(StageError::Window)
    }

    /// Handles the events since the last call, and returns the viewer's present command.
    fn poll_events(&mut self) -> ViewerCommand {
        while let Some(event) = self.pump.poll_event() {
            self.handle_event(&event);
        }
        self.control()
    }

    /// Sleeps until there is an event, at most [`NAP_MS`]; shows `frame` again if the window has lost its
    /// content. Returns the viewer's present command.
    fn wait(&mut self, frame: &Frame) -> Result<ViewerCommand, StageError> {
        if let Some(event) = self.pump.wait_event_timeout(NAP_MS) {
            self.handle_event(&event);
        }
        let command = self.poll_events();
        if self.stale {
            self.prepare(frame)?;
            self.present(PresentTime::Again)?;
        }
        Ok(command)
    }

    fn control(&self) -> ViewerCommand {
        match (self.ended, self.paused) {
            (true, _) => ViewerCommand::End,
            (_, true) => ViewerCommand::Pause,
            _ => ViewerCommand::Watch,
        }
    }

    fn handle_event(&mut self, event: &Event) {
        match event {
            Event::Quit { .. } | Event::Window { win_event: WindowEvent::Close, .. } => self.ended = true,
            Event::Window { win_event: WindowEvent::Exposed | WindowEvent::SizeChanged(..), .. } => {
                self.stale = true;
            }
            Event::KeyDown { keycode: Some(key), repeat: false, .. } => match *key {
                Keycode::Q | Keycode::Escape => self.ended = true,
                Keycode::Space => self.paused = !self.paused,
                Keycode::F => self.toggle_fullscreen(),
                _ => {}
            },
            _ => {}
        }
    }

    fn toggle_fullscreen(&mut self) {
        let window = match &mut self.surface {
            Surface::Textured(textured) => textured.window_mut(),
            Surface::Presented(presented) => &mut presented.window,
            Surface::Painted { window, .. } => window,
        };
        let requested = match window.fullscreen_state() {
            FullscreenType::Off => FullscreenType::Desktop,
            _ => FullscreenType::Off,
        };
        // A window manager may refuse; the window then stays as it is.
        let _ = window.set_fullscreen(requested);
    }
}

fn surface(window: sdl2::video::Window, pump: &EventPump, driver: &str) -> Result<Surface, String> {
    if driver == "software" {
        let order = order_of(window.window_pixel_format());
        if let (Ok(server), Ok(order)) = (Server::of(&window), order) {
            return Ok(Surface::Presented(Box::new(Presented::new(server, window, order))));
        }
        // Checked now, because some systems have no memory to paint into.
        order_of(window.surface(pump)?.pixel_format_enum())?;
        return Ok(Surface::Painted { window, painter: Box::default(), size: (0, 0), bars: true });
    }
    let index = sdl2::render::drivers().position(|info| info.name == driver);
    let index = index.ok_or_else(|| "this SDL has no such renderer".to_owned())?;
    let canvas = window.into_canvas().index(index as u32).build().map_err(|error| error.to_string())?;
    Ok(Surface::Textured(Box::new(Textured::new(canvas))))
}

/// Returns the names of the drivers to try, best first: only `requested`, unless that is `auto`. Without a
/// GPU, OpenGL comes last, because its emulation costs several times as much as painting
/// (docs/experiments/players.md).
fn drivers(requested: &str) -> Vec<&str> {
    match requested {
        "auto" if has_render_node(Path::new("/dev/dri")) => vec!["opengl", "opengles2", "software"],
        "auto" => vec!["software", "opengl", "opengles2"],
        named => vec![named],
    }
}

fn has_render_node(folder: &Path) -> bool {
    !nodes(folder, "renderD").is_empty()
}

/// Returns the order of the colours in the window's pixels, for pixels of `format`.
///
/// # Errors
/// The pixels are not 32-bit RGB or BGR.
fn order_of(format: PixelFormatEnum) -> Result<PixelOrder, String> {
    match format {
        PixelFormatEnum::RGB888 | PixelFormatEnum::ARGB8888 => Ok(PixelOrder::Bgrx),
        PixelFormatEnum::BGR888 | PixelFormatEnum::ABGR8888 => Ok(PixelOrder::Rgbx),
        other => Err(format!("the screen has {other:?} pixels; only 32-bit RGB and BGR are supported")),
    }
}

/// Fails if `driver` is one of SDL's video drivers without output, unless the user has named a driver
/// (`named`). SDL falls back to such drivers if there is no display.
fn refuse_blind(driver: &str, named: bool) -> Result<(), String> {
    match driver {
        "offscreen" | "dummy" | "evdev" if !named => Err(format!("SDL finds no display{}", no_display())),
        _ => Ok(()),
    }
}

/// Returns advice for an error message if neither DISPLAY nor WAYLAND_DISPLAY names a display; else an empty
/// text.
fn no_display() -> &'static str {
    let named = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if named("DISPLAY") || named("WAYLAND_DISPLAY") {
        return "";
    }
    "; neither DISPLAY nor WAYLAND_DISPLAY is set: run it in a graphical session, under `xvfb-run`, or with \
     `play driver=null`"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_paints_where_there_is_no_gpu() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!has_render_node(folder.path()) && !has_render_node(Path::new("/no/such")));
        std::fs::write(folder.path().join("card0"), "").unwrap();
        assert!(!has_render_node(folder.path()));
        std::fs::write(folder.path().join("renderD128"), "").unwrap();
        assert!(has_render_node(folder.path()));
        assert_eq!(drivers("opengl"), ["opengl"]);
    }

    #[test]
    fn a_driver_that_shows_nothing_has_to_be_named() {
        assert!(refuse_blind("offscreen", false).is_err() && refuse_blind("dummy", true).is_ok());
        assert!(refuse_blind("x11", false).is_ok());
    }
}
