// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath top --sender`: the viewers of a sender, and the hops of its stream, as tables.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use framepath::read_sender_metrics;
use framepath_model::shown::shown;
use framepath_model::shown_time::shown_time;
use framepath_os::display::terminal::Terminal;
use framepath_os::process::{cancel, signal};
use framepath_os::time::{now_ns, sleep_until};

use super::{CTRL_C, ONCE};
use crate::exit_status::ExitStatus;
use crate::terminal::TextTarget;

/// Shows the viewers of the sender at `address`: on the terminal, updated after each interval `every`, until `q`; or once, with rates over a
/// second, if `every` is `None`.
pub(super) fn run(address: SocketAddr, every: Option<Duration>) -> anyhow::Result<ExitStatus> {
    let mut before = SenderLook::new(address)?;
    let Some(every) = every else {
        let until = now_ns() + ONCE.as_nanos() as u64;
        while now_ns() < until {
            if signal::interrupted() {
                return Ok(ExitStatus::Interrupted);
            }
            sleep_until(until);
        }
        TextTarget::Output.print(&table(&before, &SenderLook::new(address)?))?;
        return Ok(ExitStatus::Done);
    };
    let terminal = Terminal::open().context("setting up the terminal")?;
    let mut text = table(&before, &before);
    loop {
        terminal.show(&text).context("writing to the terminal")?;
        let key = terminal.key_within(every).context("reading from the terminal")?;
        if signal::interrupted() || key == Some(CTRL_C) {
            return Ok(ExitStatus::Interrupted);
        }
        if matches!(key, Some(b'q' | b'Q')) {
            return Ok(ExitStatus::Done);
        }
        // Rates over a very short interval are meaningless.
        if key.is_none() {
            let now = SenderLook::new(address)?;
            text = table(&before, &now);
            before = now;
        }
    }
}

/// Figures of a sender at one time.
struct SenderLook {
    at: Instant,
    /// Figures of the sender, by name.
    totals: BTreeMap<String, f64>,
    /// Figures of each viewer, by number.
    viewers: BTreeMap<u64, ViewerLook>,
    /// Hops in path order, by index.
    hops: BTreeMap<u64, HopLook>,
}

/// Figures of one hop.
#[derive(Default)]
struct HopLook {
    name: String,
    /// Number of the viewer; empty for a hop of the sender.
    viewer: String,
    /// Percentiles of the time, seconds, by name.
    quantiles: BTreeMap<String, f64>,
}

/// Figures of one viewer.
#[derive(Default)]
struct ViewerLook {
    address: String,
    /// By name, without the part that all have.
    figures: BTreeMap<String, f64>,
}

impl ViewerLook {
    fn get(&self, name: &str) -> f64 {
        self.figures.get(name).copied().unwrap_or_default()
    }
}

impl SenderLook {
    fn new(address: SocketAddr) -> anyhow::Result<SenderLook> {
        let page = match read_sender_metrics(address, signal::interrupted) {
            Err(_) if signal::interrupted() => return Err(cancel::canceled().into()),
            page => page.with_context(|| format!("sender {address}"))?,
        };
        let look = SenderLook::from_page(&page);
        anyhow::ensure!(!look.totals.is_empty(), "sender {address}: the answer has no figures of a sender");
        Ok(look)
    }

    /// Reads the page of a sender. Lines that are not of one are left out.
    fn from_page(page: &str) -> SenderLook {
        let mut look = SenderLook {
            at: Instant::now(),
            totals: BTreeMap::new(),
            viewers: BTreeMap::new(),
            hops: BTreeMap::new(),
        };
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let (Some(name), Ok(value)) = (name.strip_prefix("framepath_send_"), value.parse()) else {
                continue;
            };
            let Some((name, labels)) = name.split_once('{') else {
                look.totals.insert(name.to_owned(), value);
                continue;
            };
            let label = |key: &str| Some(labels.split_once(key)?.1.split_once('"')?.0.to_owned());
            if name == "hop_seconds" {
                let labels = (label("hop=\""), label("name=\""), label("viewer=\""), label("quantile=\""));
                let (Some(at), Some(name), Some(viewer), Some(quantile)) = labels else { continue };
                let Ok(at) = at.parse() else { continue };
                let hop = look.hops.entry(at).or_default();
                (hop.name, hop.viewer) = (name, viewer);
                hop.quantiles.insert(quantile, value);
                continue;
            }
            let (Some(number), Some(address)) = (label("viewer=\""), label("address=\"")) else { continue };
            let (Some(name), Ok(number)) = (name.strip_prefix("viewer_"), number.parse()) else { continue };
            let viewer = look.viewers.entry(number).or_default();
            viewer.address = address;
            viewer.figures.insert(name.to_owned(), value);
        }
        look
    }
}

