// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings of summaries in plain English, a sentence each.
//!
//! A sentence states a difference only if the interval excludes 1. Otherwise it says "no difference", or
//! "no verdict" for a single pair, with the figures. Two kinds of sentences give a ratio whatever its interval:
//! `threads=1` compared with the ffmpeg tool in `decode`, and a queue compared with a direct push.

mod workers;

use framepath_model::stats::Verdict;
use framepath_model::summary::{Ratio, Summary, SummaryRow};

use super::number::{bare_ratio, bytes, case_bytes, figure, percent, time_us, times};

/// Largest share of unexplained time, 0 to 1, with which a ledger counts as closed.
const CLOSES: f64 = 0.05;

/// Returns the findings of the summaries, in their order: a sentence each, with names in back quotes. A
/// ledger that closes or does not close, and each skipped contender, are findings too.
pub fn findings(summaries: &[Summary]) -> Vec<String> {
    let mut found = Vec::new();
    for summary in summaries {
        match summary.experiment.as_str() {
            "queue" => queue(summary, &mut found),
            "decode" => decode(summary, &mut found),
            "encode" => encode(summary, &mut found),
            "loopback" => loopback(summary, &mut found),
            "handoff" => handoff(summary, &mut found),
            "inject" => inject(summary, &mut found),
            "faults" => workers::faults(summary, &mut found),
            "rpc" => workers::rpc(summary, &mut found),
            "aa" => aa(summary, &mut found),
            _ => other(summary, &mut found),
        }
        ledger(summary, &mut found);
        for skipped in &summary.skipped {
            let case = skipped.case.as_ref().map_or(String::new(), |case| format!(" over {case}"));
            found.push(format!(
                "{}: `{}`{case} did not run: {}.",
                summary.experiment,
                skipped.contender,
                skipped.reason.trim_end_matches('.')
            ));
        }
    }
    found
}

/// Returns a contender's name for a sentence: a description of a known contender, `GStreamer's` and the
/// element for another name that begins with `gst-`, otherwise the name in back quotes.
pub fn contender_in_words(name: &str) -> String {
    match name {
        "direct" => "a direct push (`!`)".to_owned(),
        "direct-times" => "a direct push with the ledger at `times`".to_owned(),
        "queue" => "`queue`".to_owned(),
        "queue-times" => "`queue` with the ledger at `times`".to_owned(),
        "gst-direct" => "GStreamer's direct push".to_owned(),
        "ffmpeg" => "the ffmpeg tool's default".to_owned(),
        "ffmpeg-t1" => "the ffmpeg tool with one thread".to_owned(),
        "inline" => "`decode`".to_owned(),
        "inline-t1" => "`decode threads=1`".to_owned(),
        "bare" => "bare libavcodec".to_owned(),
        "bare-t1" => "bare libavcodec with one thread".to_owned(),
        "iceoryx2-wait" => "iceoryx2".to_owned(),
        "iceoryx2-poll" => "iceoryx2 with polling".to_owned(),
        "unix-socket" => "a plain unix socket".to_owned(),
        "gst-shm" | "gst-unixfd" => format!("GStreamer's `{}sink`", &name[4..]),
        _ => match name.strip_prefix("gst-") {
            Some(element) => format!("GStreamer's `{element}`"),
            None => format!("`{name}`"),
        },
    }
}

/// Returns a metric's name for a sentence: `CPU time` for `cpu_ms`; an unknown name with blanks for
/// underscores.
pub fn metric_in_words(metric: &str) -> String {
    match metric {
        "wall_ms" => "wall time".to_owned(),
        "cpu_ms" => "CPU time".to_owned(),
        "cpu_us_per_push" => "CPU time per push".to_owned(),
        "wall_us_per_push" => "wall time per push".to_owned(),
        "cpu_us_per_frame" => "CPU time per frame".to_owned(),
        "wall_us_per_frame" => "wall time per frame".to_owned(),
        "latency_p50_us" => "median latency".to_owned(),
        "latency_p95_us" => "95th percentile latency".to_owned(),
        "latency_p99_us" => "99th percentile latency".to_owned(),
        "peak_memory_kib" => "peak memory".to_owned(),
        "throughput_mb_s" => "throughput".to_owned(),
        "encode_p50_us" => "median time per frame".to_owned(),
        _ => metric.replace('_', " "),
    }
}

