// SPDX-License-Identifier: MIT OR Apache-2.0
//! ffplay, FFmpeg's player on SDL. ffplay has no null output; SDL's dummy driver stands in for it,
//! although ffplay still converts the frames to RGB for that driver.

use std::process::Command;

use super::{Player, PlayerFigures, PlayerRequest, last_number, not_offered};
use crate::experiment::players::api::{PlayerApi, PlayerOutput};
use crate::process::Program;

pub(super) const PLAYER: Player = Player {
    name: "ffplay",
    program: "ffplay",
    remedy: "apt install ffmpeg",
    as_root: true,
    version: ("-version", "ffplay version "),
    command,
    figures,
};

fn command(ask: &PlayerRequest<'_>) -> Result<Command, String> {
    let (video, renderer) = match ask.output {
        PlayerOutput::Null => ("dummy", "software"),
        PlayerOutput::X11 => ("x11", "software"),
        PlayerOutput::Opengl => ("x11", "opengl"),
        PlayerOutput::Egl => ("x11", "opengles2"),
        PlayerOutput::Wayland => ("wayland", "opengles2"),
        PlayerOutput::Drm => ("kmsdrm", "opengles2"),
        PlayerOutput::Xv => return Err(not_offered("ffplay", "Xv output")),
    };
    let mut command = Command::new(ask.program);
    command.args(["-hide_banner", "-loglevel", "info", "-stats", "-an", "-autoexit", "-framedrop"]);
    if ask.api != PlayerApi::Software {
        let help = Program::new(ask.program, ["-hide_banner", "-h"]).run(true);
        let help = help.map_err(|error| error.to_string())?.stdout;
        if !help.lines().any(|line| line.starts_with("-hwaccel ")) {
            return Err("this ffplay has no -hwaccel; use FFmpeg 6.1 or newer".to_owned());
        }
    }
    match ask.api {
        PlayerApi::Software => &mut command,
        PlayerApi::Nvdec => command.args(["-hwaccel", "cuda"]),
        PlayerApi::V4l2m2m => command.args(["-codec:v", &format!("{}_v4l2m2m", ask.clip.codec)]),
        api => command.args(["-hwaccel", api.name()]),
    };
    command.env("SDL_VIDEODRIVER", video).env("SDL_RENDER_DRIVER", renderer);
    command.arg("-i").arg(&ask.clip.file);
    Ok(command)
}

/// Parses the number of dropped frames, `fd=`, in ffplay's last status line.
fn figures(text: &str) -> PlayerFigures {
    PlayerFigures { shown: None, dropped: last_number(text, "fd="), late: None, ..PlayerFigures::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_last_status_line() {
        let text = "    nan M-V:    nan fd=   0 aq=    0KB vq=   10KB sq=    0B f=0/0   \r   \
                    5.10 M-V:  0.066 fd=  96 aq=    0KB vq=    0KB sq=    0B f=0/0   \r\n";
        assert_eq!(
            figures(text),
            PlayerFigures { shown: None, dropped: Some(96), late: None, ..PlayerFigures::default() }
        );
        assert_eq!(figures("clip.ivf: No such file or directory"), PlayerFigures::default());
    }
}
