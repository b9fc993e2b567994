// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of the sources that capture a screen, and their answer to requests.

use framepath_model::format::Layout;
use framepath_model::path::{Arg, DefaultValue, Hop, ValueKind};
use framepath_model::stream::{Rational, StreamInfo};

use crate::request::{Answered, Request};
use crate::source::test::rate_of;

/// Seconds in a tick of the frames' times.
const TIME_BASE: Rational = Rational::new(1, 1_000_000);

/// The option `rate`.
pub(super) const RATE: Arg = Arg::option(
    "rate",
    ValueKind::Rate,
    DefaultValue::Is("60"),
    "maximum of frames per second; a screen that does not change has none; 0: a frame for each change",
);
/// The option `region`.
pub(super) const REGION: Arg = Arg::option(
    "region",
    ValueKind::Text("a rectangle in pixels, WIDTHxHEIGHT+X+Y, such as 640x480+0+0"),
    DefaultValue::Unset("all"),
    "part of the screen or window; only changes inside it have frames",
);
/// The option `cursor`.
pub(super) const CURSOR: Arg =
    Arg::option("cursor", ValueKind::Flag, DefaultValue::Is("yes"), "draw the mouse pointer into the frames");
/// The option `pool`.
pub(super) const POOL: Arg = Arg::option(
    "pool",
    ValueKind::count(1, 64),
    DefaultValue::Is("8"),
    "number of frames in the source's pool; while all are in use, the source waits, then captures the newest picture",
);

/// Options of a source that captures a screen.
#[cfg_attr(not(any(feature = "portal", feature = "wayland", feature = "x11")), allow(dead_code))]
#[derive(Clone, Debug)]
pub(super) struct ScreenOptions {
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

impl ScreenOptions {
    /// Reads those options that the stage has.
    pub(super) fn of(hop: &Hop) -> ScreenOptions {
        let has = |name| hop.def.arg(name).is_some();
        ScreenOptions {
            region: (has("region") && hop.is_set("region")).then(|| hop.text("region").to_owned()),
            rate: hop.rate("rate"),
            cursor: has("cursor") && hop.flag("cursor"),
            frames: hop.count("frames"),
            pool: if has("pool") { hop.count("pool") as u32 } else { 0 },
        }
    }

    /// Returns the number of frames to emit; `u64::MAX` if there is no limit.
    #[cfg_attr(
        not(any(feature = "kms", feature = "portal", feature = "wayland", feature = "x11")),
        allow(dead_code)
    )]
    pub(super) fn most_frames(&self) -> u64 {
        if self.frames == 0 { u64::MAX } else { self.frames }
    }

    /// Describes a stream of frames with this layout.
    #[cfg_attr(
        not(any(feature = "kms", feature = "portal", feature = "wayland", feature = "x11")),
        allow(dead_code)
    )]
    pub(super) fn stream_info(&self, layout: &Layout) -> StreamInfo {
        let frame_rate = if self.rate > 0.0 { rate_of(self.rate) } else { Rational::new(0, 1) };
        StreamInfo { time_base: TIME_BASE, ..StreamInfo::from_layout(layout, frame_rate) }
    }
}

/// Answers a request to a source whose frames come with changes. Sets `wants_frame` if the request needs a frame even if nothing changes: that for a
/// keyframe, and the end of a congestion in which the last change was dropped.
#[cfg_attr(not(any(feature = "portal", feature = "wayland", feature = "x11")), allow(dead_code))]
pub(super) fn answer(request: &Request, wants_frame: &mut bool) -> Answered {
    match request {
        Request::Keyframe | Request::Congested(false) => *wants_frame = true,
        Request::Flush => {}
        _ => return Answered::PassOn,
    }
    Answered::Done
}
