// SPDX-License-Identifier: MIT OR Apache-2.0
//! Status of a service as a table, for a terminal.

use std::fmt::Write;

use framepath_model::shown::shown;
use framepath_model::shown_time::shown_time;
use framepath_model::wire::figures::KNOWN_CAUSES;
use framepath_model::wire::{Figures, StreamStatus};

use crate::Snapshot;

/// Width of the bar that shows causes of latency, in characters.
const BAR: usize = 20;
/// Letters that stand for the causes in the bar, in the order of [`KNOWN_CAUSES`].
const LETTERS: [char; KNOWN_CAUSES.len()] = ['C', 'c', 'h', 'p', 'b', 'P'];

/// Text for an unknown value.
const UNKNOWN: &str = "-";

/// Returns a table of the service's status `now`, with rates, latencies and causes since `before`. A stream
/// without a frame since then shows the latencies of all its frames, and a stream without time by cause since
/// then shows its whole time by cause. A stream that `before` lacks counts from 0. Lines are cut to `columns`
/// characters.
pub fn table(before: &Snapshot, now: &Snapshot, columns: usize) -> String {
    let seconds = now.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
    let mut text = head(before, now, seconds);
    text.push_str(
        "\nstream   client    user   worker  frames/s   CPU %        p50        p99  crashes  \
         size       causes                stage\n",
    );
    for stream in &now.streams {
        let known = before.streams.iter().find(|other| other.stream == stream.stream);
        let nothing = StreamStatus::default();
        text.push_str(&line(known.unwrap_or(&nothing), stream, seconds));
    }
    if now.streams.is_empty() {
        text.push_str("no streams: framepath run 'file clip.mp4 ! decode host=service ! null'\n");
    } else {
        text.push_str("\ncauses:");
        for (letter, cause) in LETTERS.iter().zip(KNOWN_CAUSES) {
            let _ = write!(text, "  {letter} {cause}");
        }
        text.push('\n');
    }
    text.lines().map(|line| line.chars().take(columns).chain(['\n']).collect::<String>()).collect()
}

fn head(before: &Snapshot, now: &Snapshot, seconds: f64) -> String {
    let totals = &now.totals;
    let many = |n: u64, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let mut text = format!(
        "{}, {}, {}; ever {}, {} denied, {}\n",
        many(totals.streams.into(), "stream"),
        many(totals.connections.into(), "connection"),
        many(totals.spares.into(), "spare worker"),
        many(totals.granted, "stream"),
        totals.denied,
        if totals.crashes == 1 { "1 crash".to_owned() } else { format!("{} crashes", totals.crashes) },
    );
    let frames = rate(before.totals.frames, totals.frames, seconds);
    let cpu = rate(before.totals.cpu_ns, totals.cpu_ns, seconds).map(|ns| ns / 1e7);
    let _ = writeln!(
        text,
        "{} frames/s, CPU {} %; ever {}, CPU {:.1} s",
        number(frames),
        number(cpu),
        many(totals.frames, "frame"),
        totals.cpu_ns as f64 / 1e9,
    );
    text
}

fn line(before: &StreamStatus, now: &StreamStatus, seconds: f64) -> String {
    let figures = &now.figures;
    let frames = rate(before.figures.frames, figures.frames, seconds);
    let cpu = rate(before.cpu_ns, now.cpu_ns, seconds).map(|ns| ns / 1e7);
    let recent = figures.latency.since(&before.figures.latency);
    // Without a frame since `before`, the latency of all frames.
    let latency = if recent.count() > 0 { recent } else { figures.latency };
    let quantile = |q| latency.quantile_ns(q).map_or_else(|| UNKNOWN.to_owned(), |ns| shown_time(ns as f64));
    let id = |n: u32| if n == 0 { UNKNOWN.to_owned() } else { n.to_string() };
    let size = match figures.width {
        0 => UNKNOWN.to_owned(),
        width => format!("{width}x{}", figures.height),
    };
    format!(
        "{:>6} {:>8} {:>7} {:>8} {:>9} {:>7} {:>10} {:>10} {:>8}  {size:<9}  {:<BAR$}  {}\n",
        now.stream,
        id(now.client_pid),
        now.client_uid,
        id(now.worker_pid),
        number(frames),
        number(cpu),
        quantile(0.5),
        quantile(0.99),
        now.crashes,
        bar(&before.figures, figures),
        shown(&figures.stage),
    )
}

