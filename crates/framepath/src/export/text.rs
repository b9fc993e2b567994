// SPDX-License-Identifier: MIT OR Apache-2.0
//! The summary at the end of a run, as text for a terminal.

use std::fmt::Write;

use framepath_model::ledger::{Cause, Digest, HopDigest, Latency};
use framepath_model::shown::shown;
pub use framepath_model::shown_time::shown_time as time;
use framepath_os::measure::meter::Level;

use super::advice::advice;
use crate::report::{Report, SinkReport, depths};

const BAR_WIDTH: usize = 30;

/// Smallest share of the median frame's latency with which a cause has a column in the table of hops.
const SMALLEST_SHARE: f64 = 0.005;

/// Maximum number of viewers of whom all figures are shown.
const MOST_VIEWERS: usize = 3;

/// Returns the summary: frames, deaths of workers, counts of `play`, latency, hops, a bar for each cause, a
/// table of hops and causes, copies, (at level `full`, with one sink) switches, and advice. At level `off`
/// the summary ends after the counts of `play`. If no frame reached a sink, a line that says so replaces all
/// from the latency on. At other levels than `off`, changes the report's rows as [`Report::digest`] does.
///
/// ```
/// use framepath::{Options, Pipeline, export};
///
/// let mut report = Pipeline::parse("test frames=5 ! null")?.run(&Options::default())?;
/// assert!(export::text::summary(&mut report).starts_with("5 frames in "));
/// # Ok::<(), framepath::RunError>(())
/// ```
pub fn summary(report: &mut Report) -> String {
    let mut text = headline(report);
    workers(&mut text, report);
    played(&mut text, report);
    if report.level == Level::Off {
        return text;
    }
    // Writing to a string cannot fail.
    let _ = ledger(&mut text, report);
    text
}

/// Returns the tables of the ledger, behind a line about the frames: for the report of a [`LiveLedger`](crate::LiveLedger).
pub fn live(report: &mut Report) -> String {
    let seconds = report.wall_ns as f64 / 1e9;
    let per_second = report.frames as f64 / seconds.max(1e-9);
    let mut text =
        format!("{} frames in the last {seconds:.1} s, {per_second:.1} per second\n", report.frames);
    // Writing to a string cannot fail.
    let _ = ledger(&mut text, report);
    text
}

/// Returns the hop indices of the sinks; of the last hop if there is no sink.
fn sinks(report: &Report) -> Vec<u16> {
    match report.sinks.len() {
        0 | 1 => vec![report.hop_tree().leaves().last().copied().unwrap_or_default()],
        _ => report.sinks.iter().map(|sink| sink.hop).collect(),
    }
}

fn headline(report: &Report) -> String {
    let seconds = report.wall_ns as f64 / 1e9;
    let mut text = format!(
        "{} frames in {}, {:.1} per second; CPU {}, load {:.2}; {}",
        report.frames,
        time(report.wall_ns as f64),
        report.frames as f64 / seconds.max(1e-9),
        time(report.cpu_ns as f64),
        report.cpu_ns as f64 / report.wall_ns.max(1) as f64,
        dropped(report.dropped + report.missed + report.congested),
    );
    if report.interrupted {
        text.push_str("; interrupted");
    }
    text.push('\n');
    if report.sinks.len() > 1 {
        let of_sink = |sink: &SinkReport| {
            format!("{} to {}", sink.frames, shown(&report.hops[usize::from(sink.hop)].text))
        };
        let sinks: Vec<String> = report.sinks.iter().map(of_sink).collect();
        let _ = writeln!(text, "frames: {}", sinks.join(", "));
    }
    text
}

