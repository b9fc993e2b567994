// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice at the end of a run: what to change in the path, derived from rows of the ledger.

use framepath_model::ledger::{Cause, Digest, HopDigest};
use framepath_model::shown::shown;

use super::text::time;
use crate::queue::DEFAULT_DEPTH;
use crate::report::{HopInfo, Report};

/// Share of the median frame's latency from which a hop's time for one cause stands out.
const LARGE: f64 = 0.25;

/// Share of the mean time between two frames. A decoder thread that needs at most this share for a frame is
/// fast enough; a consumer that needs at least this share counts as always busy.
const SUSTAINED: f64 = 0.8;

/// Maximum number of proposals.
const MOST: usize = 3;

/// One proposed change of the path.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// Index in [`Report::hops`] of the hop to change.
    pub hop: u16,
    /// Cause of the time that the change reduces.
    pub cause: Cause,
    /// Time of the median frame in this hop that the change reduces, nanoseconds: all of the cause's time,
    /// but of [`Cause::Held`] only the part for the depth of frame threads.
    pub ns: f64,
    /// Text of the changed hop, such as `decode threads=1`.
    pub changed: String,
    /// Sentence for the user, with the figures from which it follows.
    pub text: String,
}

/// Returns at most three proposals, the one that saves most first; none if nothing stands out. `digest` has the
/// figures of the sink for which the advice is.
///
/// - A decoder with frame threads keeps frames for their depth, and one thread is fast enough: `threads=1`.
/// - Frames wait in a queue for a consumer that is always busy: a queue of depth 1.
/// - A decoder copies its pictures into another format: `format=native`.
pub fn advice(report: &Report, digest: &Digest) -> Vec<Advice> {
    let hops = report.hops.iter().zip(&digest.hops).enumerate();
    let mut advice: Vec<Advice> = hops
        .flat_map(|(at, (hop, figures))| {
            let at = Place { report, digest, at, hop, figures };
            [at.frame_threads(), at.full_queue(), at.copying_decoder()]
        })
        .flatten()
        .collect();
    advice.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    advice.truncate(MOST);
    advice
}

/// One hop, with the figures of the run.
struct Place<'a> {
    report: &'a Report,
    digest: &'a Digest,
    at: usize,
    hop: &'a HopInfo,
    figures: &'a HopDigest,
}

