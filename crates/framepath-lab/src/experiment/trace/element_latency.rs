// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases `gst-...`: a GStreamer pipeline, observed by GStreamer's own tracer `latency` and by framepath's tracer at once. Both
//! measure an element from the push of a buffer into it to the push out of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use framepath_model::ledger::Row;
use framepath_model::summary::{LatencyUs, Summary};
use framepath_trace::TraceReport;

use super::observe;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::Measured;
use crate::pairs;
use crate::process::Program;
use crate::progress::ProgressView;
use crate::temporary_folder::temporary_folder;
use crate::traced::trace_to_end;

/// Pipelines without a decoder: name of the case, and the elements behind the source, whose number of buffers is
/// added. No element makes buffers of several times, or drops one.
const CASES: [(&str, &str); 4] = [
    (
        "gst-convert",
        "video/x-raw,width=1280,height=720 ! videoconvert ! video/x-raw,format=RGB ! queue ! videoscale ! \
         video/x-raw,width=640,height=360 ! videoconvert ! video/x-raw,format=I420 ! jpegenc ! fakesink",
    ),
    (
        "gst-encode",
        "video/x-raw,width=640,height=360 ! videoflip method=clockwise ! queue ! openh264enc ! h264parse ! \
         fakesink",
    ),
    (
        "gst-live",
        "video/x-raw,width=640,height=360,framerate=120/1 ! queue ! videobalance saturation=0.5 ! \
         fakesink sync=true",
    ),
    // Lists of packets: GStreamer's tracer has one time for each list.
    (
        "gst-rtp",
        "video/x-raw,format=I420,width=640,height=360 ! jpegenc ! rtpjpegpay ! queue ! rtpjpegdepay ! jpegdec ! fakesink",
    ),
];

/// Prefix of the rows of framepath's tracer.
const TRACE: &str = "trace";
/// Prefix of the rows of GStreamer's tracer.
const TRACER: &str = "tracer";

/// Returns the names of the cases.
pub(super) fn cases() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|(name, _)| *name)
}

/// Runs the wanted cases. A row of each element and observer has the contender `trace ELEMENT` or `tracer ELEMENT`.
///
/// # Errors
/// [`LabError::Interrupted`]; [`LabError::Command`] if a pipeline fails; [`LabError::Unknown`] if an observer saw no buffer.
pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let wanted: Vec<_> = CASES.iter().filter(|(name, _)| settings.wants(name)).collect();
    for (name, elements) in &wanted {
        let mut runs: BTreeMap<usize, ElementRuns> = BTreeMap::new();
        for of_run in observe((name, TRACE), settings, watch, summary, || observed(elements))? {
            for (at, (element, [trace, tracer])) in of_run.into_iter().enumerate() {
                let runs = runs.entry(at).or_default();
                runs.element = element;
                runs.trace.push(trace);
                runs.tracer.push(tracer);
            }
        }
        for ElementRuns { element, trace, tracer } in runs.values() {
            let [a, b] = [TRACE, TRACER].map(|observer| format!("{observer} {element}"));
            summary.rows.push(pairs::row(name, &a, trace));
            summary.rows.push(pairs::row(name, &b, tracer));
            summary.ratios.extend(pairs::ratio(name, "latency_p50_us", (&a, trace), (&b, tracer)));
        }
    }
    if !wanted.is_empty() {
        summary.notes.push(
            "gst-*: latency: time of a buffer in the element; apart: median by framepath's tracer minus that by \
             GStreamer's tracer `latency`"
                .to_owned(),
        );
    }
    Ok(())
}

/// Figures of one element in all runs of a pipeline.
#[derive(Default)]
struct ElementRuns {
    element: String,
    trace: Vec<Measured>,
    tracer: Vec<Measured>,
}

