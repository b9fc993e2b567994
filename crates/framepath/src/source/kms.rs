// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kms`: what a display controller scans out.

#[cfg(feature = "kms")]
mod capture;
#[cfg(feature = "kms")]
pub(super) mod card;
#[cfg(feature = "kms")]
mod refresh_clock;
#[cfg(feature = "kms")]
mod scanout;

use framepath_model::path::{Arg, DefaultValue, Definition, ValueKind};

use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::source::screen_options::{REGION, ScreenOptions};
use crate::source::{Source, frames};

static DEFINITION: Definition =
    Definition::source("kms", "frames of a screen as the kernel shows it, one for each refresh (as root)")
        .args(&[
            Arg {
                default: DefaultValue::Unset("the first with a screen that is on"),
                ..Arg::word(
                    "card",
                    ValueKind::Text("the path of a card, such as /dev/dri/card0"),
                    "the display controller",
                )
            },
            Arg::option(
                "output",
                ValueKind::Text("the name of a connector, such as `HDMI-A-1`"),
                DefaultValue::Unset("the first that is on"),
                "screen to capture",
            ),
            Arg::option(
                "rate",
                ValueKind::Rate,
                DefaultValue::Is("60"),
                "maximum of frames per second; 0: one for each refresh of the screen",
            ),
            REGION,
            frames("0"),
        ])
        .known_as(&["kmsgrab"]);

pub(crate) fn element() -> Element {
    Element::boxed_source(&DEFINITION, |hop, place| {
        let text = |name| hop.is_set(name).then(|| hop.text(name).to_owned());
        let screen = ScreenOptions::of(hop);
        open(KmsOptions { card: text("card"), output: text("output"), screen }, place)
    })
}

/// Options of the `kms` source.
#[cfg_attr(not(feature = "kms"), allow(dead_code))]
#[derive(Clone, Debug)]
pub(super) struct KmsOptions {
    /// Path of the card; `None` for the first one with a screen that is on.
    pub(super) card: Option<String>,
    /// Name of the connector; `None` for the first one that is on.
    pub(super) output: Option<String>,
    pub(super) screen: ScreenOptions,
}

#[cfg(feature = "kms")]
pub(super) fn open(options: KmsOptions, place: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    Ok(Box::new(capture::Kms::open(&options, place.outcomes.notes.clone())?))
}

#[cfg(not(feature = "kms"))]
pub(super) fn open(_: KmsOptions, _: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    Err(StageError::Option(
        "this framepath was built without `kms`; build with `--features kms` (`make build` does so by itself)".to_owned(),
    ))
}

/// Returns the path of the first card with a screen that is on; `None` if there is none, or this program may not open it.
pub(super) fn first_card() -> Option<String> {
    #[cfg(feature = "kms")]
    {
        card::first_with_screen()
    }
    #[cfg(not(feature = "kms"))]
    None
}
