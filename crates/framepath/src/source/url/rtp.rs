// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rtp`: video in RTP datagrams, as a session description (SDP) says.

use std::io::Read;
use std::path::Path;

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
    let text = description(hop.text("sdp"))?;
    let texts = move || Ok(vec![text.clone()]);
    Live::new(hop, place, NetworkTransport::Sdp, None, Box::new(texts))
}

/// Reads the session description in file `path`.
///
/// # Errors
/// The file cannot be read, is empty or too large, or is not a session description.
fn description(path: &str) -> Result<Vec<u8>, StageError> {
    let file = cancel::open(Path::new(path)).map_err(StageError::io(path))?;
    let mut text = Vec::new();
    let most = u64::from(NETWORK_TEXT_BYTES);
    file.take(most + 1).read_to_end(&mut text).map_err(StageError::io(path))?;
    if text.len() as u64 > most {
        return Err(StageError::Option(format!("{path}: a session description has at most {most} bytes")));
    }
    if !text.starts_with(b"v=0") {
        let wrong = format!("{path}: not a session description, which begins with `v=0`");
        return Err(StageError::Option(wrong));
    }
    Ok(text)
}
