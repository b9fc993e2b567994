// SPDX-License-Identifier: MIT OR Apache-2.0
//! `recv`: packets of a sender over WebRTC, or in RTP without a session.

#[cfg(feature = "net")]
mod remote_sender;
#[cfg(feature = "net")]
mod whep_source;

use framepath_model::path::{Arg, DefaultValue, Definition, Hop, INFINITE, ValueKind};

use super::url::{LATENCY, rtp};
use crate::element::Element;
use crate::error::StageError;

/// Largest depth of the jitter buffer, frame intervals.
const MOST_JITTER: u64 = 2;
/// Value of `jitter=auto`, which is no depth.
const ADAPTIVE_JITTER: u64 = MOST_JITTER + 1;

static DEFINITION: Definition = Definition::source(
    "recv",
    "packets (h264, hevc, vp8, vp9, av1) of a WebRTC sender such as `send`, or of RTP",
)
.args(&[
    Arg {
        default: DefaultValue::Unset("none: rtp= or sdp="),
        ..Arg::word(
            "url",
            ValueKind::Text("a WHEP endpoint, such as http://192.168.1.5:8443/whep, or a pairing code"),
            "endpoint of the sender (WHEP over HTTP), or the pairing code that `send` prints (FP1-...): it has the address and the \
             token, and pins the sender's certificate",
        )
    }
    .known_as(&["location", "uri", "whep-endpoint"]),
    Arg::option(
        "rtp",
        ValueKind::Text("an IP address and a port, such as 0.0.0.0:5004"),
        DefaultValue::Unset("none: WebRTC"),
        "receive RTP at this address of this computer, which a camera or a media server sends to, in a sandboxed worker",
    )
    .known_as(&["udpsrc"]),
    Arg::option(
        "sdp",
        ValueKind::Text("the path of a session description"),
        DefaultValue::Unset("none"),
        "receive RTP as this file says, such as that of `send sdp=`: address, port, codec and key",
    ),
    Arg::option(
        "codec",
        ValueKind::choice(&["h264", "hevc", "vp8", "vp9", "av1"]),
        DefaultValue::Is("h264"),
        "rtp: codec of the packets",
    ),
    Arg::option(
        "payload",
        ValueKind::count(96, 127),
        DefaultValue::Is("96"),
        "rtp: payload type of the packets; others are ignored",
    ),
    Arg::option(
        "srtp",
        ValueKind::Text("30 bytes in Base64: key and salt"),
        DefaultValue::Unset("none: packets without encryption"),
        "rtp: key that the sender uses, suite AES_CM_128_HMAC_SHA1_80",
    ),
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
    Element::boxed_source(&DEFINITION, |hop, place| match transport(hop)? {
        Transport::Rtp => rtp::receive(hop, place),
        #[cfg(feature = "net")]
        Transport::WebRtc => Ok(Box::new(whep_source::make(hop, place)?)),
        #[cfg(not(feature = "net"))]
        Transport::WebRtc => Err(not_built()),
    })
}

/// Way of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    WebRtc,
    Rtp,
}

/// Options of one way only.
const OF_WEBRTC: [&str; 3] = ["token", "jitter", "backlog"];
const OF_RTP: [&str; 3] = ["codec", "payload", "srtp"];

/// Returns the way that the options of the hop choose.
///
/// # Errors
/// They choose none or several, or an option belongs to another way.
fn transport(hop: &Hop) -> Result<Transport, StageError> {
    let chosen: Vec<&str> = ["url", "rtp", "sdp"].into_iter().filter(|name| hop.is_set(name)).collect();
    let wrong = |text: String| Err(StageError::Option(text));
    let transport = match chosen[..] {
        [] => {
            return wrong(
                "no sender: name a WHEP endpoint or a pairing code, or receive RTP with rtp=ADDRESS:PORT or sdp=FILE".to_owned(),
            );
        }
        ["url"] => Transport::WebRtc,
        [_] => Transport::Rtp,
        [first, second, ..] => {
            return wrong(format!("{first}= and {second}= exclude each other; remove one"));
        }
    };
    let set = |names: [&'static str; 3]| names.into_iter().find(|name| hop.is_set(name));
    match (transport, set(OF_WEBRTC), set(OF_RTP)) {
        (Transport::Rtp, Some(name), _) => {
            wrong(format!("{name}= is for WebRTC, and RTP has no sessions; remove it"))
        }
        (Transport::WebRtc, _, Some(name)) => {
            wrong(format!("{name}= belongs to rtp=; add that, or remove it"))
        }
        (Transport::Rtp, _, Some(name)) if chosen == ["sdp"] => {
            wrong(format!("{name}= belongs to rtp=; the session description has its value, so remove it"))
        }
        _ => Ok(transport),
    }
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
