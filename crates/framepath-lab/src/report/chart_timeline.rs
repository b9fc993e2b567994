// SPDX-License-Identifier: MIT OR Apache-2.0
//! Picture of the slowest frames: the hops of each frame along time, coloured by cause.

use framepath_model::summary::CausesUs;

use super::scale::Scale;
use super::svg::{Anchor, Svg, text_width, wrapped};
use super::{FrameTimeline, LabRun, Picture};
use crate::plain::number::{figure, percent, time_unit, time_us};

const STEP: f64 = 30.0;
const BAR: f64 = 22.0;
const HEAD: f64 = 24.0;
const FOOT: f64 = 34.0;
/// Height of a line of the path's text, in CSS pixels.
const LINE: f64 = 16.0;
/// Font size that stands for the wider bold text, in CSS pixels.
const BOLD: f64 = 13.0;
const NAMES: f64 = 96.0;
const TOTALS: f64 = 70.0;

/// Maximum number of frames shown per path.
const MOST: usize = 8;

/// Groups the frames by path, at most [`MOST`] per path, slowest first. Omits frames without
/// latency.
fn groups(run: &LabRun) -> Vec<(&str, Vec<&FrameTimeline>)> {
    let mut groups: Vec<(&str, Vec<&FrameTimeline>)> = Vec::new();
    for frame in run.slow_frames.iter().filter(|frame| frame.latency_us() > 0.0) {
        match groups.iter_mut().find(|(path, _)| *path == frame.path) {
            Some((_, frames)) => frames.push(frame),
            None => groups.push((&frame.path, vec![frame])),
        }
    }
    for (_, frames) in &mut groups {
        frames.sort_by(|a, b| b.latency_us().total_cmp(&a.latency_us()));
        frames.truncate(MOST);
    }
    groups
}

/// Returns the name of a known cause, else `unexplained`, because the name becomes a CSS class.
fn cause_of(name: &str) -> &'static str {
    let known = CausesUs::default().named();
    known.iter().find(|(cause, _)| *cause == name).map_or("unexplained", |(cause, _)| cause)
}

/// Returns the cause with most of a frame's time, and its share of the latency, 0 to 1.
fn chief_cause(frame: &FrameTimeline) -> Option<(&'static str, f64)> {
    let spent = |cause: &str| -> f64 {
        let segments = frame.segments.iter().filter(|s| cause_of(&s.cause) == cause);
        segments.map(|s| (s.end_us - s.start_us).max(0.0)).sum()
    };
    let causes = CausesUs::default().named();
    let chief = causes.iter().map(|(cause, _)| (*cause, spent(cause)));
    chief.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(cause, us)| (cause, us / frame.latency_us()))
}

pub fn draw(run: &LabRun, id: &str, width: f64) -> Option<Picture> {
    let groups = groups(run);
    let slowest = groups
        .iter()
        .flat_map(|(_, frames)| frames)
        .max_by(|a, b| a.latency_us().total_cmp(&b.latency_us()))?;
    let title = match chief_cause(slowest) {
        Some((cause, share)) => format!(
            "The slowest frame took {}, {} of it {cause}",
            time_us(slowest.latency_us()),
            percent(share)
        ),
        None => format!("The slowest frame took {}", time_us(slowest.latency_us())),
    };
    let height: f64 =
        groups.iter().map(|(path, frames)| head(path, width) + frames.len() as f64 * STEP + FOOT).sum();
    let mut svg = Svg::new(width, height);
    let mut top = 0.0;
    let mut desc = String::new();
    for (path, frames) in &groups {
        draw_group(&mut svg, path, frames, top, width);
        top += head(path, width) + frames.len() as f64 * STEP + FOOT;
        let parts: Vec<String> = frames
            .iter()
            .map(|frame| format!("frame {} {}", frame.seq, time_us(frame.latency_us())))
            .collect();
        desc.push_str(&format!("{path}: {}. ", parts.join(", ")));
    }
    Some(Picture {
        svg: svg.finish(id, &title, desc.trim_end()),
        title,
        caption: "Time from each frame's birth. A piece is one cause within one hop, in the colours \
                  of the picture of causes. A gap is unexplained time. Each path has its own scale. A piece with room has \
                  its hop and cause in words; point at another piece to read its own."
            .to_owned(),
    })
}

/// Returns the height above the bars of a group: the lines of the path's text, and a gap.
fn head(path: &str, width: f64) -> f64 {
    HEAD + (wrapped(path, BOLD, width).len().max(1) - 1) as f64 * LINE
}

fn draw_group(svg: &mut Svg, path: &str, frames: &[&FrameTimeline], top: f64, width: f64) {
    let most = frames.iter().map(|frame| frame.latency_us()).fold(0.0, f64::max);
    let x = Scale::linear(most, NAMES, width - TOTALS);
    for (i, line) in wrapped(path, BOLD, width).iter().enumerate() {
        svg.text("bold", Anchor::Start, 0.0, top + 14.0 + i as f64 * LINE, line);
    }
    let top = top + head(path, width) - HEAD;
    let bottom = top + HEAD + frames.len() as f64 * STEP;
    let (unit, us_of_unit) = time_unit(most);
    for us in x.ticks(6) {
        svg.line("grid", x.at(us), top + HEAD - 2.0, x.at(us), bottom);
    }
    for (place, tick) in x.labels(6, |us| format!("{} {unit}", figure(us / us_of_unit))) {
        svg.text("soft", Anchor::Middle, place, bottom + 14.0, &tick);
    }
    for (i, frame) in frames.iter().enumerate() {
        let y = top + HEAD + i as f64 * STEP;
        let middle = y + BAR / 2.0 + 4.0;
        svg.text("", Anchor::End, NAMES - 10.0, middle, &format!("frame {}", frame.seq));
        for segment in &frame.segments {
            let cause = cause_of(&segment.cause);
            let (start, end) = (x.at(segment.start_us), x.at(segment.end_us));
            let spent = time_us(segment.end_us - segment.start_us);
            let tip = format!("frame {}, {}: {cause} {spent}", frame.seq, segment.hop);
            svg.rect(&format!("piece k-{cause}"), start, y, end - start, BAR, &tip);
            let label = [format!("{}: {cause}", segment.hop), segment.hop.clone()]
                .into_iter()
                .find(|label| text_width(label, 12.0) + 6.0 < end - start);
            if let Some(label) = label {
                let ink = format!("i-{cause}");
                svg.text(&ink, Anchor::Middle, (start + end) / 2.0, middle, &label);
            }
        }
        let total = time_us(frame.latency_us());
        svg.text("bold", Anchor::Start, x.at(frame.latency_us()) + 8.0, middle, &total);
    }
}