/// Returns the figures of one run by element, in the order of the pipeline: those of framepath's tracer, and those of
/// GStreamer's.
fn observed(elements: &str) -> Result<Vec<(String, [Measured; 2])>, LabError> {
    has_elements(elements)?;
    let folder = temporary_folder()?;
    let log = folder.path().join("element-latency.log");
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "videotestsrc", "num-buffers=150", "!"]).args(elements.split_whitespace());
    command.env("GST_TRACERS", "latency(flags=element)").env("GST_DEBUG", "GST_TRACER:7");
    command.env("GST_DEBUG_NO_COLOR", "1").env("GST_DEBUG_FILE", &log);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let traced = trace_to_end(command, &format!("gst-launch-1.0 videotestsrc ! {elements}"))?;
    let of_tracer = read_log(&log)?;
    let stream = traced.streams.first().ok_or_else(|| no_buffer(TRACE))?;
    let mut figures = Vec::new();
    for (at, element) in stream.stages.iter().enumerate() {
        // GStreamer's tracer knows an element by its source pad, so a sink has no record.
        let Some(by_tracer) = of_tracer.get(element) else { continue };
        let rows = stream.rows.iter().filter(|row| usize::from(row.hop) == at);
        let mut by_trace = measured(&traced, rows.map(Row::wall_ns).collect());
        let by_tracer = measured(&traced, by_tracer.clone());
        if let (Some(a), Some(b)) = (by_trace.latency, by_tracer.latency) {
            by_trace.extra.insert("apart_us".to_owned(), a.p50 - b.p50);
        }
        figures.push((element.clone(), [by_trace, by_tracer]));
    }
    if figures.is_empty() { Err(no_buffer(TRACER)) } else { Ok(figures) }
}

/// Returns an error if gst-launch-1.0 or an element of the pipeline is not installed.
fn has_elements(pipeline: &str) -> Result<(), LabError> {
    let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric());
    for part in pipeline.split('!') {
        let Some(element) = part.split_whitespace().next().filter(is_name) else { continue };
        match Program::new("gst-inspect-1.0", ["--exists", element]).run(false) {
            Ok(_) => {}
            Err(LabError::Command { .. }) => {
                let reason = format!(
                    "no GStreamer element `{element}`; apt install gstreamer1.0-plugins-good and -bad"
                );
                return Err(LabError::Missing(reason));
            }
            Err(LabError::Missing(_)) => {
                let reason = "gst-inspect-1.0 is not installed; apt install gstreamer1.0-tools";
                return Err(LabError::Missing(reason.to_owned()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn measured(traced: &TraceReport, mut times_ns: Vec<u64>) -> Measured {
    times_ns.sort_unstable();
    Measured {
        frames: times_ns.len() as u64,
        wall_ns: traced.wall_ns,
        cpu_ns: traced.usage.cpu_ns.unwrap_or(0),
        latency: LatencyUs::of_sorted_ns(&times_ns),
        ..Measured::default()
    }
}

/// Reads the records `element-latency` of GStreamer's tracer: the times of each element, nanoseconds.
fn read_log(file: &Path) -> Result<BTreeMap<String, Vec<u64>>, LabError> {
    let bytes = fs::read(file).map_err(LabError::io("reading the log of GStreamer's tracer"))?;
    let mut times: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&bytes).lines() {
        if let Some((element, ns)) = record(line) {
            times.entry(element.to_owned()).or_default().push(ns);
        }
    }
    Ok(times)
}

/// Returns the element and the time of a record `element-latency`; `None` for another line.
fn record(line: &str) -> Option<(&str, u64)> {
    let (_, fields) = line.split_once(" element-latency, element-id=")?;
    let value = |key: &str| fields.split(", ").find_map(|field| field.strip_prefix(key));
    Some((value("element=(string)")?, value("time=(guint64)")?.parse().ok()?))
}

fn no_buffer(observer: &str) -> LabError {
    LabError::Unknown(format!("the observer {observer} saw no buffer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_tracer_have_an_element_and_a_time() {
        let line = "0:00:00.219171196 12238 0x55d5a5a4d800 TRACE             GST_TRACER :0:: element-latency, \
                    element-id=(string)0x55d5a5a3ecc0, element=(string)jpegenc0, src=(string)src, \
                    time=(guint64)326254, ts=(guint64)219167360;";
        assert_eq!(record(line), Some(("jpegenc0", 326_254)));
        assert_eq!(record("... new format string: element-latency, element-id=(string)%s"), None);
        assert_eq!(record("latency, src-element-id=(string)0x55"), None);
    }
}
