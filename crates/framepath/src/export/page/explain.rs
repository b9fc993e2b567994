// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sentences of the page, which follow from the rows.

use framepath_model::ledger::{Cause, Digest, Row, flag};

use super::super::text::time;
use crate::report::Report;

/// Smallest share with which a hop and cause are part of a sentence: of the median frame's latency, or of the
/// time that the slowest frame took more.
const LEAST_SHARE: f64 = 0.1;

/// Maximum number of hops and causes in a sentence.
const MOST: usize = 3;

/// Text about the slowest frame.
pub(super) struct Slowest {
    pub(super) seq: u64,
    pub(super) title: String,
    pub(super) reason: String,
}

/// Returns the sentence that says where the median frame's time went: at most three hops and causes with most
/// of it, each with at least a tenth. Another sentence says that there is none, or that no frame reached the
/// sink.
///
/// ```
/// use framepath::{Options, Pipeline, export};
///
/// let mut report = Pipeline::parse("test frames=20 ! block time=2ms ! null")?.run(&Options::default())?;
/// let digest = report.digest();
/// assert!(export::page::headline(&report, &digest).starts_with("Of the median frame's "));
/// # Ok::<(), framepath::RunError>(())
/// ```
pub fn headline(report: &Report, digest: &Digest) -> String {
    if digest.latency.is_none() {
        return "No frame reached the sink".to_owned();
    }
    let mut parts = Vec::new();
    for (at, hop) in digest.hops.iter().enumerate() {
        for (cause, ns) in hop.median.iter() {
            parts.extend(ns.map(|ns| (at, cause, ns)));
        }
    }
    parts.sort_by(|a, b| b.2.total_cmp(&a.2));
    let is_large = |part: &&(usize, Cause, f64)| part.2 >= LEAST_SHARE * digest.median_ns;
    let said: Vec<String> = parts
        .iter()
        .filter(is_large)
        .take(MOST)
        .map(|(at, cause, ns)| {
            let share = ns / digest.median_ns.max(1.0) * 100.0;
            let depth_ns = digest.hops[*at].median_held_depth_ns;
            format!("{} ({share:.0} %) {}", time(*ns), spent(report, *at, *cause, depth_ns))
        })
        .collect();
    match said.is_empty() {
        true => format!(
            "The median frame took {}, and no hop and cause more than a tenth of it",
            time(digest.median_ns)
        ),
        false => format!("Of the median frame's {}, {}", time(digest.median_ns), said.join("; ")),
    }
}

/// Returns the end of a sentence that begins with a time: what hop `at` spent it on. `depth_ns` is the part of
/// `held` for the depth of frame threads.
fn spent(report: &Report, at: usize, cause: Cause, depth_ns: f64) -> String {
    let Some(hop) = report.hops.get(at) else { return String::new() };
    let word = hop.text.split(' ').next().unwrap_or_default();
    let is_unique =
        report.hops.iter().filter(|other| other.text.split(' ').next() == Some(word)).count() == 1;
    let name = if is_unique { word } else { hop.text.as_str() };
    match cause {
        Cause::Compute => format!("{name} computed"),
        Cause::Copy => format!("{name} copied bytes"),
        Cause::Queue if hop.link => format!("it waited in {name} for a busy consumer"),
        Cause::Queue => format!("it waited for {name}, which was busy"),
        Cause::Held if depth_ns >= 1.0 => {
            format!("{name} kept it for order and depth (depth of its threads: {})", time(depth_ns))
        }
        Cause::Held => format!("{name} kept it for the presentation order"),
        Cause::Wakeup => format!("passed until a thread of {name} ran"),
        Cause::Preempted => format!("{name} waited for a CPU that others used"),
        Cause::Throttled => format!("{name} could run, but its cgroup had used up its CPU quota"),
        Cause::Stopped => format!("{name} was stopped by a signal, a debugger or the freezer"),
        Cause::Stolen => format!("{name} had a CPU that interrupts or the host used"),
        Cause::Blocked => {
            format!("{name} was blocked: it waited for data, a buffer, a lock or a reference picture")
        }
        Cause::Paced => format!("{name} waited on purpose until its time"),
        Cause::Device => format!("it was in the device of {name}"),
        Cause::Network => "it was on the network".to_owned(),
        Cause::Pool => format!("it was inside the thread pool of {name}"),
        Cause::Unexplained => format!("{name} took for reasons that no clock shows"),
    }
}

/// Returns the heading of the picture of all frames.
pub(super) fn spread(digest: &Digest) -> String {
    let latency = digest.latency.unwrap_or_default();
    let [p50, p99, max] = [latency.p50, latency.p99, latency.max].map(|ns| time(ns as f64));
    format!("Latency of {} frames: median {p50}, 99 % within {p99}, longest {max}", digest.frames)
}

