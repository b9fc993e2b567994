// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPlayer.

use std::process::Command;

use super::{Ask, Player, Told, not_offered};
use crate::experiment::players::api::{Api, Output};

pub(super) const PLAYER: Player = Player {
    name: "mplayer",
    program: "mplayer",
    remedy: "apt install mplayer",
    version: ("-version", "MPlayer "),
    command,
    told,
};

fn command(ask: &Ask<'_>) -> Result<Command, String> {
    if ask.api != Api::Software {
        return Err(not_offered(
            "mplayer",
            &format!("{} that goes to other outputs than its own", ask.api.name()),
        ));
    }
    let output = match ask.output {
        Output::Null => "null",
        Output::X11 => "x11",
        Output::Xv => "xv",
        Output::Opengl => "gl",
        Output::Egl | Output::Wayland | Output::Drm => {
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

/// Its status line: `V:   4.9 148/148  5%  2%  0.0% 0 0`; shown, decoded,
/// shares, dropped.
fn told(said: &str) -> Told {
    let lines = said.split(['\r', '\n']).map(str::trim).filter(|line| line.starts_with("V:"));
    let Some(line) = lines.last() else { return Told::default() };
    let words: Vec<&str> = line[2..].split_whitespace().collect();
    let Some(at) = words.iter().position(|word| word.contains('/')) else { return Told::default() };
    let frames = words[at].split('/').next().and_then(|count| count.parse::<u64>().ok());
    // Behind the shares, which may be unknown and touch each other.
    let shares = words.iter().rposition(|word| word.contains('%'));
    let dropped = shares.and_then(|last| words.get(last + 1)?.parse().ok());
    Told {
        shown: frames.zip(dropped).map(|(all, dropped): (u64, u64)| all.saturating_sub(dropped)),
        dropped,
        late: None,
    }
}
