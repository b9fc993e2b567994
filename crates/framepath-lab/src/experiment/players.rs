// SPDX-License-Identifier: MIT OR Apache-2.0
//! `players`: Beauchesne's comparison of players. Every installed player plays every clip at the
//! clip's own rate, by every decode API and to every output that both the player and the machine
//! have. The quick size has only the outputs null and x11 and, if neither cases nor files are named, only two
//! committed clips. A cell is one combination of player, API and output; its main figure is the CPU share.

mod accuracy;
mod api;
mod clip;
mod energy;
mod player;
mod watched;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use framepath_model::stats::median;
use framepath_model::summary::{Skipped, Summary};

use crate::display::{self, Display};
use crate::error::LabError;
use crate::experiment::{ExperimentResult, ExperimentSettings, Size};
use crate::measure::{Contender, Measured};
use crate::pairs;
use crate::progress::ProgressView;

use accuracy::Reference;
use api::{PlayerApi, PlayerOutput};
use clip::Clip;
use player::{OURS, PLAYERS, Player, PlayerFigures, PlayerRequest};
use watched::{PlayerEnvironment, Watched, Window};

/// CPU share of all cores, 0 to 1, from which on a configuration counts as maxed; with a dropped
/// frame it counts as maxed at any share.
const MAXED: f64 = 0.95;

/// Suffix of the contenders that measure framepath's cells a second time, to show a cell's noise. These
/// contenders have ratios, but no rows in the summary.
const AGAIN: &str = "again";

/// Metrics by which framepath's cells are compared with the best other player's, and with their own
/// second measurement.
const METRICS: [&str; 2] = ["cpu_share", "wakeups_per_s"];

/// Returns the names of all cases with the committed clips, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    clip::cases()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    let outputs = if settings.size == Size::Quick {
        &[PlayerOutput::Null, PlayerOutput::X11][..]
    } else {
        &PlayerOutput::ALL
    };
    let players = installed(settings, summary);
    let apis = offered(summary);
    let screens = Screens::open(outputs, summary);
    let rounds = settings.rounds(3, 6);
    let files = clip::files(settings)?;
    // Framepath's cells are measured twice.
    let players_again = players.len() + usize::from(players.iter().any(|(player, _)| player.name == OURS));
    watch.begin("players", (files.len() * players_again * screens.outputs.len() * rounds) as u64);
    summary.machine.display = screens.text();
    for file in files {
        let clip = Clip::open(&file)?;
        one_clip(&clip, &players, &apis, &screens, rounds, watch, summary)?;
    }
    summary.notes.push(format!(
        "cpu_share: percent of one core used by the player and its child processes, as in top, from window_from_s to \
         window_to_s after the start; maxed: {:.0} % of all cores, or a dropped frame; server_cpu_share: the \
         display server's CPU, in no player's share; wakeups_per_s: voluntary switches of the player's threads; \
         unaccounted: frames of the clip that the player reports neither as shown nor as dropped; \
         equal: the API's frames equal software's, byte by byte; a ratio to `{AGAIN}` compares a cell with itself, \
         measured a second time in the same rounds",
        MAXED * 100.0
    ));
    Ok(())
}

/// Returns the installed players with their programs. Adds their versions to `summary`, and the other
/// players as skipped.
fn installed(settings: &ExperimentSettings, summary: &mut Summary) -> Vec<(&'static Player, PathBuf)> {
    let mut found = Vec::new();
    for player in &PLAYERS {
        match player.found(&settings.framepath) {
            Ok(program) => {
                let version = player.version(&program);
                summary.machine.versions.extend(version.map(|version| (player.name.to_owned(), version)));
                found.push((player, program));
            }
            Err(reason) => skip(summary, player.name, None, reason),
        }
    }
    found
}

fn offered(summary: &mut Summary) -> Vec<PlayerApi> {
    let mut apis = Vec::new();
    for api in PlayerApi::ALL {
        match api.offered() {
            Ok(()) => apis.push(api),
            Err(reason) => skip(summary, api.name(), None, reason),
        }
    }
    apis
}

