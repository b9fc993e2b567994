// SPDX-License-Identifier: MIT OR Apache-2.0
//! `url`: packets of one video track of a file on a server.

mod address;
#[cfg(feature = "http")]
mod http;

use framepath_model::path::{Arg, DefaultValue, Definition, Hop, Hosts, ValueKind};

use self::address::shown;
use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::source::file::{File, LOOP, RATE, START, TRACK};

static DEFINITION: Definition = Definition::source("url", "packets of one video track of a file on a server")
    .args(&[
        Arg::word(
            "address",
            ValueKind::Text("an address, such as https://example.org/clip.mp4"),
            "the file to read: `http://HOST/PATH` or `https://HOST/PATH`; this program fetches the bytes, and a \
             sandboxed process demuxes them",
        )
        .known_as(&["location", "uri"]),
        START,
        TRACK,
        LOOP,
        RATE,
        Arg::option(
            "ca",
            ValueKind::Text("the path of a PEM file"),
            DefaultValue::Unset("the system's certificate authorities"),
            "https: certificate authorities to trust instead of the system's, such as the server's own certificate",
        ),
    ])
    .hosts(Hosts::Workers)
    .known_as(&["souphttpsrc", "curlhttpsrc", "urisourcebin"]);

pub(crate) fn element() -> Element {
    Element::source(&DEFINITION, make)
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<File, StageError> {
    let address = hop.text("address");
    let scheme = address.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        Some("http" | "https") => open_http(hop, place),
        Some(scheme) => Err(StageError::Option(format!(
            "open {}: {scheme}:// is not supported; supported: http://, https://",
            shown(address)
        ))),
        None => Err(StageError::Option(format!(
            "open {}: the address has no scheme; write http://HOST/PATH or https://HOST/PATH, or `file` for a \
             local file",
            shown(address)
        ))),
    }
}

#[cfg(feature = "http")]
use http::open as open_http;

#[cfg(not(feature = "http"))]
fn open_http(hop: &Hop, _: &HopPlace<'_>) -> Result<File, StageError> {
    Err(StageError::Option(format!(
        "open {}: this framepath was built without HTTP; build with `--features http` (`make build` does so by \
         itself)",
        shown(hop.text("address"))
    )))
}
