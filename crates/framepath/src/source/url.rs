// SPDX-License-Identifier: MIT OR Apache-2.0
//! `url`: video of a network address. The scheme of the URL decides which protocol reads it.

mod live;
pub(crate) mod rtp;
mod rtsp;

use framepath_model::path::{Arg, DefaultValue, Definition, Hop, Hosts, INFINITE, ValueKind};

use crate::element::{Element, HopPlace};
use crate::error::StageError;
use live::Live;

static DEFINITION: Definition = Definition::source("url", "packets of one video track of a network address")
    .args(&[
        Arg::word(
            "url",
            ValueKind::Text("a URL"),
            "address of the video: `rtsp://camera.local/stream`, `rtsp://user:password@[2001:db8::7]:8554/live`",
        )
        .known_as(&["location", "uri"]),
        Arg::option(
            "transport",
            ValueKind::choice(&["tcp", "udp"]),
            DefaultValue::Is("tcp"),
            "rtsp: way of the video's packets: `tcp` in RTSP's own connection, which loses none; `udp` in datagrams, \
             which are not delayed by a lost one",
        )
        .known_as(&["protocols", "rtsp_transport"]),
        LATENCY,
        TIMEOUT,
        RECONNECT,
        TRACK,
    ])
    .hosts(Hosts::Process)
    .known_as(&["rtspsrc", "rtspsrc2"]);

/// The option `latency` of a source that receives datagrams.
const LATENCY: Arg = Arg::option(
    "latency",
    ValueKind::Duration,
    DefaultValue::Is("100ms"),
    "datagrams: longest wait for a missing one, after which it counts as lost; 0s: none, the lowest delay",
);
/// The option `timeout` of a source that reads from the network.
const TIMEOUT: Arg = Arg::option(
    "timeout",
    ValueKind::Duration,
    DefaultValue::Is("10s"),
    "longest time without a packet or an answer, after which the connection counts as lost; datagrams: at most 10s",
);
/// The option `reconnect` of a source that reads from the network.
const RECONNECT: Arg = Arg::option(
    "reconnect",
    ValueKind::count_or(0, 1_000_000_000, "inf", INFINITE),
    DefaultValue::Is("0"),
    "number of attempts, after 0.1 s to 5 s each, to connect again after the stream has ended or the connection is \
     lost; the stream goes on at its next random access point, and the gap is counted",
);
/// The option `track` of a source that reads from the network.
const TRACK: Arg = Arg::option(
    "track",
    ValueKind::count(0, 99),
    DefaultValue::Unset("the best track"),
    "number of the video track, counted from 0",
);

pub(crate) fn element() -> Element {
    Element::source(&DEFINITION, make)
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<Live, StageError> {
    let url = hop.text("url");
    match url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase()).as_deref() {
        Some("rtsp") => rtsp::make(hop, place),
        Some(scheme) => Err(StageError::Option(format!(
            "the scheme {scheme} is not supported; supported: rtsp, as in `rtsp://camera.local/stream`"
        ))),
        None => Err(StageError::Option(
            "a URL begins with a scheme and `://`, as in `rtsp://camera.local/stream`; for a file, use `file PATH`"
                .to_owned(),
        )),
    }
}
