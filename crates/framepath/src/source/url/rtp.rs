// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rtp`: video in RTP datagrams, as a session description (SDP) says.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use framepath_model::access_unit::Coding;
use framepath_model::path::{Arg, DefaultValue, Definition, Hop, Hosts, ValueKind};
use framepath_model::session_description::SessionDescription;
use framepath_model::shown::shown;
use framepath_model::wire::{NETWORK_TEXT_BYTES, NetworkTransport};
use framepath_os::process::cancel;

use super::live::Live;
use super::{LATENCY, RECONNECT, TIMEOUT, TRACK};
use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::source::Source;

static DEFINITION: Definition = Definition::source("rtp", "packets of a video that arrives in RTP datagrams")
    .args(&[
        Arg::option(
            "sdp",
            ValueKind::Text("the path of a session description"),
            DefaultValue::Required,
            "file with the session description: the address and port to receive at, and the codec. `ffmpeg -re -i \
             clip.mp4 -c copy -an -f rtp rtp://127.0.0.1:5004 -sdp_file clip.sdp` writes one",
        ),
        LATENCY,
        TIMEOUT,
        RECONNECT,
        TRACK,
    ])
    .hosts(Hosts::Process)
    .known_as(&["udpsrc", "sdpsrc"]);

/// Codecs of RTP streams, by their names in paths.
const CODECS: [(&str, Coding); 5] = [
    ("h264", Coding::H264),
    ("hevc", Coding::Hevc),
    ("vp8", Coding::Vp8),
    ("vp9", Coding::Vp9),
    ("av1", Coding::Av1),
];

pub(crate) fn element() -> Element {
    Element::source(&DEFINITION, make)
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<Live, StageError> {
    let timeout = Duration::from_nanos(hop.duration_ns("timeout"));
    let text = description(hop.text("sdp"), timeout)?;
    let texts = move || Ok(vec![text.clone()]);
    Live::new(hop, hop, place, NetworkTransport::Sdp, None, Box::new(texts))
}

/// Makes the source of a hop that has no arguments for workers, and one of the options `rtp`, with `codec` and `srtp`, and `sdp`.
///
/// # Errors
/// An option is invalid, or nothing arrives in time.
pub(crate) fn receive(hop: &Hop, place: &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> {
    let text = match hop.is_set("sdp") {
        true => description(hop.text("sdp"), Duration::from_nanos(hop.duration_ns("timeout")))?,
        false => described(hop)?.into_bytes(),
    };
    let texts = move || Ok(vec![text.clone()]);
    let worker = Hop::with_defaults(&DEFINITION);
    Ok(Box::new(Live::new(hop, &worker, place, NetworkTransport::Sdp, None, Box::new(texts))?))
}

/// Returns the session description of a stream at the address in `rtp=`.
fn described(hop: &Hop) -> Result<String, StageError> {
    let at = hop.text("rtp");
    let wrong = || {
        StageError::Option(format!(
            "rtp={}: expected an IP address of this computer and a port, such as 0.0.0.0:5004 or [::]:5004",
            shown(at)
        ))
    };
    let to: SocketAddr = at.parse().map_err(|_| wrong())?;
    if to.port() == 0 {
        return Err(wrong());
    }
    let key = hop.is_set("srtp").then(|| hop.text("srtp"));
    let is_base64 = |key: &str| {
        key.len() == 40 && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
    };
    if key.is_some_and(|key| !is_base64(key)) {
        let expected = "expected 40 characters of Base64, 30 bytes: key and salt";
        return Err(StageError::Option(format!("srtp=: {expected}")));
    }
    let coding = CODECS.into_iter().find(|(name, _)| *name == hop.choice("codec"));
    let coding = coding.map_or(Coding::H264, |(_, coding)| coding);
    let payload_type = hop.count("payload") as u8;
    Ok(SessionDescription { to, coding, payload_type, key }.to_string())
}

/// Reads the session description in file `path`; waits up to `timeout` for the bytes of a fifo.
///
/// # Errors
/// The file cannot be read, is empty or too large, is not a session description, or has an invalid port for video.
fn description(path: &str, timeout: Duration) -> Result<Vec<u8>, StageError> {
    let most = NETWORK_TEXT_BYTES as usize;
    let text = cancel::read_within(Path::new(path), most + 1, timeout).map_err(StageError::io(path))?;
    if text.len() > most {
        return Err(StageError::Option(format!("{path}: a session description has at most {most} bytes")));
    }
    if !text.starts_with(b"v=0") {
        let wrong = format!("{path}: not a session description, which begins with `v=0`");
        return Err(StageError::Option(wrong));
    }
    if let Some(port) = wrong_port(&text) {
        return Err(StageError::Option(format!(
            "{path}: the port `{port}` of the video is not a number from 1 to 65535"
        )));
    }
    Ok(text)
}

/// Returns the first port of a video in the session description `text` that is not a number from 1 to 65535; `None` if
/// there is none. libavformat uses the lower 16 bits of any number.
fn wrong_port(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    // `m=video PORT/NUMBER_OF_PORTS PROTOCOL FORMATS` (RFC 8866, 5.14)
    let mut ports = text.lines().filter_map(|line| {
        let port = line.strip_prefix("m=video")?.split_whitespace().next().unwrap_or_default();
        Some(port.split('/').next().unwrap_or_default())
    });
    ports.find(|port| !port.parse().is_ok_and(|port: u16| port > 0)).map(str::to_owned)
}
