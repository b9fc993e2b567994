// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decode APIs and outputs, by the names they have in contenders, and which of
//! them this machine has.

use framepath_os::machine::nodes;
use framepath_os::v4l2::{Role, find_node};

use crate::error::LabError;
use crate::process::Program;

/// Who decodes.
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

    /// Whether the machine has it.
    ///
    /// # Errors
    /// What it lacks, and what would bring it.
    pub(super) fn offered(self) -> Result<(), String> {
        match self {
            Api::Software => Ok(()),
            Api::Vaapi => render_node("VA-API")
                .and_then(|()| asked("vainfo", "VAProfile", "a VA-API driver: apt install va-driver-all")),
            Api::Vdpau => render_node("VDPAU")
                .and_then(|()| asked("vdpauinfo", "Decoder", "a VDPAU driver: apt install vdpau-driver-all")),
            Api::Nvdec => match nodes("/dev", "nvidiactl").is_empty() {
                true => Err("no /dev/nvidiactl: it needs an NVIDIA GPU and its driver".to_owned()),
                false => Ok(()),
            },
            Api::V4l2m2m => match find_node(|node| node.role() == Role::Decoder) {
                Some(_) => Ok(()),
                None => {
                    Err("no stateful decoder among /dev/video*: to try without one: sudo modprobe vicodec, \
                              or framepath.ko (docs/device.md)"
                        .to_owned())
                }
            },
            Api::Vulkan => render_node("Vulkan video").and_then(|()| {
                asked("vulkaninfo", "VK_KHR_video_decode_queue", "a driver with Vulkan video decode")
            }),
        }
    }
}

/// Where players show.
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

    /// Whether it is on an X server.
    pub(super) fn wants_x(self) -> bool {
        matches!(self, Output::X11 | Output::Xv | Output::Opengl | Output::Egl)
    }
}

/// Whether a screen can be taken without a display server.
///
/// # Errors
/// What is missing.
pub(super) fn drm() -> Result<(), String> {
    match nodes("/dev/dri", "card").is_empty() {
        true => {
            Err("no /dev/dri/card*: it needs a GPU's kernel driver; to try without one: sudo modprobe vkms"
                .to_owned())
        }
        false => Ok(()),
    }
}

fn render_node(what: &str) -> Result<(), String> {
    match nodes("/dev/dri", "renderD").is_empty() {
        true => Err(format!("no render node (/dev/dri/renderD*): {what} needs a GPU with its kernel driver")),
        false => Ok(()),
    }
}

/// Whether `tool` knows of `word`; where it is not installed, players find out.
fn asked(tool: &str, word: &str, lacks: &str) -> Result<(), String> {
    match Program::new(tool, [] as [&str; 0]).run(true) {
        Ok(told) if told.stdout.contains(word) => Ok(()),
        Err(LabError::Missing(_)) => Ok(()),
        Ok(_) => Err(format!("`{tool}` lists no decoder: it needs {lacks}")),
        Err(error) => Err(format!("{error}: it needs {lacks}")),
    }
}