/// Returns the text about the frame with the longest latency: the hops and causes in which it spent more than the
/// median frame. `None` without frames.
pub(super) fn slowest(report: &Report, digest: &Digest) -> Option<Slowest> {
    let slowest = digest.totals.iter().max_by_key(|total| total.latency_ns())?;
    let more_ns = slowest.latency_ns() as f64 - digest.median_ns;
    let title = format!(
        "The slowest frame: number {}, {}, {} more than the median frame",
        slowest.seq,
        time(slowest.latency_ns() as f64),
        time(more_ns.max(0.0)),
    );
    let mut parts = Vec::new();
    for row in rows_of(report, slowest.seq) {
        let median = digest.hops.get(usize::from(row.hop)).map(|hop| hop.median).unwrap_or_default();
        for (cause, ns) in row.causes().iter() {
            let longer_ns = ns.unwrap_or(0.0) - median[cause].unwrap_or(0.0);
            parts.push((usize::from(row.hop), cause, longer_ns, row.held_depth_ns));
        }
    }
    parts.sort_by(|a, b| b.2.total_cmp(&a.2));
    let is_large = |part: &&(usize, Cause, f64, u64)| part.2 > 0.0 && part.2 >= LEAST_SHARE * more_ns;
    let said: Vec<String> = parts
        .iter()
        .filter(is_large)
        .take(MOST)
        .map(|(at, cause, ns, depth_ns)| {
            format!("{} {}", time(*ns), spent(report, *at, *cause, *depth_ns as f64))
        })
        .collect();
    let reason = match said.is_empty() {
        true => "No hop and cause stands out.".to_owned(),
        false => format!("More than in the median frame: {}.", said.join("; ")),
    };
    Some(Slowest { seq: slowest.seq, title, reason })
}

/// Returns the rows of frame `seq` that were not dropped.
pub(super) fn rows_of(report: &Report, seq: u64) -> impl Iterator<Item = &Row> {
    report.rows.iter().filter(move |row| row.seq == seq && !row.has(flag::DROPPED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::HopInfo;
    use framepath_os::measure::meter::Level;

    const MS: u64 = 1_000_000;

    /// Makes the report of 40 frames in a path of a source, a decoder and a sink. The decoder has `row`, and in
    /// frame 7 also `more_ms` of waits.
    fn report(row: Row, more_ms: u64) -> Report {
        let mut report = Report { level: Level::Full, ..Report::default() };
        report.hops = ["file a.mp4", "decode threads=3", "null"].map(HopInfo::new).into();
        for seq in 0..40 {
            let birth_ns = seq * 40 * MS;
            let blocked_ns = row.blocked_ns + if seq == 7 { more_ms * MS } else { 0 };
            let inside_ns = row.compute_ns + row.held_ns + row.preempted_ns + blocked_ns;
            let base = Row { seq, birth_ns, flags: flag::COUNTED, ..Row::default() };
            report.rows.push(Row { enter_ns: birth_ns, leave_ns: birth_ns + MS, compute_ns: MS, ..base });
            let (enter_ns, leave_ns) = (birth_ns + MS, birth_ns + MS + inside_ns);
            report.rows.push(Row {
                seq,
                birth_ns,
                enter_ns,
                leave_ns,
                blocked_ns,
                hop: 1,
                flags: flag::COUNTED,
                ..row
            });
            let last = flag::COUNTED | flag::LAST;
            report.rows.push(Row { enter_ns: leave_ns, leave_ns, hop: 2, flags: last, ..base });
        }
        report
    }

    #[test]
    fn the_headline_has_the_largest_parts_first() {
        let row = Row { held_ns: 5 * MS, held_depth_ns: 4 * MS, compute_ns: 3 * MS, ..Row::default() };
        let mut kept = report(row, 0);
        let digest = kept.digest();
        assert_eq!(
            headline(&kept, &digest),
            "Of the median frame's 9.00 ms, 5.00 ms (56 %) decode kept it for order and depth (depth of its \
             threads: 4.00 ms); 3.00 ms (33 %) decode computed; 1.00 ms (11 %) file computed"
        );
        let mut waits = report(Row { preempted_ns: 19 * MS, ..Row::default() }, 0);
        let digest = waits.digest();
        assert_eq!(
            headline(&waits, &digest),
            "Of the median frame's 20.00 ms, 19.00 ms (95 %) decode waited for a CPU that others used"
        );
    }

    #[test]
    fn the_slowest_frame_is_explained_by_what_it_has_more() {
        let mut report = report(Row { held_ns: 5 * MS, ..Row::default() }, 30);
        let digest = report.digest();
        let slowest = slowest(&report, &digest).unwrap();
        assert_eq!(slowest.seq, 7);
        assert_eq!(
            slowest.title,
            "The slowest frame: number 7, 36.00 ms, 30.00 ms more than the median frame"
        );
        assert_eq!(
            slowest.reason,
            "More than in the median frame: 30.00 ms decode was blocked: it waited for data, a buffer, a lock \
             or a reference picture."
        );
    }

    #[test]
    fn a_run_without_frames_has_a_headline() {
        let mut report = Report::default();
        let digest = report.digest();
        assert_eq!(headline(&report, &digest), "No frame reached the sink");
        assert!(slowest(&report, &digest).is_none());
    }
}
