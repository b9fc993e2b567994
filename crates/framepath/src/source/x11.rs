// SPDX-License-Identifier: MIT OR Apache-2.0
//! `x11`: the screen or a window of an X server.

#[cfg(feature = "x11")]
mod capture;
#[cfg(feature = "x11")]
mod images;
#[cfg(feature = "x11")]
mod pointer;
#[cfg(feature = "x11")]
mod reply_limit;
#[cfg(feature = "x11")]
mod request_count;
#[cfg(feature = "x11")]
mod server;
#[cfg(feature = "x11")]
mod stale_rows;
#[cfg(feature = "x11")]
mod target;
#[cfg(feature = "x11")]
mod windows;

use framepath_model::path::{Arg, DefaultValue, Definition, ValueKind};

use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::source::screen_options::{CURSOR, POOL, RATE, REGION, ScreenOptions};
use crate::source::{Source, frames};

static DEFINITION: Definition =
    Definition::source("x11", "frames of an X server's screen or window, one for each change").args(&[
        Arg {
            default: DefaultValue::Unset("the display in $DISPLAY"),
            ..Arg::word("display", ValueKind::Text("the name of a display, such as `:0`"), "the X server")
        },
        RATE,
        REGION,
        Arg::option(
            "window",
            ValueKind::Text("a window's number, such as 0x2a00003, or a part of its name"),
            DefaultValue::Unset("the whole screen"),
            "window to capture, also where other windows cover it; when it is closed, the stream ends",
        ),
        CURSOR,
        frames("0"),
        POOL,
    ]);

pub(crate) fn element() -> Element {
    Element::boxed_source(&DEFINITION, |hop, place| {
        let display = hop.is_set("display").then(|| hop.text("display").to_owned());
        let window = hop.is_set("window").then(|| hop.text("window").to_owned());
        open(X11Options { display, window, screen: ScreenOptions::of(hop) }, place)
    })
}

/// Options of the `x11` source.
#[cfg_attr(not(feature = "x11"), allow(dead_code))]
#[derive(Clone, Debug)]
pub(super) struct X11Options {
    /// Name of the X server; `None`: the one in `DISPLAY`.
    pub(super) display: Option<String>,
    /// Number or part of the name of the window to capture; `None` for the screen.
    pub(super) window: Option<String>,
    pub(super) screen: ScreenOptions,
}

#[cfg(feature = "x11")]
pub(super) fn open(options: X11Options, place: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    Ok(Box::new(capture::X11::open(&options, place.outcomes.notes.clone())?))
}

#[cfg(not(feature = "x11"))]
pub(super) fn open(_: X11Options, _: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    Err(StageError::Option(
        "this framepath was built without the feature `x11`: build it with default features, as `make build` does, or \
         with `--features x11`"
            .to_owned(),
    ))
}
