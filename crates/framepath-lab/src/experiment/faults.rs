// SPDX-License-Identifier: MIT OR Apache-2.0
//! `faults`: effects of failing workers on the readers of their streams.
//!
//! Four streams of four codecs run at once in this process, each decoded in a
//! worker. Workers are killed with SIGKILL at random moments, hang, take all
//! memory, or get a packet that kills every worker. Every frame is compared with an undisturbed run by
//! its MD5. In case `client`, the streams are in processes of their own (the clients), which are killed;
//! the case checks no frames, but that the workers of a killed client end.

mod check;
mod clients;
mod kills;
mod left;
mod random;
mod stream;

use framepath_model::stats::{median, percentile};
use framepath_model::summary::{LatencyUs, Summary, SummaryRow};
use framepath_os::process::signal;

use crate::error::LabError;
use crate::experiment::{ExperimentResult, ExperimentSettings, Size};
use crate::progress::ProgressView;
use check::FrameErrors;
use left::Holdings;
use random::Random;
use stream::{FaultClip, FinishedStream};

/// Clips of the four streams, each of another codec. Each clip is a single group of pictures, so that
/// replays are as long as possible, and has a frame for every packet.
const CLIPS: [&str; 4] = ["h264-180p8-high.h264", "vp9-180p8.ivf", "av1-180p8.ivf", "hevc-180p8.hevc"];

/// Packets per second of each stream in case `kill-paced`.
const RATE: u32 = 60;
/// Number of passes over a stream's clip for each kill of a worker of that stream.
const PASSES_PER_KILL: f64 = 1.5;
/// Seed of the random moments of the kills, constant for reproducible runs.
const SEED: u64 = 1000;

const CONTENDER: &str = "process";

/// Cases in which a worker causes the fault itself: case, options of the stage `decode`, and passes
/// over the clip.
const INJECTED: [(&str, &str, u64); 3] = [
    ("hang", "watchdog=300ms fault=hang@20", 2),
    ("bomb", "memory=512MiB fault=bomb@20", 2),
    ("poison", "fault=poison@10", 3),
];

/// State that all cases share.
struct Lab<'a> {
    settings: &'a ExperimentSettings,
    watch: &'a dyn ProgressView,
    clips: Vec<FaultClip>,
    random: Random,
    /// Resources of this process before the first case.
    before: Holdings,
}

/// Returns the names of all cases, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    let injected = INJECTED.iter().map(|(case, ..)| *case);
    ["kill-paced", "kill-flat-out"].into_iter().chain(injected).chain(["client"]).map(str::to_owned).collect()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    let quick = settings.size == Size::Quick;
    let kills = settings.rounds(100, 1000) as u64;
    let (injections, client_rounds) = if quick { (1, 2) } else { (10, 25) };
    watch.begin("faults", kills + 3 * injections + client_rounds + 1);
    watch.step("undisturbed");
    let clips: Vec<FaultClip> =
        CLIPS.iter().map(|name| FaultClip::new(&settings.clip(name)?)).collect::<Result<_, _>>()?;
    // One run before the count, so that one-time resources are not counted as leaks.
    clips[0].start(1, 0, "")?.wait()?;
    let before = Holdings::now();
    let mut lab = Lab { settings, watch, clips, random: Random::new(SEED), before };
    lab.paced(kills - kills / 2, summary)?;
    lab.flat(kills / 2, summary)?;
    for (case, options, passes) in INJECTED {
        lab.injected(case, options, passes, injections, summary)?;
    }
    lab.clients(client_rounds, summary)?;
    summary.notes.push(format!(
        "four streams at the same time ({}), each with a worker; recovery: from the kill until the first frame of \
         the next worker, without the time of decoding that frame and its history; gap: from the kill until the \
         first frame that is new to the reader; others: frames of a stream that is not recovering while another \
         stream is; left: resources after each case, minus those before the first case",
        CLIPS.join(", ")
    ));
    Ok(())
}

