// SPDX-License-Identifier: MIT OR Apache-2.0
//! mpv, a video player. An option makes mpv print its frame counters as its status line.

use std::process::Command;

use super::{Player, PlayerFigures, PlayerRequest, not_offered};
use crate::experiment::players::api::{PlayerApi, PlayerOutput};
use crate::process::Program;

pub(super) const PLAYER: Player = Player {
    name: "mpv",
    program: "mpv",
    remedy: "apt install mpv",
    as_root: true,
    version: ("--version", "mpv "),
    command,
    figures,
};

/// Format of mpv's status line: numbers of frames dropped by the output, dropped by the decoder, and
/// shown late.
const STATUS: &str =
    "framepath=${=frame-drop-count}/${=decoder-frame-drop-count}/${=vo-delayed-frame-count};";

fn command(ask: &PlayerRequest<'_>) -> Result<Command, String> {
    let mut command = Command::new(ask.program);
    command.args(["--no-config", "--no-audio", "--no-input-terminal", "--load-scripts=no", "--keep-open=no"]);
    command.arg(format!("--term-status-msg={STATUS}"));
    command.args(match ask.output {
        PlayerOutput::Null => ["--vo=null"].as_slice(),
        PlayerOutput::X11 => &["--vo=x11"],
        PlayerOutput::Xv => &["--vo=xv"],
        PlayerOutput::Opengl => &["--vo=gpu", "--gpu-context=x11", "--gpu-sw=yes"],
        PlayerOutput::Egl => &["--vo=gpu", "--gpu-context=x11egl", "--gpu-sw=yes"],
        PlayerOutput::Wayland => &["--vo=wlshm"],
        PlayerOutput::Drm => &["--vo=drm"],
    });
    // Only the GPU's outputs accept frames in GPU memory.
    let copies = !matches!(ask.output, PlayerOutput::Opengl | PlayerOutput::Egl);
    let decoder = match (ask.api, copies) {
        (PlayerApi::Software, _) => "no",
        (PlayerApi::Vaapi, true) => "vaapi-copy",
        (PlayerApi::Vaapi, false) => "vaapi",
        (PlayerApi::Vdpau, true) => "vdpau-copy",
        (PlayerApi::Vdpau, false) => "vdpau",
        (PlayerApi::Nvdec, true) => "nvdec-copy",
        (PlayerApi::Nvdec, false) => "nvdec",
        (PlayerApi::V4l2m2m, _) => "v4l2m2m-copy",
        (PlayerApi::Vulkan, true) => "vulkan-copy",
        (PlayerApi::Vulkan, false) => "vulkan",
    };
    if ask.api != PlayerApi::Software {
        let list = Program::new(ask.program, ["--no-config", "--hwdec=help"]).run(true);
        let list = list.map_err(|error| error.to_string())?.stdout;
        if !list.split_whitespace().any(|word| word == decoder) {
            return Err(not_offered("mpv", &format!("hwdec `{decoder}`")));
        }
    }
    command.arg(format!("--hwdec={decoder}")).arg("--").arg(&ask.clip.file);
    Ok(command)
}

fn figures(text: &str) -> PlayerFigures {
    let Some((_, behind)) = text.rsplit_once("framepath=") else { return PlayerFigures::default() };
    let Some((counts, _)) = behind.split_once(';') else { return PlayerFigures::default() };
    let counts: Vec<Option<u64>> = counts.split('/').map(|count| count.parse().ok()).collect();
    let of = |at: usize| counts.get(at).copied().flatten();
    // The third count is missing if mpv's output does not count late frames.
    let dropped = of(0).zip(of(1)).map(|(output, decoder)| output + decoder);
    PlayerFigures { shown: None, dropped, late: of(2), ..PlayerFigures::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_last_status_line() {
        let text = "VO: [x11] 1920x1080 yuv420p\n\u{1b}[Kframepath=1/0/0;\r\u{1b}[Kframepath=2/3/1;\r\n\
                    Exiting... (End of file)\n";
        assert_eq!(
            figures(text),
            PlayerFigures { shown: None, dropped: Some(5), late: Some(1), ..PlayerFigures::default() }
        );
        assert_eq!(figures("framepath=(unavailable)/0/0;").dropped, None);
        assert_eq!(figures("framepath=1/"), PlayerFigures::default());
    }
}