/// Finds the ratio a/b of `metric` in `case`; `None` if the summary lacks it.
fn ratio<'a>(summary: &'a Summary, case: &str, metric: &str, a: &str, b: &str) -> Option<&'a Ratio> {
    summary.ratios.iter().find(|r| r.case == case && r.metric == metric && r.a == a && r.b == b)
}

/// Formats the interval of a ratio: `95 % interval 0.04 to 0.06`, or `one pair, no interval`.
fn interval(ratio: &Ratio) -> String {
    match ratio.ci95 {
        Some([low, high]) => {
            format!("95 % interval {} to {}", bare_ratio(low), bare_ratio(high))
        }
        None => "one pair, no interval".to_owned(),
    }
}

/// Formats a ratio and its interval: `0.05×, 95 % interval 0.04 to 0.06`. Begins with `no difference: `
/// if the interval includes 1, and with `no verdict: ` if there is no interval.
fn compared(ratio: &Ratio) -> String {
    let figures = format!("{}, {}", times(ratio.median), interval(ratio));
    match ratio.verdict() {
        // One pair has no interval, so there is no verdict.
        Verdict::NoDifference if ratio.ci95.is_none() => format!("no verdict: {figures}"),
        Verdict::NoDifference => format!("no difference: {figures}"),
        Verdict::ALess | Verdict::AMore => figures,
    }
}

/// Formats a ratio as a sentence with both contenders and the metric, without the case, the first
/// capital and the full stop.
fn sentence(ratio: &Ratio) -> String {
    let (a, b) = (contender_in_words(&ratio.a), contender_in_words(&ratio.b));
    let metric = metric_in_words(&ratio.metric);
    let (times, interval) = (times(ratio.median), interval(ratio));
    match ratio.verdict() {
        // One pair has no interval, so there is no verdict.
        Verdict::NoDifference if ratio.ci95.is_none() => {
            format!("no verdict on {metric} of {a} and {b} ({times}, {interval})")
        }
        Verdict::NoDifference => {
            format!("no difference in {metric} between {a} and {b} ({times}, {interval})")
        }
        Verdict::ALess | Verdict::AMore => {
            format!("{a} has {times} the {metric} of {b} ({interval})")
        }
    }
}

/// Returns the text with a capital first letter, for the beginning of a sentence.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

fn queue(summary: &Summary, found: &mut Vec<String>) {
    const METRIC: &str = "cpu_us_per_push";
    let cost = |case: &str, contender: &str| summary.row(case, contender)?.figure(METRIC);
    // 64 bytes is the original's small buffer; without that case, the smallest buffer is used.
    let sizes = summary.cases().into_iter().filter_map(|case| Some((case_bytes(case)?, case)));
    let Some((size, case)) = sizes.min_by_key(|(size, _)| (*size != 64, *size)) else {
        return queue_paced(summary, found);
    };
    let pushed = bytes(size);
    for (ours, theirs, at) in [
        ("queue", "gst-queue", "framepath's `queue` costs"),
        ("direct", "gst-direct", "A direct push (`!`) in framepath costs"),
        ("direct-times", "gst-direct", "With the ledger at `times`, framepath's direct push costs"),
    ] {
        let Some(us) = cost(case, ours) else { continue };
        let mut text = format!("{at} {} of CPU per push of {pushed}", time_us(us));
        if let (Some(their_us), Some(r)) = (cost(case, theirs), ratio(summary, case, METRIC, ours, theirs)) {
            let whose = contender_in_words(theirs);
            text.push_str(&format!(", {whose} {} ({})", time_us(their_us), compared(r)));
        }
        found.push(text + ".");
    }
    if let (Some(queue), Some(direct)) = (cost(case, "queue"), cost(case, "direct")) {
        let ours = queue / direct;
        let theirs = cost(case, "gst-queue").zip(cost(case, "gst-direct")).map(|(q, d)| q / d);
        let theirs =
            theirs.map_or(String::new(), |ratio| format!("; in GStreamer it costs {}", times(ratio)));
        found.push(format!("In framepath, a thread boundary costs {} a direct push{theirs}.", times(ours)));
    }
    queue_paced(summary, found);
}

