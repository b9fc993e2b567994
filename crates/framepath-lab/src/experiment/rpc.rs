// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rpc`: repeats the table that nspluginwrapper published. Counts the messages between a decoding
//! session and its worker, and measures the session's cost without a worker, with a worker, and with one
//! query for constant information per frame. Also measures the cost of sending a frame to a worker and
//! back, and the activity of an idle stream.

mod crossing;
mod idle;

use std::path::Path;
use std::time::Duration;

use framepath::{Level, Options};
use framepath_model::summary::Summary;
use framepath_model::wire::{CELL_BYTES, MESSAGE_BYTES, PACKET_SUBMISSION_BYTES};

use crate::asked;
use crate::error::LabError;
use crate::experiment::{ExperimentResult, ExperimentSettings, Size};
use crate::measure::{Contender, Measured, complete};
use crate::pairs::{self, Comparison};
use crate::process::Program;
use crate::progress::ProgressView;

const CLIP: &str = "h264-1080p8.h264";
const FRAMES: u64 = 150;

/// Contenders: name, and the option of `decode` for its host. The last contender also queries another
/// process for constant information for each frame.
const CONTENDERS: [(&str, &str); 3] =
    [("inline", ""), ("process", " host=process"), (UNCACHED, " host=process")];
const UNCACHED: &str = "process-uncached";

const COMPARISONS: [Comparison<'static>; 4] = [
    ("cpu_ms", "process", "inline"),
    ("wall_ms", "process", "inline"),
    ("cpu_ms", "process-uncached", "process"),
    ("wall_ms", "process-uncached", "process"),
];

/// Returns the names of all cases, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    ["session", "paced-30", "crossing-30", "crossing-flat-out", "idle"].map(str::to_owned).into()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    let quick = settings.size == Size::Quick;
    let rounds = settings.rounds(2, 6);
    let clip = settings.clip(CLIP)?;
    // With `--full`, 36 passes are three minutes at 30 frames per second, decoded at full speed.
    let passes = if quick { 2 } else { 36 };
    watch.begin("rpc", (2 * CONTENDERS.len() * rounds + 4 * rounds + CONTENDERS.len()) as u64);
    for (case, passes, rate) in [("session", passes, 0), ("paced-30", 1, 30)] {
        if settings.wants(case) {
            session(settings, &clip, (case, passes, rate), rounds, watch, summary)?;
        }
    }
    for (case, rate, frames) in [
        ("crossing-30", 30, if quick { 60 } else { 600 }),
        ("crossing-flat-out", 0, if quick { 20_000 } else { 200_000 }),
    ] {
        if settings.wants(case) {
            crossing::run(case, rate, frames, rounds, watch, summary)?;
        }
    }
    if settings.wants("idle") {
        watch.step("idle");
        let looked = Duration::from_secs(if quick { 3 } else { 10 });
        summary.rows.push(idle::run(&settings.framepath, &clip, "idle", looked)?);
    }
    summary.notes.push(format!(
        "session: {passes} passes over {CLIP} at full speed; messages have {MESSAGE_BYTES} bytes, a packet's cell \
         uses {PACKET_SUBMISSION_BYTES} of {CELL_BYTES} bytes, a frame's cell all; packets and pixels are not \
         counted; uncached: one query to a separate process over a socket for every frame; crossing: CPU time of \
         both processes with a stage that does nothing, minus the same inline; wake-ups: voluntary switches of \
         all processes"
    ));
    Ok(())
}

fn session(
    settings: &ExperimentSettings,
    clip: &Path,
    (case, passes, rate): (&str, u64, u32),
    rounds: usize,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let clip = framepath_model::path::quote(&clip.to_string_lossy());
    let text = |host: &str| format!("file {clip} loop={passes} rate={rate} ! decode{host}");
    let contenders = CONTENDERS.map(|(name, host)| {
        let path = text(host);
        let program = match name {
            UNCACHED => Program::new(&settings.framepath, ["asked", &path]),
            _ => {
                let path = format!("{path} ! null");
                Program::new(&settings.framepath, ["run", "--ledger", "off", "--quiet", &path])
            }
        };
        Contender::new(name, move || timed(&program, passes * FRAMES))
    });
    pairs::run(case, contenders.into(), &COMPARISONS, rounds, watch, summary)?;
    if rate > 0 {
        return Ok(());
    }
    for (name, host) in &CONTENDERS[1..] {
        watch.step(&format!("{case} calls of {name}"));
        let counted = calls(name, &text(host))?;
        let row = summary.rows.iter_mut().find(|row| row.case == case && row.contender == *name);
        if let Some(row) = row {
            row.extra.extend(counted.map(|(key, figure)| (key.to_owned(), figure)));
        }
    }
    Ok(())
}

fn timed(program: &Program, frames: u64) -> Result<Measured, LabError> {
    let finished = program.run(false)?;
    let mut measured = finished.measured(frames);
    let wakeups = finished.usage.voluntary_switches as f64;
    measured.extra.insert("wakeups_per_s".to_owned(), wakeups / (finished.wall_ns.max(1) as f64 / 1e9));
    measured.extra.insert("wakeups_per_frame".to_owned(), wakeups / frames as f64);
    Ok(measured)
}

/// Runs the path `text` of contender `name` once more, in this process, because the timed runs in
/// other processes do not report these counts. Returns the numbers of calls and of bytes, those of the
/// queries included, with the keys of a row.
fn calls(name: &str, text: &str) -> Result<[(&'static str, f64); 8], LabError> {
    let (report, questions) = match name {
        UNCACHED => {
            let asked = asked::run(text)?;
            (asked.report, asked.questions)
        }
        _ => {
            let path = framepath::path::parse(&format!("{text} ! null"))?;
            (complete(framepath::run(&path, &Options { level: Level::Off, ..Options::default() })?)?, 0)
        }
    };
    let worker = report.workers.first();
    let (messages, cells) = worker.map_or(((0, 0), (0, 0)), |worker| (worker.messages, worker.cells));
    Ok(figures((messages.0 + questions, messages.1 + questions), cells, report.frames))
}

/// Returns the numbers of calls (messages and cells) and of bytes with the keys of a row.
/// `messages` and `cells` are pairs of numbers: sent to the worker, and received from it.
fn figures(messages: (u64, u64), cells: (u64, u64), frames: u64) -> [(&'static str, f64); 8] {
    let bytes =
        |messages: u64, cells: u64, cell: usize| messages * MESSAGE_BYTES as u64 + cells * cell as u64;
    let out = bytes(messages.0, cells.0, PACKET_SUBMISSION_BYTES);
    let back = bytes(messages.1, cells.1, CELL_BYTES);
    [
        ("messages_out", messages.0 as f64),
        ("messages_in", messages.1 as f64),
        ("cells_out", cells.0 as f64),
        ("cells_in", cells.1 as f64),
        ("calls", (messages.0 + messages.1 + cells.0 + cells.1) as f64),
        ("bytes_out", out as f64),
        ("bytes_in", back as f64),
        ("wire_bytes_per_frame", (out + back) as f64 / frames.max(1) as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_bytes_add_up() {
        let figures = figures((1, 2), (101, 103), 100);
        let of = |key: &str| figures.iter().find(|(name, _)| *name == key).unwrap().1;
        assert_eq!(of("calls"), 207.0);
        assert_eq!(of("bytes_out"), 1024.0 + 101.0 * 32.0);
        assert_eq!(of("bytes_in"), 2048.0 + 103.0 * 64.0);
        assert_eq!(of("wire_bytes_per_frame"), (of("bytes_out") + of("bytes_in")) / 100.0);
    }
}
