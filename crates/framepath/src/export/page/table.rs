// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of the page: the median frame's time by hop and cause, CPU time and copied bytes.

use std::fmt::Write;

use framepath_model::ledger::{CAUSES, Cause, Digest};

use super::super::text::{bytes, time};
use super::{escaped, picture};
use crate::report::Report;

/// Adds the table for the frames that reached hop `sink`, without the hops of other viewers.
pub(super) fn hops_by_cause(
    page: &mut String,
    report: &Report,
    sink: u16,
    digest: &Digest,
) -> std::fmt::Result {
    let has_time = |cause: &Cause| {
        digest.causes[*cause].is_some()
            && digest.hops.iter().any(|hop| hop.median[*cause].is_some_and(|ns| ns.abs() >= 0.5))
    };
    let columns: Vec<Cause> = CAUSES.into_iter().filter(has_time).collect();
    page.push_str("<div class=\"wide\"><table class=\"hops\">\n<tr><th>hop</th>");
    for cause in &columns {
        write!(page, "<th>{}</th>", picture::swatch(*cause))?;
    }
    page.push_str("<th>p50</th><th>p99</th><th>longest</th><th>CPU per frame</th><th>copied</th><th>dropped</th></tr>\n");
    let figure = |ns: Option<f64>| ns.map_or_else(String::new, time);
    let hops = report.hops.iter().zip(report.hop_labels()).zip(&digest.hops);
    let hops = (0..).zip(hops.zip(report.hops_cpu_ns(digest)));
    for (_, (((hop, label), figures), cpu_ns)) in hops.filter(|(at, _)| !report.is_of_other_viewer(*at, sink))
    {
        write!(page, "<tr><th><code>{}</code></th>", escaped(&label))?;
        for cause in &columns {
            write!(page, "<td>{}</td>", figure(figures.median[*cause]))?;
        }
        let known = figures.frames > 0;
        for ns in [figures.wall.p50, figures.wall.p99, figures.wall.max] {
            write!(page, "<td>{}</td>", figure(known.then_some(ns as f64)))?;
        }
        let cpu_ns = cpu_ns.map(|ns| ns as f64 / report.frames.max(1) as f64);
        let copied = match figures.copied_bytes {
            0.0 if hop.own || !known || digest.is_traced => String::new(),
            copied => bytes(copied),
        };
        let dropped = if hop.link { figures.dropped.to_string() } else { String::new() };
        writeln!(page, "<td>{}</td><td>{copied}</td><td>{dropped}</td></tr>", figure(cpu_ns))?;
    }
    page.push_str("<tr class=\"all\"><th>all hops</th>");
    for cause in &columns {
        write!(page, "<td>{}</td>", figure(digest.causes[*cause]))?;
    }
    let latency = digest.latency.unwrap_or_default();
    for ns in [latency.p50, latency.p99, latency.max] {
        write!(page, "<td>{}</td>", time(ns as f64))?;
    }
    let copied = if digest.is_traced { String::new() } else { bytes(digest.copied_bytes) };
    writeln!(page, "<td></td><td>{copied}</td><td></td></tr>\n</table></div>")
}
