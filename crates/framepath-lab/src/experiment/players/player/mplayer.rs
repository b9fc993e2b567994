// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPlayer, which decodes only in software here.

use std::process::Command;

use super::{Player, PlayerFigures, PlayerRequest, not_offered};
use crate::experiment::players::api::{PlayerApi, PlayerOutput};

pub(super) const PLAYER: Player = Player {
    name: "mplayer",
    program: "mplayer",
    remedy: "apt install mplayer",
    as_root: true,
    version: ("-version", "MPlayer "),
    command,
    figures,
};

fn command(ask: &PlayerRequest<'_>) -> Result<Command, String> {
    if ask.api != PlayerApi::Software {
        return Err(not_offered(
            "mplayer",
            &format!("{} decoding for other outputs than that API's own", ask.api.name()),
        ));
    }
    let output = match ask.output {
        PlayerOutput::Null => "null",
        PlayerOutput::X11 => "x11",
        PlayerOutput::Xv => "xv",
        PlayerOutput::Opengl => "gl",
        PlayerOutput::Egl | PlayerOutput::Wayland | PlayerOutput::Drm => {
            return Err(not_offered("mplayer", &format!("{} output", ask.output.name())));
        }
    };
    let mut command = Command::new(ask.program);
    command.args([
        "-noconfig",
        "all",
        "-nosound",
        "-nolirc",
        "-nojoystick",
        "-noconsolecontrols",
        "-framedrop",
    ]);
    command.args(["-vo", output]).arg(&ask.clip.file);
    Ok(command)
}

/// Parses the number of dropped frames in MPlayer's last status line, such as `V:   5.0 149/150 28%
/// 27%  0.0% 2 0`: the first number (2) behind the last percentage. The frames (149/150) are unused,
/// because Debian's MPlayer prints `0/  0`.
fn figures(text: &str) -> PlayerFigures {
    let mut lines = text.split(['\r', '\n']).map(str::trim).filter(|line| line.starts_with("V:"));
    let Some(line) = lines.next_back() else { return PlayerFigures::default() };
    // The count follows the last percentage.
    let dropped =
        line.rsplit_once('%').and_then(|(_, counts)| counts.split_whitespace().next()?.parse().ok());
    PlayerFigures { shown: None, dropped, late: None, ..PlayerFigures::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_last_status_line() {
        let text = "Starting playback...\nV:   0.0   0/  0 ??% ??% ??,?% 0 0 \u{1b}[J\r\
                    V:   5.0   0/  0 27% 28%  0.0% 3 0 \u{1b}[J\r\n\nExiting... (End of file)\n";
        assert_eq!(
            figures(text),
            PlayerFigures { shown: None, dropped: Some(3), late: None, ..PlayerFigures::default() }
        );
        assert_eq!(figures("V:   0.0   0/  0 ??% ??% ??,?% 0 0 \r").dropped, Some(0));
        assert_eq!(figures("Exiting... (End of file)"), PlayerFigures::default());
    }
}
