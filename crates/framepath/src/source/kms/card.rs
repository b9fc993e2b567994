// SPDX-License-Identifier: MIT OR Apache-2.0
//! A display controller (a DRM card): its screens, what each scans out, and its refreshes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use drm::buffer::{DrmFourcc, DrmModifier, Handle};
use drm::control::framebuffer::PlanarInfo;
use drm::control::{Device as ControlDevice, Event, GetPlanarFramebufferError, crtc, framebuffer};
use drm::{Device, VblankWaitFlags, VblankWaitTarget};
use framepath_model::format::{Layout, PixelFormat, PlaneLayout};
use framepath_model::shown::shown;

use crate::error::StageError;
use crate::source::screen_area::ScreenArea;

/// Folder of the kernel's cards, and how their names begin.
const FOLDER: &str = "/dev/dri";
const CARD: &str = "card";
/// O_NONBLOCK, so that reading the events of a card does not wait.
const NONBLOCK: i32 = 0o4000;

/// Open card. Never its master, so that a desktop can start meanwhile.
pub(super) struct Card {
    file: File,
    path: String,
}

/// Screen that is on, or was when it was looked for.
#[derive(Clone, Debug)]
pub(super) struct CardScreen {
    /// Name of the connector, such as `HDMI-A-1`.
    pub(super) name: String,
    crtc: crtc::Handle,
    /// Number of the CRTC on its card, for refreshes.
    number: u32,
}

/// Picture that was committed for a screen, as the kernel's state has it. It is shown from the next refresh on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Committed {
    framebuffer: framebuffer::Handle,
    position: (u32, u32),
    /// Size of the screen, pixels.
    size: (u16, u16),
}

/// Picture of a screen in its buffer.
pub(super) struct ScannedOut {
    pub(super) dmabuf: OwnedFd,
    /// Layout of the whole buffer.
    pub(super) buffer: Layout,
    /// Part of the buffer on the screen: one buffer may be that of several screens.
    pub(super) visible: ScreenArea,
}

/// Refresh of a screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScreenRefresh {
    /// Number of the refresh, which wraps around.
    pub(super) number: u32,
    /// Time of the refresh by the kernel, CLOCK_MONOTONIC nanoseconds.
    pub(super) at_ns: u64,
}

impl AsFd for Card {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
impl Device for Card {}
impl ControlDevice for Card {}

impl Card {
    /// Opens the card at `path`.
    ///
    /// # Errors
    /// It cannot be opened, or is no display controller.
    pub(super) fn open(path: &str) -> Result<Card, StageError> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(NONBLOCK).open(path).map_err(|error| {
                StageError::Screen(format!("cannot open {}: {error}; captures need root", shown(path)))
            })?;
        let card = Card { file, path: path.to_owned() };
        // The first program that opens a card becomes its master, and a desktop could not start. An error says that this one is not.
        let _ = card.release_master_lock();
        card.resource_handles()
            .map_err(|error| card.failed(&format!("{error}; it is no display controller")))?;
        Ok(card)
    }

    fn failed(&self, what: &str) -> StageError {
        StageError::Screen(format!("{}: {what}", shown(&self.path)))
    }

    /// Returns the screens that are on, and the names of the connectors without one.
    fn screens(&self) -> io::Result<(Vec<CardScreen>, Vec<String>)> {
        let resources = self.resource_handles()?;
        let (mut on, mut off) = (Vec::new(), Vec::new());
        for connector in resources.connectors() {
            let Ok(connector) = self.get_connector(*connector, false) else { continue };
            let name = format!("{}-{}", connector.interface().as_str(), connector.interface_id());
            let encoder = connector.current_encoder().and_then(|encoder| self.get_encoder(encoder).ok());
            let crtc = encoder.and_then(|encoder| encoder.crtc()).filter(|crtc| {
                self.get_crtc(*crtc).is_ok_and(|crtc| crtc.mode().is_some() && crtc.framebuffer().is_some())
            });
            let number = crtc.and_then(|crtc| resources.crtcs().iter().position(|other| *other == crtc));
            match crtc.zip(number) {
                Some((crtc, number)) => on.push(CardScreen { name, crtc, number: number as u32 }),
                None => off.push(name),
            }
        }
        Ok((on, off))
    }

