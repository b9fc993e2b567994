// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of both ends beside the observer of both screens, picture by picture.
//!
//! The ledger begins with a frame's birth, directly before the X server is asked for the pixels, and ends when the window's hop
//! is done. The observer begins before the picture is drawn, and ends with the reading that shows it. So the ledger cannot know
//! the time from the drawing to the birth, and that from the end of the window's hop to the observer's reading. Both are figures.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use framepath_model::stats::{median, percentile};

use super::SETTLING;
use super::condition::CLEAN;
use super::contender::{BROWSER, OURS};
use super::damage_watch::{DamageWatch, delays};
use super::end_ledger::{EndRow, LedgerFiles};
use super::glass_figures::GlassFigures;
use super::native_run::NativeRun;
use super::screen_observer::{Seen, WatchedScreen};
use crate::display::Display;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::Measured;

/// Most rows of a thread of either end.
const ROWS: u64 = 65_536;
/// Hops by their first word, and the names of their figures.
const HOPS: [(&str, &str); 13] = [
    ("x11", "capture"),
    ("convert", "convert"),
    ("encode", "encode"),
    ("packetise", "packetise"),
    ("send", "packetise"),
    ("pace", "pace"),
    ("wire", "wire"),
    ("recv", "receive"),
    ("decode", "decode"),
    ("queue", "queue"),
    ("play", "present"),
    ("browser decode", "browser_decode"),
    ("browser display", "browser_display"),
];
/// First word of the hop that captures.
const CAPTURE: &str = "x11";

/// Receiver whose pictures are compared.
pub(super) struct ShownBy {
    /// Name of the contender.
    contender: &'static str,
    /// Hop that shows.
    hop: &'static str,
    /// Longest time from the end of this hop until the X server shows the picture, and longest time by which the picture is on the
    /// screen in front of this hop's begin, nanoseconds.
    late_ns: u64,
    early_ns: u64,
    /// End whose ledger has the rows of both: 0 is the sender, 1 the receiver.
    end: usize,
}

/// framepath's own window.
pub(super) const WINDOW: ShownBy =
    ShownBy { contender: OURS, hop: "play", late_ns: 2_000_000, early_ns: 0, end: 1 };
/// A browser, which only expects when a picture is on the screen.
pub(super) const BROWSER_TAB: ShownBy =
    ShownBy { contender: BROWSER, hop: "browser display", late_ns: 50_000_000, early_ns: 50_000_000, end: 0 };

/// Compares the ledger with the observer for `duration`.
///
/// # Errors
/// framepath fails, or no picture was seen.
pub(super) fn run(
    by: &ShownBy,
    settings: &ExperimentSettings,
    screens: &[Display; 2],
    duration: Duration,
) -> Result<Measured, LabError> {
    let files = LedgerFiles::new(["full"; 2], ROWS)?;
    let mut native = NativeRun::start(by.contender, settings, screens, &CLEAN, files)?;
    thread::sleep(SETTLING);
    let damage = DamageWatch::start(screens[0].x_name()?)?;
    let (watched, cpu_ns) = native.watch(duration)?;
    let reported = damage.stop()?;
    let (drawn, ledger) = native.finish(by.end)?;
    let no_picture = || LabError::Unknown(format!("{}: the picture stood still", by.contender));
    let figures = GlassFigures::of(&watched, &drawn).ok_or_else(no_picture)?;
    let mut measured = figures.measured(cpu_ns, duration);
    let frames = LedgerFrame::of_rows(&ledger.rows, by.hop);
    measured.extra.extend(Comparison::new(by, &watched, &drawn, &frames).named());
    let extra = [
        ("draw_to_report_ms", median_ms(delays(&drawn, &reported).into_iter().map(|ns| ns as i64))),
        ("reading_ms", median_ms(watched.seen.iter().map(|seen| seen.at_ns as i64 - seen.after_ns as i64))),
        ("clock_error_ms", ledger.summary.figure("clock_error_ns").map(|ns| ns / 1e6)),
    ];
    measured.extra.extend(extra.into_iter().filter_map(|(name, figure)| Some((name.to_owned(), figure?))));
    measured.causes = ledger.summary.causes_us;
    measured.hops = ledger.summary.hops;
    Ok(measured)
}

