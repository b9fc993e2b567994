// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes of the machine's hardware decoders, one for each API.

use framepath_codec::{Codec, Hardware, HardwareApi};

use super::probe::{Probe, ProbeState};
use crate::process::Program;

const GROUP: &str = "devices";

pub(super) fn probes() -> Vec<Probe> {
    HardwareApi::ALL.into_iter().map(probe).collect()
}

/// Returns the hardware and packages that `api` needs, as text for the report.
fn remedy(api: HardwareApi) -> &'static str {
    match api {
        HardwareApi::Vaapi => {
            "a GPU with a render node and its driver: apt install mesa-va-drivers or intel-media-va-driver"
        }
        HardwareApi::Nvdec => "an NVIDIA GPU and its driver (libnvcuvid1)",
        HardwareApi::Vdpau => "an X display on a GPU, and vdpau-driver-all",
        HardwareApi::Vulkan => "a GPU with Vulkan Video, and mesa-vulkan-drivers",
    }
}

/// Checks that a device of `api` can be opened.
///
/// # Errors
/// The library's error, then the hardware and packages that the API needs, as one text.
pub(crate) fn offered(api: HardwareApi) -> Result<(), String> {
    Hardware::open(api).map(drop).map_err(|error| format!("{error}; needs {}", remedy(api)))
}

fn probe(api: HardwareApi) -> Probe {
    let (name, unlocks) = match api {
        HardwareApi::Vaapi => ("VA-API", "`decode api=vaapi`"),
        HardwareApi::Nvdec => ("NVDEC", "`decode api=nvdec`"),
        HardwareApi::Vdpau => ("VDPAU", "`decode api=vdpau`"),
        HardwareApi::Vulkan => ("Vulkan", "`decode api=vulkan`"),
    };
    match Hardware::open(api) {
        Ok(device) => Probe::ok(GROUP, name, unlocks, offers(api, &device)),
        Err(error) => {
            Probe::lacking(GROUP, name, unlocks, ProbeState::Missing, error.to_string(), remedy(api))
        }
    }
}

/// Lists, as text for the report, the codecs that FFmpeg has for `api`, the sizes that the driver
/// reports, and for VA-API the profiles from the tool `vainfo`, or, if the tool is missing or fails, how to
/// install it.
fn offers(api: HardwareApi, device: &Hardware) -> String {
    let codecs: Vec<&str> = Hardware::codecs(api).map(Codec::name).collect();
    let mut text = codecs.join(", ");
    if let Some([(least_width, least_height), (width, height)]) = device.sizes() {
        text.push_str(&format!("; {least_width}x{least_height} to {width}x{height}"));
    }
    if api == HardwareApi::Vaapi {
        match Program::new("vainfo", ["--display", "drm"]).run(true) {
            Ok(finished) => text.push_str(&format!("; {}", profiles(&finished.stdout).join(", "))),
            Err(_) => text.push_str("; its profiles: apt install vainfo"),
        }
    }
    text
}

/// Parses the profiles that the output of `vainfo` reports as decodable: the line
/// `VAProfileH264Main : VAEntrypointVLD` gives `H264Main`.
fn profiles(output: &str) -> Vec<&str> {
    let decoded = output.lines().filter_map(|line| line.split_once(':'));
    let decoded = decoded.filter(|(_, entry)| entry.trim() == "VAEntrypointVLD");
    decoded.filter_map(|(profile, _)| profile.trim().strip_prefix("VAProfile")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vainfo_output_parses_to_profiles() {
        let output = "vainfo: VA-API version: 1.17 (libva 2.12.0)\n\
                    vainfo: Supported profile and entrypoints\n\
                    \x20     VAProfileH264Main               :\tVAEntrypointVLD\n\
                    \x20     VAProfileH264Main               :\tVAEntrypointEncSlice\n\
                    \x20     VAProfileVP9Profile0            :\tVAEntrypointVLD\n";
        assert_eq!(profiles(output), ["H264Main", "VP9Profile0"]);
    }

    #[test]
    fn every_api_has_a_result() {
        let names: Vec<&str> = probes().iter().map(|probe| probe.name).collect();
        assert_eq!(names, ["VA-API", "NVDEC", "Vulkan", "VDPAU"]);
    }
}