    /// Returns the screen `name`, or the first one that is on, and the names of all that are on.
    ///
    /// # Errors
    /// There is no such screen, or it is off.
    pub(super) fn screen(&self, name: Option<&str>) -> Result<(CardScreen, Vec<String>), StageError> {
        let (on, off) = self.screens().map_err(|error| self.failed(&error.to_string()))?;
        let names: Vec<String> = on.iter().map(|screen| screen.name.clone()).collect();
        let found = on.into_iter().find(|screen| name.is_none_or(|name| screen.name == name));
        let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        found.map(|screen| (screen, names.clone())).ok_or_else(|| {
            let of =
                name.map_or("no screen is on".to_owned(), |name| match off.iter().any(|off| off == name) {
                    true => format!("the screen {} is off", shown(name)),
                    false => format!("there is no screen {}", shown(name)),
                });
            self.failed(&format!("{of}; on: {}; off: {}", list(&names), list(&off)))
        })
    }

    /// Returns what was committed for a screen; `None` if it is off.
    ///
    /// # Errors
    /// The card has failed.
    pub(super) fn committed(&self, screen: &CardScreen) -> Result<Option<Committed>, StageError> {
        let state = self.get_crtc(screen.crtc).map_err(|error| self.failed(&error.to_string()))?;
        let shown = state.mode().zip(state.framebuffer());
        Ok(shown.map(|(mode, framebuffer)| Committed {
            framebuffer,
            position: state.position(),
            size: mode.size(),
        }))
    }

    /// Returns a picture; `None` if its buffer was removed just now.
    ///
    /// # Errors
    /// This program may not read the buffer, the buffer is of a kind that the CPU cannot read, or the card has failed.
    pub(super) fn picture(
        &self,
        screen: &CardScreen,
        committed: &Committed,
    ) -> Result<Option<ScannedOut>, StageError> {
        let found = match self.get_planar_framebuffer(committed.framebuffer) {
            Ok(found) => found,
            Err(GetPlanarFramebufferError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(self.failed(&format!("the buffer of {}: {error}", screen.name))),
        };
        let exported = self.export(&found, screen);
        // Each look at a buffer makes a new handle, and the same one for planes in one buffer.
        let mut handles: Vec<Handle> = found.buffers().into_iter().flatten().collect();
        handles.dedup();
        for handle in handles {
            let _ = self.close_buffer(handle);
        }
        let (dmabuf, buffer) = exported?;
        let Committed { position: (x, y), size: (width, height), .. } = *committed;
        // A buffer that is scaled to the screen is smaller than the screen's mode.
        let visible = ScreenArea {
            x,
            y,
            width: u32::from(width).min(buffer.width.saturating_sub(x)),
            height: u32::from(height).min(buffer.height.saturating_sub(y)),
        };
        Ok(Some(ScannedOut { dmabuf, buffer, visible }))
    }

    fn export(&self, found: &PlanarInfo, screen: &CardScreen) -> Result<(OwnedFd, Layout), StageError> {
        let Some(handle) = found.buffers()[0] else {
            return Err(self.failed(
                "this program may not read what other programs show; run it as root (it needs CAP_SYS_ADMIN)",
            ));
        };
        let layout = layout(found).map_err(|what| self.failed(&format!("{}: {what}", screen.name)))?;
        let dmabuf = self.buffer_to_prime_fd(handle, drm::CLOEXEC).map_err(|error| {
            self.failed(&format!("the driver does not export the buffer of {}: {error}", screen.name))
        })?;
        Ok((dmabuf, layout))
    }

    /// Returns the last refresh of a screen, and the time between refreshes by its mode, nanoseconds; `None` if the screen is off or the
    /// driver does not tell.
    pub(super) fn last_refresh(&self, screen: &CardScreen) -> Option<(ScreenRefresh, u64)> {
        let hertz = self.get_crtc(screen.crtc).ok()?.mode()?.vrefresh();
        let target = VblankWaitTarget::Relative(0);
        let last = self.wait_vblank(target, VblankWaitFlags::empty(), screen.number, 0).ok()?;
        let refresh = ScreenRefresh { number: last.frame(), at_ns: nanoseconds(last.time()?) };
        Some((refresh, 1_000_000_000_u64.checked_div(hertz.into())?))
    }

    /// Asks for an event at the next refresh of a screen, which makes the card's descriptor readable. Returns false if the screen
    /// is off.
    ///
    /// # Errors
    /// The driver does not report refreshes.
    pub(super) fn ask_for_refresh(&self, screen: &CardScreen) -> Result<bool, StageError> {
        match self.wait_vblank(
            VblankWaitTarget::Relative(1),
            VblankWaitFlags::EVENT,
            screen.number,
            screen.number as usize,
        ) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            Err(error) => {
                Err(self
                    .failed(&format!("the driver does not report the refreshes of {}: {error}", screen.name)))
            }
        }
    }