fn skip(summary: &mut Summary, contender: &str, case: Option<&str>, reason: String) {
    let case = case.map(str::to_owned);
    summary.skipped.push(Skipped { contender: contender.to_owned(), case, reason });
}

/// Outputs to measure, as far as this machine has them, and the displays for them. A display is `None` if it is
/// absent or no output to measure needs it.
struct Screens {
    outputs: Vec<PlayerOutput>,
    x: Option<Display>,
    wayland: Option<Display>,
}

impl Screens {
    /// Opens or starts the displays that `outputs` need. Adds the outputs that this machine lacks
    /// to `summary` as skipped.
    fn open(outputs: &[PlayerOutput], summary: &mut Summary) -> Screens {
        let mut screens = Screens { outputs: Vec::new(), x: None, wayland: None };
        let wanted = |test: fn(PlayerOutput) -> bool| outputs.iter().copied().any(test);
        let x = wanted(PlayerOutput::wants_x).then(Display::x11);
        let wayland = wanted(|output| output == PlayerOutput::Wayland).then(Display::wayland);
        for output in outputs {
            let why = match (output, &x, &wayland) {
                (PlayerOutput::Null, ..) => Ok(()),
                (PlayerOutput::Drm, ..) => api::drm(),
                (PlayerOutput::Xv, Some(Ok(display)), _) => display.has_xv(),
                (PlayerOutput::Wayland, _, Some(Err(reason))) => Err(reason.clone()),
                (output, Some(Err(reason)), _) if output.wants_x() => Err(reason.clone()),
                _ => Ok(()),
            };
            match why {
                Ok(()) => screens.outputs.push(*output),
                Err(reason) => skip(summary, output.name(), None, reason),
            }
        }
        screens.x = x.and_then(Result::ok);
        screens.wayland = wayland.and_then(Result::ok);
        screens
    }

    fn of(&self, output: PlayerOutput) -> Option<&Display> {
        match output {
            PlayerOutput::Wayland => self.wayland.as_ref(),
            output if output.wants_x() => self.x.as_ref(),
            _ => None,
        }
    }

