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
    let names = (width * 0.26).clamp(200.0, 260.0);
    let legend_lines = if width > 800.0 { 1.0 } else { 2.0 };
    let head = LEGEND * legend_lines;
    let mut svg = Svg::new(width, head + (shown.len() + headings) as f64 * STEP + 4.0);
    legend(&mut svg, &shown.iter().map(|bar| bar.causes).collect::<Vec<_>>(), width);

    let (start, end) = (names, width - TOTALS);
    let mut y = head;
    let mut desc = String::new();
    for (i, bar) in shown.iter().enumerate() {
        if i == 0 || shown[i - 1].experiment != bar.experiment {
            svg.text("bold", Anchor::Start, 0.0, y + 16.0, bar.experiment);
            y += STEP;
        }
        let middle = y + BAR / 2.0 + 4.0;
        svg.text("", Anchor::End, names - 10.0, middle, &fitted(&bar.name, 12.0, names - 12.0));
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
             added to another cause.{more}"
        ),
    })
}

/// Draws the legend along the top: colour and name of each cause above 0 in `all`. Wraps at
/// `width`, in CSS pixels.
pub(super) fn legend(svg: &mut Svg, all: &[CausesUs], width: f64) {
    let (mut x, mut y) = (0.0, 4.0);
    for (place, (cause, _)) in CausesUs::default().named().iter().enumerate() {
        if !all.iter().any(|causes| causes.named()[place].1.is_some_and(|us| us > 0.0)) {
            continue;
        }
        let wide = 18.0 + text_width(cause, 12.0) + 16.0;
        if x + wide > width && x > 0.0 {
            (x, y) = (0.0, y + 22.0);
        }
        svg.rect(&format!("piece k-{cause}"), x, y, 13.0, 13.0, "");
        svg.text("", Anchor::Start, x + 18.0, y + 11.0, cause);
        x += wide;
    }
}
