// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wayland`: an output of a Wayland compositor.

#[cfg(feature = "wayland")]
mod capture;
#[cfg(feature = "wayland")]
mod compositor;
#[cfg(feature = "wayland")]
mod images;

use framepath_model::path::{Arg, DefaultValue, Definition, Hop, ValueKind};

use super::x11::{CURSOR, POOL, RATE};
use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::source::{Source, frames};

static DEFINITION: Definition = Definition::source(
    "wayland",
    "frames of a Wayland compositor's output, one for each change (wlr-screencopy: sway and others)",
)
.args(&[
    Arg {
        default: DefaultValue::Unset("the first output"),
        ..Arg::word("output", ValueKind::Text("the name of an output, such as `DP-1`"), "the output to capture")
    },
    RATE,
    Arg::option(
        "region",
        ValueKind::Text("a rectangle, WIDTHxHEIGHT+X+Y, such as 640x480+0+0"),
        DefaultValue::Unset("all"),
        "part of the output, in its logical pixels: those of a screen without scaling; only changes inside it have frames",
    ),
    CURSOR,
    frames("0"),
    POOL,
])
.known_as(&["wf-recorder", "grim"]);

pub(crate) fn element() -> Element {
    Element::boxed_source(&DEFINITION, |hop, place| {
        let output = hop.is_set("output").then(|| hop.text("output").to_owned());
        open(WaylandOptions { output, ..options_of(hop) }, place)
    })
}

/// Options of the `wayland` source.
#[cfg_attr(not(feature = "wayland"), allow(dead_code))]
#[derive(Clone, Debug)]
pub(super) struct WaylandOptions {
    /// Name of the output; `None` for the first.
    pub(super) output: Option<String>,
    /// Text of the part to capture; `None` for all.
    pub(super) region: Option<String>,
    /// Maximum frame rate in Hz; 0: no limit.
    pub(super) rate: f64,
    /// True if frames show the pointer.
    pub(super) cursor: bool,
    /// Number of frames; 0: no limit.
    pub(super) frames: u64,
    /// Number of slots of the pool.
    pub(super) pool: u32,
}

/// Returns the options that `wayland` and `screen` have in common.
pub(super) fn options_of(hop: &Hop) -> WaylandOptions {
    WaylandOptions {
        output: None,
        region: hop.is_set("region").then(|| hop.text("region").to_owned()),
        rate: hop.rate("rate"),
        cursor: hop.flag("cursor"),
        frames: hop.count("frames"),
        pool: hop.count("pool") as u32,
    }
}

#[cfg(feature = "wayland")]
pub(super) fn open(options: WaylandOptions, place: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    Ok(Box::new(capture::Wayland::open(&options, place.outcomes.notes.clone())?))
}

#[cfg(not(feature = "wayland"))]
pub(super) fn open(_: WaylandOptions, _: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    Err(StageError::Option(
        "this framepath was built without Wayland; build with `--features wayland` (`make build` does so by itself)"
            .to_owned(),
    ))
}
