// SPDX-License-Identifier: MIT OR Apache-2.0
//! The players: how each is told to play a clip once, silently, by an API to an
//! output, and what it says of its frames.

mod ffplay;
mod gst;
mod mplayer;
mod mpv;
mod ours;
mod vlc;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::api::{Api, Output};
use super::clip::Clip;

/// A player.
pub(super) struct Player {
    /// As contenders name it.
    pub(super) name: &'static str,
    /// As it is looked for in PATH; ours is the binary that runs.
    program: &'static str,
    /// What would bring it.
    remedy: &'static str,
    /// Whether it runs as root.
    as_root: bool,
    /// How to ask for its version, and the line's prefix to leave out.
    version: (&'static str, &'static str),
    /// The command that plays.
    command: fn(&Ask<'_>) -> Result<Command, String>,
    /// Its own words on its frames, from all that it wrote.
    pub(super) told: fn(&str) -> Told,
}

/// What a player is asked to do.
pub(super) struct Ask<'a> {
    pub(super) program: &'a Path,
    pub(super) clip: &'a Clip,
    pub(super) api: Api,
    pub(super) output: Output,
}

/// What a player says of its frames; `None` where it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) shown: Option<u64>,
    pub(super) dropped: Option<u64>,
    /// Shown after their time.
    pub(super) late: Option<u64>,
    /// Why it did not decode as it was asked to.
    pub(super) otherwise: Option<String>,
}

/// Every player, ours first.
pub(super) static PLAYERS: [Player; 6] =
    [ours::PLAYER, mpv::PLAYER, ffplay::PLAYER, mplayer::PLAYER, gst::PLAYER, vlc::PLAYER];

/// Ours, as contenders name it.
pub(super) const OURS: &str = "framepath";

impl Player {
    /// Where it is.
    ///
    /// # Errors
    /// It is not installed.
    pub(super) fn found(&self, framepath: &Path) -> Result<PathBuf, String> {
        if self.name == OURS {
            return Ok(framepath.to_owned());
        }
        in_path(self.program).ok_or_else(|| format!("not installed: {}", self.remedy))
    }

    /// The command of one cell.
    ///
    /// # Errors
    /// It does not do that, and why.
    pub(super) fn command(&self, ask: &Ask<'_>) -> Result<Command, String> {
        (self.command)(ask)
    }

    /// Its program, still without words; as nobody, where root asks one that does
    /// not run as root, and util-linux is there.
    fn start(&self, program: &Path) -> Command {
        let other = !self.as_root && framepath_os::machine::effective_uid() == 0;
        let Some(setpriv) = in_path("setpriv").filter(|_| other) else { return Command::new(program) };
        let mut command = Command::new(setpriv);
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
        command.env("HOME", "/nonexistent");
        command
    }

    /// Its version, where it tells.
    pub(super) fn version(&self, program: &Path) -> Option<String> {
        let (option, prefix) = self.version;
        let told = self.start(program).arg(option).stdin(std::process::Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        let line = text.lines().find_map(|line| line.trim().strip_prefix(prefix))?;
        line.split_whitespace().next().map(|word| word.trim_end_matches(',').to_owned())
    }
}

/// A program of that name that may be run.
pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs = |file: &PathBuf| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(runs)
}

/// In ours' note on a decoder of the machine that could not be had.
pub(super) const CAME_TO_SOFTWARE: &str = ": in software, because ";

/// What players say of an output or API that they have not got.
fn not_offered(player: &str, what: &str) -> String {
    format!("{player} has no {what}")
}

/// The last number behind `key` in what a player wrote, lines ended as
/// terminals do.
fn last_number(said: &str, key: &str) -> Option<u64> {
    let (_, behind) = said.rsplit_once(key)?;
    let behind = behind.trim_start();
    let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    behind[..digits].parse().ok()
}
