// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTML page of a report: pictures, findings in words, tables, machine, method.

use std::fmt::Write;

use framepath_model::summary::{Machine, Summary};

use super::svg::escape;
use super::{
    LabRun, Picture, chart_causes, chart_decode, chart_latency, chart_m2m, chart_queue, chart_timeline,
    players, style, table,
};
use crate::date::utc;
use crate::plain::{contender_description, findings};

/// Widths for which each picture is drawn, in CSS pixels: class of the style sheet, which shows one of them
/// by the width of the screen, suffix of the HTML id, and width of the page's column. The narrow one fits a
/// screen of 420 pixels.
const WIDTHS: [(&str, &str, f64); 3] =
    [("wide", "", 1112.0), ("medium", "-medium", 720.0), ("narrow", "-narrow", 372.0)];

/// Space between runs shown side by side, in CSS pixels.
const GAP: f64 = 28.0;

/// Function that draws one run's picture with an HTML id and a width in CSS pixels; `None` if the run lacks
/// the figures.
type Draw = fn(&LabRun, &str, f64) -> Option<Picture>;

/// The pictures in the page's order: HTML id, drawing function, and the name of the
/// picture's figures, for a note that runs lack these figures.
const PICTURES: [(&str, Draw, &str); 6] = [
    ("queue-sweep", chart_queue::draw, "the queue sweep (lab `queue`)"),
    ("decode-bars", chart_decode::draw, "decode (lab `decode`)"),
    ("m2m-ledger", chart_m2m::draw, "frames through a device (lab `m2m`)"),
    ("causes", chart_causes::draw, "causes (a ledger at `full`)"),
    ("latency", chart_latency::draw, "latency (a ledger)"),
    ("slow-frames", chart_timeline::draw, "the slowest frames (a ledger's rows)"),
];

/// Returns the HTML page about `runs`. On a wide screen, two or more runs are side by side in two columns.
pub fn page(runs: &[LabRun]) -> String {
    let mut body = String::new();
    header(&mut body, runs);
    pictures(&mut body, runs);
    body.push_str(&players::table(runs));
    write_findings(&mut body, runs);
    contenders(&mut body, runs);
    tables(&mut body, runs);
    machines(&mut body, runs);
    method(&mut body);
    let columns = runs.len().clamp(1, 2);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"generator\" content=\"framepath\"><title>{}</title><style>{}</style></head>\
         <body><main style=\"--runs:{columns}\">{body}</main></body></html>\n",
        escape(&heading(runs)),
        style::SHEET
    )
}

fn heading(runs: &[LabRun]) -> String {
    match runs {
        [run] => format!("framepath lab: {}", run.label),
        _ => format!("framepath lab: {} runs side by side", runs.len()),
    }
}

fn header(body: &mut String, runs: &[LabRun]) {
    let _ = write!(body, "<header><h1>{}</h1>", escape(&heading(runs)));
    for run in runs {
        let label = if runs.len() > 1 { format!("{}: ", run.label) } else { String::new() };
        let _ = write!(body, "<p class=\"lead\">{}{}</p>", escape(&label), escape(&about(run)));
    }
    body.push_str("</header>");
}

/// Describes a run in one line: start time, if known, experiments and machine; `no experiment was run`
/// without a summary.
fn about(run: &LabRun) -> String {
    let Some(first) = run.summaries.first() else { return "no experiment was run".to_owned() };
    let names: Vec<&str> = run.summaries.iter().map(|s| s.experiment.as_str()).collect();
    let started = run.summaries.iter().filter_map(|s| s.started_unix_s).min();
    let started = started.map_or(String::new(), |at| utc(at, "%Y-%m-%d %H:%M UTC. "));
    let Machine { cpu, cores, kernel, .. } = &first.machine;
    let cores = if *cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
    format!("{started}{} on {cpu}, {cores}, Linux {kernel}", names.join(", "))
}