/// Returns the bar, in which letters show each cause's share of the frames' time since `before`, or of the
/// whole time if there was none since then; [`UNKNOWN`] if no cause is known.
fn bar(before: &Figures, now: &Figures) -> String {
    let since: Vec<u64> =
        now.causes_ns.iter().zip(before.causes_ns).map(|(now, before)| now.saturating_sub(before)).collect();
    let causes = if since.iter().any(|ns| *ns > 0) { since } else { now.causes_ns.to_vec() };
    let sum: f64 = causes.iter().map(|ns| *ns as f64).sum();
    if sum == 0.0 {
        return UNKNOWN.to_owned();
    }
    let (mut bar, mut until) = (String::new(), 0.0);
    for (letter, ns) in LETTERS.iter().zip(causes) {
        until += ns as f64 / sum * BAR as f64;
        while bar.len() < (until.round() as usize).min(BAR) {
            bar.push(*letter);
        }
    }
    bar
}

fn rate(before: u64, now: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| now.saturating_sub(before) as f64 / seconds)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{value:.1}"))
}

#[cfg(test)]
mod tests {
    use framepath_model::wire::{Histogram, Totals};

    use super::*;

    fn snapshot(at_s: u64, frames: u64) -> Snapshot {
        let mut latency = Histogram::default();
        latency.0[Histogram::bucket(2_000_000)] = frames;
        let figures = Figures {
            frames,
            causes_ns: [frames * 3, 0, frames, 0, 0, 0],
            width: 320,
            height: 180,
            stage: "decode threads=1".to_owned(),
            latency,
            ..Figures::default()
        };
        let cpu_ns = frames * 5_000_000;
        let status =
            StreamStatus { stream: 7, client_pid: 4, cpu_ns, crashes: 2, figures, ..Default::default() };
        let totals = Totals { streams: 1, granted: 9, frames, cpu_ns, ..Totals::default() };
        Snapshot { at_ns: at_s * 1_000_000_000, totals, streams: vec![status] }
    }

    #[test]
    fn a_stage_text_makes_no_second_line() {
        let mut now = snapshot(12, 200);
        let lines = table(&now, &now, usize::MAX).lines().count();
        now.streams[0].figures.stage = "decode\n     8 somebody\u{1b}[2J".to_owned();
        let text = table(&now, &now, usize::MAX);
        assert_eq!(text.lines().count(), lines, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn rates_cover_the_time_between_the_snapshots() {
        let text = table(&snapshot(10, 100), &snapshot(12, 200), usize::MAX);
        let line = text.lines().find(|line| line.trim_start().starts_with("7 ")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..6], ["7", "4", "0", "-", "50.0", "25.0"], "{text}");
        assert!(
            line.contains("2.10 ms    2.10 ms        2  320x180    CCCCCCCCCCCCCCChhhhh  decode threads=1"),
            "{line}"
        );
        assert!(
            text.starts_with(
                "1 stream, 0 connections, 0 spare workers; ever 9 streams, 0 denied, 0 crashes\n"
            )
        );
    }

    #[test]
    fn unknown_figures_are_not_numbers() {
        let now = snapshot(10, 0);
        let text = table(&now, &now, 64);
        let line = text.lines().find(|line| line.trim_start().starts_with("7 ")).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>()[4..7], ["-", "-", "-"], "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 64));
        assert!(table(&Snapshot::default(), &Snapshot::default(), 200).contains("no streams"));
    }
}
