// SPDX-License-Identifier: MIT OR Apache-2.0
//! ffplay, FFmpeg's player on SDL. It has no output that shows nothing: SDL's
//! dummy driver replaces one, and ffplay still makes RGB for it.

use std::process::Command;

use super::{Ask, Player, Told, last_number, not_offered};
use crate::experiment::players::api::{Api, Output};
use crate::process::Program;

pub(super) const PLAYER: Player = Player {
    name: "ffplay",
    program: "ffplay",
    remedy: "apt install ffmpeg",
    as_root: true,
    version: ("-version", "ffplay version "),
    command,
    told,
};

fn command(ask: &Ask<'_>) -> Result<Command, String> {
    let (video, renderer) = match ask.output {
        Output::Null => ("dummy", "software"),
        Output::X11 => ("x11", "software"),
        Output::Opengl => ("x11", "opengl"),
        Output::Egl => ("x11", "opengles2"),
        Output::Wayland => ("wayland", "opengles2"),
        Output::Drm => ("kmsdrm", "opengles2"),
        Output::Xv => return Err(not_offered("ffplay", "Xv output")),
    };
    let mut command = Command::new(ask.program);
    command.args(["-hide_banner", "-loglevel", "info", "-stats", "-an", "-autoexit", "-framedrop"]);
    if ask.api != Api::Software {
        let help = Program::new(ask.program, ["-hide_banner", "-h"]).run(true);
        let help = help.map_err(|error| error.to_string())?.stdout;
        if !help.lines().any(|line| line.starts_with("-hwaccel ")) {
            return Err("this ffplay has no -hwaccel: FFmpeg 6.1 and newer have".to_owned());
        }
    }
    match ask.api {
        Api::Software => &mut command,
        Api::Nvdec => command.args(["-hwaccel", "cuda"]),
        Api::V4l2m2m => command.args(["-codec:v", &format!("{}_v4l2m2m", ask.clip.codec)]),
        api => command.args(["-hwaccel", api.name()]),
    };
    command.env("SDL_VIDEODRIVER", video).env("SDL_RENDER_DRIVER", renderer);
    command.arg("-i").arg(&ask.clip.file);
    Ok(command)
}

/// Parses `fd=` in its status line.
fn told(said: &str) -> Told {
    Told { shown: None, dropped: last_number(said, "fd="), late: None, ..Told::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_status_counts() {
        let said = "    nan M-V:    nan fd=   0 aq=    0KB vq=   10KB sq=    0B f=0/0   \r   \
                    5.10 M-V:  0.066 fd=  96 aq=    0KB vq=    0KB sq=    0B f=0/0   \r\n";
        assert_eq!(told(said), Told { shown: None, dropped: Some(96), late: None, ..Told::default() });
        assert_eq!(told("clip.ivf: No such file or directory"), Told::default());
    }
}
