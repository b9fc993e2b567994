// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settling on a slow link: the time until the stream's bit rate stays below the link's, and the latency afterwards. The bit
//! rate is that of the queue in front of the link, as the kernel counts it, with the packets that it drops.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use framepath_os::time::now_ns;

use super::condition::StreamCondition;
use super::contender::OURS;
use super::end_ledger::LedgerFiles;
use super::glass_figures::GlassFigures;
use super::native_run::NativeRun;
use super::recovery_part::of_encoded;
use super::screen_observer::WatchedScreen;
use crate::display::Display;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::Measured;
use crate::test_link::{LinkTraffic, TestLink};

/// Most rows of a thread of the sender.
const ROWS: u64 = 65_536;
/// Pause between two readings of the link's counters.
const PAUSE: Duration = Duration::from_millis(200);
/// Time over which a bit rate is computed, nanoseconds.
const WINDOW_NS: u64 = 1_000_000_000;

/// Bytes offered to the link until a time; CLOCK_MONOTONIC, nanoseconds.
type OfferedBytes = (u64, f64);

/// Streams over the network of `condition`, watched for `duration` from the first picture.
///
/// # Errors
/// As those of a [`NativeRun`]; the condition has no limit; no picture was seen.
pub(super) fn run(
    settings: &ExperimentSettings,
    screens: &[Display; 2],
    condition: &StreamCondition,
    duration: Duration,
) -> Result<Measured, LabError> {
    let files = LedgerFiles::new(["times", "off"], ROWS)?;
    let mut native = NativeRun::start(OURS, settings, screens, condition, files)?;
    let no_link = || LabError::Unknown(format!("{}: the link has no limit", condition.name));
    let link = native.link.take().ok_or_else(no_link)?;
    let limit = condition.link.and_then(|link| link.megabits).ok_or_else(no_link)?;
    let stop = AtomicBool::new(false);
    let (watched, samples) = thread::scope(|scope| {
        let sampler = scope.spawn(|| samples(&link, &stop));
        let watched = native.watch(duration);
        stop.store(true, Ordering::Release);
        let panicked = |_| Err(LabError::Unknown("the watch of the link panicked".to_owned()));
        (watched, sampler.join().unwrap_or_else(panicked))
    });
    let ((watched, cpu_ns), (mut samples, dropped)) = (watched?, samples?);
    let started_ns = native.started_ns;
    samples.insert(0, (started_ns, 0.0));
    let (drawn, sender) = native.finish(0)?;
    let no_picture = || LabError::Unknown(format!("{OURS}: the picture stood still"));
    let figures = GlassFigures::of(&watched, &drawn).ok_or_else(no_picture)?;
    let mut measured = figures.measured(cpu_ns, duration);
    measured.extra.extend(of_encoded(&figures, &drawn, &sender));
    measured.extra.insert("link_dropped".to_owned(), dropped as f64);
    let rates = rates(&samples);
    let highest = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    measured.extra.insert("offered_highest_mbits".to_owned(), highest);
    // A stream that never settles has no such figures.
    if let Some(settled_ns) = settled(&rates, f64::from(limit)) {
        let settled_ns = settled_ns.max(started_ns);
        measured.extra.insert("settling_ms".to_owned(), (settled_ns - started_ns) as f64 / 1e6);
        let behind = watched.seen.iter().filter(|seen| seen.at_ns >= settled_ns).copied().collect();
        let behind = WatchedScreen { seen: behind, ..watched };
        if let Some(figures) = GlassFigures::of(&behind, &drawn) {
            measured.extra.insert("settled_p95_ms".to_owned(), figures.latency.p95 / 1e3);
        }
    }
    Ok(measured)
}

/// Reads the link's counters until `stop`. Returns the number of packets dropped, too.
fn samples(link: &TestLink, stop: &AtomicBool) -> Result<(Vec<OfferedBytes>, u64), LabError> {
    let mut samples = Vec::new();
    loop {
        let is_last = stop.load(Ordering::Acquire);
        let traffic = link.traffic()?;
        samples.push((now_ns(), offered_bytes(&traffic)));
        if is_last {
            return Ok((samples, traffic.drops));
        }
        thread::sleep(PAUSE);
    }
}

/// Returns the bytes that the link was given: sent, waiting and dropped. A dropped packet counts as an average one.
fn offered_bytes(traffic: &LinkTraffic) -> f64 {
    let average = traffic.bytes as f64 / traffic.packets.max(1) as f64;
    (traffic.bytes + traffic.backlog) as f64 + average * traffic.drops as f64
}

/// Returns the bit rate in front of each sample, over a second or since the first sample, megabits per second.
fn rates(samples: &[OfferedBytes]) -> Vec<(u64, f64)> {
    let rate = |at: usize| {
        let (end_ns, bytes) = samples[at];
        let start = samples[..at].iter().rev().find(|(time, _)| time + WINDOW_NS <= end_ns);
        let (start_ns, before) = start.or(samples[..at].first())?;
        Some((end_ns, (bytes - before) * 8e3 / (end_ns - start_ns).max(1) as f64))
    };
    (0..samples.len()).filter_map(rate).collect()
}

/// Returns the time of the last bit rate that is not below `limit`, 0 if all are; `None` if the last one is not.
fn settled(rates: &[(u64, f64)], limit: f64) -> Option<u64> {
    match rates.iter().rposition(|(_, rate)| *rate >= limit) {
        Some(at) if at + 1 == rates.len() => None,
        Some(at) => Some(rates[at].0),
        None => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_settled_when_its_rate_stays_below_the_links() {
        // 2, 2 and 1 MB in a second each.
        let second = WINDOW_NS;
        let samples = [(0, 0.0), (second, 2e6), (2 * second, 4e6), (3 * second, 5e6)];
        let rates = rates(&samples);
        assert_eq!(rates, [(second, 16.0), (2 * second, 16.0), (3 * second, 8.0)]);
        assert_eq!(
            [settled(&rates, 10.0), settled(&rates, 20.0), settled(&rates, 8.0)],
            [Some(2 * second), Some(0), None]
        );
    }

    #[test]
    fn dropped_and_waiting_packets_were_offered() {
        let traffic = LinkTraffic { bytes: 10_000, packets: 10, drops: 3, backlog: 500 };
        assert_eq!(offered_bytes(&traffic), 13_500.0);
    }
}
