// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many viewers of one sender: what each costs the sender, and whether the sender encodes once for all.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use framepath_os::process::signal;
use framepath_os::time::now_ns;

use super::SETTLING;
use super::contender::{GOP, OURS, failed, free_port, listening};
use super::desktop::{RATE, SCROLL};
use super::display_part::own_row;
use super::end_ledger::{EndLedger, LedgerFiles, encoded, frames_of};
use super::screen_clock::ScreenClock;
use super::sender_totals::SenderTotals;
use super::stream_end::StreamEnd;
use crate::display::Display;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::Measured;
use crate::temporary_folder::temporary_folder;

/// Number of viewers of a quick run, and of a full one.
pub(super) const VIEWERS: [usize; 2] = [10, 50];
/// Longest wait for the connections of all viewers.
const CONNECTED: Duration = Duration::from_secs(90);
/// Part of the screen that is sent, with the text that scrolls, and pictures per second.
const REGION: &str = "1280x720+0+0";
const SENT_RATE: u32 = 30;
/// Bit rate of the encoder, kilobits per second.
const SENT_KILOBITS: u32 = 4000;
/// Most rows of a thread of the sender.
const ROWS: u64 = 65_536;

/// A time in which the sender's CPU was measured.
struct SenderCost {
    from_ns: u64,
    to_ns: u64,
    cpu_ns: u64,
}

/// Sends to one viewer for `duration`, then to all `count`.
///
/// # Errors
/// A program fails.
pub(super) fn run(
    settings: &ExperimentSettings,
    screens: &[Display; 2],
    duration: Duration,
    count: usize,
) -> Result<Measured, LabError> {
    let _clock = ScreenClock::start(screens[0].x_name()?, RATE, SCROLL)?;
    let files = LedgerFiles::new(["times", "off"], ROWS)?;
    let folder = temporary_folder()?;
    let port = free_port()?;
    let framepath = settings.framepath.to_string_lossy();
    let start = |options: Vec<String>, path: String| {
        let words = [&framepath, "run", "--quiet"].map(str::to_owned);
        StreamEnd::start(&words.into_iter().chain(options).chain([path]).collect::<Vec<_>>(), &screens[0])
    };
    let path = format!(
        "x11 {} rate={SENT_RATE} region={REGION} cursor=no ! convert format=yuv420p ! encode h264 bitrate={SENT_KILOBITS}k \
         gop={GOP} preset=ultrafast threads=1 ! send listen=127.0.0.1:{port} token=lab",
        screens[0].x_name()?
    );
    let mut sender = listening(start(files.options(0), path)?, OURS, port, true)?;
    let summary_of = |viewer: usize| folder.path().join(format!("{viewer}.json"));
    let view = |viewer: usize| {
        let summary = summary_of(viewer).to_string_lossy().into_owned();
        let options = ["--ledger", "off", "--json", &summary].map(str::to_owned).to_vec();
        // The handshakes of all viewers at once take long on a busy machine.
        start(options, format!("recv http://127.0.0.1:{port}/whep token=lab jitter=0 timeout=60s ! null"))
    };
    let totals = || SenderTotals::read(Vec::new(), settings, &format!("127.0.0.1:{port}"));
    let mut viewers = vec![view(0)?];
    all_watch(&mut viewers, &totals)?;
    let one = cost(&mut sender, duration)?;
    for viewer in 1..count {
        viewers.push(view(viewer)?);
    }
    all_watch(&mut viewers, &totals)?;
    let all = cost(&mut sender, duration)?;
    let dropped = totals()?.dropped;
    viewers.into_iter().try_for_each(StreamEnd::end)?;
    sender.end()?;
    let (mut lost, mut fewest) = (dropped, u64::MAX);
    for viewer in 0..count {
        let text =
            fs::read_to_string(summary_of(viewer)).map_err(LabError::io("reading a viewer's figures"))?;
        let row = own_row(&text)?;
        lost += row.figure("lost").unwrap_or_default() as u64;
        fewest = fewest.min(row.frames);
    }
    let mut measured = measured(&files.read(0)?, [&one, &all], count, duration);
    measured.extra.extend(
        [("lost", lost), ("viewer_frames", fewest)].map(|(name, count)| (name.to_owned(), count as f64)),
    );
    Ok(measured)
}

