// SPDX-License-Identifier: MIT OR Apache-2.0
//! Picture of lab `decode`: bars of the CPU time per contender, one panel per clip.

use framepath_model::stats::{Spread, Verdict};
use framepath_model::summary::Summary;

use super::scale::Scale;
use super::style::contender_style;
use super::svg::{Anchor, Svg, fitted, text_width};
use super::{LabRun, Picture};
use crate::plain::number::{figure, time_unit, time_us, times};

const BAR: f64 = 17.0;
const STEP: f64 = 24.0;
const HEAD: f64 = 26.0;
const FOOT: f64 = 36.0;
const VALUES: f64 = 140.0;
const BETWEEN: f64 = 28.0;

/// Returns the title: the range of the CPU time ratios of `inline` to the ffmpeg tool's default, or
/// a general title if the summary has none.
fn title(summary: &Summary) -> String {
    let ratios: Vec<_> = summary
        .ratios
        .iter()
        .filter(|r| r.metric == "cpu_ms" && r.a == "inline" && r.b == "ffmpeg")
        .collect();
    let least = ratios.iter().map(|r| r.median).fold(f64::INFINITY, f64::min);
    let most = ratios.iter().map(|r| r.median).fold(0.0, f64::max);
    if ratios.is_empty() {
        return "CPU time to decode a clip, by contender".to_owned();
    }
    let whole = if ratios.iter().all(|r| r.verdict() == Verdict::ALess) {
        "less on every clip"
    } else if ratios.iter().any(|r| r.ci95.is_none()) {
        "no verdict, because one pair has no interval"
    } else if ratios.iter().all(|r| r.verdict() == Verdict::NoDifference) {
        "no difference on any clip"
    } else {
        "not less on every clip"
    };
    let range = if times(least) == times(most) {
        times(least)
    } else {
        format!("{} to {}", times(least), times(most))
    };
    format!("`decode` costs {range} the CPU of the ffmpeg tool's default: {whole}")
}

/// A bar: the contender, its CPU time for the clip in milliseconds, and the text of its CPU time
/// ratio to the ffmpeg tool's default; `None` if the summary has no such ratio.
struct Bar {
    contender: String,
    cpu_ms: Spread,
    to_ffmpeg: Option<String>,
}

fn bars(summary: &Summary, case: &str) -> Vec<Bar> {
    let rows = summary.rows.iter().filter(|row| row.case == case);
    rows.filter_map(|row| {
        let ratio = summary
            .ratios
            .iter()
            .find(|r| r.case == case && r.metric == "cpu_ms" && r.a == row.contender && r.b == "ffmpeg");
        Some(Bar {
            contender: row.contender.clone(),
            cpu_ms: row.cpu_ms?,
            to_ffmpeg: ratio.map(|r| match r.verdict() {
                Verdict::NoDifference => format!("≈ {}", times(r.median)),
                _ => times(r.median),
            }),
        })
    })
    .collect()
}