impl Lab<'_> {
    fn paced(&mut self, kills: u64, summary: &mut Summary) -> Result<(), LabError> {
        const CASE: &str = "kill-paced";
        if !self.settings.wants(CASE) {
            return Ok(());
        }
        let passes = self.passes(kills);
        let calm = kills::run(&self.clips, passes.min(20), RATE, 0, &mut self.random, self.watch)?;
        let calm_ns = calm.latencies();
        let mut row = self.row(CASE, "process-undisturbed", &calm.streams, passes.min(20));
        row.latency_us = LatencyUs::of_sorted_ns(&calm_ns);
        summary.rows.push(row);
        let outcome = kills::run(&self.clips, passes, RATE, kills, &mut self.random, self.watch)?;
        let mut row = self.killed(CASE, &outcome, passes);
        let p99_us = |sorted: &[u64]| percentile(sorted, 99.0).map(|ns| ns as f64 / 1e3);
        let others = p99_us(&outcome.latencies_of_others());
        let calm = p99_us(&calm_ns);
        row.extra.extend(others.map(|us| ("others_p99_us".to_owned(), us)));
        row.extra.extend(calm.map(|us| ("undisturbed_p99_us".to_owned(), us)));
        let ratio = others.zip(calm).filter(|(_, calm)| *calm > 0.0).map(|(others, calm)| others / calm);
        row.extra.extend(ratio.map(|ratio| ("others_p99_ratio".to_owned(), ratio)));
        summary.rows.push(row);
        Ok(())
    }

    fn flat(&mut self, kills: u64, summary: &mut Summary) -> Result<(), LabError> {
        const CASE: &str = "kill-flat-out";
        if !self.settings.wants(CASE) {
            return Ok(());
        }
        // A late kill needs more than two passes.
        let passes = self.passes(kills).max(8);
        let outcome = kills::run(&self.clips, passes, 0, kills, &mut self.random, self.watch)?;
        summary.rows.push(self.killed(CASE, &outcome, passes));
        Ok(())
    }

    /// Returns the number of passes over each clip for `kills` kills, spread over all streams; at least
    /// 2.
    fn passes(&self, kills: u64) -> u64 {
        (kills as f64 / self.clips.len() as f64 * PASSES_PER_KILL).ceil().max(2.0) as u64
    }

    fn killed(&self, case: &str, outcome: &kills::KillRun, passes: u64) -> SummaryRow {
        let mut row = self.row(case, CONTENDER, &outcome.streams, passes);
        row.latency_us = LatencyUs::of_sorted_ns(&outcome.latencies());
        let times = outcome.times();
        let figures = [
            ("kills", Some(outcome.kills.len() as f64)),
            ("recoveries", Some(times.recovery.len() as f64)),
            ("recovery_ms", median(&times.recovery)),
            ("recovery_p99_ms", percentile(&times.recovery, 99.0)),
            ("gap_ms", median(&times.gap)),
            ("gap_p99_ms", percentile(&times.gap, 99.0)),
        ];
        row.extra.extend(figures.into_iter().filter_map(|(key, figure)| Some((key.to_owned(), figure?))));
        row
    }

    /// Runs a case `rounds` times, and adds its row to `summary`. In each round all streams run at the same
    /// time, `passes` passes each, with the fault in `options`, options of the stage `decode`. Does nothing
    /// if the settings leave out the case.
    fn injected(
        &mut self,
        case: &str,
        options: &str,
        passes: u64,
        rounds: u64,
        summary: &mut Summary,
    ) -> Result<(), LabError> {
        if !self.settings.wants(case) {
            return Ok(());
        }
        let mut streams = Vec::new();
        for _ in 0..rounds {
            self.watch.step(case);
            let started = self.clips.iter().map(|clip| clip.start(passes, 0, options));
            let started: Vec<_> = started.collect::<Result<_, _>>()?;
            for running in started {
                streams.push(running.wait()?);
            }
            if signal::interrupted() {
                return Err(LabError::Interrupted);
            }
        }
        let row = self.row(case, CONTENDER, &streams, passes);
        summary.rows.push(row);
        Ok(())
    }

    fn clients(&mut self, rounds: u64, summary: &mut Summary) -> Result<(), LabError> {
        const CASE: &str = "client";
        if !self.settings.wants(CASE) {
            return Ok(());
        }
        let framepath = &self.settings.framepath;
        let outcome = clients::run(framepath, &self.clips, rounds, &mut self.random, self.watch)?;
        let mut row =
            SummaryRow { case: CASE.to_owned(), contender: CONTENDER.to_owned(), ..SummaryRow::default() };
        row.runs = rounds as u32;
        row.extra.extend(Holdings::now().more_than(&self.before).map(|(key, n)| (key.to_owned(), n)));
        let figures = [
            ("kills", outcome.kills as f64),
            ("workers", outcome.workers as f64),
            ("left_processes", outcome.left as f64),
            ("ended_ms", outcome.longest_ms),
        ];
        row.extra.extend(figures.map(|(key, figure)| (key.to_owned(), figure)));
        summary.rows.push(row);
        Ok(())
    }

    /// Creates the row of `streams`, which had `passes` passes each: frame errors, deaths of
    /// workers, replayed and skipped packets, and the resources that this process holds now in addition to
    /// those before the first case. The frames of skipped packets do not count as lost. Stream n plays clip n
    /// modulo the number of clips.
    fn row(&self, case: &str, contender: &str, streams: &[FinishedStream], passes: u64) -> SummaryRow {
        let mut faults = FrameErrors::default();
        for (ended, clip) in streams.iter().zip(self.clips.iter().cycle()) {
            let mut judged = clip.expected.judge(&ended.seen, passes);
            // Frames skipped with a poisoned packet are counted separately.
            judged.lost = judged.lost.saturating_sub(ended.skipped);
            faults += judged;
        }
        let sum = |of: fn(&FinishedStream) -> u64| streams.iter().map(of).sum::<u64>() as f64;
        let counts = [
            ("lost", faults.lost as f64),
            ("duplicated", faults.duplicated as f64),
            ("out_of_order", faults.out_of_order as f64),
            ("wrong", faults.wrong as f64),
            ("deaths", sum(|ended| ended.deaths)),
            ("replayed", sum(|ended| ended.replayed)),
            ("skipped", sum(|ended| ended.skipped)),
        ];
        let left = Holdings::now().more_than(&self.before);
        SummaryRow {
            case: case.to_owned(),
            contender: contender.to_owned(),
            runs: (streams.len() / self.clips.len()) as u32,
            frames: sum(|ended| ended.seen.len() as u64) as u64,
            extra: counts.into_iter().chain(left).map(|(key, figure)| (key.to_owned(), figure)).collect(),
            ..SummaryRow::default()
        }
    }
}
