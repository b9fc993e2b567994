// SPDX-License-Identifier: MIT OR Apache-2.0
//! Supported and rejected containers.
//!
//! A path names one file, and only this file is read. libavformat has demuxers that open other
//! files (playlists, manifests, image sequences, network descriptions). [`check`] rejects these
//! demuxers by their names, and the options of [`Formats::limits`] let libavformat open no
//! protocol.

use std::ffi::CStr;

use crate::CodecError;

/// Supported containers: the first libavformat name of each. GXF is not one of them, because its demuxer runs the
/// MPEG-2 parser on a track that the file's map leaves out.
const CONTAINERS: [&str; 18] = [
    "mov",
    "matroska",
    "avi",
    "mpegts",
    "mpeg",
    "flv",
    "ivf",
    "obu",
    "av1",
    "h264",
    "hevc",
    "ogg",
    "asf",
    "nut",
    "mxf",
    "rm",
    "dv",
    "mpegvideo",
];

/// Rejected formats, by libavformat's first name of each: they refer to other files or to network
/// addresses, or make pictures from a text (`lavfi`).
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

/// Formats that a demuxer may read, and decoders that it may open to examine a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formats {
    /// The containers of [`containers`], and the decoders of [`Codec::KNOWN`](crate::Codec::KNOWN).
    Known,
    /// All demuxers and decoders of libavformat and libavcodec, except playlists and demuxers that
    /// open their input themselves. For a process in a sandbox.
    All,
}

impl Formats {
    /// Returns the options that limit libavformat, by name and value: no protocol, at most [`MAX_TRACKS`] streams; for
    /// known formats, only the demuxers of [`CONTAINERS`], and only the decoders of known codecs for
    /// properties that a container lacks. The search for these properties is limited to five megabytes and
    /// five seconds of video (libavformat's own defaults).
    pub(crate) fn limits(self) -> impl Iterator<Item = (&'static CStr, &'static CStr)> {
        let known = if self == Formats::Known { &KNOWN_ONLY[..] } else { &[] };
        LIMITS.iter().chain(known).copied()
    }
}

/// Greatest number of tracks of a file.
pub(crate) const MAX_TRACKS: u32 = 100;
/// The same as an option's value.
const MAX_STREAMS: &CStr = c"100";

/// Options of libavformat for all formats.
const LIMITS: [(&CStr, &CStr); 4] = [
    (c"protocol_whitelist", c""),
    (c"probesize", c"5000000"),
    (c"analyzeduration", c"5000000"),
    (c"max_streams", MAX_STREAMS),
];

/// Further options of libavformat for [`Formats::Known`].
const KNOWN_ONLY: [(&CStr, &CStr); 2] = [
    (
        c"format_whitelist",
        c"mov,matroska,avi,mpegts,mpeg,flv,ivf,obu,av1,h264,hevc,ogg,asf,nut,mxf,rm,dv,mpegvideo",
    ),
    (c"codec_whitelist", c"h264,hevc,vp8,vp9,libdav1d,libaom-av1,av1"),
];

/// Returns the containers of [`Formats::Known`], by libavformat's names.
pub fn containers() -> impl Iterator<Item = &'static str> {
    CONTAINERS.into_iter()
}

/// Returns an error for `file` if the first of libavformat's names in `found` (separated by commas)
/// is that of a playlist or not among `formats`, or if `has_no_file` is true: the demuxer opens its
/// input itself.
pub(crate) fn check(file: &str, found: &str, has_no_file: bool, formats: Formats) -> Result<(), CodecError> {
    let name = found.split(',').next().unwrap_or(found);
    let (file, container) = (file.to_owned(), name.to_owned());
    if PLAYLISTS.contains(&name) || has_no_file {
        return Err(CodecError::Playlist { file, container });
    }
    if formats == Formats::Known && !CONTAINERS.contains(&name) {
        return Err(CodecError::UnsupportedContainer { file, container });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whitelist_names_the_same_containers() {
        let (_, list) = KNOWN_ONLY[0];
        assert_eq!(list.to_str().unwrap().split(',').collect::<Vec<_>>(), CONTAINERS);
    }

    #[test]
    fn playlists_are_told_from_unknown_containers() {
        let check = |found, formats| check("f", found, false, formats);
        assert!(check("mov,mp4,m4a,3gp,3g2,mj2", Formats::Known).is_ok());
        assert!(matches!(check("gif", Formats::Known), Err(CodecError::UnsupportedContainer { .. })));
        assert!(check("gif", Formats::All).is_ok());
        for formats in [Formats::Known, Formats::All] {
            assert!(matches!(check("hls", formats), Err(CodecError::Playlist { .. })));
        }
        assert!(super::check("f", "x11grab", true, Formats::All).is_err());
        assert!(PLAYLISTS.iter().all(|name| !CONTAINERS.contains(name)));
    }
}