fn queue_paced(summary: &Summary, found: &mut Vec<String>) {
    for case in summary.cases() {
        let Some(rate) = case.strip_prefix("paced-") else { continue };
        // Latency is known only if the ledger is on.
        let has = |name: &str| summary.ratios.iter().any(|r| r.case == case && r.a == name);
        let ours = if has("queue") { "queue" } else { "queue-times" };
        let mut parts = Vec::new();
        for metric in ["cpu_us_per_push", "latency_p50_us", "latency_p99_us"] {
            let Some(r) = ratio(summary, case, metric, ours, "gst-queue") else { continue };
            let of = |name: &str| summary.row(case, name).and_then(|row| row.figure(metric));
            let figures = of(ours).zip(of("gst-queue")).map_or(String::new(), |(us, theirs)| {
                format!("{} compared with {}, ", time_us(us), time_us(theirs))
            });
            parts.push(format!("{} {figures}{}", metric_in_words(metric), compared(r)));
        }
        if !parts.is_empty() {
            found.push(format!(
                "At {rate} pushes per second, {} compared with GStreamer's `queue`: {}.",
                contender_in_words(ours),
                parts.join("; ")
            ));
        }
    }
}

fn decode(summary: &Summary, found: &mut Vec<String>) {
    for case in summary.cases() {
        // The names of the committed clips end with the bits of their samples.
        let output = match case {
            case if case.ends_with("p10") => "P010",
            case if case.ends_with("p8") => "NV12",
            _ => "NV12 or P010",
        };
        let of = |metric, a, b| ratio(summary, case, metric, a, b);
        let mut parts = Vec::new();
        if let Some(cpu) = of("cpu_ms", "inline", "ffmpeg") {
            parts.push(match cpu.verdict() {
                // One pair has no interval, so there is no verdict.
                Verdict::NoDifference if cpu.ci95.is_none() => {
                    format!(
                        "has no verdict on CPU compared with the ffmpeg tool's default ({}, {})",
                        times(cpu.median),
                        interval(cpu)
                    )
                }
                Verdict::NoDifference => {
                    format!(
                        "shows no difference in CPU from the ffmpeg tool's default ({}, {})",
                        times(cpu.median),
                        interval(cpu)
                    )
                }
                _ => format!(
                    "costs {} the CPU of the ffmpeg tool's default ({})",
                    times(cpu.median),
                    interval(cpu)
                ),
            });
        }
        if let Some(wall) = of("wall_ms", "inline", "ffmpeg") {
            parts.push(match wall.verdict() {
                Verdict::NoDifference if wall.ci95.is_none() => {
                    format!("has no verdict on wall time ({}, {})", times(wall.median), interval(wall))
                }
                Verdict::NoDifference => {
                    format!("shows no difference in wall time ({}, {})", times(wall.median), interval(wall))
                }
                _ => format!("takes {} its wall time ({})", times(wall.median), interval(wall)),
            });
        }
        if let Some(one) = of("cpu_ms", "inline-t1", "ffmpeg") {
            parts.push(format!(
                "with `threads=1` it costs {} that CPU ({})",
                times(one.median),
                interval(one)
            ));
        }
        for (a, b, threads) in [("inline", "bare", "`threads=auto`"), ("inline-t1", "bare-t1", "`threads=1`")]
        {
            if let Some(floor) = of("cpu_ms", a, b) {
                parts.push(format!(
                    "compared with the lower bound, bare libavcodec, at {threads}: {}",
                    compared(floor)
                ));
            }
        }
        if !parts.is_empty() {
            found.push(format!("Decode of {case} to {output} {}.", parts.join("; ")));
        }
        workers::decode(summary, case, found);
    }
}