/// Adds to `text` a line for each hop of which a worker has died, hung or broken the rules.
fn workers(text: &mut String, report: &Report) {
    for worker in report.workers.iter().filter(|worker| worker.deaths > 0) {
        let hop = shown(&report.hops[usize::from(worker.hop)].text);
        let again = |count: u64| if count == 1 { "once".to_owned() } else { format!("{count} times") };
        let _ =
            write!(text, "{hop}: replaced a worker {} ({})", again(worker.deaths), shown(&worker.last_death));
        if worker.lost > 0 {
            let _ = write!(text, "; {} frames inside were lost", worker.lost);
        } else {
            let things = if worker.takes_frames { "frames" } else { "packets" };
            let _ = write!(text, "; {} {things} were submitted again", worker.replayed);
        }
        let skipped = worker.skipped;
        let _ = match worker.poisoned {
            Some(frame) if worker.takes_frames => {
                let frames = if skipped == 1 { "frame was" } else { "frames were" };
                write!(text, "; frame {frame} kills every worker: {skipped} {frames} skipped")
            }
            Some(packet) => write!(
                text,
                "; packet {packet} kills every worker: {skipped} packets were skipped, up to the next random access \
                 point",
            ),
            None => Ok(()),
        };
        text.push('\n');
    }
}

/// Adds to `text` a line with the counts of `play`, if the path has one.
fn played(text: &mut String, report: &Report) {
    let Some(played) = report.played else { return };
    let _ = write!(text, "play: {} shown, {} dropped because they were late", played.shown, played.late);
    if played.ended {
        text.push_str("; ended by the viewer");
    }
    text.push('\n');
}

fn dropped(frames: u64) -> String {
    match frames {
        0 => "none dropped".to_owned(),
        1 => "1 dropped".to_owned(),
        n => format!("{n} dropped"),
    }
}

/// Numbers of viewers whose figures are left out, because a table of all would be too long: all but the median and the slowest viewer,
/// if there are more than [`MOST_VIEWERS`].
fn left_out(report: &mut Report, sinks: &[u16]) -> Vec<u64> {
    let viewer =
        |sink: &u16| Some((*sink, report.remote_of(*sink).filter(|remote| remote.viewer > 0)?.viewer));
    let viewers: Vec<(u16, u64)> = sinks.iter().filter_map(viewer).collect();
    if viewers.len() > MOST_VIEWERS {
        // No digest is kept, because each has figures of all hops.
        let mut p50 = |sink: u16| report.digest_of(sink).latency.map(|latency| latency.p50);
        let mut viewers: Vec<_> = viewers.into_iter().map(|(sink, viewer)| (p50(sink), viewer)).collect();
        viewers.sort_unstable();
        viewers.pop();
        viewers.remove(viewers.len() / 2);
        viewers.into_iter().map(|(_, viewer)| viewer).collect()
    } else {
        Vec::new()
    }
}

fn ledger(text: &mut String, report: &mut Report) -> std::fmt::Result {
    let mut sinks = sinks(report);
    let left_out = left_out(report, &sinks);
    sinks.retain(|sink| report.remote_of(*sink).is_none_or(|remote| !left_out.contains(&remote.viewer)));
    let digests: Vec<(u16, Digest)> = sinks.into_iter().map(|sink| (sink, report.digest_of(sink))).collect();
    let report = &*report;
    let is_shown = |hop: u16| report.remote_of(hop).is_none_or(|remote| !left_out.contains(&remote.viewer));
    let Some((_, last)) = digests.last() else { return Ok(()) };
    if digests.iter().all(|(_, digest)| digest.latency.is_none()) {
        return writeln!(text, "no frame reached the sink: no latency");
    }
    if report.overwritten > 0 {
        let rows = report.overwritten;
        writeln!(
            text,
            "ledger: the first {rows} rows were overwritten; figures are of the last {} frames",
            last.frames
        )?;
    }
    for remote in report.remotes.iter().filter(|remote| !left_out.contains(&remote.viewer)) {
        writeln!(text, "ledger: {remote}")?;
    }
    if !left_out.is_empty() {
        let all = report.remotes.len();
        writeln!(
            text,
            "ledger: shown are the median and the slowest of {all} viewers, by p50 latency; --csv has all"
        )?;
    }
    // Text that names the sink, if there are several.
    let to = |sink: u16| match digests.len() {
        1 => String::new(),
        _ => format!(" to {}", shown(&report.hops[usize::from(sink)].text)),
    };
    for (sink, digest) in &digests {
        let Some(Latency { p50, p95, p99, max }) = digest.latency else { continue };
        let [p50, p95, p99, max] = [p50, p95, p99, max].map(|ns| time(ns as f64));
        let of = to(*sink);
        let clocks = report
            .remote_of(*sink)
            .or(report.remotes.first().filter(|remote| remote.viewer == 0))
            .map_or_else(String::new, |remote| format!("; by two clocks, ±{}", time(remote.error_ns as f64)));
        writeln!(
            text,
            "latency{of}: p50 {p50}  p95 {p95}  p99 {p99}  max {max}  (birth to end of sink{clocks})"
        )?;
    }
    hops(text, report, last, is_shown)?;
    for (sink, digest) in &digests {
        causes(text, report.level, digest, &to(*sink))?;
        hops_by_cause(text, report, digest)?;
    }
    // Summed over the hops instead of the sinks, because each sink's sum includes the hops in front of the
    // tee.
    let copied = match digests.len() {
        1 => last.copied_bytes,
        _ => {
            last.hops.iter().map(|hop| hop.copied_bytes * hop.frames as f64).sum::<f64>()
                / report.frames.max(1) as f64
        }
    };
    let own = report.hops.iter().any(|hop| hop.own);
    writeln!(text, "copied: {} per frame{}", bytes(copied), counted_by(copied, own))?;
    if let (Some(switches), 1) = (last.switches, digests.len()) {
        writeln!(text, "switches: {switches:.1} per frame")?;
    }
    let mut given: Vec<String> = Vec::new();
    for advice in digests.iter().flat_map(|(_, digest)| advice(report, digest)) {
        if !given.contains(&advice.text) {
            writeln!(text, "advice: {}", advice.text)?;
            given.push(advice.text);
        }
    }
    Ok(())
}

