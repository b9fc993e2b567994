// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings of the experiments that run stages in workers: `decode`, `faults` and `rpc`.

use framepath_model::summary::{Summary, SummaryRow};

use super::{compared, ratio};
use crate::plain::number::{figure, time_us};

/// Figures that are a fault unless they are 0: key in a row, and words for a sentence.
const MUST_BE_ZERO: [(&str, &str); 7] = [
    ("lost", "lost"),
    ("duplicated", "duplicated"),
    ("out_of_order", "out of order"),
    ("wrong", "wrong"),
    ("left_processes", "leaked processes"),
    ("left_fds", "leaked descriptors"),
    ("left_shared_memory", "leaked mappings of shared memory"),
];

/// Adds findings about `case` of lab `decode`: a decoder in a worker compared with the same decoder in
/// the caller's process.
pub(super) fn decode(summary: &Summary, case: &str, found: &mut Vec<String>) {
    for (hosted, inline) in [("process", "inline"), ("process-t1", "inline-t1")] {
        let of = |metric| ratio(summary, case, metric, hosted, inline);
        let mut parts = Vec::new();
        parts.extend(of("cpu_ms").map(|cpu| format!("CPU {}", compared(cpu))));
        parts.extend(of("wall_ms").map(|wall| format!("wall time {}", compared(wall))));
        if let Some(row) = summary.row(case, hosted) {
            parts.extend(["p50", "p99"].into_iter().filter_map(|percentile| added(row, percentile)));
        }
        if !parts.is_empty() {
            found.push(format!("{case}: `{hosted}` compared with `{inline}`: {}.", parts.join("; ")));
        }
    }
}

/// Formats the latency that the row's worker adds: `adds 40 µs to the p50 latency (95 % interval 35 µs
/// to 48 µs)`; `None` if not known.
fn added(row: &SummaryRow, percentile: &str) -> Option<String> {
    let of = |key: &str| row.figure(&format!("added_{percentile}{key}_us"));
    let interval = of("_low").zip(of("_high")).map_or(String::new(), |(low, high)| {
        format!(" (95 % interval {} to {})", time_us(low), time_us(high))
    });
    Some(format!("adds {} to the {percentile} latency{interval}", time_us(of("")?)))
}

pub(super) fn faults(summary: &Summary, found: &mut Vec<String>) {
    for row in &summary.rows {
        let of = |key: &str| row.figure(key);
        let known: Vec<(f64, &str)> =
            MUST_BE_ZERO.iter().filter_map(|(key, words)| Some((of(key)?, *words))).collect();
        let bad: Vec<String> = known
            .iter()
            .filter(|(count, _)| *count > 0.0)
            .map(|(count, words)| format!("{} {words}", figure(*count)))
            .collect();
        let what = match of("kills").or_else(|| of("deaths")) {
            Some(count) if count > 0.0 => format!("{} {}", figure(count), events(&row.case)),
            _ => "no fault".to_owned(),
        };
        let verdict = match bad.is_empty() {
            true if row.frames > 0 => {
                "every frame was delivered once, in order and correct, and no resource leaked".to_owned()
            }
            true => "no resource leaked".to_owned(),
            false => bad.join(", "),
        };
        let mut text =
            format!("Faults, {} (`{}`): {what}, {} frames: {verdict}", row.case, row.contender, row.frames);
        if let Some((p50, p99)) = of("recovery_ms").zip(of("recovery_p99_ms")) {
            text.push_str(&format!(
                "; recovery takes {} ms at the median, {} ms at the 99th percentile",
                figure(p50),
                figure(p99)
            ));
        }
        if let Some(times) = of("others_p99_ratio") {
            text.push_str(&format!(
                "; the 99th percentile latency of the other streams is {}× during a recovery",
                figure(times)
            ));
        }
        if let Some(skipped) = of("skipped").filter(|skipped| *skipped > 0.0) {
            text.push_str(&format!("; {} packets skipped and reported", figure(skipped)));
        }
        found.push(text + ".");
    }
}