fn pictures(body: &mut String, runs: &[LabRun]) {
    let mut absent = Vec::new();
    for (id, draw, what) in PICTURES {
        let drawn: Vec<Option<Picture>> = runs
            .iter()
            .enumerate()
            .map(|(i, run)| {
                let id = if i == 0 { id.to_owned() } else { format!("{id}-{}", i + 1) };
                draw_widths(draw, run, &id, runs.len().clamp(1, 2) as f64)
            })
            .collect();
        if drawn.iter().all(Option::is_none) {
            absent.push(what);
            continue;
        }
        body.push_str("<div class=\"runs\">");
        for (run, picture) in runs.iter().zip(drawn) {
            body.push_str("<figure>");
            if runs.len() > 1 {
                let _ = write!(body, "<p class=\"of\">{}</p>", escape(&run.label));
            }
            match picture {
                Some(Picture { title, svg, caption }) => {
                    let _ = write!(
                        body,
                        "<h3>{}</h3>{svg}<figcaption>{}</figcaption>",
                        marked_up(&title),
                        marked_up(&caption)
                    );
                }
                None => {
                    let _ =
                        write!(body, "<p class=\"of\">This run has no figures for {}.</p>", marked_up(what));
                }
            }
            body.push_str("</figure>");
        }
        body.push_str("</div>");
    }
    if !absent.is_empty() {
        let _ = write!(
            body,
            "<p class=\"of\">Not drawn, because there are no figures: {}.</p>",
            marked_up(&absent.join("; "))
        );
    }
}

/// Draws a picture of `run` for each of [`WIDTHS`], one `svg` element after the other. A wide page has
/// `columns` runs side by side, so that a wide picture gets only its part of the width. Returns `None` if
/// the run lacks the figures.
fn draw_widths(draw: Draw, run: &LabRun, id: &str, columns: f64) -> Option<Picture> {
    let mut svgs = String::new();
    let mut first = None;
    for (class, suffix, width) in WIDTHS {
        let columns = if class == "wide" { columns } else { 1.0 };
        let width = ((width - GAP * (columns - 1.0)) / columns).floor();
        let picture = draw(run, &format!("{id}{suffix}"), width)?;
        let _ = write!(svgs, "<div class=\"{class}\">{}</div>", picture.svg);
        first.get_or_insert(picture);
    }
    first.map(|picture| Picture { svg: svgs, ..picture })
}

/// Writes to `body` the description of each known contender that ran or was skipped, once per experiment.
fn contenders(body: &mut String, runs: &[LabRun]) {
    let mut experiments: Vec<&str> = Vec::new();
    for summary in runs.iter().flat_map(|run| &run.summaries) {
        if !experiments.contains(&summary.experiment.as_str()) {
            experiments.push(&summary.experiment);
        }
    }
    let mut html = String::new();
    for experiment in experiments {
        let of_experiment =
            || runs.iter().flat_map(|run| &run.summaries).filter(|s| s.experiment == experiment);
        let mut names: Vec<&str> = Vec::new();
        let skipped =
            of_experiment().flat_map(|summary| summary.skipped.iter().map(|one| one.contender.as_str()));
        for name in of_experiment().flat_map(Summary::contenders).chain(skipped) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let known: Vec<(&str, String)> = names
            .into_iter()
            .filter_map(|name| Some((name, contender_description(experiment, name)?)))
            .collect();
        if known.is_empty() {
            continue;
        }
        let _ = write!(html, "<h4>{}</h4><dl>", escape(experiment));
        for (name, words) in known {
            let _ = write!(html, "<dt>{}</dt><dd>{}</dd>", escape(name), marked_up(&words));
        }
        html.push_str("</dl>");
    }
    if !html.is_empty() {
        let _ = write!(body, "<h2>Contenders</h2><div class=\"contenders\">{html}</div>");
    }
}

/// Converts `text` to HTML: text inside back quotes becomes `<code>`, and all text is escaped.
fn marked_up(text: &str) -> String {
    let mut html = String::new();
    for (i, part) in text.split('`').enumerate() {
        let part = escape(part);
        if i % 2 == 1 {
            let _ = write!(html, "<code>{part}</code>");
        } else {
            html.push_str(&part);
        }
    }
    html
}

fn write_findings(body: &mut String, runs: &[LabRun]) {
    body.push_str("<h2>In words</h2><div class=\"runs\">");
    for run in runs {
        body.push_str("<div>");
        if runs.len() > 1 {
            let _ = write!(body, "<p class=\"of\">{}</p>", escape(&run.label));
        }
        body.push_str("<ul>");
        for finding in findings(&run.summaries) {
            let _ = write!(body, "<li>{}</li>", marked_up(&finding));
        }
        body.push_str("</ul>");
        for note in run.summaries.iter().flat_map(|summary| &summary.notes) {
            let _ = write!(body, "<p class=\"of\">{}</p>", marked_up(note));
        }
        body.push_str("</div>");
    }
    body.push_str("</div>");
}

