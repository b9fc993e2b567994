// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wayland`: an output of a Wayland compositor.

#[cfg(feature = "wayland")]
mod capture;
#[cfg(feature = "wayland")]
mod compositor;
#[cfg(feature = "wayland")]
mod image_copy;
#[cfg(feature = "wayland")]
mod images;

use framepath_model::path::{Arg, DefaultValue, Definition, ValueKind};

use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::source::screen_options::{CURSOR, POOL, RATE, REGION, ScreenOptions};
use crate::source::{Source, frames};

static DEFINITION: Definition = Definition::source(
    "wayland",
    "frames of a Wayland compositor's output, one for each change (sway, COSMIC and others)",
)
.args(&[
    Arg {
        default: DefaultValue::Unset("the first output"),
        ..Arg::word(
            "output",
            ValueKind::Text("the name of an output, such as `DP-1`"),
            "the output to capture",
        )
    },
    RATE,
    REGION,
    CURSOR,
    frames("0"),
    POOL,
])
.known_as(&["wf-recorder", "grim"]);

pub(crate) fn element() -> Element {
    Element::boxed_source(&DEFINITION, |hop, place| {
        let output = hop.is_set("output").then(|| hop.text("output").to_owned());
        open(WaylandOptions { output, screen: ScreenOptions::of(hop) }, place)
    })
}

/// Options of the `wayland` source.
#[cfg_attr(not(feature = "wayland"), allow(dead_code))]
#[derive(Clone, Debug)]
pub(super) struct WaylandOptions {
    /// Name of the output; `None` for the first.
    pub(super) output: Option<String>,
    pub(super) screen: ScreenOptions,
}

#[cfg(feature = "wayland")]
pub(super) fn open(options: WaylandOptions, place: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    Ok(Box::new(capture::Wayland::open(&options, place.outcomes.notes.clone())?))
}

#[cfg(not(feature = "wayland"))]
pub(super) fn open(_: WaylandOptions, _: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    Err(not_built())
}

#[cfg(not(feature = "wayland"))]
fn not_built() -> StageError {
    StageError::Option(
        "this framepath was built without Wayland; build with `--features wayland` (`make build` does so by itself)"
            .to_owned(),
    )
}

/// Checks that the compositor in `WAYLAND_DISPLAY` can be captured.
///
/// # Errors
/// It cannot be reached or has no wlr-screencopy, or this framepath was built without `wayland`.
pub(super) fn check() -> Result<(), StageError> {
    #[cfg(feature = "wayland")]
    return compositor::Compositor::connect().map(drop);
    #[cfg(not(feature = "wayland"))]
    Err(not_built())
}