    fn text(&self) -> Option<String> {
        let names: Vec<&str> =
            [&self.x, &self.wayland].into_iter().flatten().map(|d| d.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// A player with one decode API and one output.
struct Cell<'a> {
    player: &'static Player,
    program: &'a PathBuf,
    api: PlayerApi,
    output: PlayerOutput,
    /// True if the cell's decoder outputs the same pixels as software, false if not; `None` for
    /// software itself, for other players than framepath, and if the comparison failed.
    equal: Option<bool>,
}

impl Cell<'_> {
    /// Returns the cell's name, such as `mpv-software-x11`.
    fn name(&self) -> String {
        format!("{}-{}-{}", self.player.name, self.api.name(), self.output.name())
    }

    fn command(&self, clip: &Clip, screens: &Screens) -> Result<Command, String> {
        let ask = PlayerRequest { program: self.program, clip, api: self.api, output: self.output };
        let mut command = self.player.command(&ask)?;
        match screens.of(self.output) {
            Some(display) => display.offer(&mut command),
            None => display::without_display(&mut command),
        }
        Ok(command)
    }

    fn play(&self, clip: &Clip, screens: &Screens) -> Result<Measured, LabError> {
        let mut command = self.command(clip, screens).map_err(LabError::Missing)?;
        let display = screens.of(self.output);
        let around = PlayerEnvironment {
            server: display.and_then(|display| display.server),
            window: &|| display.map_or(Ok(()), Display::has_window),
        };
        let window = Window::from_clip(clip.seconds);
        let watched = watched::watch(&mut command, window, &around)?;
        let reported = (self.player.figures)(&watched.text);
        if let Some(why) = reported.otherwise {
            return Err(LabError::Missing(why));
        }
        let mut measured = measured(clip, window, &watched, &reported);
        let equal = self.equal.map(|equal| ("equal".to_owned(), f64::from(u8::from(equal))));
        measured.extra.extend(equal);
        Ok(measured)
    }
}

fn measured(clip: &Clip, window: Window, watched: &Watched, reported: &PlayerFigures) -> Measured {
    let seconds = watched.window_ns as f64 / 1e9;
    let share = |ns: u64| ns as f64 / watched.window_ns.max(1) as f64 * 100.0;
    let cores = framepath_os::machine::cores() as f64;
    let cpu_share = share(watched.cpu_ns);
    let maxed = cpu_share >= MAXED * 100.0 * cores || reported.dropped.is_some_and(|dropped| dropped > 0);
    let mut measured = Measured {
        frames: clip.frames,
        wall_ns: watched.window_ns,
        cpu_ns: watched.cpu_ns,
        peak_memory_kib: watched.peak_kib,
        ..Measured::default()
    };
    let known = [
        ("cpu_share", Some(cpu_share)),
        ("server_cpu_share", watched.server_cpu_ns.map(share)),
        ("wakeups_per_s", Some(watched.wakeups as f64 / seconds)),
        ("shown", reported.shown.map(|count| count as f64)),
        ("dropped", reported.dropped.map(|count| count as f64)),
        ("late", reported.late.map(|count| count as f64)),
        (
            "unaccounted",
            reported.shown.zip(reported.dropped).map(|(a, b)| clip.frames as f64 - (a + b) as f64),
        ),
        ("maxed", Some(f64::from(u8::from(maxed)))),
        ("joules_per_minute", watched.microjoules.map(|uj| uj / 1e6 / seconds * 60.0)),
        ("window_from_s", Some(window.from_ns as f64 / 1e9)),
        ("window_to_s", Some(window.to_ns as f64 / 1e9)),
    ];
    measured.extra.extend(known.into_iter().filter_map(|(key, figure)| Some((key.to_owned(), figure?))));
    measured
}

fn one_clip(
    clip: &Clip,
    players: &[(&'static Player, PathBuf)],
    apis: &[PlayerApi],
    screens: &Screens,
    rounds: usize,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let equal = accurate(clip, players, apis, summary)?;
    let mut cells = Vec::new();
    for output in &screens.outputs {
        for api in apis {
            for (player, program) in players {
                let equal = equal.get(api.name()).copied().filter(|_| player.name == OURS);
                let cell = Cell { player, program, api: *api, output: *output, equal };
                match cell.command(clip, screens) {
                    Ok(_) => cells.push(cell),
                    Err(reason) => skip(summary, &cell.name(), Some(&clip.case), reason),
                }
            }
        }
    }
    let mut contenders: Vec<Contender<'_>> =
        cells.iter().map(|cell| Contender::new(&cell.name(), move || cell.play(clip, screens))).collect();
    let twice = cells.iter().enumerate().filter(|(_, cell)| cell.player.name == OURS);
    let twice: Vec<(usize, String)> =
        twice.map(|(at, cell)| (at, format!("{} {AGAIN}", cell.name()))).collect();
    for (at, name) in &twice {
        let cell = &cells[*at];
        contenders.push(Contender::new(name, move || cell.play(clip, screens)));
    }
    let runs = pairs::run(&clip.case, contenders, &[], rounds, watch, summary)?;
    // The rows of the repeated cells are removed, because the ratios contain their information.
    summary.rows.retain(|row| !row.contender.ends_with(AGAIN));
    summary.skipped.retain(|skipped| !skipped.contender.ends_with(AGAIN));
    for (metric, (second, (at, name))) in
        METRICS.iter().flat_map(|m| twice.iter().enumerate().map(move |t| (m, t)))
    {
        let first = (cells[*at].name(), &runs[*at]);
        let again = &runs[cells.len() + second];
        summary.ratios.extend(pairs::ratio(&clip.case, metric, (&first.0, first.1), (name, again)));
    }
    for metric in METRICS {
        for (at, ours) in cells.iter().enumerate().filter(|(_, cell)| cell.player.name == OURS) {
            let rivals = cells.iter().zip(&runs).filter(|(cell, runs)| {
                (cell.api, cell.output) == (ours.api, ours.output)
                    && cell.player.name != OURS
                    && runs.len() == rounds
            });
            let Some((best, their_runs)) = best(rivals.map(|(cell, runs)| (cell, runs.as_slice())), metric)
            else {
                continue;
            };
            let (name, best) = (ours.name(), best.name());
            summary.ratios.extend(pairs::ratio(&clip.case, metric, (&name, &runs[at]), (&best, their_runs)));
        }
    }
    Ok(())
}

/// Compares framepath's frames of each hardware API with those of software. Returns by API name
/// true if they are equal, and false if not. Omits comparisons that failed, and adds them to
/// `summary` as skipped. Other players do not report their decoded pixels.
fn accurate(
    clip: &Clip,
    players: &[(&'static Player, PathBuf)],
    apis: &[PlayerApi],
    summary: &mut Summary,
) -> Result<BTreeMap<&'static str, bool>, LabError> {
    let mut equal = BTreeMap::new();
    let mut machines = apis.iter().filter(|api| **api != PlayerApi::Software).peekable();
    let ours = players.iter().find(|(player, _)| player.name == OURS);
    let (Some((_, ours)), Some(_)) = (ours, machines.peek()) else { return Ok(equal) };
    let reference = match Reference::of(ours, clip) {
        Err(LabError::Missing(why)) => Err(why),
        outcome => Ok(outcome?),
    };
    for api in machines {
        let outcome = match &reference {
            Ok(reference) => reference.equals(*api),
            Err(why) => Err(LabError::Missing(why.clone())),
        };
        match outcome {
            Ok(is) => drop(equal.insert(api.name(), is)),
            Err(LabError::Missing(why)) => {
                let reason = format!("the comparison of its frames with software's failed: {why}");
                skip(summary, &format!("{OURS}-{}", api.name()), Some(&clip.case), reason);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(equal)
}

/// Finds the rival with the lowest median of `metric` among those that were maxed in fewer than half of
/// their runs; `None` if there is none.
fn best<'a, C>(
    rivals: impl Iterator<Item = (C, &'a [Measured])>,
    metric: &str,
) -> Option<(C, &'a [Measured])> {
    let middle = |runs: &[Measured], metric: &str| {
        median(&runs.iter().filter_map(|run| run.metric(metric)).collect::<Vec<_>>())
    };
    rivals
        .filter(|(_, runs)| middle(runs, "maxed") == Some(0.0))
        .filter_map(|(cell, runs)| Some((middle(runs, metric)?, cell, runs)))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, cell, runs)| (cell, runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clip() -> Clip {
        Clip {
            file: "clip.ivf".into(),
            case: "clip".to_owned(),
            codec: "vp9",
            frames: 150,
            seconds: 5.0,
            easy: true,
        }
    }

    #[test]
    fn dropped_frames_and_full_cores_count_as_maxed() {
        let cores = framepath_os::machine::cores() as u64;
        let figures = |cpu_ns, dropped| {
            let watched = Watched { window_ns: 1_000_000_000, cpu_ns, wakeups: 60, ..Watched::default() };
            let reported = PlayerFigures {
                shown: Some(150 - dropped),
                dropped: Some(dropped),
                late: None,
                ..PlayerFigures::default()
            };
            measured(&clip(), Window::from_clip(5.0), &watched, &reported).extra
        };
        let usual = figures(400_000_000, 0);
        assert_eq!((usual["cpu_share"], usual["wakeups_per_s"], usual["maxed"]), (40.0, 60.0, 0.0));
        assert_eq!(usual["unaccounted"], 0.0);
        assert!(!usual.contains_key("joules_per_minute") && !usual.contains_key("late"));
        assert_eq!(figures(400_000_000, 1)["maxed"], 1.0);
        assert_eq!(figures(cores * 950_000_000, 0)["maxed"], 1.0);
    }

    #[test]
    fn a_player_that_drops_frames_is_not_the_best() {
        let run = |share: f64, maxed: f64| Measured {
            extra: [("cpu_share".to_owned(), share), ("maxed".to_owned(), maxed)].into(),
            ..Measured::default()
        };
        let runs = [("a", [run(30.0, 0.0)]), ("b", [run(10.0, 1.0)]), ("c", [run(20.0, 0.0)])];
        let best = best(runs.iter().map(|(name, runs)| (*name, runs.as_slice())), "cpu_share");
        assert_eq!(best.unwrap().0, "c");
    }
}