fn counted_by(copied: f64, own: bool) -> &'static str {
    match (copied == 0.0, own) {
        (_, true) => " (counted; copies of the program's own parts are not counted)",
        (true, false) => " (counted: no hop copied)",
        (false, false) => " (counted)",
    }
}

/// Adds the table of the hops for which `is_shown` returns true.
fn hops(
    text: &mut String,
    report: &Report,
    digest: &Digest,
    is_shown: impl Fn(u16) -> bool,
) -> std::fmt::Result {
    let per_frame = |ns: f64| time(ns / report.frames.max(1) as f64);
    // Hops of a branch are indented.
    let indent = |depth: usize| "  ".repeat(depth);
    let names = report.hop_labels().into_iter().zip(depths(&report.hops));
    let names: Vec<String> = names.map(|(label, depth)| indent(depth) + &shown(&label)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).clamp(4, 48);
    writeln!(
        text,
        "\n{:<width$}  {:>9} {:>9} {:>9} {:>9}  {:>9}  {:>11}  {:>8}",
        "hop", "p50", "p95", "p99", "max", "cpu", "copied", "dropped"
    )?;
    let cpu_ns = report.hops_cpu_ns(digest);
    let rows = report.hops.iter().zip(&names).zip(&digest.hops).zip(cpu_ns);
    for (_, (((hop, name), figures), cpu_ns)) in (0..).zip(rows).filter(|(at, _)| is_shown(*at)) {
        let name = shortened(name, width);
        if figures.frames == 0 && figures.dropped == 0 {
            writeln!(text, "{name:<width$}  {:>9}", "-")?;
            continue;
        }
        let wall = figures.wall;
        let [p50, p95, p99, max] = [wall.p50, wall.p95, wall.p99, wall.max].map(|ns| time(ns as f64));
        let dropped =
            if hop.link || figures.dropped > 0 { figures.dropped.to_string() } else { String::new() };
        let cpu = cpu_ns.map_or_else(String::new, |ns| per_frame(ns as f64));
        let row = format!(
            "{name:<width$}  {p50:>9} {p95:>9} {p99:>9} {max:>9}  {cpu:>9}  {:>11}  {dropped:>8}",
            copied(figures, hop.own)
        );
        writeln!(text, "{}", row.trim_end())?;
    }
    if let Some(ns) = report.other_cpu_ns(digest) {
        let name = shortened("(no hop)", width);
        writeln!(text, "{name:<width$}  {:41}{:>9}", "", per_frame(ns as f64))?;
    }
    Ok(())
}

