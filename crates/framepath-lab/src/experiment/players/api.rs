// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decode APIs and outputs, by the names they have in contenders, and which of
//! them this machine has.

use framepath_os::machine::nodes;
use framepath_os::v4l2::{Role, find_node};

use crate::doctor::hardware;

/// Decoder API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    Software,
    Vaapi,
    Vdpau,
    Nvdec,
    V4l2m2m,
    Vulkan,
}

impl Api {
    pub(super) const ALL: [Api; 6] =
        [Api::Software, Api::Vaapi, Api::Vdpau, Api::Nvdec, Api::V4l2m2m, Api::Vulkan];

    pub(super) fn name(self) -> &'static str {
        match self {
            Api::Software => "software",
            Api::Vaapi => "vaapi",
            Api::Vdpau => "vdpau",
            Api::Nvdec => "nvdec",
            Api::V4l2m2m => "v4l2m2m",
            Api::Vulkan => "vulkan",
        }
    }

    /// Checks that the machine has the API.
    ///
    /// # Errors
    /// The missing part, and how to get it.
    pub(super) fn offered(self) -> Result<(), String> {
        match self {
            Api::Software => Ok(()),
            Api::V4l2m2m => match find_node(|node| node.role() == Role::Decoder) {
                Some(_) => Ok(()),
                None => {
                    Err("no stateful decoder among /dev/video*: to try without one: sudo modprobe vicodec, \
                              or framepath.ko (docs/device.md)"
                        .to_owned())
                }
            },
            Api::Vaapi => hardware::offered(framepath_codec::Api::Vaapi),
            Api::Vdpau => hardware::offered(framepath_codec::Api::Vdpau),
            Api::Nvdec => hardware::offered(framepath_codec::Api::Nvdec),
            Api::Vulkan => hardware::offered(framepath_codec::Api::Vulkan),
        }
    }
}

/// Output of a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Null,
    X11,
    Xv,
    Opengl,
    Egl,
    Wayland,
    Drm,
}

impl Output {
    pub(super) const ALL: [Output; 7] =
        [Output::Null, Output::X11, Output::Xv, Output::Opengl, Output::Egl, Output::Wayland, Output::Drm];

    pub(super) fn name(self) -> &'static str {
        match self {
            Output::Null => "null",
            Output::X11 => "x11",
            Output::Xv => "xv",
            Output::Opengl => "opengl",
            Output::Egl => "egl",
            Output::Wayland => "wayland",
            Output::Drm => "drm",
        }
    }

    /// Returns true if it is on an X server.
    pub(super) fn wants_x(self) -> bool {
        matches!(self, Output::X11 | Output::Xv | Output::Opengl | Output::Egl)
    }
}

/// Checks that a screen can be used without a display server.
///
/// # Errors
/// The missing part.
pub(super) fn drm() -> Result<(), String> {
    match nodes("/dev/dri", "card").is_empty() {
        true => {
            Err("no /dev/dri/card*: it needs a GPU's kernel driver; to try without one: sudo modprobe vkms"
                .to_owned())
        }
        false => Ok(()),
    }
}