fn inject(summary: &Summary, found: &mut Vec<String>) {
    let mut near = 0;
    let mut off = Vec::new();
    let mut worst: f64 = 0.0;
    for row in &summary.rows {
        let Some(injection) = row.injection() else { continue };
        if injection.is_near() {
            near += 1;
            worst = worst.max(injection.error_us.abs());
        } else {
            off.push(format!(
                "{} injected as `{}` appears as {}",
                time_us(injection.injected_us),
                row.case,
                time_us(injection.attributed_us)
            ));
        }
    }
    if off.is_empty() && near > 0 {
        found.push(format!(
            "The ledger is accurate: each of {near} injected causes appears on its own row, \
             within 10 % or 20 µs (largest error {}).",
            time_us(worst)
        ));
    } else if !off.is_empty() {
        found.push(format!(
            "The ledger is inaccurate: {} of {} injected causes are more than 10 % and 20 µs off: {}.",
            off.len(),
            off.len() + near,
            off.join("; ")
        ));
    }
}

fn encode(summary: &Summary, found: &mut Vec<String>) {
    const METRIC: &str = "encode_p50_us";
    for case in summary.cases() {
        let Some(us) = summary.row(case, "raw").and_then(|row| row.figure(METRIC)) else {
            continue;
        };
        let mut text = format!("Raw encoding of a {case} frame takes {} at the median", time_us(us));
        for (contender, words) in
            [("memcpy", "a memcpy of the frame"), ("raw-copy", "encoding with `copy=1`")]
        {
            let other = summary.row(case, contender).and_then(|row| row.figure(METRIC));
            if let Some(other) = other {
                text.push_str(&format!(", {words} {}", time_us(other)));
            }
        }
        if let Some(r) = ratio(summary, case, METRIC, "raw-copy", "memcpy") {
            text.push_str(&format!("; the copying encoder compared with memcpy: {}", compared(r)));
        }
        found.push(text + ".");
    }
}

fn loopback(summary: &Summary, found: &mut Vec<String>) {
    for case in summary.cases() {
        let mut parts = Vec::new();
        for row in summary.rows.iter().filter(|row| row.case == case) {
            let Some(throughput) = row.figure("throughput_mb_s") else { continue };
            let first = row
                .figure("first_chunk_us")
                .map_or(String::new(), |us| format!(" (first chunk after {})", time_us(us)));
            parts.push(format!("`{}` {} MB/s{first}", row.contender, figure(throughput)));
        }
        if !parts.is_empty() {
            found.push(format!("Throughput over loopback, {case}: {}.", parts.join("; ")));
        }
    }
    for r in &summary.ratios {
        found.push(format!("Loopback, {}: {}.", r.case, sentence(r)));
    }
}

