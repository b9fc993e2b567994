// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures in the text format of Prometheus (0.0.4).

use std::fmt::Write;

use framepath_model::wire::figures::{BUCKETS, KNOWN_CAUSES};
use framepath_model::wire::{Histogram, StreamStatus, Totals};

const NS: f64 = 1e9;
/// Number of the histogram's buckets that form one bucket of the text. Each bucket of the text spans one
/// octave, except the first and the last, which have no lower or no upper end.
const STEP: usize = 4;

/// Returns the metrics page in Prometheus's text format.
pub(super) fn text(totals: &Totals, streams: &[StreamStatus]) -> String {
    let mut page = String::new();
    let mut whole = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    };
    whole("framepath_streams", "gauge", "Open streams.", totals.streams.into());
    whole("framepath_connections", "gauge", "Connected clients.", totals.connections.into());
    whole("framepath_spare_workers", "gauge", "Ready workers without a stream.", totals.spares.into());
    whole("framepath_granted_total", "counter", "Streams opened.", totals.granted as f64);
    whole("framepath_denied_total", "counter", "Requests and connections denied.", totals.denied as f64);
    whole("framepath_crashes_total", "counter", "Workers that were replaced.", totals.crashes as f64);
    whole("framepath_frames_total", "counter", "Frames emitted in all streams.", totals.frames as f64);
    let cpu = totals.cpu_ns as f64 / NS;
    whole("framepath_cpu_seconds_total", "counter", "CPU time of the workers of all streams.", cpu);

    let mut each = |name: &str, help: &str, value: &dyn Fn(&StreamStatus) -> f64| {
        let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} counter\n");
        for stream in streams {
            let _ = writeln!(page, "{name}{{{}}} {}", labels(stream), value(stream));
        }
    };
    each("framepath_stream_frames_total", "Frames emitted.", &|s| s.figures.frames as f64);
    each("framepath_stream_inputs_total", "Packets or frames taken.", &|s| s.figures.inputs as f64);
    each("framepath_stream_crashes_total", "Workers that were replaced.", &|s| s.crashes as f64);
    each("framepath_stream_cpu_seconds_total", "CPU time of the workers.", &|s| s.cpu_ns as f64 / NS);

    let name = "framepath_stream_cause_seconds_total";
    let _ = write!(page, "# HELP {name} Time of frames in the workers, by cause.\n# TYPE {name} counter\n");
    for stream in streams {
        for (cause, ns) in KNOWN_CAUSES.iter().zip(stream.figures.causes_ns) {
            let _ = writeln!(page, "{name}{{{},cause=\"{cause}\"}} {}", labels(stream), ns as f64 / NS);
        }
    }
    let name = "framepath_stream_latency_seconds";
    let _ = write!(
        page,
        "# HELP {name} Time from taking a packet or frame to emitting its frame.\n# TYPE {name} histogram\n"
    );
    streams.iter().for_each(|stream| histogram(&mut page, name, stream));
    page
}

fn histogram(page: &mut String, name: &str, stream: &StreamStatus) {
    let (labels, latency) = (labels(stream), &stream.figures.latency);
    let mut sum: u64 = 0;
    for (bucket, count) in latency.0.iter().enumerate() {
        sum = sum.saturating_add(*count);
        // The last bucket has no upper end.
        if bucket % STEP == 0 && bucket < BUCKETS - 1 {
            let end = Histogram::end_ns(bucket) as f64 / NS;
            let _ = writeln!(page, "{name}_bucket{{{labels},le=\"{end}\"}} {sum}");
        }
    }
    let _ = writeln!(page, "{name}_bucket{{{labels},le=\"+Inf\"}} {sum}");
    let _ = writeln!(page, "{name}_sum{{{labels}}} {}", stream.figures.latency_sum_ns as f64 / NS);
    let _ = writeln!(page, "{name}_count{{{labels}}} {sum}");
}

fn labels(stream: &StreamStatus) -> String {
    let stage = stream.figures.stage.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "stream=\"{}\",pid=\"{}\",uid=\"{}\",stage=\"{stage}\"",
        stream.stream, stream.client_pid, stream.client_uid
    )
}
