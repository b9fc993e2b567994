// SPDX-License-Identifier: MIT OR Apache-2.0
//! The V4L2 decoder node of framepath.ko, served by `framepath serve --device`, with two
//! clients: framepath and the ffmpeg tool.

use std::path::PathBuf;

use framepath_os::v4l2::{NodeRole, find_node};

use crate::error::LabError;

use super::Clip;

/// Path of the decoder node of framepath.ko; `None` if the machine has none.
pub(super) struct Device(Option<PathBuf>);

impl Device {
    pub(super) fn find() -> Device {
        Device(find_node(|node| node.driver() == "framepath" && node.role() == NodeRole::Decoder))
    }

    /// Returns true if the machine has the decoder node.
    pub(super) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the options of the stage `decode` for the node, such as `api=v4l2m2m
    /// device=/dev/video0`.
    ///
    /// # Errors
    /// [`LabError::Missing`] if there is no node, with the remedy.
    pub(super) fn options(&self) -> Result<String, LabError> {
        let node = self.0.as_ref().ok_or_else(|| {
            let remedy =
                "no decoder node: build kernel/ and load the module: sudo modprobe framepath (docs/device.md)";
            LabError::Missing(remedy.to_owned())
        })?;
        Ok(format!("api=v4l2m2m device={}", framepath_model::path::quote(&node.to_string_lossy())))
    }

    /// Returns the name of the ffmpeg tool's V4L2 decoder for the clip's codec, such as
    /// `vp9_v4l2m2m`.
    ///
    /// # Errors
    /// [`LabError::Missing`] if there is no node, or for AV1 and 10 bits, which the tool cannot
    /// decode by V4L2.
    pub(super) fn ffmpeg(&self, clip: &Clip) -> Result<String, LabError> {
        self.ffmpeg_decoder(clip.codec, clip.ten_bits)
    }

    fn ffmpeg_decoder(&self, codec: &str, ten_bits: bool) -> Result<String, LabError> {
        self.options()?;
        if ten_bits || codec == "av1" {
            let what = "the ffmpeg tool's V4L2 decoders have no AV1 and no 10 bits";
            return Err(LabError::Missing(what.to_owned()));
        }
        Ok(format!("{codec}_v4l2m2m"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::decode::CLIPS;

    #[test]
    fn ffmpeg_decoders_are_named_by_codec() {
        let device = Device(Some("/dev/video7".into()));
        let named: Vec<Option<String>> =
            CLIPS.iter().map(|clip| device.ffmpeg_decoder(clip.codec, clip.ten_bits).ok()).collect();
        let names: Vec<Option<&str>> = named.iter().map(Option::as_deref).collect();
        let (vp9, h264) = (Some("vp9_v4l2m2m"), Some("h264_v4l2m2m"));
        assert_eq!(names, [vp9, None, h264, None, vp9, None, h264, None]);
        assert_eq!(device.options().unwrap(), "api=v4l2m2m device=/dev/video7");
        assert!(matches!(Device(None).options(), Err(LabError::Missing(_))));
    }
}
