// SPDX-License-Identifier: MIT OR Apache-2.0
//! `recv`: packets of a sender over WebRTC.

#[cfg(feature = "net")]
mod remote_sender;
#[cfg(feature = "net")]
mod whep_source;

use framepath_model::path::{Arg, DefaultValue, Definition, INFINITE, ValueKind};

use super::url::LATENCY;
use crate::element::Element;
use crate::error::StageError;

/// Largest depth of the jitter buffer, frame intervals.
const MOST_JITTER: u64 = 2;
/// Value of `jitter=auto`, which is no depth.
const ADAPTIVE_JITTER: u64 = MOST_JITTER + 1;

static DEFINITION: Definition = Definition::source(
    "recv",
    "packets (h264, hevc, vp8, vp9, av1) of a WebRTC sender such as `send`; no STUN, no TURN",
)
.args(&[
    Arg::word(
        "url",
        ValueKind::Text("a WHEP endpoint, such as http://192.168.1.5:8443/whep, or a pairing code"),
        "endpoint of the sender (WHEP over HTTP), or the pairing code that `send` prints (FP1-...): it has the address and the \
         token, and pins the sender's certificate",
    )
    .known_as(&["location", "uri", "whep-endpoint"]),
    Arg::option(
        "token",
        ValueKind::Text("the sender's token"),
        DefaultValue::Unset("none"),
        "secret that the sender requires, sent as a bearer token",
    )
    .known_as(&["auth-token"]),
    LATENCY,
    Arg::option(
        "timeout",
        ValueKind::Duration,
        DefaultValue::Is("10s"),
        "longest wait for the sender's answer, and longest time without a datagram; afterwards the run fails",
    ),
    Arg::option(
        "jitter",
        ValueKind::count_or(0, MOST_JITTER, "auto", ADAPTIVE_JITTER),
        DefaultValue::Is("auto"),
        "depth of the jitter buffer, frame intervals, so that frames leave at even intervals; auto: 0, and up to 2 while \
         frames are late by more than half an interval; a late frame is not dropped",
    ),
    Arg::option(
        "backlog",
        ValueKind::Duration,
        DefaultValue::Unset("no limit but 64 MiB"),
        "longest time for which a frame may wait for the next hop; then the frames up to the next keyframe are dropped and \
         counted, and a keyframe is requested, so that the delay of a slow path does not grow",
    ),
    Arg::option(
        "reconnect",
        ValueKind::count_or(0, 1_000_000_000, "inf", INFINITE),
        DefaultValue::Is("0"),
        "maximum number of attempts in a row, after 0.1 s to 5 s each and within `timeout=`, to connect again after the \
         stream has ended or nothing has arrived for 3 s; the stream goes on at a keyframe, and the gap is counted",
    ),
])
.known_as(&["whepsrc", "whepclientsrc", "webrtcsrc"]);

pub(crate) fn element() -> Element {
    #[cfg(feature = "net")]
    return Element::source(&DEFINITION, whep_source::make);
    #[cfg(not(feature = "net"))]
    Element::boxed_source(&DEFINITION, |_, _| Err(not_built()))
}

/// Makes the error of `send` and `recv` in a build without the feature `net`.
#[cfg(not(feature = "net"))]
pub(crate) fn not_built() -> StageError {
    StageError::Option(
        "this framepath was built without WebRTC; build with `--features net` (`make build` does so by itself)"
            .to_owned(),
    )
}

/// Makes the error of a hop from one of framepath-net.
#[cfg(feature = "net")]
pub(crate) fn net_error(error: framepath_net::WebrtcError) -> StageError {
    use framepath_net::WebrtcError;
    match error {
        WebrtcError::Io { what, error } => StageError::Io { what, error },
        WebrtcError::Canceled => StageError::io("connect")(framepath_os::process::cancel::canceled()),
        error => StageError::Option(error.to_string()),
    }
}
