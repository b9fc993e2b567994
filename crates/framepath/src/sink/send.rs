// SPDX-License-Identifier: MIT OR Apache-2.0
//! `send`: sends packets to viewers over WebRTC.

#[cfg(feature = "net")]
mod control_lines;
#[cfg(feature = "net")]
mod live_metrics;
#[cfg(feature = "net")]
mod qr_code;
#[cfg(feature = "net")]
pub(crate) mod remote_viewer;
#[cfg(feature = "net")]
mod rtp_clock;
#[cfg(feature = "net")]
mod whep_sink;

use framepath_model::path::{Arg, DefaultValue, Definition, ValueKind};

use crate::element::Element;

static DEFINITION: Definition = Definition::sink(
    "send",
    "sends packets (h264, hevc, vp8, vp9, av1) to WebRTC viewers, encrypted; no STUN, no TURN",
)
.args(&[
    Arg::option(
        "listen",
        ValueKind::Text("an IP address and a port, such as 192.168.1.5:8443"),
        DefaultValue::Is("127.0.0.1:8443"),
        "address and port for viewers, by TCP (HTTP: WHEP) and UDP (video); the default is this computer only; \
         0.0.0.0 is all networks; port 0: a free port",
    ),
    Arg::option(
        "whip",
        ValueKind::Text("http://HOST:PORT/PATH"),
        DefaultValue::Unset("none: viewers connect to this program"),
        "publish to this WHIP server, which has the viewers; token= is its bearer token",
    ),
    Arg::option(
        "token",
        ValueKind::Text("a secret without spaces"),
        DefaultValue::Unset("a random one, printed to standard error"),
        "secret that a viewer sends as a bearer token; without it, a viewer gets HTTP status 401 and no packet",
    ),
    Arg::option(
        "wait",
        ValueKind::count(0, 64),
        DefaultValue::Is("0"),
        "number of viewers to wait for before the stream starts, so that they get every frame; 0 does not wait",
    ),
    Arg::option(
        "numbers",
        ValueKind::Flag,
        DefaultValue::Is("1"),
        "number the frames in user data of h264 and hevc, so that both ledgers match frames behind a media server",
    ),
    Arg::option(
        "qr",
        ValueKind::Flag,
        DefaultValue::Is("0"),
        "also print the pairing code for `framepath view` as a QR code; without effect with token=",
    ),
    Arg::option(
        "control",
        ValueKind::Flag,
        DefaultValue::Is("0"),
        "read lines from standard input: `viewers` lists the viewers, `table` shows where the last frames spent their time, \
         `end NUMBER` and `end all` end sessions",
    ),
])
.known_as(&["webrtcsink", "whipclientsink", "whepserversink", "webrtcbin"]);

pub(crate) fn element() -> Element {
    #[cfg(feature = "net")]
    return Element::stage(&DEFINITION, whep_sink::make);
    #[cfg(not(feature = "net"))]
    Element::boxed(&DEFINITION, |_, _| Err(crate::source::recv::not_built()))
}