impl Place<'_> {
    fn frame_threads(&self) -> Option<Advice> {
        let depth_ns = self.figures.median_held_depth_ns;
        let needed_ns = self.figures.causes[Cause::Compute]?;
        let between_ns = between_frames_ns(self.digest)?;
        let is_fast = needed_ns <= SUSTAINED * between_ns;
        (self.is("decode") && self.is_large(depth_ns) && is_fast).then(|| {
            let changed = with_option(&self.hop.text, "threads", "1");
            let why = format!(
                "`{}` keeps frames for the depth of its frame threads. `{}` removes this: one thread needs {} for a \
                 frame, and a frame comes every {}.",
                shown(&self.hop.text),
                shown(&changed),
                time(needed_ns),
                time(between_ns)
            );
            self.advice(Cause::Held, depth_ns, changed, &why)
        })
    }

    fn full_queue(&self) -> Option<Advice> {
        let waited_ns = self.figures.median[Cause::Queue]?;
        let between_ns = between_frames_ns(self.digest)?;
        let depth: u64 = option(&self.hop.text, "depth").unwrap_or(DEFAULT_DEPTH).parse().ok()?;
        let (consumer, busy_ns) = self.consumer()?;
        let is_busy = busy_ns >= SUSTAINED * between_ns;
        (self.is("queue") && depth > 1 && self.is_large(waited_ns) && is_busy).then(|| {
            let changed = with_option(&self.hop.text, "depth", "1");
            let why = format!(
                "frames wait in `{}` for `{}`, whose thread needs {} for a frame and gets one every {}. With `{}` \
                 at most one frame waits, and the slowest part of the path is as fast as before.",
                shown(&self.hop.text),
                shown(consumer),
                time(busy_ns),
                time(between_ns),
                shown(&changed),
            );
            self.advice(Cause::Queue, waited_ns, changed, &why)
        })
    }

    fn copying_decoder(&self) -> Option<Advice> {
        let copied_ns = self.figures.median[Cause::Copy]?;
        let format = option(&self.hop.text, "format").filter(|format| *format != "native")?;
        (self.is("decode") && self.is_large(copied_ns)).then(|| {
            let changed = with_option(&self.hop.text, "format", "native");
            let why = format!(
                "`{}` copies each picture into the format {}. `{}` saves this copy, if the hops behind take the \
                 stream's own format.",
                shown(&self.hop.text),
                shown(format),
                shown(&changed),
            );
            self.advice(Cause::Copy, copied_ns, changed, &why)
        })
    }

    fn is(&self, name: &str) -> bool {
        !self.hop.own && self.hop.text.split(' ').next() == Some(name)
    }

    fn is_large(&self, ns: f64) -> bool {
        self.digest.median_ns > 0.0 && ns >= LARGE * self.digest.median_ns
    }

    fn advice(&self, cause: Cause, ns: f64, changed: String, why: &str) -> Advice {
        let text = format!("{}, {} of {}: {why}", cause.name(), time(ns), time(self.digest.median_ns));
        Advice { hop: self.at as u16, cause, ns, changed, text }
    }

    /// Returns the text of the stage with the longest work among the hops from this link to the next, and the mean
    /// time of a frame's work in all these hops together, nanoseconds, without waits. `None` if there are no such
    /// hops.
    fn consumer(&self) -> Option<(&str, f64)> {
        let mut slowest: Option<(&str, f64)> = None;
        let mut busy_ns = 0.0;
        let behind = self.report.hops.iter().zip(&self.digest.hops).skip(self.at + 1);
        for (hop, figures) in behind.take_while(|(hop, _)| !hop.link) {
            let waits = [Cause::Queue, Cause::Wakeup, Cause::Held, Cause::Pool, Cause::Unexplained];
            let own = figures.causes.iter().filter(|(cause, _)| !waits.contains(cause));
            let own_ns: f64 = own.filter_map(|(_, ns)| ns).sum();
            busy_ns += own_ns;
            if slowest.is_none_or(|(_, ns)| own_ns > ns) {
                slowest = Some((&hop.text, own_ns));
            }
        }
        slowest.map(|(text, _)| (text, busy_ns))
    }
}

/// Returns the mean time between the births of two frames, nanoseconds; `None` for fewer than two.
fn between_frames_ns(digest: &Digest) -> Option<f64> {
    let births = digest.totals.iter().map(|total| total.birth_ns);
    let (first, last) = (births.clone().min()?, births.max()?);
    let gaps = digest.totals.len().checked_sub(1).filter(|gaps| *gaps > 0)?;
    Some((last - first) as f64 / gaps as f64)
}

