// SPDX-License-Identifier: MIT OR Apache-2.0
//! Picture of the latencies: median, percentiles and maximum of a frame's latency, per contender and case.

use framepath_model::summary::LatencyUs;

use super::scale::Scale;
use super::style::contender_style;
use super::svg::{Anchor, Svg, fitted, text_width};
use super::{LabRun, Picture};
use crate::plain::number::time_us;

const STEP: f64 = 23.0;
const HEAD: f64 = 34.0;
const FOOT: f64 = 42.0;
/// Height of a name above its line, in CSS pixels.
const LINE: f64 = 18.0;
const VALUES: f64 = 138.0;

/// Maximum number of drawn rows; the others are only in the table.
const MOST: usize = 36;

struct Line<'a> {
    experiment: &'a str,
    case: &'a str,
    contender: &'a str,
    us: LatencyUs,
}

fn lines(run: &LabRun) -> Vec<Line<'_>> {
    let rows = run.summaries.iter().flat_map(|s| s.rows.iter().map(|row| (&s.experiment, row)));
    rows.filter_map(|(experiment, row)| {
        let us = row.latency_us.filter(|us| us.p50 > 0.0 && us.max.is_finite())?;
        Some(Line { experiment, case: &row.case, contender: &row.contender, us })
    })
    .collect()
}

fn title(lines: &[Line]) -> String {
    // The title names the path with the longest tail relative to its median.
    let tail = |line: &Line| line.us.p99 / line.us.p50;
    let longest = lines.iter().max_by(|a, b| tail(a).total_cmp(&tail(b)));
    match longest {
        Some(line) if tail(line) >= 1.5 => format!(
            "Latency: the longest tail is {} over {}, {} at the median and {} at the 99th percentile",
            line.contender,
            line.case,
            time_us(line.us.p50),
            time_us(line.us.p99)
        ),
        _ => "Latency: no path has a long tail; every 99th percentile is within 1.5 times the median"
            .to_owned(),
    }
}

pub fn draw(run: &LabRun, id: &str, width: f64) -> Option<Picture> {
    let lines = lines(run);
    if lines.is_empty() {
        return None;
    }
    let shown = &lines[..lines.len().min(MOST)];
    let is_new = |i: usize| i == 0 || shown[i - 1].experiment != shown[i].experiment;
    let headings = (0..shown.len()).filter(|i| is_new(*i)).count();
    let name = |line: &Line| text_width(&name_of(line), 12.0);
    let widest = shown.iter().map(name).fold(0.0, f64::max) + 14.0;
    // On a narrow page, a name is above its line.
    let is_stacked = widest > width * 0.4;
    let (names, step) = if is_stacked { (8.0, STEP + LINE) } else { (widest, STEP) };
    let height = HEAD + shown.len() as f64 * step + headings as f64 * STEP + FOOT;
    let least = shown.iter().map(|line| line.us.p50).fold(f64::INFINITY, f64::min);
    let most = shown.iter().map(|line| line.us.max).fold(0.0, f64::max);
    let x = Scale::decades(least, most, names, width - VALUES);
    let bottom = height - FOOT;

    let mut svg = Svg::new(width, height);
    draw_key(&mut svg, if is_stacked { 24.0 } else { names });
    for us in x.minor_ticks() {
        svg.line("minor", x.at(us), HEAD, x.at(us), bottom);
    }
    for us in x.ticks(0) {
        svg.line("grid", x.at(us), HEAD, x.at(us), bottom);
    }
    for (place, label) in x.labels(0, time_us) {
        // The label of the leftmost tick stays inside the picture.
        let place = place.max(text_width(&label, 12.0) / 2.0);
        svg.text("soft", Anchor::Middle, place, bottom + 16.0, &label);
    }
    let middle = (names + width - VALUES) / 2.0;
    svg.text("soft", Anchor::Middle, middle, height - 6.0, "latency of a frame or buffer");
    if !is_stacked {
        svg.text("soft", Anchor::End, width, HEAD - 8.0, "median / 99th pct.");
    }
    let mut desc = String::new();
    let mut y = HEAD;
    for (i, line) in shown.iter().enumerate() {
        if is_new(i) {
            svg.text("bold", Anchor::Start, 0.0, y + 16.0, line.experiment);
            y += STEP;
        }
        if is_stacked {
            svg.text("", Anchor::Start, 0.0, y + 14.0, &fitted(&name_of(line), 12.0, width));
            y += LINE;
        } else {
            svg.text("", Anchor::End, names - 12.0, y + 15.0, &name_of(line));
        }
        draw_line(&mut svg, line, &x, y);
        let values = format!("{} / {}", time_us(line.us.p50), time_us(line.us.p99));
        svg.text("", Anchor::Start, width - VALUES + 12.0, y + 15.0, &values);
        desc.push_str(&format!("{} {}: {values}. ", line.case, line.contender));
        y += STEP;
    }
    let title = title(&lines);
    let more = match lines.len() - shown.len() {
        0 => String::new(),
        n => format!(" {n} more are in the tables."),
    };
    Some(Picture {
        svg: svg.finish(id, &title, desc.trim_end()),
        title,
        caption: format!(
            "Percentiles by nearest rank over the frames of a run, as medians over the runs. The scale is \
             logarithmic. The figures on the right are the median and the 99th percentile. A contender has one colour \
             in every picture.{more}"
        ),
    })
}

fn name_of(line: &Line) -> String {
    format!("{} · {}", line.case, line.contender)
}

fn draw_line(svg: &mut Svg, line: &Line, x: &Scale, y: f64) {
    let (colour, _) = contender_style(line.contender);
    let middle = y + 11.0;
    let LatencyUs { p50, p95, p99, max } = line.us;
    let tip = format!(
        "{}, {}: p50 {}, p95 {}, p99 {}, max {}",
        line.case,
        line.contender,
        time_us(p50),
        time_us(p95),
        time_us(p99),
        time_us(max)
    );
    svg.line(&format!("range {colour}"), x.at(p50), middle, x.at(max), middle);
    svg.line(&format!("thick {colour}"), x.at(p50), middle, x.at(p95), middle);
    svg.line(&format!("tick {colour}"), x.at(p99), middle - 6.0, x.at(p99), middle + 6.0);
    svg.circle(&format!("ring {colour}"), x.at(max), middle, 3.0, &tip);
    svg.circle(&format!("dot {colour}"), x.at(p50), middle, 5.0, &tip);
}

/// Draws the legend at the top as a sample line from pixel `left`, with each mark and its name.
fn draw_key(svg: &mut Svg, left: f64) {
    let y = 10.0;
    let mut x = left;
    svg.line("range grey", x, y, x + 230.0, y);
    svg.line("thick grey", x, y, x + 80.0, y);
    svg.circle("dot grey", x, y, 5.0, "");
    svg.text("soft", Anchor::Middle, x, y + 18.0, "median");
    x += 80.0;
    svg.text("soft", Anchor::Middle, x, y + 18.0, "95th pct.");
    x += 75.0;
    svg.line("tick grey", x, y - 6.0, x, y + 6.0);
    svg.text("soft", Anchor::Middle, x, y + 18.0, "99th pct.");
    x += 75.0;
    svg.circle("ring grey", x, y, 3.0, "");
    svg.text("soft", Anchor::Middle, x, y + 18.0, "greatest");
}
