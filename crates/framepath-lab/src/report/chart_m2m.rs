// SPDX-License-Identifier: MIT OR Apache-2.0
//! Picture of lab `m2m`, frames through a device: the median frame's time by cause, all on one scale, with
//! bytes copied, page faults and dropped frames beside it.

use framepath_model::summary::{CausesUs, Summary, SummaryRow};

use super::chart_causes::{legend, legend_lines};
use super::scale::Scale;
use super::svg::{Anchor, Svg, fitted, text_width};
use super::{LabRun, Picture};
use crate::plain::number::{bytes, figure, time_us};

const STEP: f64 = 25.0;
const BAR: f64 = 18.0;
const LEGEND: f64 = 34.0;
const FOOT: f64 = 24.0;
/// Height of a line of text above or below a bar, in CSS pixels.
const LINE: f64 = 20.0;
/// Width below which a row has several lines, in CSS pixels.
const NARROW: f64 = 640.0;
/// Width of the four columns of counts at the right edge, in CSS pixels.
const COUNTS: f64 = 290.0;
/// Headings of the columns of counts, each with its distance in CSS pixels from the first column.
const HEADINGS: [(&str, f64); 4] =
    [("copied", 0.0), ("in kernel", 82.0), ("faults", 160.0), ("dropped", 234.0)];

/// Returns the pieces of a row's bar: CSS class, name for the tooltip, and microseconds of each
/// cause above 0. A row without causes has one piece, its median latency (0 if not known).
fn pieces(row: &SummaryRow) -> Vec<(String, String, f64)> {
    let Some(causes) = row.causes_us else {
        // Without causes, one piece shows the whole latency.
        let whole = row.latency_us.map_or(0.0, |us| us.p50);
        return vec![("bar grey".to_owned(), "not divided".to_owned(), whole)];
    };
    let known =
        causes.named().into_iter().filter_map(|(cause, us)| Some((cause, us.filter(|us| *us > 0.0)?)));
    known
        .map(|(cause, us)| {
            let name = match (cause, row.figure("device_queue_us"), row.figure("device_run_us")) {
                ("device", Some(queue), Some(run)) => {
                    format!("device, of which queued {} and worked on {}", time_us(queue), time_us(run))
                }
                _ => cause.to_owned(),
            };
            (format!("piece k-{cause}"), name, us)
        })
        .collect()
}

fn whole(row: &SummaryRow) -> f64 {
    pieces(row).iter().map(|(_, _, us)| us).sum()
}

/// Returns the texts of the counts beside a bar, in the order of [`HEADINGS`]; `None` for an
/// unknown count.
fn counts(row: &SummaryRow) -> [Option<String>; 4] {
    let in_bytes = |key| row.figure(key).map(|count| bytes(count.round() as u64));
    [
        in_bytes("copied_bytes_per_frame"),
        in_bytes("kernel_copied_bytes_per_frame"),
        row.figure("faults_per_frame").map(figure),
        row.figure("dropped").map(figure),
    ]
}

fn title(summary: &Summary) -> String {
    let of =
        |contender: &str| summary.row("vivid-threshold", contender).filter(|row| row.causes_us.is_some());
    match (of("device-mmap"), of("device-dmabuf")) {
        (Some(copied), Some(lent)) => format!(
            "A camera's frame through the measuring node: {} copied in, {} lent",
            time_us(whole(copied)),
            time_us(whole(lent))
        ),
        _ => "Latency of a frame through a device".to_owned(),
    }
}

pub fn draw(run: &LabRun, id: &str, width: f64) -> Option<Picture> {
    let summary = run.summaries.iter().find(|s| s.experiment == "m2m")?;
    let cases: Vec<(&str, Vec<&SummaryRow>)> = summary
        .cases()
        .into_iter()
        .map(|case| (case, summary.rows.iter().filter(|r| r.case == case && whole(r) > 0.0).collect()))
        .filter(|(_, rows): &(&str, Vec<&SummaryRow>)| !rows.is_empty())
        .collect();
    let rows: Vec<&SummaryRow> = cases.iter().flat_map(|(_, rows)| rows.iter().copied()).collect();
    let most = rows.iter().map(|row| whole(row)).fold(0.0, f64::max);
    if rows.is_empty() {
        return None;
    }
    // On a narrow page, a row has its name above its bar and its counts below it.
    let is_narrow = width < NARROW;
    let names = if is_narrow { 8.0 } else { (width * 0.22).clamp(170.0, 230.0) };
    let step = if is_narrow { STEP + 2.0 * LINE } else { STEP };
    let all: Vec<CausesUs> = rows.iter().filter_map(|row| row.causes_us).collect();
    let head = LEGEND + (legend_lines(&all, width) - 1) as f64 * LINE;
    let bottom = head + rows.len() as f64 * step + cases.len() as f64 * STEP;
    let mut svg = Svg::new(width, bottom + FOOT);
    legend(&mut svg, &all, width);
    let counts_from = width - COUNTS;
    let x = Scale::linear(most, names, if is_narrow { width } else { counts_from } - 76.0);
    for us in x.ticks(5) {
        svg.line("grid", x.at(us), head, x.at(us), bottom);
    }
    for (place, label) in x.labels(5, time_us) {
        let place = place.max(text_width(&label, 12.0) / 2.0);
        svg.text("soft", Anchor::Middle, place, bottom + 16.0, &label);
    }
    let mut desc = String::new();
    let mut y = head;
    for (case, rows) in cases {
        svg.text("bold", Anchor::Start, 0.0, y + 16.0, case);
        for (heading, at) in HEADINGS.into_iter().filter(|_| !is_narrow) {
            svg.text("soft", Anchor::Start, counts_from + at, y + 16.0, heading);
        }
        y += STEP;
        for row in rows {
            if is_narrow {
                draw_stacked(&mut svg, row, &x, y);
            } else {
                draw_row(&mut svg, row, &x, y, [names, counts_from]);
            }
            desc.push_str(&format!("{case} {}: {}. ", row.contender, time_us(whole(row))));
            y += step;
        }
    }
    let title = title(summary);
    Some(Picture {
        svg: svg.finish(id, &title, desc.trim_end()),
        title,
        caption: "Latency of the median frame, from the camera's timestamp or from before the picture's copy into the \
                  heap to the end of its sink, all on one scale. `copied` counts bytes per frame copied by \
                  this process, `in kernel` bytes that the measuring node reports. An empty place is not \
                  known, not 0."
            .to_owned(),
    })
}