fn handoff(summary: &Summary, found: &mut Vec<String>) {
    for case in summary.cases() {
        let what = if case.ends_with("-4KiB") { "4 KiB" } else { "a 1080p frame" };
        let (metrics, pace): (&[&str], _) = if case.starts_with("paced-60") {
            (&["latency_p50_us", "latency_p99_us"], "60 times per second")
        } else {
            (&["wall_us_per_frame", "cpu_us_per_frame"], "at full speed")
        };
        let rows = summary.rows.iter().filter(|row| row.case == case);
        let parts: Vec<String> = rows
            .filter_map(|row| {
                let figures: Option<Vec<String>> =
                    metrics.iter().map(|m| Some(time_us(row.figure(m)?))).collect();
                Some(format!("{} {}", contender_in_words(&row.contender), figures?.join(" / ")))
            })
            .collect();
        if !parts.is_empty() {
            let words: Vec<String> = metrics.iter().map(|m| metric_in_words(m)).collect();
            let listed = parts.join(", ");
            found.push(format!("Handing over {what} {pace}, {}: {listed}.", words.join(" / ")));
        }
        for r in summary.ratios.iter().filter(|r| r.case == case && metrics.contains(&r.metric.as_str())) {
            found.push(format!("Hand-off, {case}: {}.", sentence(r)));
        }
    }
}

/// Adds the finding of `aa`: for each metric the number of false differences, because every ratio
/// compares a contender with itself.
fn aa(summary: &Summary, found: &mut Vec<String>) {
    let mut metrics: Vec<&str> = Vec::new();
    for r in &summary.ratios {
        if !metrics.contains(&r.metric.as_str()) {
            metrics.push(&r.metric);
        }
    }
    let parts: Vec<String> = metrics
        .into_iter()
        .map(|metric| {
            let of_metric = summary.ratios.iter().filter(|r| r.metric == metric);
            let (all, wrong) = of_metric.fold((0, 0), |(all, wrong), r| {
                (all + 1, wrong + usize::from(r.verdict() != Verdict::NoDifference))
            });
            format!("{wrong} of {all} times by {}", metric_in_words(metric))
        })
        .collect();
    if !parts.is_empty() {
        found.push(format!("The lab reported a difference of a contender from itself {}.", parts.join(", ")));
    }
}

fn other(summary: &Summary, found: &mut Vec<String>) {
    for r in &summary.ratios {
        found.push(format!("{}, {}: {}.", capital(&summary.experiment), r.case, sentence(r)));
    }
    if !summary.ratios.is_empty() {
        return;
    }
    for row in &summary.rows {
        if let Some(text) = figures_of(row) {
            found.push(format!(
                "{}, {}: {} {text}.",
                capital(&summary.experiment),
                row.case,
                contender_in_words(&row.contender)
            ));
        }
    }
}

/// Formats the main figures of a row of an experiment without comparisons: latencies if known,
/// otherwise CPU time; `None` if neither is known.
fn figures_of(row: &SummaryRow) -> Option<String> {
    if let Some(us) = row.latency_us {
        return Some(format!(
            "takes {} at the median, {} at the 99th percentile",
            time_us(us.p50),
            time_us(us.p99)
        ));
    }
    let cpu = row.cpu_ms?;
    Some(format!("takes {} of CPU per run", time_us(cpu.median * 1000.0)))
}

/// Adds a finding about the ledger: whether the unexplained share is at most [`CLOSES`] in every row that has
/// this figure. Adds none if no row has it.
fn ledger(summary: &Summary, found: &mut Vec<String>) {
    let mut worst: Option<(f64, &SummaryRow)> = None;
    let mut closed = 0;
    let mut rows = 0;
    for row in &summary.rows {
        let Some(share) = row.figure("unexplained_share") else { continue };
        rows += 1;
        closed += usize::from(share <= CLOSES);
        if worst.is_none_or(|(most, _)| share > most) {
            worst = Some((share, row));
        }
    }
    let Some((share, row)) = worst else { return };
    let place = format!("{}, {}", row.case, row.contender);
    found.push(if closed == rows {
        format!(
            "The ledger of `{}` closes: at most {} of a frame's latency is unexplained ({place}).",
            summary.experiment,
            percent(share)
        )
    } else {
        format!(
            "The ledger of `{}` does not close on {} of {rows} paths: {} of the latency is unexplained on {place}.",
            summary.experiment,
            rows - closed,
            percent(share)
        )
    });
}