/// Adds a table of the median frame's time by hop and cause, if the path has links or stages besides its
/// source and sink. Leaves out causes below half a percent.
fn hops_by_cause(text: &mut String, report: &Report, digest: &Digest) -> std::fmt::Result {
    let is_large = |(_, figure): &(Cause, Option<f64>)| {
        figure.is_some_and(|ns| ns.abs() >= SMALLEST_SHARE * digest.median_ns)
    };
    let columns: Vec<Cause> = digest.causes.iter().filter(is_large).map(|(cause, _)| cause).collect();
    let on_way = report.hop_labels().into_iter().zip(&digest.hops);
    let on_way: Vec<_> = on_way.filter(|(_, hop)| hop.median.iter().any(|(_, ns)| ns.is_some())).collect();
    if digest.latency.is_none() || on_way.len() < 3 || columns.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = on_way.iter().map(|(label, _)| shown(label).into_owned()).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).clamp(10, 28);
    write!(text, "\n{:<width$}", "the same by hop")?;
    for cause in &columns {
        write!(text, "  {:>11}", cause.name())?;
    }
    text.push('\n');
    for (name, (_, hop)) in names.iter().zip(&on_way) {
        let mut line = format!("{:<width$}", shortened(name, width));
        for cause in &columns {
            let figure = hop.median[*cause].filter(|ns| ns.abs() >= 0.5);
            let _ = write!(line, "  {:>11}", figure.map_or_else(String::new, time));
        }
        writeln!(text, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Returns the text for the bytes that a hop copied per frame. For a hop of the caller's own (`own`), 0
/// becomes `not counted`, because the ledger may miss its copies.
fn copied(figures: &HopDigest, own: bool) -> String {
    match figures.copied_bytes {
        0.0 if own => "not counted".to_owned(),
        0.0 => "0 B".to_owned(),
        copied => bytes(copied),
    }
}

fn shortened(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    let kept: String = name.chars().take(width - 1).collect();
    format!("{kept}…")
}

fn causes(text: &mut String, level: Level, digest: &Digest, to: &str) -> std::fmt::Result {
    if digest.latency.is_none() {
        return Ok(());
    }
    writeln!(text, "\nthe median frame's {}{to} by cause", time(digest.median_ns))?;
    for (cause, figure) in digest.causes.iter() {
        // These causes are shown only if a row has a figure for them.
        if figure.is_none()
            && matches!(
                cause,
                Cause::Throttled
                    | Cause::Stopped
                    | Cause::Stolen
                    | Cause::Held
                    | Cause::Paced
                    | Cause::Device
                    | Cause::Network
                    | Cause::Pool
            )
        {
            continue;
        }
        match figure {
            Some(ns) => {
                let share = ns / digest.median_ns.max(1.0);
                let filled = ((share * BAR_WIDTH as f64).round().max(0.0) as usize).min(BAR_WIDTH);
                let bar = "█".repeat(filled) + &"·".repeat(BAR_WIDTH - filled);
                let percent = share * 100.0;
                writeln!(
                    text,
                    "  {:<11}  {:>9}  {percent:>5.1} %  {bar}  {}",
                    cause.name(),
                    time(ns),
                    digest.known_by(cause)
                )?;
            }
            None => writeln!(
                text,
                "  {:<11}  {:>9}           {:BAR_WIDTH$}  not measured at this level",
                cause.name(),
                "",
                ""
            )?,
        }
    }
    let depth_ns: f64 = digest.hops.iter().map(|hop| hop.median_held_depth_ns).sum();
    if depth_ns >= 1.0 {
        writeln!(text, "  (held: {} of it for the depth of the frame threads)", time(depth_ns))?;
    }
    if level == Level::Times {
        writeln!(text, "  (level `times` does not read CPU time from the kernel; level `full` does)")?;
    }
    Ok(())
}

/// Returns a number of bytes as text in B, KiB or MiB. Chooses the unit for one to four digits before the
/// point; larger numbers of MiB have more.
pub fn bytes(count: f64) -> String {
    match count {
        n if n < 1024.0 => format!("{n:.0} B"),
        n if n < 1024.0 * 1024.0 => format!("{:.1} KiB", n / 1024.0),
        n => format!("{:.2} MiB", n / 1024.0 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_pick_their_unit() {
        assert_eq!(bytes(1023.0), "1023 B");
        assert_eq!(bytes(1_555_200.0), "1.48 MiB");
    }
}
