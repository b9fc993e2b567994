// SPDX-License-Identifier: MIT OR Apache-2.0
//! The video players that experiment `players` compares. Each player has a command that plays a clip
//! once, without sound, by a given decode API to a given output, and a parser that finds the numbers of
//! frames in the player's output.

mod ffplay;
mod gst;
mod mplayer;
mod mpv;
mod ours;
mod vlc;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::api::{PlayerApi, PlayerOutput};
use super::clip::Clip;

/// A video player and how to run it.
pub(super) struct Player {
    /// Name of the player in contenders.
    pub(super) name: &'static str,
    /// Name of the program in PATH; not used for framepath, whose program is the running binary.
    program: &'static str,
    /// Advice on how to install the player.
    remedy: &'static str,
    /// True if the player works when it runs as root. If false, a lab that runs as root starts the player by
    /// `setpriv` as user nobody; without `setpriv`, as root.
    as_root: bool,
    /// Option that prints the player's version, and the text before the version in the printed line.
    version: (&'static str, &'static str),
    /// Function that creates the command to play a clip.
    command: fn(&PlayerRequest<'_>) -> Result<Command, String>,
    /// Function that parses the player's report about its frames from all output of the player.
    pub(super) figures: fn(&str) -> PlayerFigures,
}

/// Request for a player's command: program, clip, decode API and output.
pub(super) struct PlayerRequest<'a> {
    pub(super) program: &'a Path,
    pub(super) clip: &'a Clip,
    pub(super) api: PlayerApi,
    pub(super) output: PlayerOutput,
}

/// A player's report about its frames; `None` for figures that it does not report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PlayerFigures {
    pub(super) shown: Option<u64>,
    pub(super) dropped: Option<u64>,
    /// Number of frames shown after their presentation time.
    pub(super) late: Option<u64>,
    /// Reason why the player did not decode by the requested API; `None` if not reported.
    pub(super) otherwise: Option<String>,
}

/// All players, framepath first.
pub(super) static PLAYERS: [Player; 6] =
    [ours::PLAYER, mpv::PLAYER, ffplay::PLAYER, mplayer::PLAYER, gst::PLAYER, vlc::PLAYER];

/// Framepath's name in contenders.
pub(super) const OURS: &str = "framepath";

impl Player {
    /// Finds the player's program in PATH; for framepath returns the argument `framepath`, the path of the
    /// running binary.
    ///
    /// # Errors
    /// The player is not installed; the text has the remedy.
    pub(super) fn found(&self, framepath: &Path) -> Result<PathBuf, String> {
        if self.name == OURS {
            return Ok(framepath.to_owned());
        }
        in_path(self.program).ok_or_else(|| format!("not installed: {}", self.remedy))
    }

    /// Creates the command that plays the clip of `ask` once.
    ///
    /// # Errors
    /// The player does not support the API, the output or the codec, or a program that would tell fails; the
    /// text is the reason.
    pub(super) fn command(&self, ask: &PlayerRequest<'_>) -> Result<Command, String> {
        (self.command)(ask)
    }

    /// Creates a command of the player's program, without arguments. If the lab runs as root and
    /// `as_root` is false, the command starts the program as user nobody by `setpriv` (util-linux);
    /// without `setpriv`, as root.
    fn start(&self, program: &Path) -> Command {
        let other = !self.as_root && framepath_os::machine::effective_uid() == 0;
        let Some(setpriv) = in_path("setpriv").filter(|_| other) else { return Command::new(program) };
        let mut command = Command::new(setpriv);
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
        command.env("HOME", "/nonexistent");
        command
    }

    /// Runs the player with its version option, and returns the version; `None` if the player does
    /// not start or does not print one.
    pub(super) fn version(&self, program: &Path) -> Option<String> {
        let (option, prefix) = self.version;
        let version = self.start(program).arg(option).stdin(std::process::Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&version.stdout).into_owned();
        let line = text.lines().find_map(|line| line.trim().strip_prefix(prefix))?;
        line.split_whitespace().next().map(|word| word.trim_end_matches(',').to_owned())
    }
}

/// Finds the first executable file `name` in the folders of PATH; `None` if there is none.
pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs = |file: &PathBuf| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(runs)
}

/// Text that framepath's note about a fallback from hardware to software contains.
pub(super) const CAME_TO_SOFTWARE: &str = ": in software, because ";

/// Formats the error for `what`, an output or API that `player` lacks.
fn not_offered(player: &str, what: &str) -> String {
    format!("{player} has no {what}")
}

/// Returns the number after the last `key` in `text`, the output of a player; `None` without a `key`, or
/// if no number follows.
fn last_number(text: &str, key: &str) -> Option<u64> {
    let (_, behind) = text.rsplit_once(key)?;
    let behind = behind.trim_start();
    let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    behind[..digits].parse().ok()
}
