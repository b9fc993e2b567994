// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rtp`: video in RTP datagrams, as a session description (SDP) says.

use std::path::Path;
use std::time::Duration;

use framepath_model::path::{Arg, DefaultValue, Definition, Hop, Hosts, ValueKind};
use framepath_model::wire::{NETWORK_TEXT_BYTES, NetworkTransport};
use framepath_os::process::cancel;

use super::live::Live;
use super::{LATENCY, RECONNECT, TIMEOUT, TRACK};
use crate::element::{Element, HopPlace};
use crate::error::StageError;

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

pub(crate) fn element() -> Element {
    Element::source(&DEFINITION, make)
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<Live, StageError> {
    let timeout = Duration::from_nanos(hop.duration_ns("timeout"));
    let text = description(hop.text("sdp"), timeout)?;
    let texts = move || Ok(vec![text.clone()]);
    Live::new(hop, place, NetworkTransport::Sdp, None, Box::new(texts))
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
