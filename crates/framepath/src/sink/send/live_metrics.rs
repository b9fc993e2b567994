// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a sender's live ledger in the text format of Prometheus.

use std::fmt::Write;

use framepath_model::ledger::Latency;

use crate::report::{Report, SinkReport};

/// Percentiles, as Prometheus names them.
const QUANTILES: [&str; 4] = ["0.5", "0.95", "0.99", "1"];

/// Returns the page of all figures of `report`: the latency to each viewer, and the time in each hop. The names of the hops have no
/// arguments, which may be private.
pub(super) fn text(mut report: Report) -> String {
    let sinks = report.sinks.clone();
    let mut hops = None;
    let mut latency_to = |sink: SinkReport| {
        let digest = report.digest_of(sink.hop);
        // The figures of all hops are the same for each sink, and many.
        hops.get_or_insert(digest.hops);
        (sink.hop, digest.latency)
    };
    let latencies: Vec<(u16, Option<Latency>)> = sinks.into_iter().map(&mut latency_to).collect();
    // Writing to a string cannot fail.
    let mut page = String::new();
    let begin = |page: &mut String, name: &str, help: &str| {
        let _ = write!(page, "# HELP {name} {help}, of the frames of the last 5 s.\n# TYPE {name} gauge\n");
    };
    begin(&mut page, "framepath_send_latency_seconds", "Time from the birth to the end");
    for (sink, latency) in latencies {
        let labels = format!("viewer=\"{}\"", viewer(&report, sink));
        quantiles(&mut page, "framepath_send_latency_seconds", &labels, latency);
    }
    begin(&mut page, "framepath_send_hop_seconds", "Time in a hop");
    for (at, (hop, figures)) in (0..).zip(report.hops.iter().zip(hops.unwrap_or_default())) {
        let viewer = viewer(&report, at);
        // `viewer 2: decode` has the name `decode`, and `encode h264 bitrate=8M` the name `encode`.
        let name =
            hop.text.rsplit_once(": ").filter(|_| !viewer.is_empty()).map_or(&*hop.text, |(_, name)| name);
        let name: String =
            name.split(' ').next().unwrap_or_default().chars().filter(|c| is_plain(*c)).collect();
        let labels = format!("hop=\"{at}\",name=\"{name}\",viewer=\"{viewer}\"");
        quantiles(
            &mut page,
            "framepath_send_hop_seconds",
            &labels,
            (figures.frames > 0).then_some(figures.wall),
        );
    }
    page
}

/// Returns the number of the viewer of a hop; empty for a hop of the sender.
fn viewer(report: &Report, hop: u16) -> String {
    report.remote_of(hop).map_or_else(String::new, |remote| remote.viewer.to_string())
}

/// Returns true for a character that a label can have as it is.
fn is_plain(character: char) -> bool {
    !character.is_control() && !matches!(character, '"' | '\\')
}

/// Adds a line for each percentile.
fn quantiles(page: &mut String, name: &str, labels: &str, latency: Option<Latency>) {
    let Some(Latency { p50, p95, p99, max }) = latency else { return };
    for (quantile, ns) in QUANTILES.into_iter().zip([p50, p95, p99, max]) {
        let _ = writeln!(page, "{name}{{{labels},quantile=\"{quantile}\"}} {}", ns as f64 / 1e9);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use framepath_model::ledger::{Row, flag};
    use framepath_net::SentFrame;

    use super::*;
    use crate::remote_table::{RemoteRows, RemoteTable};
    use crate::report::HopInfo;

    #[test]
    fn each_viewer_has_its_latency_and_its_hops() {
        let hops = ["file /private/a \"b\".mp4", "send token=secret"].map(HopInfo::new).into();
        let sinks = vec![SinkReport { hop: 1, frames: 1 }];
        let mut report = Report { hops, sinks, ..Report::default() };
        let row = |hop, enter_ns, leave_ns, flags| Row { hop, enter_ns, leave_ns, flags, ..Row::default() };
        report.rows.extend([row(0, 0, 1_000_000_000, 0), row(1, 1_000_000_000, 2_000_000_000, flag::LAST)]);
        let table = |end_ns| {
            let departure =
                SentFrame { packetized_ns: 2_000_000_000, sent_ns: 2_000_000_000, ..SentFrame::default() };
            let rows = vec![row(0, 2_500_000_000, end_ns, flag::LAST | flag::REMOTE)];
            let frame = RemoteRows { rows, error_ns: 5, departure: Some(departure) };
            let hops = vec![("recv".to_owned(), false)];
            RemoteTable { hops, frames: [(0, frame)].into(), ..RemoteTable::default() }
        };
        report.add_viewers(&BTreeMap::from([(2, table(3_000_000_000)), (5, table(4_000_000_000))]), 1);
        let page = text(report);
        for line in [
            "framepath_send_latency_seconds{viewer=\"2\",quantile=\"0.5\"} 3",
            "framepath_send_latency_seconds{viewer=\"5\",quantile=\"1\"} 4",
            "framepath_send_hop_seconds{hop=\"0\",name=\"file\",viewer=\"\",quantile=\"0.5\"} 1",
            "framepath_send_hop_seconds{hop=\"3\",name=\"wire\",viewer=\"2\",quantile=\"0.5\"} 0.5",
            "framepath_send_hop_seconds{hop=\"7\",name=\"recv\",viewer=\"5\",quantile=\"0.95\"} 1.5",
        ] {
            assert!(page.lines().any(|known| known == line), "{line}\n{page}");
        }
        // The page is for all users of the computer.
        assert!(!page.contains("secret") && !page.contains("private"), "{page}");
    }
}
