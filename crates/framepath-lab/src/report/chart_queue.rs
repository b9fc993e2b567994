// SPDX-License-Identifier: MIT OR Apache-2.0
//! Picture of lab `queue`: CPU time per push over the buffer's size, both scales logarithmic.

use framepath_model::stats::Verdict;

use super::scale::{Scale, spread_out};
use super::style::contender_style;
use super::svg::{Anchor, Svg, text_width};
use super::{LabRun, Picture};
use crate::plain::number::{bytes, case_bytes, figure, time_us, times};

const HEIGHT: f64 = 440.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 148.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;

/// One contender's points: buffer size in bytes and CPU microseconds per push, by rising size.
struct Line {
    contender: String,
    points: Vec<(u64, f64)>,
}

fn lines(run: &LabRun) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for summary in run.summaries.iter().filter(|s| s.experiment == "queue") {
        for row in &summary.rows {
            let us = row.figure("cpu_us_per_push").filter(|us| *us > 0.0 && us.is_finite());
            let (Some(size), Some(us)) = (case_bytes(&row.case), us) else { continue };
            match lines.iter_mut().find(|line| line.contender == row.contender) {
                Some(line) => line.points.push((size, us)),
                None => lines.push(Line { contender: row.contender.clone(), points: vec![(size, us)] }),
            }
        }
    }
    for line in &mut lines {
        line.points.sort_by_key(|(size, _)| *size);
    }
    lines
}

/// Returns the title: the cost of `queue` at 64 bytes, where a push has only its constant cost, or
/// a general title if that figure is missing. Compares with GStreamer's `queue` only if the run has the
/// ratio and the figure of `gst-queue`.
fn title(run: &LabRun, lines: &[Line]) -> String {
    let at = |name: &str| {
        let line = lines.iter().find(|line| line.contender == name)?;
        line.points.iter().find(|(size, _)| *size == 64).map(|(_, us)| *us)
    };
    let Some(ours) = at("queue") else { return "CPU time per push, by buffer size".to_owned() };
    let cost = format!("A 64 B push through `queue` costs {} of CPU", time_us(ours));
    let ratio = run
        .summaries
        .iter()
        .flat_map(|s| &s.ratios)
        .find(|r| [&r.case, &r.metric, &r.a, &r.b] == ["64B", "cpu_us_per_push", "queue", "gst-queue"]);
    match (at("gst-queue"), ratio) {
        (Some(theirs), Some(r)) if r.ci95.is_none() => {
            format!("{cost}, through GStreamer's {}: no verdict ({})", time_us(theirs), times(r.median))
        }
        (Some(theirs), Some(r)) if r.verdict() == Verdict::NoDifference => {
            format!("{cost}, through GStreamer's {}: no difference ({})", time_us(theirs), times(r.median))
        }
        (Some(theirs), Some(r)) => {
            format!("{cost}, through GStreamer's {}: {}", time_us(theirs), times(r.median))
        }
        _ => cost,
    }
}

pub fn draw(run: &LabRun, id: &str, width: f64) -> Option<Picture> {
    let lines = lines(run);
    let all: Vec<(u64, f64)> = lines.iter().flat_map(|line| line.points.clone()).collect();
    let smallest = all.iter().map(|(size, _)| *size).min()?;
    let greatest = all.iter().map(|(size, _)| *size).max()?;
    let least = all.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
    let most = all.iter().map(|(_, us)| *us).fold(0.0, f64::max);
    let x = Scale::logarithmic(smallest as f64, greatest as f64, LEFT + 8.0, width - RIGHT);
    let y = Scale::decades(least, most, HEIGHT - BOTTOM, TOP);

    let mut svg = Svg::new(width, HEIGHT);
    let (first, last) = (LEFT, width - RIGHT + 6.0);
    for us in y.minor_ticks() {
        svg.line("minor", first, y.at(us), last, y.at(us));
    }
    for us in y.ticks(0) {
        svg.line("grid", first, y.at(us), last, y.at(us));
        svg.text("soft", Anchor::End, LEFT - 8.0, y.at(us) + 4.0, &figure(us));
    }
    let base = HEIGHT - BOTTOM;
    svg.line("axis", first, base, last, base);
    // Every third power of two has a label, so that labels are about a decade apart.
    let (mut size, mut taken) = (8_u64, f64::NEG_INFINITY);
    while size <= greatest {
        if size >= smallest {
            let place = x.at(size as f64);
            svg.line("axis", place, base, place, base + 5.0);
            let half = text_width(&bytes(size), 12.0) / 2.0;
            if place - half >= taken {
                svg.text("soft", Anchor::Middle, place, base + 19.0, &bytes(size));
                taken = place + half + 8.0;
            }
        }
        size *= 8;
    }
    let middle = (first + last) / 2.0;
    svg.text("soft", Anchor::Middle, middle, HEIGHT - 8.0, "buffer size");
    svg.text("soft", Anchor::Start, 4.0, 12.0, "µs of CPU per push");

    let ends: Vec<f64> = lines.iter().map(|line| line.points.last().map_or(0.0, |p| y.at(p.1))).collect();
    let labels = spread_out(&ends, 15.0, TOP + 4.0, base - 2.0);
    for (i, line) in lines.iter().enumerate() {
        let (colour, dashed) = contender_style(&line.contender);
        let points: Vec<(f64, f64)> =
            line.points.iter().map(|(size, us)| (x.at(*size as f64), y.at(*us))).collect();
        let dash = if dashed { " dash" } else { "" };
        svg.polyline(&format!("line {colour}{dash}"), &points);
        for ((size, us), (px, py)) in line.points.iter().zip(&points) {
            let tip = format!("{}, {}: {}", line.contender, bytes(*size), time_us(*us));
            svg.circle(&format!("dot {colour}"), *px, *py, 3.0, &tip);
        }
        if let Some((px, py)) = points.last() {
            let to = width - RIGHT + 14.0;
            svg.line(&format!("lead-line {colour}"), px + 4.0, *py, to, labels[i]);
            svg.text("bold", Anchor::Start, to + 4.0, labels[i] + 4.0, &line.contender);
        }
    }
    let desc = lines
        .iter()
        .filter_map(|line| {
            let (first, last) = (line.points.first()?, line.points.last()?);
            Some(format!(
                "{}: {} at {}, {} at {}.",
                line.contender,
                time_us(first.1),
                bytes(first.0),
                time_us(last.1),
                bytes(last.0)
            ))
        })
        .collect::<Vec<_>>()
        .join(" ");
    let title = title(run, &lines);
    Some(Picture {
        svg: svg.finish(id, &title, &desc),
        title,
        caption: "16 MiB pushed at full speed in buffers of each size; medians. Both scales are \
                  logarithmic; a flat line is a constant cost per push. Dashed lines: framepath \
                  with the ledger at `times`, and GStreamer with buffers that are only referenced."
            .to_owned(),
    })
}
