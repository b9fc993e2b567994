// SPDX-License-Identifier: MIT OR Apache-2.0
//! Picture of the causes: the median frame's latency of each path by cause, as shares.

use framepath_model::summary::CausesUs;

use super::svg::{Anchor, Svg, fitted, text_width};
use super::{LabRun, Picture};
use crate::plain::number::{percent, time_us};

const STEP: f64 = 25.0;
const BAR: f64 = 18.0;
const TOTALS: f64 = 76.0;
const LEGEND: f64 = 34.0;
/// Height of a line of the legend, and of a name above its bar, in CSS pixels.
const LINE: f64 = 20.0;

/// Maximum number of drawn paths; the others are only in the table.
const MOST: usize = 32;

struct Bar<'a> {
    experiment: &'a str,
    name: String,
    causes: CausesUs,
}

fn bars(run: &LabRun) -> Vec<Bar<'_>> {
    let mut bars = Vec::new();
    for summary in &run.summaries {
        for row in &summary.rows {
            // Without a known remainder the pieces do not add up to the latency.
            let whole = row.causes_us.filter(|causes| causes.unexplained.is_some());
            let Some(causes) = whole.filter(|causes| drawn(causes) > 0.0) else { continue };
            bars.push(Bar {
                experiment: &summary.experiment,
                name: format!("{} · {}", row.case, row.contender),
                causes,
            });
        }
    }
    bars
}

/// Returns the sum of the drawn causes in microseconds: a negative remainder counts as 0, because
/// it has no width.
fn drawn(causes: &CausesUs) -> f64 {
    causes.named().iter().filter_map(|(_, us)| *us).map(|us| us.max(0.0)).sum()
}

fn title(bars: &[Bar]) -> String {
    let shares: Vec<f64> = bars.iter().filter_map(|bar| bar.causes.unexplained_share()).collect();
    let most = shares.iter().copied().fold(0.0, f64::max);
    if shares.len() < bars.len() {
        return "Latency of a frame by cause".to_owned();
    }
    let paths = match bars.len() {
        1 => "1 path".to_owned(),
        n => format!("{n} paths"),
    };
    if most <= 0.05 {
        format!("The ledger closes: at most {} of a frame is unexplained, over {paths}", percent(most))
    } else {
        let open = shares.iter().filter(|share| **share > 0.05).count();
        format!(
            "The ledger does not close on {open} of {paths}: more than 5 % is unexplained, at most {}",
            percent(most)
        )
    }
}

pub fn draw(run: &LabRun, id: &str, width: f64) -> Option<Picture> {
    let bars = bars(run);
    if bars.is_empty() {
        return None;
    }
    let shown = &bars[..bars.len().min(MOST)];
    let headings = shown
        .iter()
        .enumerate()
        .filter(|(i, bar)| *i == 0 || shown[i - 1].experiment != bar.experiment)
        .count();
    let widest = shown.iter().map(|bar| text_width(&bar.name, 12.0)).fold(0.0, f64::max) + 14.0;
    // On a narrow page, a name is above its bar.
    let is_stacked = widest > width * 0.4;
    let (names, step) = if is_stacked { (0.0, STEP + LINE) } else { (widest, STEP) };
    let all: Vec<CausesUs> = shown.iter().map(|bar| bar.causes).collect();
    let head = LEGEND + (legend_lines(&all, width) - 1) as f64 * LINE;
    let mut svg = Svg::new(width, head + shown.len() as f64 * step + headings as f64 * STEP + 4.0);
    legend(&mut svg, &all, width);

    let (start, end) = (names, width - TOTALS);
    let mut y = head;
    let mut desc = String::new();
    for (i, bar) in shown.iter().enumerate() {
        if i == 0 || shown[i - 1].experiment != bar.experiment {
            svg.text("bold", Anchor::Start, 0.0, y + 16.0, bar.experiment);
            y += STEP;
        }
        if is_stacked {
            svg.text("", Anchor::Start, 0.0, y + 14.0, &fitted(&bar.name, 12.0, width));
            y += LINE;
        }
        let middle = y + BAR / 2.0 + 4.0;
        if !is_stacked {
            svg.text("", Anchor::End, names - 10.0, middle, &bar.name);
        }
        let total = drawn(&bar.causes);
        let mut x = start;
        let mut parts = Vec::new();
        for (cause, us) in bar.causes.named() {
            let Some(us) = us.filter(|us| *us > 0.0) else { continue };
            let share = us / total;
            let wide = (end - start) * share;
            let tip = format!("{}: {cause} {}, {}", bar.name, time_us(us), percent(share));
            svg.rect(&format!("piece k-{cause}"), x, y, wide, BAR, &tip);
            let label = [format!("{cause} {}", percent(share)), percent(share)]
                .into_iter()
                .find(|label| text_width(label, 12.0) + 8.0 < wide);
            if let Some(label) = label {
                let ink = format!("i-{cause}");
                svg.text(&ink, Anchor::Middle, x + wide / 2.0, middle, &label);
            }
            parts.push(format!("{cause} {}", percent(share)));
            x += wide;
        }
        let all = bar.causes.total().unwrap_or(total);
        svg.text("bold", Anchor::Start, end + 8.0, middle, &time_us(all));
        desc.push_str(&format!("{}: {} of {}. ", bar.name, parts.join(", "), time_us(all)));
        y += STEP;
    }
    let title = title(&bars);
    let more = match bars.len() - shown.len() {
        0 => String::new(),
        n => format!(" {n} more are in the tables."),
    };
    Some(Picture {
        svg: svg.finish(id, &title, desc.trim_end()),
        title,
        caption: format!(
            "Each bar is the median frame of one path, from birth to the end of its sink. The pieces are \
             shares of the time on the right. Unexplained is the remainder by subtraction; it is never \
             added to another cause. Colours stand for causes, as in the legend, not for contenders.{more}"
        ),
    })
}

/// Returns the causes above 0 in `all`, each with its place in a legend that wraps at `width`: distance from
/// the left in CSS pixels, and line from 0.
fn legend_places(all: &[CausesUs], width: f64) -> Vec<(&'static str, f64, usize)> {
    let (mut x, mut line) = (0.0, 0);
    let mut places = Vec::new();
    for (place, (cause, _)) in CausesUs::default().named().iter().enumerate() {
        if !all.iter().any(|causes| causes.named()[place].1.is_some_and(|us| us > 0.0)) {
            continue;
        }
        let wide = 18.0 + text_width(cause, 12.0) + 16.0;
        if x + wide > width && x > 0.0 {
            (x, line) = (0.0, line + 1);
        }
        places.push((*cause, x, line));
        x += wide;
    }
    places
}

/// Returns the number of lines of the legend, at least 1.
pub(super) fn legend_lines(all: &[CausesUs], width: f64) -> usize {
    legend_places(all, width).last().map_or(1, |(.., line)| line + 1)
}

/// Draws the legend along the top: colour and name of each cause above 0 in `all`. Wraps at
/// `width`, in CSS pixels.
pub(super) fn legend(svg: &mut Svg, all: &[CausesUs], width: f64) {
    for (cause, x, line) in legend_places(all, width) {
        let y = 4.0 + line as f64 * LINE;
        svg.rect(&format!("piece k-{cause}"), x, y, 13.0, 13.0, "");
        svg.text("", Anchor::Start, x + 18.0, y + 11.0, cause);
    }
}
