// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portal`: a screen or window that the user chooses in the desktop's dialog.

#[cfg(feature = "portal")]
mod access;
#[cfg(feature = "portal")]
mod capture;

use framepath_model::path::{Arg, DefaultValue, Definition, ValueKind};

use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::source::screen_options::{CURSOR, POOL, RATE, ScreenOptions};
use crate::source::{Source, frames};

static DEFINITION: Definition = Definition::source(
    "portal",
    "frames of a screen or window chosen in the desktop's dialog (GNOME, KDE and others)",
)
.args(&[
    Arg::option(
        "kind",
        ValueKind::choice(&["any", "screen", "window"]),
        DefaultValue::Is("any"),
        "what the dialog offers",
    ),
    RATE,
    CURSOR,
    frames("0"),
    POOL,
])
.known_as(&["pipewiresrc"]);

pub(crate) fn element() -> Element {
    Element::boxed_source(&DEFINITION, |hop, place| {
        let kind = match hop.choice("kind") {
            "screen" => PortalKind::Screen,
            "window" => PortalKind::Window,
            _ => PortalKind::Any,
        };
        open(PortalOptions { kind, screen: ScreenOptions::of(hop) }, place)
    })
}

/// Offer of the dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortalKind {
    Any,
    Screen,
    Window,
}

/// Options of the `portal` source.
#[cfg_attr(not(feature = "portal"), allow(dead_code))]
#[derive(Clone, Debug)]
pub(super) struct PortalOptions {
    pub(super) kind: PortalKind,
    pub(super) screen: ScreenOptions,
}

#[cfg(feature = "portal")]
pub(super) fn open(options: PortalOptions, place: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    Ok(Box::new(capture::Portal::open(&options, place.outcomes.notes.clone())?))
}

#[cfg(not(feature = "portal"))]
pub(super) fn open(_: PortalOptions, _: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    Err(StageError::Option(
        "this framepath was built without `portal`; build with `cargo build --release --features portal` (needs \
         libpipewire-0.3-dev and libclang-dev)"
            .to_owned(),
    ))
}