fn tables(body: &mut String, runs: &[LabRun]) {
    let ratios = table::ratios(runs);
    if !ratios.is_empty() {
        let _ = write!(body, "<h2>Comparisons</h2>{ratios}");
    }
    body.push_str("<h2>Rows</h2>");
    for run in runs {
        if runs.len() > 1 {
            let _ = write!(body, "<h4>{}</h4>", escape(&run.label));
        }
        for summary in &run.summaries {
            body.push_str(&table::rows(summary));
        }
    }
    let skipped: Vec<String> = runs.iter().map(table::skipped).collect();
    if skipped.iter().any(|html| !html.is_empty()) {
        body.push_str("<h2>Skipped</h2><p>These contenders could not run on this machine. None of them counts as passed.</p>");
        for (run, html) in runs.iter().zip(skipped) {
            if runs.len() > 1 && !html.is_empty() {
                let _ = write!(body, "<h4>{}</h4>", escape(&run.label));
            }
            body.push_str(&html);
        }
    }
}

fn machines(body: &mut String, runs: &[LabRun]) {
    body.push_str("<h2>Machine</h2><div class=\"runs\">");
    for run in runs {
        body.push_str("<div>");
        if runs.len() > 1 {
            let _ = write!(body, "<h4>{}</h4>", escape(&run.label));
        }
        // Shows each different machine once: usually all summaries of a run have the same machine.
        let mut shown: Vec<&Machine> = Vec::new();
        for summary in &run.summaries {
            if !shown.contains(&&summary.machine) {
                shown.push(&summary.machine);
                body.push_str(&table::machine(&summary.machine));
            }
        }
        body.push_str("</div>");
    }
    body.push_str("</div>");
}

fn method(body: &mut String) {
    body.push_str(
        "<h2>Method</h2>\
         <p>Contenders run in interleaved pairs (A B, then B A), never in blocks, so that other load on the \
         machine affects both sides. Figures are medians with the minimum and the maximum of the runs. A \
         comparison is the median of the ratios within the pairs, with a 95 % interval: the percentile \
         bootstrap of that median (10,000 resamples), widened to the order statistics that cover it for \
         any distribution of the noise. With fewer than six pairs no order statistics reach 95 %, and \
         Student&#39;s interval of the logarithms replaces them; it is wide, and only a hint. A verdict is \
         given only if the interval excludes 1; a result whose interval includes 1 is &ldquo;no \
         difference&rdquo;, and a single pair has no interval and no verdict.</p>\
         <h4>How each figure is known</h4><div class=\"scroll\"><table>\
         <tr><th>figure</th><th>known by</th><th></th></tr>\
         <tr><td>wall, latency</td><td>measured</td><td class=\"wrap\">CLOCK_MONOTONIC at the start and the \
         end; percentiles by nearest rank</td></tr>\
         <tr><td>CPU</td><td>measured</td><td class=\"wrap\">thread and process CPU clocks; child processes by wait4, \
         so the figure includes what a contender starts and waits for</td></tr>\
         <tr><td>load</td><td>derived</td><td class=\"wrap\">CPU time over wall time</td></tr>\
         <tr><td>compute, copy, blocked, paced</td><td>measured</td><td class=\"wrap\">the thread&#39;s CPU clock; the only \
         function that copies; timestamps at each known wait</td></tr>\
         <tr><td>queue, wakeup</td><td>measured</td><td class=\"wrap\">timestamps at enqueue and dequeue, and \
         the state of the consumer</td></tr>\
         <tr><td>held, pool</td><td>measured</td><td class=\"wrap\">the end of the decoding by the decoder thread&#39;s \
         switch records, the timestamp of the output; timestamps around a pool of threads</td></tr>\
         <tr><td>preempted</td><td>measured</td><td class=\"wrap\">the scheduler&#39;s run delay within a \
         stage</td></tr>\
         <tr><td>unexplained</td><td>derived</td><td class=\"wrap\">the remainder of the latency; the only cause \
         obtained by subtraction</td></tr>\
         <tr><td>bytes copied, switches, system calls, frames</td><td>counted</td>\
         <td class=\"wrap\">exact</td></tr></table></div>\
         <p>An unknown figure is an empty cell, never zero.</p>",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_quotes_are_code_and_the_rest_is_escaped() {
        assert_eq!(marked_up("`<a>` & b"), "<code>&lt;a&gt;</code> &amp; b");
    }

    #[test]
    fn a_report_without_runs_is_a_page() {
        let html = page(&[]);
        assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
        assert!(page(&[LabRun::default()]).contains("no experiment was run"));
    }
}