/// Draws a row of a narrow page: name, bar and counts below each other.
fn draw_stacked(svg: &mut Svg, row: &SummaryRow, x: &Scale, y: f64) {
    svg.text("", Anchor::Start, 0.0, y + 14.0, &row.contender);
    draw_bar(svg, row, x, y + LINE);
    let known = HEADINGS.into_iter().zip(counts(row));
    let parts: Vec<String> =
        known.filter_map(|((heading, _), count)| Some(format!("{heading} {}", count?))).collect();
    svg.text("soft", Anchor::Start, 0.0, y + LINE + BAR + 15.0, &parts.join(" · "));
}

fn draw_row(svg: &mut Svg, row: &SummaryRow, x: &Scale, y: f64, [names, counts_from]: [f64; 2]) {
    let middle = y + BAR / 2.0 + 4.0;
    svg.text("", Anchor::End, names - 10.0, middle, &fitted(&row.contender, 12.0, names - 12.0));
    draw_bar(svg, row, x, y);
    for ((_, place), count) in HEADINGS.into_iter().zip(counts(row)) {
        svg.text("", Anchor::Start, counts_from + place, middle, &count.unwrap_or_default());
    }
}

/// Draws the pieces of a row's bar, and to the right of them the whole time as text.
fn draw_bar(svg: &mut Svg, row: &SummaryRow, x: &Scale, y: f64) {
    let middle = y + BAR / 2.0 + 4.0;
    let mut at = 0.0;
    for (class, name, us) in pieces(row) {
        let tip = format!("{} · {}: {name} {}", row.case, row.contender, time_us(us));
        svg.rect(&class, x.at(at), y, x.at(at + us) - x.at(at), BAR, &tip);
        at += us;
    }
    svg.text("bold", Anchor::Start, x.at(at) + 6.0, middle, &time_us(at));
}

#[cfg(test)]
mod tests {
    use framepath_model::summary::{LatencyUs, Machine};

    use super::*;

    fn row(contender: &str, device: Option<f64>, extra: &[(&str, f64)]) -> SummaryRow {
        let causes_us = device.map(|us| CausesUs {
            copy: Some(20.0),
            device: Some(us),
            unexplained: Some(-1.0),
            ..CausesUs::default()
        });
        SummaryRow {
            case: "vivid-threshold".to_owned(),
            contender: contender.to_owned(),
            latency_us: Some(LatencyUs { p50: 1200.0, p95: 0.0, p99: 0.0, max: 0.0 }),
            copied_bytes_per_frame: Some(307_200.0),
            causes_us,
            extra: extra.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect(),
            ..SummaryRow::default()
        }
    }

    #[test]
    fn a_row_shows_its_pieces_and_its_counts() {
        let split = [("device_queue_us", 3.0), ("device_run_us", 60.0), ("faults_per_frame", 0.5)];
        let rows = vec![row("device-mmap", Some(80.0), &split), row("vim2m", None, &[])];
        assert_eq!(counts(&rows[0]), [Some("300 KiB".into()), None, Some("0.5".into()), None]);
        let summary = Summary {
            experiment: "m2m".to_owned(),
            machine: Machine::default(),
            started_unix_s: None,
            rows,
            ratios: Vec::new(),
            skipped: Vec::new(),
            notes: Vec::new(),
        };
        let run = LabRun { summaries: vec![summary], ..LabRun::default() };
        let Picture { svg, .. } = draw(&run, "m2m", 1112.0).unwrap();
        assert!(svg.contains("device, of which queued 3 µs and worked on 60 µs 80 µs"), "{svg}");
        assert!(svg.contains("vim2m: not divided 1.2 ms"), "{svg}");
        // A negative cause is not drawn.
        assert!(!svg.contains("k-unexplained"));
    }

    #[test]
    fn other_experiments_have_no_device_picture() {
        assert!(draw(&LabRun::default(), "m2m", 800.0).is_none());
    }
}
