// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pictures of the page: stacked bars by cause, and the latency of all frames.

use std::fmt::Write;

use framepath_model::ledger::{CAUSES, Cause, Causes, Digest};

use super::super::text::time;
use super::escaped;
use super::explain::rows_of;
use crate::report::{Report, depths};

/// Maximum number of columns in the picture of all frames.
const COLUMNS: usize = 240;
/// Height of the picture of all frames, in its own units.
const HEIGHT: f64 = 200.0;
/// Smallest share of the longest bar with which a cause has a part in a hop's bar.
const LEAST_SHARE: f64 = 0.001;

/// Returns the name of a cause with its colour.
pub(super) fn swatch(cause: Cause) -> String {
    format!("<i class=\"box c-{0}\"></i>{0}", cause.name())
}

/// Adds the names and colours of the causes that a frame has.
pub(super) fn legend(page: &mut String, digest: &Digest) -> std::fmt::Result {
    page.push_str("<p class=\"legend\">");
    for (cause, figure) in digest.causes.iter() {
        let in_any = digest.totals.iter().any(|total| total.causes[cause].is_some_and(|ns| ns > 0.0));
        if in_any || figure.is_some_and(|ns| ns > 0.0) {
            write!(page, "<span>{}</span> ", swatch(cause))?;
        }
    }
    page.push_str("</p>\n");
    Ok(())
}

/// Adds a bar for each hop in which a cause of the median frame's time is known, divided by cause.
pub(super) fn by_hop(page: &mut String, report: &Report, digest: &Digest) -> std::fmt::Result {
    let labels = report.hop_labels();
    let hops = labels.iter().zip(depths(&report.hops)).zip(&digest.hops);
    let hops: Vec<_> =
        hops.map(|((label, depth), figures)| (label.as_str(), depth, figures.median)).collect();
    bars(page, &hops, digest.median_ns)
}

/// Adds a bar with the time of frame `seq`, divided by cause, for each hop on the way to the sink of
/// `digest`.
pub(super) fn of_frame(page: &mut String, report: &Report, digest: &Digest, seq: u64) -> std::fmt::Result {
    let depths = depths(&report.hops);
    let mut hops: Vec<(u16, Causes)> = Vec::new();
    for row in rows_of(report, seq) {
        let is_on_way =
            digest.hops.get(usize::from(row.hop)).is_some_and(|hop| hop.median != Causes::default());
        if is_on_way {
            hops.push((row.hop, row.causes()));
        }
    }
    hops.sort_by_key(|(hop, _)| *hop);
    let hops = hops.into_iter().filter_map(|(at, causes)| {
        let at = usize::from(at);
        Some((report.hops.get(at)?.text.as_str(), *depths.get(at)?, causes))
    });
    let longest = digest.totals.iter().find(|total| total.seq == seq).map_or(0, |total| total.latency_ns());
    bars(page, &hops.collect::<Vec<_>>(), longest as f64)
}

/// Adds the bars of hops: text, depth of nesting, and time by cause. The whole width stands for the longest bar.
/// `total_ns` is the latency, for the shares.
fn bars(page: &mut String, hops: &[(&str, usize, Causes)], total_ns: f64) -> std::fmt::Result {
    let sum = |causes: &Causes| causes.iter().filter_map(|(_, ns)| ns).filter(|ns| *ns > 0.0).sum::<f64>();
    let longest_ns = hops.iter().map(|(_, _, causes)| sum(causes)).fold(1.0, f64::max);
    page.push_str("<div class=\"bars\">\n");
    for (text, depth, causes) in hops {
        let all_ns = sum(causes);
        if causes.iter().all(|(_, ns)| ns.is_none()) {
            continue;
        }
        let share = all_ns / total_ns.max(1.0) * 100.0;
        write!(
            page,
            "<div class=\"name\" style=\"padding-left:{}em\"><code>{}</code></div><div class=\"sum\">{} · {share:.1} %</div>\
             <div class=\"bar\">",
            depth,
            escaped(text),
            time(all_ns)
        )?;
        for (cause, ns) in causes.iter() {
            let Some(ns) = ns.filter(|ns| *ns >= LEAST_SHARE * longest_ns) else { continue };
            let percent = ns / longest_ns * 100.0;
            let name = cause.name();
            // The name stands in the bar if it has room there.
            let label = if percent >= 14.0 { name } else { "" };
            write!(
                page,
                "<span class=\"c-{name}\" style=\"width:{percent:.2}%\" title=\"{name} {}\">{label}</span>",
                time(ns)
            )?;
        }
        page.push_str("</div>\n");
    }
    page.push_str("</div>\n");
    Ok(())
}

/// Adds a column for each frame, divided by cause. With many frames a column stands for several, and has the
/// slowest of them.
pub(super) fn frames(page: &mut String, digest: &Digest) -> std::fmt::Result {
    let per_column = digest.totals.len().div_ceil(COLUMNS).max(1);
    let slowest = |group: &[framepath_model::ledger::FrameTotal]| {
        group.iter().max_by_key(|total| total.latency_ns()).cloned()
    };
    let columns: Vec<_> = digest.totals.chunks(per_column).filter_map(slowest).collect();
    let longest_ns = columns.iter().map(|total| total.latency_ns()).max().unwrap_or(1).max(1) as f64;
    let width = columns.len();
    let mut paths = vec![String::new(); CAUSES.len()];
    for (at, total) in columns.iter().enumerate() {
        let mut top = HEIGHT;
        let latency = total.latency_ns() as f64 / longest_ns * HEIGHT;
        for ((_, ns), path) in total.causes.iter().zip(&mut paths) {
            let high = ns.filter(|ns| *ns > 0.0).unwrap_or(0.0) / longest_ns * HEIGHT;
            // Causes that exceed the latency do not exceed the column.
            let high = high.min(top - (HEIGHT - latency)).max(0.0);
            if high > 0.05 {
                top -= high;
                write!(path, "M{at} {top:.1}h.9v{high:.1}h-.9z")?;
            }
        }
        // Time without a cause at this level of the ledger.
        let rest = top - (HEIGHT - latency);
        if rest > 0.5 {
            write!(paths[CAUSES.len() - 1], "M{at} {:.1}h.9v{rest:.1}h-.9z", top - rest)?;
        }
    }
    let first = digest.totals.first().map_or(0, |total| total.seq);
    let last = digest.totals.last().map_or(0, |total| total.seq);
    let median = HEIGHT - digest.median_ns / longest_ns * HEIGHT;
    write!(
        page,
        "<div class=\"frames\"><div class=\"scale\"><span>{}</span><span>0</span></div><svg viewBox=\"0 0 {width} {HEIGHT}\" \
         preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Latency of each frame, divided by cause\">",
        time(longest_ns)
    )?;
    for (cause, path) in CAUSES.iter().zip(&paths).filter(|(_, path)| !path.is_empty()) {
        write!(page, "<path class=\"c-{}\" d=\"{path}\"/>", cause.name())?;
    }
    let many = match per_column {
        1 => "a column for each frame".to_owned(),
        many => format!("a column for the slowest of each {many} frames"),
    };
    writeln!(
        page,
        "<path class=\"median\" d=\"M0 {median:.1}H{width}\"/></svg></div>\n<p class=\"axis\"><span>frame {first}</span>\
         <span>{many}; the line is the median</span><span>frame {last}</span></p>"
    )
}
