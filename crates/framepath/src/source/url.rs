// SPDX-License-Identifier: MIT OR Apache-2.0
//! `url`: video of a network address. The scheme of the URL decides which protocol reads it: a live stream, or a file
//! on a web server.

mod address;
#[cfg(feature = "http")]
mod http;
mod live;
pub(crate) mod rtp;
mod rtsp;

use framepath_model::path::{Arg, DefaultValue, Definition, Hop, Hosts, INFINITE, ValueKind};

use self::address::shown;
use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::source::Source;
use crate::source::file::{LOOP, RATE, START, TRACK};

static DEFINITION: Definition = Definition::source("url", "packets of one video track of a network address")
    .args(&[
        Arg::word(
            "url",
            ValueKind::Text("a URL, such as https://example.org/clip.mp4"),
            "address of the video, which a sandboxed process demuxes: `http://HOST/PATH` or `https://HOST/PATH`, a file \
             (options start, track, loop, rate, ca); `rtsp://USER:PASSWORD@HOST:PORT/PATH`, a live stream (options \
             track, transport, latency, timeout, reconnect; never host=service)",
        )
        .known_as(&["location", "uri"]),
        TRACK,
        START,
        LOOP,
        RATE,
        Arg::option(
            "ca",
            ValueKind::Text("the path of a PEM file"),
            DefaultValue::Unset("the system's certificate authorities"),
            "https: certificate authorities to trust instead of the system's, such as the server's own certificate",
        ),
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
    ])
    .hosts(Hosts::Workers)
    .known_as(&["rtspsrc", "rtspsrc2", "souphttpsrc", "curlhttpsrc", "urisourcebin"]);

/// The option `latency` of a source that receives datagrams.
pub(super) const LATENCY: Arg = Arg::option(
    "latency",
    ValueKind::Duration,
    DefaultValue::Is("100ms"),
    "datagrams: longest wait for a missing one, after which it counts as lost; 0s: no wait, the lowest delay",
);
/// The option `timeout` of a live stream from the network.
const TIMEOUT: Arg = Arg::option(
    "timeout",
    ValueKind::Duration,
    DefaultValue::Is("10s"),
    "longest time without a packet or an answer, after which the connection counts as lost",
);
/// The option `reconnect` of a live stream from the network.
const RECONNECT: Arg = Arg::option(
    "reconnect",
    ValueKind::count_or(0, 1_000_000_000, "inf", INFINITE),
    DefaultValue::Is("0"),
    "maximum number of attempts in a row, after 0.1 s to 5 s each, to connect again after the stream has ended or \
     the connection is lost; the stream goes on at its next random access point, and the gap is counted",
);

/// Options for files on web servers only.
const FILE_OPTIONS: [&str; 4] = ["start", "loop", "rate", "ca"];
/// Options for live streams only.
const LIVE_OPTIONS: [&str; 4] = ["transport", "latency", "timeout", "reconnect"];
/// Options of a demuxer in a process of the service, which reaches no network.
const SERVICE_OPTIONS: [&str; 2] = ["socket", "service_uid"];

pub(crate) fn element() -> Element {
    Element::boxed_source(&DEFINITION, make)
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    let url = hop.text("url");
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        Some("rtsp") => {
            refuse(hop, &FILE_OPTIONS, "http:// and https://, not to rtsp://")?;
            refuse(hop, &SERVICE_OPTIONS, "host=service, which rtsp:// does not support")?;
            if hop.is_set("host") && hop.choice("host") == "service" {
                return Err(StageError::Option(format!(
                    "open {}: host=service is not supported for rtsp://, because the service's processes reach no \
                     network; remove it, then a sandboxed process of this program demuxes the stream",
                    shown(url)
                )));
            }
            Ok(Box::new(rtsp::make(hop, place)?))
        }
        Some(web @ ("http" | "https")) => {
            refuse(hop, &LIVE_OPTIONS, &format!("rtsp://, not to {web}://"))?;
            open_http(hop, place)
        }
        Some(scheme) => Err(StageError::Option(format!(
            "open {}: {scheme}:// is not supported; supported: rtsp://, http://, https://",
            shown(url)
        ))),
        None => Err(StageError::Option(format!(
            "open {}: the URL has no scheme; write rtsp://HOST/PATH, http://HOST/PATH or https://HOST/PATH, or \
             `file PATH` for a local file",
            shown(url)
        ))),
    }
}

/// Refuses the first of `options` that `hop` sets. `owner` names what they belong to.
///
/// # Errors
/// An option is set.
fn refuse(hop: &Hop, options: &[&str], owner: &str) -> Result<(), StageError> {
    match options.iter().find(|option| hop.is_set(option)) {
        None => Ok(()),
        Some(option) => {
            let url = shown(hop.text("url"));
            Err(StageError::Option(format!("open {url}: the option {option}= belongs to {owner}; remove it")))
        }
    }
}

#[cfg(feature = "http")]
fn open_http(hop: &Hop, place: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    Ok(Box::new(http::open(hop, place)?))
}

#[cfg(not(feature = "http"))]
fn open_http(hop: &Hop, _: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    Err(StageError::Option(format!(
        "open {}: this framepath was built without HTTP; build with `--features http` (`make build` does so by \
         itself)",
        shown(hop.text("url"))
    )))
}