pub fn draw(run: &LabRun, id: &str, width: f64) -> Option<Picture> {
    let summary = run.summaries.iter().find(|s| s.experiment == "decode")?;
    let panels: Vec<(&str, Vec<Bar>)> = summary
        .cases()
        .into_iter()
        .map(|case| (case, bars(summary, case)))
        .filter(|(_, bars)| !bars.is_empty())
        .collect();
    let most_bars = panels.iter().map(|(_, bars)| bars.len()).max()?;
    let columns = if width > 800.0 { 2 } else { 1 };
    let panel_width = (width - BETWEEN * (columns - 1) as f64) / columns as f64;
    let panel_height = HEAD + most_bars as f64 * STEP + FOOT;
    let height = panels.len().div_ceil(columns) as f64 * panel_height;

    let mut svg = Svg::new(width, height);
    let mut desc = String::new();
    for (i, (case, bars)) in panels.iter().enumerate() {
        let left = (i % columns) as f64 * (panel_width + BETWEEN);
        let top = (i / columns) as f64 * panel_height;
        draw_panel(&mut svg, case, bars, [left, top, panel_width, panel_height]);
        desc.push_str(case);
        desc.push_str(": ");
        let parts: Vec<String> = bars
            .iter()
            .map(|bar| format!("{} {}", bar.contender, time_us(bar.cpu_ms.median * 1000.0)))
            .collect();
        desc.push_str(&parts.join(", "));
        desc.push_str(". ");
    }
    let title = title(summary);
    Some(Picture {
        svg: svg.finish(id, &title, desc.trim_end()),
        title,
        caption: "CPU time of all processes of a contender, for one whole clip. A bar is the \
                  median; its whisker spans the minimum and the maximum of the runs. The ratio \
                  is the median of the pairs, to the ffmpeg tool's default (dotted line); ≈ marks \
                  an interval that includes 1. Each panel has its own scale from 0. \
                  A contender has one colour in every picture; a paler bar is a variant of the contender \
                  with the full colour, such as one thread (`-t1`)."
            .to_owned(),
    })
}

fn draw_panel(svg: &mut Svg, case: &str, bars: &[Bar], [left, top, width, height]: [f64; 4]) {
    let most = bars.iter().map(|bar| bar.cpu_ms.max).fold(0.0, f64::max);
    let widest = bars.iter().map(|bar| text_width(&bar.contender, 12.0)).fold(0.0, f64::max);
    let names = (widest + 12.0).min(width * 0.4);
    let x = Scale::linear(most, left + names, left + width - VALUES);
    let bottom = top + height - FOOT;
    svg.text("bold", Anchor::Start, left, top + 14.0, case);
    let (unit, us_of_unit) = time_unit(most * 1000.0);
    for ms in x.ticks(4) {
        svg.line("grid", x.at(ms), top + HEAD - 4.0, x.at(ms), bottom);
    }
    for (place, tick) in x.labels(4, |ms| format!("{} {unit}", figure(ms * 1000.0 / us_of_unit))) {
        svg.text("soft", Anchor::Middle, place, bottom + 15.0, &tick);
    }
    svg.text("soft", Anchor::End, left + width, top + 14.0, "CPU time, ratio to ffmpeg");
    if let Some(ffmpeg) = bars.iter().find(|bar| bar.contender == "ffmpeg") {
        let place = x.at(ffmpeg.cpu_ms.median);
        svg.line("reference", place, top + HEAD - 4.0, place, bottom);
    }
    for (i, bar) in bars.iter().enumerate() {
        let y = top + HEAD + i as f64 * STEP;
        let (colour, is_variant) = contender_style(&bar.contender);
        let shade = if is_variant { "pale" } else { "bar" };
        let Spread { median, min, max, .. } = bar.cpu_ms;
        let words = |ms: f64| time_us(ms * 1000.0);
        let tip = format!("{case}, {}: {} ({} to {})", bar.contender, words(median), words(min), words(max));
        let name = fitted(&bar.contender, 12.0, names - 8.0);
        let middle = y + BAR / 2.0;
        svg.text("", Anchor::End, left + names - 8.0, middle + 4.0, &name);
        svg.rect(&format!("{shade} {colour}"), x.at(0.0), y, x.at(median) - x.at(0.0), BAR, &tip);
        svg.line("whisker", x.at(min), middle, x.at(max), middle);
        for end in [min, max] {
            svg.line("whisker", x.at(end), middle - 4.0, x.at(end), middle + 4.0);
        }
        // Separate columns keep the figures clear of whiskers and the dotted line.
        let right = left + width;
        svg.text("", Anchor::End, right - 64.0, middle + 4.0, &words(median));
        if let Some(ratio) = &bar.to_ffmpeg {
            svg.text("bold", Anchor::End, right, middle + 4.0, ratio);
        }
    }
}
