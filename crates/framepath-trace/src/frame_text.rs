// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of a traced program's frames as text.

use std::fmt::Write;

use framepath_model::ledger::{CAUSES, Cause, Causes, Digest, HopTree, digest};
use framepath_model::shown::shown;
use framepath_model::shown_time::shown_time;

use crate::frame_ledger::StreamLedger;
use crate::stage_wait::StageWait;

/// Number of waits in the text; the others are summed up.
const LISTED: usize = 6;

/// Smallest share of the median frame's latency with which a cause is named beside the slowest frame.
const NAMED: f64 = 0.2;

impl StreamLedger {
    /// Returns the figures of the stream's rows.
    pub fn digest(&self) -> Digest {
        let sink = self.stages.len().saturating_sub(1) as u16;
        digest(&mut self.rows.clone(), &HopTree::line(self.stages.len()), sink)
    }

    /// Returns the ledger as a table for people: for each stage, the time of the median frame by cause, in milliseconds.
    pub fn text(&self) -> String {
        let others = match (self.from.as_str(), self.others) {
            ("demux", 0) => "; every packet is one of them".to_owned(),
            ("demux", n) => format!("; {n} more packets without a frame at the end"),
            (_, 0) => String::new(),
            (_, n) => format!("; {n} more began and did not get there"),
        };
        self.text_with(&format!("{} frames", self.frames), &others)
    }

    /// Returns the same of a part of a program's run, in which other frames may have begun or ended.
    pub(crate) fn text_of_part(&self) -> String {
        // From the first frame's begin to the last one's.
        let births = self.rows.iter().map(|row| row.birth_ns);
        let first_ns = births.clone().min().unwrap_or(0);
        let seconds = (births.max().unwrap_or(0) - first_ns) as f64 / 1e9;
        let rate = if seconds > 0.0 { (self.frames - 1) as f64 / seconds } else { 0.0 };
        self.text_with(&format!("{rate:.1} frames/s"), "")
    }

    fn text_with(&self, frames: &str, others: &str) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, frames, others);
        text
    }

    fn write(&self, text: &mut String, frames: &str, others: &str) -> std::fmt::Result {
        let digest = self.digest();
        let word = |stage: &String| stage.split(' ').next().unwrap_or_default().to_owned();
        let last = self.stages.last().map(word);
        let Some(latency) = digest.latency else { return Ok(()) };
        let [p50, p95, p99, max] =
            [latency.p50, latency.p95, latency.p99, latency.max].map(|ns| shown_time(ns as f64));
        writeln!(
            text,
            "{frames}; latency ({} to {}) p50 {p50}  p95 {p95}  p99 {p99}  max {max}{others}",
            shown(&self.from),
            shown(&last.unwrap_or_default()),
        )?;
        let is_used = |cause: &Cause| {
            *cause == Cause::Unexplained
                || digest.hops.iter().any(|hop| hop.median[*cause].is_some_and(|ns| ns >= 5_000.0))
        };
        let used: Vec<Cause> = CAUSES.into_iter().filter(is_used).collect();
        let width =
            self.stages.iter().map(|stage| shown(stage).chars().count()).max().unwrap_or(0).clamp(5, 32);
        write!(text, "\n{:<width$}  {:>9}", "stage", "ms")?;
        for cause in &used {
            write!(text, "  {:>9}", cause.name())?;
        }
        writeln!(text)?;
        let line = |text: &mut String, name: &str, causes: &Causes| {
            write!(text, "{:<width$}  {:>9}", cut(name, width), ms(causes.total()))?;
            for cause in &used {
                write!(text, "  {:>9}", causes[*cause].map_or("-".to_owned(), ms))?;
            }
            writeln!(text)
        };
        for (stage, hop) in self.stages.iter().zip(&digest.hops) {
            line(text, &shown(stage), &hop.median)?;
        }
        line(text, "all", &digest.causes)?;
        self.write_copies(text, used.contains(&Cause::Copy))?;
        self.write_blocked(text)?;
        self.write_slowest(text, &digest)
    }

    /// Writes how far the times of copies can be off, if the table has them.
    fn write_copies(&self, text: &mut String, are_shown: bool) -> std::fmt::Result {
        let samples = self.copy_samples;
        if !are_shown || samples == 0 {
            return Ok(());
        }
        // Twice the standard deviation of a count.
        let percent = 200.0 / (samples as f64).sqrt();
        let error =
            if percent < 100.0 { format!("± {percent:.0} %") } else { "too few for a figure".to_owned() };
        writeln!(text, "copy is sampled: {samples} of the frames' samples are in memcpy or memmove ({error})")
    }

    /// Writes what the frames were blocked by, the longest first.
    fn write_blocked(&self, text: &mut String) -> std::fmt::Result {
        let is_listed = |wait: &&StageWait| wait.cause == Cause::Blocked.name() && wait.us >= 1.0;
        let blocked: Vec<&StageWait> = self.stage_waits.iter().filter(is_listed).collect();
        if blocked.is_empty() {
            return Ok(());
        }
        let name = |hop: u16| self.stages.get(usize::from(hop)).map(|stage| shown(stage)).unwrap_or_default();
        let part = |wait: &&StageWait| {
            format!("{} in {} {}", wait.text(), name(wait.hop), shown_time(1e3 * wait.us))
        };
        let mut parts: Vec<String> = blocked.iter().take(LISTED).map(part).collect();
        if blocked.len() > LISTED {
            let others: f64 = blocked[LISTED..].iter().map(|wait| wait.us).sum();
            parts.push(format!("{} others {}", blocked.len() - LISTED, shown_time(1e3 * others)));
        }
        writeln!(text, "blocked, mean per frame: {}", parts.join("; "))
    }

    /// Writes where the slowest frame's time went.
    fn write_slowest(&self, text: &mut String, digest: &Digest) -> std::fmt::Result {
        let Some(slowest) = digest.totals.iter().max_by_key(|total| total.latency_ns()) else {
            return Ok(());
        };
        let latency_ns = slowest.latency_ns() as f64;
        let mut parts: Vec<(f64, String)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.seq == slowest.seq) {
            let stage = self.stages.get(usize::from(row.hop)).map(|stage| shown(stage)).unwrap_or_default();
            let causes = row.causes();
            for (cause, ns) in causes.iter().filter_map(|(cause, ns)| Some((cause, ns?))) {
                if ns >= NAMED * latency_ns {
                    parts.push((ns, format!("{} {} in {stage}", shown_time(ns), cause.name())));
                }
            }
        }
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
        writeln!(text, "slowest frame: #{}, {}: {}", slowest.seq, shown_time(latency_ns), parts.join(", "))
    }
}

fn ms(ns: f64) -> String {
    format!("{:.2}", ns / 1e6)
}

fn cut(name: &str, width: usize) -> String {
    name.chars().take(width).collect()
}