/// Returns the table; rates cover the time between both looks, and are `-` for a viewer that is new.
fn table(before: &SenderLook, now: &SenderLook) -> String {
    let total = |name: &str| now.totals.get(name).copied().unwrap_or_default();
    let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
    let viewers = total("viewers");
    // Writing to a string cannot fail.
    let mut text = format!(
        "{viewers} {}, {} connected so far, {} frames sent, {} dropped, {} keyframes requested\n\n",
        if viewers == 1.0 { "viewer" } else { "viewers" },
        total("connected_total"),
        total("frames_total"),
        total("dropped_total"),
        total("keyframe_requests_total"),
    );
    let head = ["viewer", "address", "seconds", "fps", "Mbit/s", "frames", "dropped", "resends", "keyframes"];
    let [viewer, address, time, fps, rate, frames, dropped, resends, keys] = head;
    let _ = writeln!(
        text,
        "{viewer:>6} {address:<39} {time:>7} {fps:>6} {rate:>7} {frames:>9} {dropped:>7} {resends:>7} {keys:>9}"
    );
    for (number, viewer) in &now.viewers {
        let rate = |name: &str, scale: f64| {
            let earlier = before.viewers.get(number).filter(|_| seconds > 0.0);
            earlier.map_or("-".to_owned(), |earlier| {
                format!("{:.1}", (viewer.get(name) - earlier.get(name)) * scale / seconds)
            })
        };
        let (fps, mbits) = (rate("frames_total", 1.0), rate("bytes_total", 8e-6));
        let [frames, dropped] = [viewer.get("frames_total"), viewer.get("dropped_total")];
        let [resends, keys] = [viewer.get("resend_requests_total"), viewer.get("keyframe_requests_total")];
        let (address, time) = (shown(&viewer.address), viewer.get("seconds"));
        let _ = writeln!(
            text,
            "{number:>6} {address:<39} {time:>7.0} {fps:>6} {mbits:>7} {frames:>9} {dropped:>7} {resends:>7} {keys:>9}"
        );
    }
    hops(&mut text, &now.hops);
    text
}

/// Adds the table of the hops, if there are any.
fn hops(text: &mut String, hops: &BTreeMap<u64, HopLook>) {
    if hops.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nhop (last 5 s)      viewer       p50       p95       max");
    for hop in hops.values() {
        let [p50, p95, max] = ["0.5", "0.95", "1"].map(|quantile| {
            hop.quantiles.get(quantile).map_or("-".to_owned(), |seconds| shown_time(seconds * 1e9))
        });
        let (name, viewer) = (shown(&hop.name), shown(&hop.viewer));
        let line = format!("{name:<19} {viewer:>6} {p50:>9} {p95:>9} {max:>9}");
        let _ = writeln!(text, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_cover_the_time_between_two_looks() {
        let page = |frames: u64, bytes: u64| {
            format!(
                "# TYPE framepath_send_viewers gauge\nframepath_send_viewers 1\nframepath_send_frames_total {frames}\n\
                 framepath_send_viewer_seconds{{viewer=\"3\",address=\"::1\"}} 12.5\n\
                 framepath_send_viewer_frames_total{{viewer=\"3\",address=\"::1\"}} {frames}\n\
                 framepath_send_viewer_bytes_total{{viewer=\"3\",address=\"::1\"}} {bytes}\nother 7\n\
                 framepath_send_hop_seconds{{hop=\"10\",name=\"wire\",viewer=\"3\",quantile=\"0.5\"}} 0.002\n\
                 framepath_send_hop_seconds{{hop=\"2\",name=\"encode\",viewer=\"\",quantile=\"0.5\"}} 0.001\n"
            )
        };
        let before = SenderLook::from_page(&page(100, 0));
        let after = SenderLook::from_page(&page(150, 500_000));
        let after = SenderLook { at: before.at + Duration::from_secs(2), ..after };
        let shown = table(&before, &after);
        assert!(shown.starts_with("1 viewer, 0 connected so far, 150 frames sent, "), "{shown}");
        let (viewers, hops) = shown.split_once("\nhop ").unwrap();
        let words: Vec<&str> = viewers.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(words, ["3", "::1", "12", "25.0", "2.0", "150", "0", "0", "0"]);
        let hops: Vec<Vec<&str>> =
            hops.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(hops, [vec!["encode", "1.00", "ms", "-", "-"], vec!["wire", "3", "2.00", "ms", "-", "-"]]);
        let new = table(&SenderLook::from_page(""), &after);
        assert!(new.contains(" - "), "{new}");
    }
}