/// Waits until all of `viewers` watch, and the stream has settled.
fn all_watch(
    viewers: &mut [StreamEnd],
    totals: &dyn Fn() -> Result<SenderTotals, LabError>,
) -> Result<(), LabError> {
    let since = Instant::now();
    loop {
        let connected = totals()?.viewers;
        if connected == viewers.len() as u64 {
            break;
        }
        if signal::interrupted() {
            return Err(LabError::Interrupted);
        }
        if since.elapsed() > CONNECTED {
            let said: String = viewers.iter_mut().map(StreamEnd::said).collect();
            let what = format!("{connected} of {} viewers have connected within 90 s{said}", viewers.len());
            return Err(failed(OURS, &what));
        }
    }
    thread::sleep(SETTLING);
    Ok(())
}

/// Measures the sender for `duration`.
fn cost(sender: &mut StreamEnd, duration: Duration) -> Result<SenderCost, LabError> {
    let (from_ns, before) = (now_ns(), sender.cpu_ns(OURS)?);
    thread::sleep(duration);
    Ok(SenderCost { from_ns, to_ns: now_ns(), cpu_ns: sender.cpu_ns(OURS)?.saturating_sub(before) })
}

/// Returns the figures of the sender with `one` viewer and with `all` of them, `count`.
fn measured(sender: &EndLedger, [one, all]: [&SenderCost; 2], count: usize, duration: Duration) -> Measured {
    let encoded = |cost: &SenderCost| encoded(sender, cost.from_ns, cost.to_ns);
    let captured = frames_of(sender, "x11", all.from_ns, all.to_ns);
    let per_frame = |cost: &SenderCost| {
        let frames = encoded(cost);
        (frames > 0).then(|| cost.cpu_ns as f64 / 1e6 / frames as f64)
    };
    let [of_one, of_all] = [one, all].map(per_frame);
    let per_viewer = of_one.zip(of_all).map(|(one, all)| (all - one) / (count - 1) as f64);
    let figures = [
        ("viewers", Some(count as f64)),
        ("captured", Some(captured as f64)),
        ("encoded", Some(encoded(all) as f64)),
        ("encodes_per_frame", (captured > 0).then(|| encoded(all) as f64 / captured as f64)),
        ("sender_cpu_ms_with_one", of_one),
        ("sender_cpu_ms_with_all", of_all),
        ("cpu_ms_per_viewer_and_frame", per_viewer),
    ];
    Measured {
        frames: encoded(all),
        wall_ns: duration.as_nanos() as u64,
        cpu_ns: all.cpu_ns,
        extra: figures.into_iter().filter_map(|(name, figure)| Some((name.to_owned(), figure?))).collect(),
        ..Measured::default()
    }
}

#[cfg(test)]
mod tests {
    use framepath_model::summary::SummaryRow;

    use super::super::end_ledger::EndRow;
    use super::*;

    #[test]
    fn the_cost_of_a_viewer_is_the_difference_by_frame() {
        let row = |hop: &str, birth_ns| EndRow { hop: hop.to_owned(), birth_ns, ..EndRow::default() };
        let born: [u64; 5] = [1, 2, 11, 12, 13];
        let rows = born.iter().flat_map(|birth| [row("x11", *birth), row("encode", *birth)]).collect();
        let sender = EndLedger { rows, summary: SummaryRow::default() };
        let [one, all] = [(0, 10, 20_000_000), (10, 20, 57_000_000)]
            .map(|(from_ns, to_ns, cpu_ns)| SenderCost { from_ns, to_ns, cpu_ns });
        let measured = measured(&sender, [&one, &all], 10, Duration::from_secs(1));
        let figure = |name: &str| measured.metric(name);
        assert_eq!((figure("captured"), figure("encodes_per_frame")), (Some(3.0), Some(1.0)));
        // 10 ms and 19 ms for a frame.
        assert_eq!(figure("cpu_ms_per_viewer_and_frame"), Some(1.0));
    }
}
