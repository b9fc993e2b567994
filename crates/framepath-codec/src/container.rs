// SPDX-License-Identifier: MIT OR Apache-2.0
//! Supported and rejected containers.
//!
//! A path names one file, and only this file is read. libavformat has demuxers that open other
//! files (playlists, manifests, image sequences, network descriptions). They are rejected by
//! name, and no demuxer gets a protocol.

use std::ffi::CStr;

use crate::CodecError;

/// Supported containers: the first libavformat name of each.
const CONTAINERS: [&str; 24] = [
    "mov",
    "matroska",
    "avi",
    "mpegts",
    "mpeg",
    "flv",
    "live_flv",
    "kux",
    "ivf",
    "obu",
    "av1",
    "h264",
    "hevc",
    "ogg",
    "asf",
    "asf_o",
    "wtv",
    "nut",
    "mxf",
    "gxf",
    "rm",
    "nsv",
    "dv",
    "mpegvideo",
];

/// Formats that refer to other files or network addresses.
const PLAYLISTS: [&str; 12] = [
    "hls",
    "dash",
    "webm_dash_manifest",
    "concat",
    "imf",
    "sdp",
    "rtsp",
    "rtp",
    "sap",
    "vobsub",
    "image2",
    "lavfi",
];

/// Options that limit libavformat, by name and value: no protocol, only the demuxers of
/// [`CONTAINERS`], at most 100 streams, and only the decoders of known codecs for properties that a
/// container lacks. The search for these properties is limited to five megabytes and five seconds
/// of video (libavformat's own defaults).
pub(crate) const LIMITS: [(&CStr, &CStr); 6] = [
    (c"protocol_whitelist", c""),
    (
        c"format_whitelist",
        c"mov,matroska,avi,mpegts,mpeg,flv,live_flv,kux,ivf,obu,av1,h264,hevc,ogg,asf,asf_o,wtv,nut,mxf,gxf,rm,nsv,dv,mpegvideo",
    ),
    (c"codec_whitelist", c"h264,hevc,vp8,vp9,libdav1d,libaom-av1,av1"),
    (c"probesize", c"5000000"),
    (c"analyzeduration", c"5000000"),
    (c"max_streams", c"100"),
];

/// Returns the supported containers, by libavformat's names.
pub fn containers() -> impl Iterator<Item = &'static str> {
    CONTAINERS.into_iter()
}

/// Returns an error for `file` if the first of libavformat's names in `found` (separated by
/// commas) is not that of a supported container.
pub(crate) fn check(file: &str, found: &str) -> Result<(), CodecError> {
    let name = found.split(',').next().unwrap_or(found);
    if CONTAINERS.contains(&name) {
        return Ok(());
    }
    let (file, container) = (file.to_owned(), name.to_owned());
    if PLAYLISTS.contains(&name) {
        return Err(CodecError::Playlist { file, container });
    }
    Err(CodecError::UnsupportedContainer { file, container })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whitelist_names_the_same_containers() {
        let (_, list) = LIMITS[1];
        assert_eq!(list.to_str().unwrap().split(',').collect::<Vec<_>>(), CONTAINERS);
    }

    #[test]
    fn playlists_are_told_from_unknown_containers() {
        assert!(check("f", "mov,mp4,m4a,3gp,3g2,mj2").is_ok());
        assert!(matches!(check("f", "hls"), Err(CodecError::Playlist { .. })));
        assert!(matches!(check("f", "wav"), Err(CodecError::UnsupportedContainer { .. })));
        assert!(PLAYLISTS.iter().all(|name| !CONTAINERS.contains(name)));
    }
}
