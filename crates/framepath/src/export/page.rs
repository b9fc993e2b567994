// SPDX-License-Identifier: MIT OR Apache-2.0
//! Report of one run as a page: one HTML file that needs no network.
//!
//! The page begins with a sentence that says where the median frame's time went. Then come pictures (time by hop
//! and cause, latency of all frames, the slowest frame), the table of hops and causes, advice, and how each figure
//! is known.

mod explain;
mod picture;
mod style;
mod table;

use std::fmt::Write as _;
use std::io::{self, Write};

use framepath_model::ledger::{Cause, Digest};
use framepath_model::shown::shown;
use framepath_os::machine as os;
use framepath_os::measure::meter::Level;

use super::advice::advice;
use super::text::time;
use crate::report::Report;
pub use explain::headline;

/// Writes the page. Changes the report's rows as [`Report::digest`] does, unless the level is `off`.
///
/// ```
/// use framepath::{Options, Pipeline, export};
///
/// let mut report = Pipeline::parse("test frames=5 ! queue ! null")?.run(&Options::default())?;
/// let mut page = Vec::new();
/// export::page::write(&mut report, &mut page)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Errors of `to`.
pub fn write(report: &mut Report, to: &mut dyn Write) -> io::Result<()> {
    let sinks: Vec<u16> = match report.hop_tree().leaves() {
        _ if report.level == Level::Off => Vec::new(),
        leaves => leaves,
    };
    // Writing to a string cannot fail.
    let mut page = String::new();
    let _ = document(&mut page, report, &sinks);
    to.write_all(page.as_bytes())?;
    to.flush()
}

/// Returns `text` for HTML: control characters as [`shown`], and `&`, `<`, `>` and `"` escaped.
fn escaped(text: &str) -> String {
    let text = shown(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn document(page: &mut String, report: &mut Report, sinks: &[u16]) -> std::fmt::Result {
    let path = escaped(&report.path());
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>framepath: {path}</title><style>{}</style></head><body><main>\n<p class=\"path\"><code>{path}</code></p>\n",
        style::SHEET
    )?;
    for (at, sink) in sinks.iter().enumerate() {
        // One at a time, because each has figures of all hops.
        let digest = &report.digest_of(*sink);
        if sinks.len() > 1 {
            let hop = &report.hops[usize::from(*sink)].text;
            writeln!(page, "<p class=\"sink\">Frames to <code>{}</code> (hop {sink})</p>", escaped(hop))?;
        }
        let level = if at == 0 { "h1" } else { "h2" };
        writeln!(page, "<{level}>{}</{level}>", escaped(&headline(report, digest)))?;
        if at == 0 {
            facts(page, report)?;
        }
        if digest.latency.is_some() {
            section(page, report, *sink, digest)?;
        }
    }
    if sinks.is_empty() {
        page.push_str("<h1>The ledger was off: no times are known</h1>\n");
        facts(page, report)?;
    }
    page.push_str("</main></body></html>\n");
    Ok(())
}

/// Adds the counts of the run and the machine, and a list of the run's losses, damage, error and notes.
fn facts(page: &mut String, report: &Report) -> std::fmt::Result {
    let level = match report.level {
        Level::Off => "off",
        Level::Times => "times",
        Level::Full => "full",
    };
    let per_second = report.frames as f64 / (report.wall_ns as f64 / 1e9).max(1e-9);
    writeln!(
        page,
        "<p class=\"facts\">{} frames in {}, {per_second:.1} per second; CPU {}, load {:.2}; {} dropped; ledger {level}. \
         {}, {} cores, Linux {}.</p>",
        report.frames,
        time(report.wall_ns as f64),
        time(report.cpu_ns as f64),
        report.cpu_ns as f64 / report.wall_ns.max(1) as f64,
        report.dropped + report.missed + report.congested,
        escaped(&os::cpu_name()),
        os::cores(),
        escaped(&os::kernel()),
    )?;
    let mut notes: Vec<String> = report.losses().iter().map(ToString::to_string).collect();
    notes.extend((!report.damage.is_none()).then(|| format!("damaged stream: {}", report.damage)));
    notes.extend(report.error.as_ref().map(|error| format!("the run stopped: {error}")));
    notes.extend(report.interrupted.then(|| "the run was interrupted".to_owned()));
    let overwritten =
        format!("{} rows of the ledger were overwritten; --rows keeps more", report.overwritten);
    notes.extend((report.overwritten > 0).then_some(overwritten));
    notes.extend(report.remotes.iter().map(ToString::to_string));
    notes.extend(report.notes.iter().cloned());
    if !notes.is_empty() {
        page.push_str("<ul class=\"notes\">\n");
        for note in notes {
            writeln!(page, "<li>{}</li>", escaped(&note))?;
        }
        page.push_str("</ul>\n");
    }
    Ok(())
}

/// Adds the pictures and tables for the frames of one sink.
fn section(page: &mut String, report: &Report, sink: u16, digest: &Digest) -> std::fmt::Result {
    let heading = format!("The median frame's {} by hop and cause", time(digest.median_ns));
    writeln!(page, "<h2>{heading}</h2>")?;
    picture::legend(page, digest)?;
    picture::by_hop(page, report, digest)?;
    writeln!(page, "<h2>{}</h2>", escaped(&explain::spread(digest)))?;
    picture::frames(page, digest)?;
    if let Some(slowest) = explain::slowest(report, digest) {
        writeln!(page, "<h2>{}</h2>\n<p>{}</p>", escaped(&slowest.title), escaped(&slowest.reason))?;
        picture::of_frame(page, report, digest, slowest.seq)?;
    }
    page.push_str("<h2>Hops and causes</h2>\n");
    table::hops_by_cause(page, report, sink, digest)?;
    let advice = advice(report, digest);
    page.push_str("<h2>Advice</h2>\n");
    if advice.is_empty() {
        page.push_str("<p>None: no time stands out that an option of the path reduces.</p>\n");
    }
    for advice in advice {
        writeln!(page, "<p>{}</p>", escaped(&advice.text))?;
    }
    page.push_str("<h2>How each figure is known</h2>\n<table class=\"known\">\n");
    for (cause, figure) in digest.causes.iter() {
        let known = match (figure, cause) {
            (Some(_), _) => digest.known_by(cause),
            (None, Cause::Copy) if digest.is_traced => digest.known_by(cause),
            (None, Cause::Compute | Cause::Preempted | Cause::Unexplained) => "not measured at this level",
            (None, _) => "no hop had such time, or it was not measured",
        };
        writeln!(page, "<tr><th>{}</th><td>{known}</td></tr>", picture::swatch(cause))?;
    }
    let copied = if digest.is_traced { "" } else { " Copied bytes are counted." };
    writeln!(
        page,
        "</table>\n<p class=\"facts\">The median frame: the mean over the tenth of the frames whose latency is nearest to \
         the median.{copied} A cell without a figure is not known, and not zero.</p>"
    )
}