/// Returns the value of option `name` in the text of a hop; `None` if it is not set.
fn option<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Returns the text of a hop with option `name` set to `value`.
fn with_option(text: &str, name: &str, value: &str) -> String {
    let is_other = |word: &&str| word.strip_prefix(name).is_none_or(|rest| !rest.starts_with('='));
    let mut words: Vec<&str> = text.split(' ').filter(is_other).collect();
    let option = format!("{name}={value}");
    words.push(&option);
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use framepath_model::ledger::{Row, flag};
    use framepath_os::measure::meter::Level;

    const MS: u64 = 1_000_000;

    /// Makes the report of 100 frames, one each `between_ms`, in a path of three hops of which the second
    /// has `row`, and its advice.
    fn advised(text: &str, between_ms: u64, last_ms: u64, row: Row) -> Vec<Advice> {
        let mut report = Report { level: Level::Full, ..Report::default() };
        report.hops = ["file a.mp4", text, "slow"].map(HopInfo::new).into();
        report.hops[1].link = text.starts_with("queue");
        for seq in 0..100 {
            let birth_ns = seq * between_ms * MS;
            let base = Row { seq, birth_ns, flags: flag::COUNTED, ..Row::default() };
            let times = |hop, enter_ns, wall_ns| Row { hop, enter_ns, leave_ns: enter_ns + wall_ns, ..base };
            let wall_ns = row.held_ns + row.queue_ns + row.copy_ns + row.compute_ns;
            let middle = times(1, birth_ns + MS, wall_ns);
            report.rows.push(Row { compute_ns: MS, ..times(0, birth_ns, MS) });
            report.rows.push(Row {
                enter_ns: middle.enter_ns,
                leave_ns: middle.leave_ns,
                seq,
                birth_ns,
                hop: 1,
                ..row
            });
            let last = times(2, middle.leave_ns, last_ms * MS);
            report.rows.push(Row { compute_ns: last_ms * MS, flags: flag::COUNTED | flag::LAST, ..last });
        }
        let digest = report.digest();
        advice(&report, &digest)
    }

    #[test]
    fn frames_held_by_frame_threads_advise_one_thread_if_it_is_fast_enough() {
        let row = |held_depth_ms: u64, compute_ms: u64| Row {
            held_ns: 80 * MS,
            held_depth_ns: held_depth_ms * MS,
            compute_ns: compute_ms * MS,
            flags: flag::COUNTED,
            ..Row::default()
        };
        let advice = advised("decode threads=3", 40, 1, row(70, 2));
        assert_eq!(advice.len(), 1);
        assert_eq!((advice[0].hop, advice[0].cause, advice[0].ns.round()), (1, Cause::Held, 70e6));
        assert_eq!(advice[0].changed, "decode threads=1");
        assert_eq!(
            advice[0].text,
            "held, 70.00 ms of 84.00 ms: `decode threads=3` keeps frames for the depth of its frame threads. `decode \
             threads=1` removes this: one thread needs 2.00 ms for a frame, and a frame comes every 40.00 ms."
        );
        // Kept for presentation order; and one thread would be too slow.
        assert_eq!(advised("decode threads=3", 40, 1, row(0, 2)), []);
        assert_eq!(advised("decode threads=3", 40, 1, row(70, 35)), []);
    }

    #[test]
    fn a_full_queue_advises_depth_1_if_its_consumer_is_the_slowest_part() {
        let row = |queue_ms| Row { queue_ns: queue_ms * MS, flags: flag::LINK, ..Row::default() };
        let advice = advised("queue depth=8", 5, 5, row(40));
        assert_eq!(advice.len(), 1);
        assert_eq!((advice[0].cause, advice[0].changed.as_str()), (Cause::Queue, "queue depth=1"));
        assert_eq!(advised("queue", 5, 5, row(40)).len(), 1);
        // A consumer that is mostly idle; a short wait; a queue that is already of depth 1.
        assert_eq!(advised("queue", 50, 5, row(40)), []);
        assert_eq!(advised("queue", 5, 5, row(1)), []);
        assert_eq!(advised("queue depth=1", 5, 5, row(40)), []);
    }

    #[test]
    fn a_decoder_that_copies_advises_the_streams_own_format() {
        let row = |copy_ms| Row {
            copy_ns: copy_ms * MS,
            copied_bytes: 1,
            compute_ns: MS,
            flags: flag::COUNTED,
            ..Row::default()
        };
        let advice = advised("decode format=nv12 threads=1", 40, 1, row(4));
        assert_eq!(
            (advice[0].cause, advice[0].changed.as_str()),
            (Cause::Copy, "decode threads=1 format=native")
        );
        assert_eq!(advised("decode format=nv12", 40, 9, row(1)), []);
        assert_eq!(advised("convert format=nv12", 40, 1, row(4)), []);
    }
}