    /// Takes the newest refresh that has happened; `None` if none has.
    ///
    /// # Errors
    /// The card has failed.
    pub(super) fn take_refresh(&self) -> Result<Option<ScreenRefresh>, StageError> {
        let events = match self.receive_events() {
            Ok(events) => events,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(self.failed(&error.to_string())),
        };
        let refresh = |event| match event {
            Event::Vblank(event) => {
                Some(ScreenRefresh { number: event.frame, at_ns: nanoseconds(event.time) })
            }
            _ => None,
        };
        Ok(events.filter_map(refresh).last())
    }
}

/// Returns the path of the first card with a screen that is on; `None` if there is none, or this program may not open it.
pub(super) fn first_with_screen() -> Option<String> {
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let mut cards: Vec<(u32, String)> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(CARD)?.parse().ok()?;
            Some((number, entry.path().to_str()?.to_owned()))
        })
        .collect();
    cards.sort_unstable();
    let has_screen = |path: &str| Card::open(path).and_then(|card| card.screen(None)).is_ok();
    cards.into_iter().map(|(_, path)| path).find(|path| has_screen(path))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the layout of a buffer, or what is not supported of it.
fn layout(found: &PlanarInfo) -> Result<Layout, String> {
    let pixels = match found.pixel_format() {
        DrmFourcc::Xrgb8888 | DrmFourcc::Argb8888 => PixelFormat::Bgr0,
        DrmFourcc::Xbgr8888 | DrmFourcc::Abgr8888 => PixelFormat::Rgba,
        other => {
            return Err(format!(
                "its pixels are {other}; supported: XR24, AR24, XB24, AB24 (8 bits a colour)"
            ));
        }
    };
    match found.modifier() {
        // Without a modifier, the arrangement is the driver's choice: linear for buffers that the CPU draws.
        None | Some(DrmModifier::Linear | DrmModifier::Invalid) => {}
        Some(other) => {
            let code: u64 = other.into();
            return Err(format!(
                "its buffer is not linear (modifier {code:#018x}), so that only the GPU can read it; capture it by the desktop's \
                 interface (`x11`, `wayland`)"
            ));
        }
    }
    let (width, height) = found.size();
    let plane = PlaneLayout {
        offset: found.offsets()[0] as usize,
        stride: found.pitches()[0] as usize,
        width: width as usize * 4,
        rows: height as usize,
    };
    Layout::from_planes(pixels, width, height, &[plane]).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_refused() {
        let error = |path| Card::open(path).err().unwrap().to_string();
        assert!(error("/dev/zero").contains("no display controller"), "{}", error("/dev/zero"));
        assert!(error("/dev/dri/nothing\n").contains("cannot open"), "{}", error("/dev/dri/nothing\n"));
    }
}
