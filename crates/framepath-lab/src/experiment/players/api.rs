// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decode APIs and outputs: their names in contenders, and checks that this machine has them.

use framepath_os::machine::nodes;
use framepath_os::v4l2::{NodeRole, find_node};

use crate::doctor::hardware;

/// Way in which a player decodes: in software, or by a hardware API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlayerApi {
    Software,
    Vaapi,
    Vdpau,
    Nvdec,
    V4l2m2m,
    Vulkan,
}

impl PlayerApi {
    pub(super) const ALL: [PlayerApi; 6] = [
        PlayerApi::Software,
        PlayerApi::Vaapi,
        PlayerApi::Vdpau,
        PlayerApi::Nvdec,
        PlayerApi::V4l2m2m,
        PlayerApi::Vulkan,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            PlayerApi::Software => "software",
            PlayerApi::Vaapi => "vaapi",
            PlayerApi::Vdpau => "vdpau",
            PlayerApi::Nvdec => "nvdec",
            PlayerApi::V4l2m2m => "v4l2m2m",
            PlayerApi::Vulkan => "vulkan",
        }
    }

    /// Checks that the machine has the API. Software needs no check.
    ///
    /// # Errors
    /// The missing part, and how to get it, as text.
    pub(super) fn offered(self) -> Result<(), String> {
        match self {
            PlayerApi::Software => Ok(()),
            PlayerApi::V4l2m2m => match find_node(|node| node.role() == NodeRole::Decoder) {
                Some(_) => Ok(()),
                None => {
                    Err("no stateful decoder among /dev/video*; to test without hardware: sudo modprobe vicodec, \
                              or framepath.ko (docs/device.md)"
                        .to_owned())
                }
            },
            PlayerApi::Vaapi => hardware::offered(framepath_codec::HardwareApi::Vaapi),
            PlayerApi::Vdpau => hardware::offered(framepath_codec::HardwareApi::Vdpau),
            PlayerApi::Nvdec => hardware::offered(framepath_codec::HardwareApi::Nvdec),
            PlayerApi::Vulkan => hardware::offered(framepath_codec::HardwareApi::Vulkan),
        }
    }
}

/// Output to which a player shows its frames; `Null` shows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlayerOutput {
    Null,
    X11,
    Xv,
    Opengl,
    Egl,
    Wayland,
    Drm,
}

impl PlayerOutput {
    pub(super) const ALL: [PlayerOutput; 7] = [
        PlayerOutput::Null,
        PlayerOutput::X11,
        PlayerOutput::Xv,
        PlayerOutput::Opengl,
        PlayerOutput::Egl,
        PlayerOutput::Wayland,
        PlayerOutput::Drm,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            PlayerOutput::Null => "null",
            PlayerOutput::X11 => "x11",
            PlayerOutput::Xv => "xv",
            PlayerOutput::Opengl => "opengl",
            PlayerOutput::Egl => "egl",
            PlayerOutput::Wayland => "wayland",
            PlayerOutput::Drm => "drm",
        }
    }

    /// Returns true if the output needs an X server.
    pub(super) fn wants_x(self) -> bool {
        matches!(self, PlayerOutput::X11 | PlayerOutput::Xv | PlayerOutput::Opengl | PlayerOutput::Egl)
    }
}

/// Checks that the machine has a graphics card for [`PlayerOutput::Drm`], which needs no display
/// server.
///
/// # Errors
/// The missing part, and how to get it, as text.
pub(super) fn drm() -> Result<(), String> {
    match nodes("/dev/dri", "card").is_empty() {
        true => Err(
            "no /dev/dri/card*; install a GPU's kernel driver; to test without hardware: sudo modprobe vkms"
                .to_owned(),
        ),
        false => Ok(()),
    }
}
