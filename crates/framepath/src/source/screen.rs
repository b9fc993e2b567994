// SPDX-License-Identifier: MIT OR Apache-2.0
//! `screen`: the screen of the desktop session that the program runs in, by the interface that the session has, or what the machine's
//! own screen shows.

use framepath_model::path::Definition;

use crate::element::Element;
use crate::error::StageError;
use crate::source::frames;
use crate::source::kms::{self, KmsOptions};
use crate::source::portal::{self, PortalKind, PortalOptions};
use crate::source::screen_options::{CURSOR, POOL, RATE, REGION, ScreenOptions};
use crate::source::wayland::{self, WaylandOptions};
use crate::source::x11::{self, X11Options};

static DEFINITION: Definition = Definition::source(
    "screen",
    "frames of this session's screen: by `wayland`, `portal` or `x11`; without a session: by `kms`",
)
.args(&[RATE, REGION, CURSOR, frames("0"), POOL]);

/// Interface by which a screen is captured.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ScreenInterface {
    X11,
    Wayland,
    /// By the desktop's portal, because `wayland` fails for this reason.
    Portal(String),
    /// By the kernel, of the card with this path.
    Kms(String),
}

pub(crate) fn element() -> Element {
    Element::boxed_source(&DEFINITION, |hop, place| {
        let set = |name| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
            Some(value.to_string_lossy().into_owned())
        };
        let (display, compositor) = (set("DISPLAY"), set("WAYLAND_DISPLAY"));
        let screen = ScreenOptions::of(hop);
        // The X server of a Wayland session shows only the windows of X programs, on a black screen.
        let advised = |error: StageError| match &display {
            Some(name) => StageError::Screen(format!(
                "{error}; `x11 {name} window=NAME` captures a window of an X program"
            )),
            None => error,
        };
        match interface(display.as_deref(), compositor.as_deref(), portal_reason, kms::first_card)? {
            ScreenInterface::X11 => x11::open(X11Options { display: None, window: None, screen }, place),
            ScreenInterface::Portal(reason) => {
                portal::open(PortalOptions { kind: PortalKind::Screen, screen }, place).map_err(|error| {
                    advised(StageError::Screen(format!("{error}; and by `wayland`: {reason}")))
                })
            }
            ScreenInterface::Kms(card) => {
                kms::open(KmsOptions { card: Some(card), output: None, screen }, place)
            }
            ScreenInterface::Wayland => {
                wayland::open(WaylandOptions { output: None, screen }, place).map_err(advised)
            }
        }
    })
}

/// Returns why the compositor of the session is captured by the portal; `None` if it is not: it can be captured by `wayland`, or this
/// framepath was built without the portal.
fn portal_reason() -> Option<String> {
    if cfg!(feature = "portal") { wayland::check().err().map(|error| error.to_string()) } else { None }
}

/// Returns the interface of the session with these environment variables; `portal_reason` returns why the compositor needs the portal, and
/// `card` a card that has a screen.
///
/// # Errors
/// The session has neither a Wayland compositor nor an X server, and there is no card.
fn interface(
    display: Option<&str>,
    compositor: Option<&str>,
    portal_reason: impl FnOnce() -> Option<String>,
    card: impl FnOnce() -> Option<String>,
) -> Result<ScreenInterface, StageError> {
    match (display, compositor) {
        // A Wayland session may have an X server beside.
        (_, Some(name)) => match portal_reason() {
            Some(reason) => {
                log::info!("screen: by `portal`, because WAYLAND_DISPLAY is {name}, and `wayland` fails: {reason}");
                Ok(ScreenInterface::Portal(reason))
            }
            None => {
                log::info!("screen: by `wayland`, because WAYLAND_DISPLAY is {name}");
                Ok(ScreenInterface::Wayland)
            }
        },
        (Some(name), None) => {
            log::info!("screen: by `x11`, because DISPLAY is {name}, and WAYLAND_DISPLAY is not set");
            Ok(ScreenInterface::X11)
        }
        (None, None) => match card() {
            Some(card) => {
                let why = "neither WAYLAND_DISPLAY nor DISPLAY is set";
                log::info!("screen: by `kms`, because {why}, and {card} has a screen that is on");
                Ok(ScreenInterface::Kms(card))
            }
            None => Err(StageError::Option(
                "found no screen: neither an X server (DISPLAY) nor a Wayland compositor (WAYLAND_DISPLAY) is set, and there is no \
                 card with a screen that is on (/dev/dri), or this program may not open it; set DISPLAY, or name the X server: \
                 `x11 :0`"
                    .to_owned(),
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_captured_by_its_own_interface() {
        let card = || Some("/dev/dri/card0".to_owned());
        assert_eq!(interface(Some(":0"), None, || None, card).unwrap(), ScreenInterface::X11);
        for display in [None, Some(":7")] {
            let found = interface(display, Some("wayland-1"), || None, card);
            assert_eq!(found.unwrap(), ScreenInterface::Wayland);
            let found = interface(display, Some("wayland-1"), || Some("no protocol".to_owned()), card);
            assert_eq!(found.unwrap(), ScreenInterface::Portal("no protocol".to_owned()));
        }
        let kernel = ScreenInterface::Kms("/dev/dri/card0".to_owned());
        assert_eq!(interface(None, None, || None, card).unwrap(), kernel);
        let none = interface(None, None, || None, || None).unwrap_err().to_string();
        assert!(
            none.contains("(DISPLAY)") && none.contains("(WAYLAND_DISPLAY)") && none.contains("/dev/dri"),
            "{none}"
        );
    }
}
