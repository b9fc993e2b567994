// SPDX-License-Identifier: MIT OR Apache-2.0
//! GStreamer's playbin, by gst-play. fpsdisplaysink wraps the sink and counts its frames.

use std::process::Command;

use super::{Player, PlayerFigures, PlayerRequest, last_number, not_offered};
use crate::experiment::players::api::{PlayerApi, PlayerOutput};
use crate::process::Program;

pub(super) const PLAYER: Player = Player {
    name: "gst-play",
    program: "gst-play-1.0",
    remedy: "apt install gstreamer1.0-plugins-base-apps gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-libav",
    as_root: true,
    version: ("--version", "gst-play-1.0 version "),
    command,
    figures,
};

/// Prefixes of the names of GStreamer's hardware decoders, each with its API.
const HARDWARE: [(&str, PlayerApi); 5] = [
    ("va", PlayerApi::Vaapi),
    ("vaapi", PlayerApi::Vaapi),
    ("nv", PlayerApi::Nvdec),
    ("v4l2", PlayerApi::V4l2m2m),
    ("vulkan", PlayerApi::Vulkan),
];

fn command(ask: &PlayerRequest<'_>) -> Result<Command, String> {
    let sink = match ask.output {
        PlayerOutput::Null => "fakesink sync=true",
        PlayerOutput::X11 => "ximagesink",
        PlayerOutput::Xv => "xvimagesink",
        PlayerOutput::Opengl | PlayerOutput::Egl => "glimagesink",
        PlayerOutput::Wayland => "waylandsink",
        PlayerOutput::Drm => "kmssink",
    };
    let element = sink.split(' ').next().unwrap_or(sink);
    for element in [element, "fpsdisplaysink"] {
        if Program::new("gst-inspect-1.0", ["--exists", element]).run(false).is_err() {
            return Err(not_offered("GStreamer here", &format!("element `{element}`")));
        }
    }
    let codec = match ask.clip.codec {
        "hevc" => "h265",
        codec => codec,
    };
    let features: Vec<String> = HARDWARE
        .iter()
        .map(|(prefix, api)| (format!("{prefix}{codec}dec"), *api))
        .map(|(name, api)| format!("{name}:{}", if api == ask.api { "MAX" } else { "NONE" }))
        .collect();
    let ours = HARDWARE.iter().filter(|(_, api)| *api == ask.api);
    let exists = |prefix: &str| {
        Program::new("gst-inspect-1.0", ["--exists", &format!("{prefix}{codec}dec")]).run(false).is_ok()
    };
    if ask.api != PlayerApi::Software && !ours.into_iter().any(|(prefix, _)| exists(prefix)) {
        return Err(not_offered("GStreamer here", &format!("{} decoder of {codec}", ask.api.name())));
    }
    let mut command = Command::new(ask.program);
    command.args(["--no-interactive", "--verbose", "--audiosink=fakesink"]);
    command.arg(format!(
        "--videosink=fpsdisplaysink text-overlay=false fps-update-interval=1000 video-sink=\"{sink}\""
    ));
    command.env("GST_PLUGIN_FEATURE_RANK", features.join(","));
    if ask.output == PlayerOutput::Egl {
        command.env("GST_GL_PLATFORM", "egl");
    }
    command.arg(&ask.clip.file);
    Ok(command)
}

/// Parses the number of dropped frames in fpsdisplaysink's last message. The sink reports once per
/// second and not at the end, so the number of shown frames and the drops of the last second are
/// not known.
fn figures(text: &str) -> PlayerFigures {
    PlayerFigures {
        shown: None,
        dropped: last_number(text, "dropped:"),
        late: None,
        ..PlayerFigures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_last_message() {
        let text = "/GstPlayBin:playbin/GstPlaySink:playsink/GstBin:vbin/GstFPSDisplaySink:fpsdisplaysink0: \
                    last-message = rendered: 93, dropped: 0, current: 29.99, average: 30.37\n\
                    0:00:04.1 / 0:00:04.7       \r/GstPlayBin:playbin/GstPlaySink:playsink/GstBin:vbin/\
                    GstFPSDisplaySink:fpsdisplaysink0: last-message = rendered: 120, dropped: 4, current: 30.14, \
                    drop rate: 1.99, average: 30.31\n";
        assert_eq!(
            figures(text),
            PlayerFigures { shown: None, dropped: Some(4), late: None, ..PlayerFigures::default() }
        );
        assert_eq!(figures("Reached end of play list."), PlayerFigures::default());
    }
}