/// Rows of one frame.
struct LedgerFrame<'a> {
    rows: Vec<&'a EndRow>,
    capture: Option<&'a EndRow>,
    show: &'a EndRow,
}

impl<'a> LedgerFrame<'a> {
    /// Returns the frames that were shown, in the order of their numbers.
    fn of_rows(rows: &'a [EndRow], show: &str) -> Vec<LedgerFrame<'a>> {
        let mut frames: BTreeMap<u64, Vec<&EndRow>> = BTreeMap::new();
        for row in rows {
            frames.entry(row.seq).or_default().push(row);
        }
        let frame = |rows: Vec<&'a EndRow>| {
            let find = |hop: &str| rows.iter().find(|row| row.hop == hop && !row.is_dropped).copied();
            Some(LedgerFrame { capture: find(CAPTURE), show: find(show)?, rows })
        };
        frames.into_values().filter_map(frame).collect()
    }

    fn sum_ns(&self) -> u64 {
        self.rows.iter().map(|row| row.wall_ns).sum()
    }

    fn unexplained_ns(&self) -> i64 {
        self.rows.iter().map(|row| row.unexplained_ns).sum()
    }
}

/// A picture that was seen, and its frame.
struct SeenFrame<'a> {
    drawn_ns: u64,
    /// Middle between the last reading without the picture and the first one with it: the best estimate of when it appeared.
    appeared_ns: u64,
    read_ns: u64,
    frame: &'a LedgerFrame<'a>,
}

/// Pictures that were seen, beside the ledger.
struct Comparison<'a> {
    /// Pictures whose frame has the rows of both ends.
    matched: Vec<SeenFrame<'a>>,
    /// Number of pictures whose frame lacks the sender's rows.
    without_sender: u64,
    /// Number of pictures without a frame.
    unmatched: u64,
}

impl<'a> Comparison<'a> {
    fn new(
        by: &ShownBy,
        watched: &WatchedScreen,
        drawn: &[u64],
        frames: &'a [LedgerFrame<'a>],
    ) -> Comparison<'a> {
        let mut comparison = Comparison { matched: Vec::new(), without_sender: 0, unmatched: 0 };
        let mut numbers = BTreeSet::new();
        // The first picture may have been shown long before.
        for Seen { number, after_ns, at_ns } in watched.seen.iter().skip(1) {
            let Some(drawn_ns) = drawn.get(*number as usize).filter(|_| numbers.insert(*number)) else {
                continue;
            };
            // The frame was shown between two readings, and captured behind the drawing: of several, the first.
            let was_shown = |frame: &&LedgerFrame<'_>| {
                frame.show.enter_ns <= *at_ns + by.early_ns && frame.show.leave_ns + by.late_ns >= *after_ns
            };
            let mut shown = frames.iter().filter(was_shown).peekable();
            let lacks_sender = shown.peek().is_some_and(|frame| frame.capture.is_none());
            match shown.find(|frame| frame.capture.is_some_and(|row| row.leave_ns > *drawn_ns)) {
                Some(frame) => {
                    let appeared_ns = after_ns.midpoint(*at_ns);
                    let seen = SeenFrame { drawn_ns: *drawn_ns, appeared_ns, read_ns: *at_ns, frame };
                    comparison.matched.push(seen);
                }
                None if lacks_sender => comparison.without_sender += 1,
                None => comparison.unmatched += 1,
            }
        }
        comparison
    }

    /// Returns the figures by their names in the summary.
    fn named(&self) -> BTreeMap<String, f64> {
        let glass_ns = |seen: &SeenFrame<'_>| seen.appeared_ns.saturating_sub(seen.drawn_ns);
        let mut apart: Vec<u64> =
            self.matched.iter().map(|seen| glass_ns(seen).abs_diff(seen.frame.sum_ns())).collect();
        apart.sort_unstable();
        let all_glass: u64 = self.matched.iter().map(glass_ns).sum();
        let all_ledger: u64 = self.matched.iter().map(|seen| seen.frame.sum_ns()).sum();
        let all_unexplained: i64 = self.matched.iter().map(|seen| seen.frame.unexplained_ns()).sum();
        let percent = |part: i64, of: u64| (of > 0).then(|| 100.0 * part as f64 / of as f64);
        let of_matched = |ns: fn(&SeenFrame<'_>) -> i64| median_ms(self.matched.iter().map(ns));
        let figures = [
            ("matched", Some(self.matched.len() as f64)),
            ("unmatched", Some(self.unmatched as f64)),
            ("without_sender", Some(self.without_sender as f64)),
            ("apart_p50_ms", percentile(&apart, 50.0).map(|ns| ns as f64 / 1e6)),
            ("apart_p95_ms", percentile(&apart, 95.0).map(|ns| ns as f64 / 1e6)),
            (
                "unexplained_percent",
                percent(all_glass as i64 - all_ledger as i64 + all_unexplained, all_glass),
            ),
            ("ledger_unexplained_percent", percent(all_unexplained, all_ledger)),
            ("ledger_p50_ms", of_matched(|seen| seen.frame.sum_ns() as i64)),
            ("draw_to_birth_ms", of_matched(|seen| seen.frame.show.birth_ns as i64 - seen.drawn_ns as i64)),
            ("end_to_reading_ms", of_matched(|seen| seen.read_ns as i64 - seen.frame.show.leave_ns as i64)),
        ];
        let of_hop = |(hop, name): (&str, &str)| {
            let rows = self.matched.iter().flat_map(|seen| &seen.frame.rows).filter(|row| row.hop == hop);
            Some((format!("{name}_ms"), median_ms(rows.map(|row| row.wall_ns as i64))?))
        };
        let figures = figures.into_iter().filter_map(|(name, figure)| Some((name.to_owned(), figure?)));
        figures.chain(HOPS.into_iter().filter_map(of_hop)).collect()
    }
}

