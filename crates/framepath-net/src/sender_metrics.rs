// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a sender in the text format of Prometheus.

use std::fmt::Write;
use std::time::Instant;

use crate::sender_shared::SenderCounts;
use crate::viewer_figures::ViewerFigures;

/// Returns the page of all figures.
pub(crate) fn text(counts: SenderCounts, viewers: &[ViewerFigures], now: Instant) -> String {
    // Writing to a string cannot fail.
    let mut page = String::new();
    let SenderCounts { viewers: all, sent, dropped, keyframe_requests } = counts;
    for (name, kind, help, value) in [
        ("framepath_send_viewers", "gauge", "Viewers that watch.", viewers.len() as u64),
        ("framepath_send_connected_total", "counter", "Viewers that have connected.", all),
        ("framepath_send_frames_total", "counter", "Frames sent to all viewers.", sent),
        ("framepath_send_dropped_total", "counter", "Frames dropped for slow viewers.", dropped),
        (
            "framepath_send_keyframe_requests_total",
            "counter",
            "Keyframes asked of the encoder.",
            keyframe_requests,
        ),
    ] {
        let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    }
    let mut each = |name: &str, kind: &str, help: &str, value: &dyn Fn(&ViewerFigures) -> f64| {
        let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for viewer in viewers {
            let ViewerFigures { number, address, .. } = viewer;
            let _ = writeln!(page, "{name}{{viewer=\"{number}\",address=\"{address}\"}} {}", value(viewer));
        }
    };
    each("framepath_send_viewer_seconds", "gauge", "Time since the connection.", &|viewer| {
        now.saturating_duration_since(viewer.since).as_secs_f64()
    });
    each("framepath_send_viewer_frames_total", "counter", "Frames sent.", &|viewer| viewer.sent as f64);
    each("framepath_send_viewer_dropped_total", "counter", "Frames dropped.", &|viewer| {
        viewer.dropped as f64
    });
    each("framepath_send_viewer_bytes_total", "counter", "Payload bytes sent.", &|viewer| {
        viewer.bytes as f64
    });
    each("framepath_send_viewer_resend_requests_total", "counter", "Requests for lost packets.", &|viewer| {
        viewer.missed as f64
    });
    each("framepath_send_viewer_keyframe_requests_total", "counter", "Requests for a keyframe.", &|viewer| {
        viewer.keyframe_requests as f64
    });
    page
}
