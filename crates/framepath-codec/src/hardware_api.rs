// SPDX-License-Identifier: MIT OR Apache-2.0
//! APIs of hardware decoders, by name.

use std::fmt;

/// API of a hardware decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HardwareApi {
    /// VA-API: Intel's and AMD's GPUs on Linux, and others.
    Vaapi,
    /// NVDEC: NVIDIA's API, through CUDA.
    Nvdec,
    /// VDPAU: NVIDIA's older API; needs an X display.
    Vdpau,
    /// Vulkan Video, on GPUs of any vendor.
    Vulkan,
}

impl HardwareApi {
    /// All APIs, in the order in which the stage `decode` tries them with `api=auto`.
    pub const ALL: [HardwareApi; 4] =
        [HardwareApi::Vaapi, HardwareApi::Nvdec, HardwareApi::Vulkan, HardwareApi::Vdpau];

    /// Returns the API's name in paths.
    pub fn name(self) -> &'static str {
        match self {
            HardwareApi::Vaapi => "vaapi",
            HardwareApi::Nvdec => "nvdec",
            HardwareApi::Vdpau => "vdpau",
            HardwareApi::Vulkan => "vulkan",
        }
    }

    /// Returns the API named `name`; `None` if there is no such API.
    pub fn named(name: &str) -> Option<HardwareApi> {
        HardwareApi::ALL.into_iter().find(|api| api.name() == name)
    }
}

impl fmt::Display for HardwareApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
