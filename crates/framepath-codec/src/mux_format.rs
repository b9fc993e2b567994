// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers that a muxer writes.

use std::ffi::CStr;
use std::fmt;

use crate::Codec;

/// Container that a [`Muxer`](crate::Muxer) writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MuxFormat {
    /// Matroska.
    Mkv,
    /// WebM: Matroska for VP8, VP9 and AV1.
    Webm,
    /// MP4.
    Mp4,
    /// QuickTime.
    Mov,
    /// MPEG transport stream.
    Ts,
}

impl MuxFormat {
    /// All containers.
    pub const ALL: [MuxFormat; 5] =
        [MuxFormat::Mkv, MuxFormat::Webm, MuxFormat::Mp4, MuxFormat::Mov, MuxFormat::Ts];

    /// Returns the name in paths, which is the ending of a file's name.
    pub fn name(self) -> &'static str {
        match self {
            MuxFormat::Mkv => "mkv",
            MuxFormat::Webm => "webm",
            MuxFormat::Mp4 => "mp4",
            MuxFormat::Mov => "mov",
            MuxFormat::Ts => "ts",
        }
    }

    /// Returns the container with this name; `None` if there is none.
    pub fn named(name: &str) -> Option<MuxFormat> {
        MuxFormat::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Returns the container for the ending of the name of `file`, in any case; `None` for another ending.
    pub fn of_file(file: &str) -> Option<MuxFormat> {
        let (_, ending) = file.rsplit_once('.')?;
        MuxFormat::named(&ending.to_ascii_lowercase())
    }

    /// True if the muxer goes back in the file, so that the output cannot be a pipe.
    pub fn needs_seek(self) -> bool {
        matches!(self, MuxFormat::Mp4 | MuxFormat::Mov)
    }

    /// True if the container holds `codec`. For codecs outside [`Codec::KNOWN`], libavformat knows.
    pub(crate) fn holds(self, codec: Codec) -> bool {
        use Codec::{Av1, H264, Hevc, Other, Vp8, Vp9};
        match (self, codec) {
            (_, Other(_)) => true,
            (MuxFormat::Mkv, _) | (MuxFormat::Webm, Vp8 | Vp9 | Av1) | (MuxFormat::Mp4, Vp9 | Av1) => true,
            (MuxFormat::Mp4 | MuxFormat::Mov | MuxFormat::Ts, H264 | Hevc) => true,
            (MuxFormat::Webm | MuxFormat::Mp4 | MuxFormat::Mov | MuxFormat::Ts, _) => false,
        }
    }

    /// Returns libavformat's name of the muxer.
    pub(crate) fn muxer(self) -> &'static CStr {
        match self {
            MuxFormat::Mkv => c"matroska",
            MuxFormat::Webm => c"webm",
            MuxFormat::Mp4 => c"mp4",
            MuxFormat::Mov => c"mov",
            MuxFormat::Ts => c"mpegts",
        }
    }
}

impl fmt::Display for MuxFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_name_is_the_container() {
        assert_eq!(MuxFormat::of_file("a.b/clip.MKV"), Some(MuxFormat::Mkv));
        for name in ["clip", "clip.", "mkv", "clip.avi", ""] {
            assert_eq!(MuxFormat::of_file(name), None, "{name}");
        }
        for format in MuxFormat::ALL {
            assert_eq!(MuxFormat::of_file(&format!("a.{format}")), Some(format));
        }
    }
}
