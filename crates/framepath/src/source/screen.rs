// SPDX-License-Identifier: MIT OR Apache-2.0
//! `screen`: the screen of the desktop session that the program runs in, by the interface that the session has.

use framepath_model::path::Definition;

use crate::element::Element;
use crate::error::StageError;
use crate::source::{frames, x11};

static DEFINITION: Definition =
    Definition::source("screen", "frames of this session's screen, one for each change (now only X11)")
        .args(&[x11::RATE, x11::REGION, x11::CURSOR, frames("0"), x11::POOL]);

pub(crate) fn element() -> Element {
    Element::boxed_source(&DEFINITION, |hop, place| {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        must_be_x11(set("DISPLAY").as_deref(), set("WAYLAND_DISPLAY").as_deref())?;
        x11::open(x11::options_of(hop), place)
    })
}

/// Succeeds if the session with these environment variables is one of an X server.
///
/// # Errors
/// The session has a Wayland compositor, or neither.
fn must_be_x11(display: Option<&str>, wayland: Option<&str>) -> Result<(), StageError> {
    match (display, wayland) {
        (Some(_), None) => Ok(()),
        // The X server of a Wayland session shows only the windows of X programs, on a black screen.
        (display, Some(wayland)) => Err(StageError::Option(format!(
            "cannot capture this session: its screen belongs to a Wayland compositor (WAYLAND_DISPLAY is {wayland}), and \
             only X servers are supported{}",
            display.map_or(String::new(), |name| format!(
                "; `x11 {name} window=NAME` captures a window of an X program"
            ))
        ))),
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
    fn a_session_without_an_x_server_is_named() {
        let refused = |display, wayland| must_be_x11(display, wayland).unwrap_err().to_string();
        assert!(must_be_x11(Some(":0"), None).is_ok());
        let wayland = refused(None, Some("wayland-1"));
        assert!(wayland.contains("WAYLAND_DISPLAY is wayland-1") && !wayland.contains("x11 "), "{wayland}");
        assert!(refused(Some(":7"), Some("wayland-1")).contains("`x11 :7 window=NAME`"));
        let none = refused(None, None);
        assert!(none.contains("(DISPLAY)") && none.contains("(WAYLAND_DISPLAY)"), "{none}");
    }
}