fn events(case: &str) -> &'static str {
    match case {
        "client" => "clients killed",
        "hang" => "workers hung",
        "bomb" => "workers out of memory",
        "poison" => "workers killed by a poisoned packet",
        _ => "workers killed",
    }
}

pub(super) fn rpc(summary: &Summary, found: &mut Vec<String>) {
    for row in &summary.rows {
        let of = |key: &str| row.figure(key);
        if let Some((calls, bytes)) = of("calls").zip(of("wire_bytes_per_frame")) {
            found.push(format!(
                "A {} of {} frames through `{}` takes {} calls, and {} bytes per frame without the packet.",
                row.case,
                row.frames,
                row.contender,
                figure(calls),
                figure(bytes)
            ));
        }
        if let Some((us, share)) = of("crossing_us").zip(of("share_at_30_percent")) {
            found.push(format!(
                "Crossing to a worker and back ({}) costs {} of CPU per frame on both sides: {} % of a CPU at 30 frames per second.",
                row.case,
                time_us(us),
                figure(share)
            ));
        }
        if let Some((wakeups, seconds)) = of("wakeups").zip(of("looked_s")) {
            found.push(match wakeups > 0.0 {
                true => format!("An idle stream woke up {} times in {} s.", figure(wakeups), figure(seconds)),
                false => {
                    format!("An idle stream made no system call on either side in {} s.", figure(seconds))
                }
            });
        }
    }
    for r in &summary.ratios {
        found.push(format!(
            "Rpc, {}: {} of `{}` compared with `{}`: {}.",
            r.case,
            super::metric_in_words(&r.metric),
            r.a,
            r.b,
            compared(r)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, frames: u64, extra: &[(&str, f64)]) -> SummaryRow {
        SummaryRow {
            case: case.to_owned(),
            contender: "process".to_owned(),
            frames,
            extra: extra.iter().map(|(key, figure)| ((*key).to_owned(), *figure)).collect(),
            ..SummaryRow::default()
        }
    }

    fn findings_of(experiment: fn(&Summary, &mut Vec<String>), rows: Vec<SummaryRow>) -> String {
        let machine = framepath_model::summary::Machine::default();
        let (experiment_name, none) = ("faults".to_owned(), Vec::new());
        let summary = Summary {
            experiment: experiment_name,
            machine,
            started_unix_s: None,
            rows,
            ratios: Vec::new(),
            skipped: Vec::new(),
            notes: none,
        };
        let mut found = Vec::new();
        experiment(&summary, &mut found);
        found.join("\n")
    }

    #[test]
    fn a_lost_frame_appears_in_the_finding() {
        let good =
            [("kills", 50.0), ("lost", 0.0), ("wrong", 0.0), ("recovery_ms", 8.0), ("recovery_p99_ms", 20.0)];
        let text = findings_of(faults, vec![row("kill-paced", 100, &good)]);
        assert!(
            text.contains("50 workers killed") && text.contains("no resource leaked; recovery takes 8"),
            "{text}"
        );
        let text = findings_of(faults, vec![row("client", 0, &[("kills", 8.0), ("left_processes", 1.0)])]);
        assert!(text.contains("8 clients killed") && text.ends_with("1 leaked processes."), "{text}");
        let text = findings_of(faults, vec![row("kill-paced", 99, &[("kills", 1.0), ("lost", 1.0)])]);
        assert!(text.contains("1 lost") && !text.contains("every frame"), "{text}");
    }

    #[test]
    fn wakeups_of_an_idle_stream_appear_in_the_finding() {
        let idle =
            |wakeups| findings_of(rpc, vec![row("idle", 0, &[("wakeups", wakeups), ("looked_s", 10.0)])]);
        assert!(idle(0.0).contains("no system call"));
        assert!(idle(3.0).contains("woke up 3"));
    }
}
