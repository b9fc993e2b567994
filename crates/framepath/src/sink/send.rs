// SPDX-License-Identifier: MIT OR Apache-2.0
//! `send`: sends packets to viewers over WebRTC, or to one address over RTP.

#[cfg(feature = "net")]
mod control_lines;
#[cfg(feature = "net")]
mod live_metrics;
#[cfg(feature = "net")]
mod outgoing_frames;
#[cfg(feature = "net")]
mod qr_code;
#[cfg(feature = "net")]
pub(crate) mod remote_viewer;
#[cfg(feature = "net")]
mod rtp_clock;
#[cfg(feature = "net")]
mod rtp_sink;
#[cfg(feature = "net")]
mod whep_sink;

use framepath_model::path::{Arg, DefaultValue, Definition, ValueKind};

use crate::element::Element;
#[cfg(feature = "net")]
use crate::error::StageError;

static DEFINITION: Definition = Definition::sink(
    "send",
    "sends packets (h264, hevc, vp8, vp9, av1) by WebRTC or RTP, encrypted; no STUN, no TURN",
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
        ValueKind::Text("https://HOST/PATH or http://HOST:PORT/PATH"),
        DefaultValue::Unset("none: viewers connect to this program"),
        "publish to this WHIP server, which has the viewers; token= is its bearer token",
    ),
    Arg::option(
        "rtp",
        ValueKind::Text("an IP address and a port, such as 192.168.1.5:5004"),
        DefaultValue::Unset("none: WebRTC"),
        "send RTP to this address, such as that of a media server, encrypted by SRTP; reports (RTCP) go to the port behind it. \
         Nobody says whether the packets arrive",
    )
    .known_as(&["host", "udpsink"]),
    Arg::option(
        "sdp",
        ValueKind::Text("the path of a file"),
        DefaultValue::Unset("none"),
        "rtp: write the session description for receivers, with the key, such as `recv sdp=FILE` reads",
    ),
    Arg::option(
        "srtp",
        ValueKind::Text("30 bytes in Base64: key and salt"),
        DefaultValue::Unset("a random one, which only sdp= tells"),
        "rtp: key that the receiver knows, suite AES_CM_128_HMAC_SHA1_80",
    ),
    Arg::option(
        "plain",
        ValueKind::Flag,
        DefaultValue::Is("0"),
        "rtp: do not encrypt; everyone on the way can read and change the video",
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
    return Element::boxed(&DEFINITION, |hop, place| {
        Ok(match hop.is_set("rtp") {
            true => Box::new(rtp_sink::make(hop, place)?),
            false => {
                if let Some(option) = ["sdp", "srtp", "plain"].into_iter().find(|option| hop.is_set(option)) {
                    return Err(StageError::Option(format!(
                        "{option}= belongs to rtp=; add that, or remove it"
                    )));
                }
                Box::new(whep_sink::make(hop, place)?)
            }
        })
    });
    #[cfg(not(feature = "net"))]
    Element::boxed(&DEFINITION, |_, _| Err(crate::source::recv::not_built()))
}