/// Returns the median of times in nanoseconds, as milliseconds; `None` if there are none.
fn median_ms(times: impl Iterator<Item = i64>) -> Option<f64> {
    median(&times.map(|ns| ns as f64 / 1e6).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Rows of a frame that is born at `birth` and shown from `birth + 8` to `birth + 10`, milliseconds; its encoder leaves 1 ms
    /// unexplained.
    fn frame(seq: u64, birth: u64) -> Vec<EndRow> {
        let row = |hop: &str, from: u64, to: u64, unexplained: i64| EndRow {
            seq,
            hop: hop.to_owned(),
            birth_ns: birth * MS,
            enter_ns: (birth + from) * MS,
            leave_ns: (birth + to) * MS,
            wall_ns: (to - from) * MS,
            unexplained_ns: unexplained * MS as i64,
            is_dropped: false,
        };
        vec![row("x11", 0, 2, 0), row("encode", 2, 8, 1), row("play", 8, 10, 0)]
    }

    fn seen(number: u32, at: u64) -> Seen {
        Seen { number, after_ns: (at - 1) * MS, at_ns: at * MS }
    }

    #[test]
    fn pictures_are_matched_by_the_times_of_capture_and_showing() {
        let mut rows = [frame(0, 100), frame(1, 116), frame(2, 133)].concat();
        // The sender's rows of the last frame are lost.
        rows.retain(|row| row.seq != 2 || row.hop == "play");
        let frames = LedgerFrame::of_rows(&rows, WINDOW.hop);
        let drawn = [80, 98, 115, 131, 160].map(|ms| ms * MS);
        let pictures = [seen(0, 95), seen(1, 111), seen(2, 126), seen(3, 143), seen(4, 300)];
        let watched = WatchedScreen { seen: pictures.to_vec(), damaged: 0, end_ns: 310 * MS };
        let comparison = Comparison::new(&WINDOW, &watched, &drawn, &frames);
        let sequences: Vec<u64> = comparison.matched.iter().map(|seen| seen.frame.show.seq).collect();
        assert_eq!((sequences, comparison.without_sender, comparison.unmatched), (vec![0, 1], 1, 1));
        let named = comparison.named();
        // 12.5 ms and 10.5 ms from the drawing to the middle of the readings, of which the ledger has 10 ms each.
        assert_eq!((named["apart_p50_ms"], named["apart_p95_ms"], named["ledger_p50_ms"]), (0.5, 2.5, 10.0));
        assert_eq!((named["draw_to_birth_ms"], named["end_to_reading_ms"]), (1.5, 0.5));
        assert_eq!(named["unexplained_percent"], 100.0 * 5.0 / 23.0);
        assert_eq!(named["ledger_unexplained_percent"], 10.0);
        assert_eq!((named["capture_ms"], named["encode_ms"], named["present_ms"]), (2.0, 6.0, 2.0));
    }
}
