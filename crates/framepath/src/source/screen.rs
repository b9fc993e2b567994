// SPDX-License-Identifier: MIT OR Apache-2.0
//! `screen`: the screen of the desktop session that the program runs in, by the interface that the session has.

use framepath_model::path::Definition;

use crate::element::Element;
use crate::error::StageError;
use crate::source::{frames, wayland, x11};

static DEFINITION: Definition = Definition::source(
    "screen",
    "frames of this session's screen, one for each change: by `wayland` or by `x11`",
)
.args(&[x11::RATE, x11::REGION, x11::CURSOR, frames("0"), x11::POOL]);

/// Interface by which a screen is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScreenInterface {
    X11,
    Wayland,
}

pub(crate) fn element() -> Element {
    Element::boxed_source(&DEFINITION, |hop, place| {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (display, compositor) = (set("DISPLAY"), set("WAYLAND_DISPLAY"));
        match interface(display.as_deref(), compositor.as_deref())? {
            ScreenInterface::X11 => x11::open(x11::options_of(hop), place),
            ScreenInterface::Wayland => {
                wayland::open(wayland::options_of(hop), place).map_err(|error| match &display {
                    // The X server of a Wayland session shows only the windows of X programs, on a black screen.
                    Some(name) => StageError::Screen(format!(
                        "{error}; `x11 {name} window=NAME` captures a window of an X program"
                    )),
                    None => error,
                })
            }
        }
    })
}

/// Returns the interface of the session with these environment variables.
///
/// # Errors
/// The session has neither a Wayland compositor nor an X server.
fn interface(display: Option<&str>, compositor: Option<&str>) -> Result<ScreenInterface, StageError> {
    match (display, compositor) {
        // A Wayland session may have an X server beside.
        (_, Some(name)) => {
            log::info!("screen: by `wayland`, because WAYLAND_DISPLAY is {name}");
            Ok(ScreenInterface::Wayland)
        }
        (Some(name), None) => {
            log::info!("screen: by `x11`, because DISPLAY is {name}, and WAYLAND_DISPLAY is not set");
            Ok(ScreenInterface::X11)
        }
        (None, None) => Err(StageError::Option(
            "found no screen: neither an X server (DISPLAY) nor a Wayland compositor (WAYLAND_DISPLAY) is set; set \
             DISPLAY, or name the X server: `x11 :0`"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_captured_by_its_own_interface() {
        assert_eq!(interface(Some(":0"), None).unwrap(), ScreenInterface::X11);
        for display in [None, Some(":7")] {
            assert_eq!(interface(display, Some("wayland-1")).unwrap(), ScreenInterface::Wayland);
        }
        let none = interface(None, None).unwrap_err().to_string();
        assert!(none.contains("(DISPLAY)") && none.contains("(WAYLAND_DISPLAY)"), "{none}");
    }
}
