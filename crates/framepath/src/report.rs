// SPDX-License-Identifier: MIT OR Apache-2.0
//! Report of a run: frames, losses, latency, and the ledger's rows.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use framepath_model::ledger::{Digest, HopDigest, HopTree, Row, Span, SpanPlace, digest, flag};
use framepath_os::measure::meter::Level;

use crate::damage::Damage;
use crate::error::RunError;
use crate::helper::HelperInfo;
use crate::host::WorkerStats;
use crate::loss::{Loss, LossReason};
use crate::outcomes::{NetworkStats, Played};
use crate::recorder::Recorded;
use crate::remote::RemoteReport;

/// One hop of the path that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HopInfo {
    /// Text of the hop in the path: `decode format=nv12`.
    pub text: String,
    /// True for a `queue`, also for that of a branch; false for a `tee`, and for all other hops.
    pub link: bool,
    /// True for a part of the caller's own that [`Pipeline`](crate::Pipeline) got as a value: by `from_source`,
    /// `stage`, `sink` or `sink_fn`. The ledger counts only those of its copies that it makes by methods of this
    /// crate. False for a part that path text names, also if the caller has added it to a
    /// [`Registry`](crate::Registry).
    pub own: bool,
    /// Index of the hop whose row precedes this hop's row in the ledger of a frame; `None` for the
    /// source. This is the hop in front, except for the first hop of a branch of a `tee`: for the last
    /// branch it is the tee, for the others the hop before the tee.
    pub before: Option<u16>,
    /// CPU time of the hop that is in no row of the ledger, nanoseconds: hidden pictures, threads of a
    /// decoder that share the pictures (except for a decoder in this process that was not drained), the start
    /// of a worker, the return of the hop's memory at its end. 0 below level `full`.
    pub cpu_without_frame_ns: u64,
}

impl HopInfo {
    /// Makes the entry of one of framepath's own sources, stages or sinks, without a hop before it.
    pub fn new(text: impl Into<String>) -> HopInfo {
        HopInfo { text: text.into(), link: false, own: false, before: None, cpu_without_frame_ns: 0 }
    }
}

/// Returns the text of the path that has these hops, as a user would type it.
pub(crate) fn path_text(hops: &[HopInfo]) -> String {
    part_text(hops, 0..hops.len())
}

/// True if hop `at` is the first hop of a branch with a thread of its own. Such a hop and the tee in front
/// of it follow the same hop.
fn begins_branch(hops: &[HopInfo], at: usize) -> bool {
    at > 0 && hops[at].before.is_some() && hops[at].before == hops[at - 1].before
}

/// Returns the nesting depth of each hop: the number of branches with threads of their own around it.
pub(crate) fn depths(hops: &[HopInfo]) -> Vec<usize> {
    let mut depths = vec![0; hops.len()];
    for at in 1..hops.len() {
        let before = hops[at].before.map_or(at - 1, usize::from).min(at - 1);
        depths[at] = if begins_branch(hops, at) { depths[at - 1] + 1 } else { depths[before] };
    }
    depths
}

/// Returns the path text of the hops in `range`. The range starts behind a `!` or a `(`.
fn part_text(hops: &[HopInfo], range: Range<usize>) -> String {
    let mut text = String::new();
    for at in range.clone() {
        let hop = &hops[at];
        text.push_str(if at == range.start { "" } else { " ! " });
        text.push_str(&hop.text);
        if at + 1 < range.end && begins_branch(hops, at + 1) {
            let is_main = |next: &usize| hops[*next].before == Some(at as u16);
            let main = (at + 2..range.end).find(is_main).unwrap_or(range.end);
            for branch in [at + 1..main, main..range.end].into_iter().filter(|branch| !branch.is_empty()) {
                text.push_str(&format!(" ( {} )", part_text(hops, branch)));
            }
            break;
        }
    }
    text
}

/// Statistics of one hop's workers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Index of the hop in [`Report::hops`].
    pub hop: u16,
    /// Number of workers that the stream had to replace, because they died, hung or broke the rules. If no other
    /// worker could replace the last one, the stream failed.
    pub deaths: u64,
    /// Number of packets or frames that were submitted again to a new worker.
    pub replayed: u64,
    /// True if a worker of a stage that takes frames instead of packets has died: [`skipped`](WorkerReport::skipped),
    /// [`replayed`](WorkerReport::replayed) and [`poisoned`](WorkerReport::poisoned) are then about frames.
    pub takes_frames: bool,
    /// Number of skipped packets, for the reasons [`LossReason::Poisoned`], [`LossReason::PoisonedFrame`],
    /// [`LossReason::TooLargeToReplay`] and [`LossReason::TooLate`] together.
    pub skipped: u64,
    /// Number, from 0, of the first packet that was skipped because it kills every worker; `None` if there is
    /// none.
    pub poisoned: Option<u64>,
    /// Number of frames (inputs of the stage without output) that were lost inside a worker that died,
    /// because the stage cannot repeat them.
    pub lost: u64,
    /// Number, from 0, of the first lost frame; `None` if no frame was lost.
    pub first_lost: Option<u64>,
    /// Number of deaths of workers that had taken frames, in a stage that cannot repeat them: the next worker
    /// does not know the earlier frames, so later output may differ or be missing.
    pub lost_states: u64,
    /// Reason of the last death of a worker; empty if no worker has died.
    pub last_death: String,
    /// CPU time of the ended workers' processes since their start, nanoseconds. Workers whose process id is not
    /// visible to this program, such as those of a service, are left out.
    pub cpu_ns: u64,
    /// CPU time that the workers reported for delivered frames, nanoseconds. At level `times` only the time of
    /// copies, by the clock; 0 at level `off`.
    pub reported_cpu_ns: u64,
    /// Number of messages on sockets, to the workers and from the workers, from each stream's opening on.
    pub messages: (u64, u64),
    /// Number of cells sent through the rings in shared memory, to the workers and from the workers.
    pub cells: (u64, u64),
}

impl WorkerReport {
    pub(crate) fn of(hop: u16, stats: &WorkerStats) -> WorkerReport {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        WorkerReport {
            hop,
            deaths: load(&stats.deaths),
            replayed: load(&stats.replayed),
            takes_frames: stats.takes_frames.load(Ordering::Relaxed),
            skipped: load(&stats.skipped),
            poisoned: load(&stats.first_poisoned).checked_sub(1),
            lost: load(&stats.lost),
            first_lost: load(&stats.first_lost).checked_sub(1),
            lost_states: load(&stats.lost_states),
            last_death: stats.last_death.lock().unwrap_or_else(|e| e.into_inner()).clone(),
            cpu_ns: load(&stats.cpu_ns),
            reported_cpu_ns: load(&stats.reported_cpu_ns),
            messages: (load(&stats.traffic.messages_out), load(&stats.traffic.messages_in)),
            cells: (load(&stats.traffic.cells_out), load(&stats.traffic.cells_in)),
        }
    }
}

/// Counts of a `play` sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlayReport {
    /// Number of frames that were shown; with `driver=null`, of those whose time has come.
    pub shown: u64,
    /// Number of frames that were not shown: they were late, or the screen's refresh rate is too low.
    pub late: u64,
    /// True if the viewer ended the playback before the end of the stream, or if a signal or a stop request
    /// did so during a pause.
    pub ended: bool,
}

impl PlayReport {
    pub(crate) fn of(played: &Played) -> PlayReport {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        PlayReport { shown: load(&played.shown), late: load(&played.late), ended: load(&played.ended) > 0 }
    }
}

/// Losses of a source that reads from the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkReport {
    /// Number of packets of the network (RTP) that were lost.
    pub lost: u64,
    /// Number of frames that the source dropped because packets of them were lost, or of frames that they depend on; 0
    /// for a source that hands on damaged frames.
    pub lost_frames: u64,
    /// Number of those frames that lost no packet, and whose packets are not valid.
    pub invalid_frames: u64,
    /// Number of those frames that the sender has dropped, as it says at the stream's end.
    pub unsent_frames: u64,
    /// Number of times that the connection was lost and made again.
    pub reconnects: u64,
    /// Total time from the loss of each connection to the next one, nanoseconds. The time after the last connection
    /// does not count.
    pub gap_ns: u64,
}

impl NetworkReport {
    pub(crate) fn of(stats: &NetworkStats) -> NetworkReport {
        let NetworkStats { lost, lost_frames, invalid_frames, unsent_frames, reconnects, gap_ns } = stats;
        let counts = [lost, lost_frames, invalid_frames, unsent_frames, reconnects, gap_ns];
        let [lost, lost_frames, invalid_frames, unsent_frames, reconnects, gap_ns] =
            counts.map(|count| count.load(Ordering::Relaxed));
        NetworkReport { lost, lost_frames, invalid_frames, unsent_frames, reconnects, gap_ns }
    }
}

/// Number of frames that one sink took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkReport {
    /// Index of the sink in [`Report::hops`].
    pub hop: u16,
    /// Number of frames (or packets) that the sink took.
    pub frames: u64,
}

/// Report of a finished run. The default is a run without hops.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Number of frames (or packets) that reached the sink; in a path with a `tee`, the largest number
    /// among the sinks.
    pub frames: u64,
    /// Number of frames of each sink, in path order: of one, or of one for each branch of a `tee`.
    pub sinks: Vec<SinkReport>,
    /// Number of frames (or packets) that full queues with `leaky=` dropped, as requested.
    pub dropped: u64,
    /// Number of frames and packets inside the run that seeks and flushes discarded.
    pub flushed: u64,
    /// Number of frames that the source's device dropped or damaged, by the gaps in the driver's frame numbers.
    /// 0 for a source without a device, and for `v4l2` with `io=read`.
    pub missed: u64,
    /// Number of frames that were dropped in front of an encoder, because encoded frames waited for a network that is slower than
    /// the stream ([`Request::Congested`](crate::Request::Congested)).
    pub congested: u64,
    /// Losses of the source's connection to the network.
    pub network: NetworkReport,
    /// Damage of the decoded streams, after which the run continued.
    pub damage: Damage,
    /// True if the source read an image sequence: each file is a packet, and a packet that cannot be decoded is a
    /// lost picture ([`LossReason::NoPicture`]).
    pub is_sequence: bool,
    /// Number of bytes that the CPU copied in the run's threads and its workers' stages, all frames
    /// together. Copies of workers are missing at level `off`.
    pub copied_bytes: u64,
    /// Time from the start of the run to its end, nanoseconds.
    pub wall_ns: u64,
    /// CPU time of the whole process during the run, plus that of its workers since their start,
    /// nanoseconds. Without that of a service's processes.
    pub cpu_ns: u64,
    /// Statistics of the workers, one entry for each stage that ran in workers; none for a worker that
    /// demuxes.
    pub workers: Vec<WorkerReport>,
    /// Counts of the `play` sink; `None` if the path has none.
    pub played: Option<PlayReport>,
    /// Level of detail of the ledger.
    pub level: Level,
    /// The hops, in path order. [`Row::hop`] and other fields are indices into this list.
    pub hops: Vec<HopInfo>,
    /// Names of the threads; [`Row::thread`] is an index into this list.
    pub threads: Vec<String>,
    /// The ledger: all rows that were kept, oldest first within a thread.
    pub rows: Vec<Row>,
    /// Time of frames that waited inside a hop, or on which another thread or process worked: the parts of each
    /// row with [`flag::SPLIT`]. Oldest first within a thread of the path; of a long run only the newest.
    pub spans: Vec<Span>,
    /// Decoder threads and workers; [`SpanPlace::Helper`] is an index into this list.
    pub helpers: Vec<HelperInfo>,
    /// Number of rows that were overwritten because the ledger's memory was full.
    pub overwritten: u64,
    /// Notes for the user, one line each: those of sources, stages and sinks in this process, and those about
    /// missing layers of the workers' sandboxes. Notes are not errors.
    pub notes: Vec<String>,
    /// Ledgers of the other ends of the path's network stream, whose rows are in [`rows`](Report::rows), too: of the sender, or of each
    /// viewer.
    pub remotes: Vec<RemoteReport>,
    /// Indices in [`hops`](Report::hops) of the hops of the path; `None` if it has all hops.
    pub(crate) own: Option<Range<usize>>,
    /// True if a signal (such as Ctrl-C) or a stop request arrived before the end of the run.
    pub interrupted: bool,
    /// Error of a thread of the run, or [`RunError::NoFrame`]; `None` if the run had none. The first in path
    /// order if several threads failed. With a `tee`, the other branches may have gone on after it. Also `None` in
    /// [`Frames::report`](crate::Frames::report) after the iterator has returned the error.
    pub error: Option<RunError>,
}

impl Report {
    /// Adds the rows and spans of one thread.
    pub(crate) fn add_recorded(&mut self, mut recorded: Recorded) {
        let first = self.helpers.len() as u16;
        for span in &mut recorded.spans {
            if let SpanPlace::Helper(at) = &mut span.place {
                *at += first;
            }
        }
        self.rows.append(&mut recorded.rows);
        self.spans.append(&mut recorded.spans);
        self.helpers.append(&mut recorded.helpers);
        self.overwritten += recorded.overwritten;
        self.copied_bytes += recorded.copied_bytes;
    }

    /// Returns the text of the path that ran, as a user would type it.
    pub fn path(&self) -> String {
        part_text(&self.hops, self.own_hops())
    }

    /// Returns the tree of the hops, in which branches of a `tee` are children of the same hop.
    pub fn hop_tree(&self) -> HopTree {
        HopTree::new(self.hops.iter().map(|hop| hop.before))
    }

    /// Returns true if a stage of the program, in the middle of the path, may be the reason that no frame reached
    /// the sink: nothing was lost or damaged.
    pub(crate) fn may_have_dropped_all(&self) -> bool {
        let last = self.hops.len().saturating_sub(1);
        let has_own = self.hops.iter().take(last).skip(1).any(|hop| hop.own);
        has_own && self.losses().is_empty() && self.damage.is_none()
    }

    /// Returns the unrequested losses. These do not count: items dropped by a queue with `leaky=`
    /// ([`Report::dropped`]), items discarded by a seek or flush ([`Report::flushed`]), frames that arrived
    /// too late at `play` ([`PlayReport::late`](crate::PlayReport::late)), and damage of the stream
    /// ([`Report::damage`]), except the files of an image sequence that give no picture.
    pub fn losses(&self) -> Vec<Loss> {
        let mut losses = Vec::new();
        let source = || self.hops[self.own_hops().start].text.clone();
        if self.missed > 0 {
            let hop = source();
            losses.push(Loss { hop, count: self.missed, first: None, reason: LossReason::Device });
        }
        let NetworkReport { lost, lost_frames, invalid_frames, unsent_frames, reconnects, gap_ns } =
            self.network;
        let frames_reason =
            LossReason::NetworkFrames { packets: lost, invalid: invalid_frames, unsent: unsent_frames };
        let packets = match lost_frames {
            0 => (lost, LossReason::Network),
            frames => (frames, frames_reason),
        };
        for (count, reason) in [packets, (reconnects, LossReason::Disconnected { gap_ns })] {
            if count > 0 {
                losses.push(Loss { hop: source(), count, first: None, reason });
            }
        }
        // `damage=skip` also leaves out whole pictures that were in the decoder.
        let without_picture = self.damage.undecodable.saturating_add(self.damage.skipped);
        if self.is_sequence && without_picture > 0 {
            let (hop, count) = (source(), without_picture);
            losses.push(Loss { hop, count, first: None, reason: LossReason::NoPicture });
        }
        for worker in &self.workers {
            let (hop, last_death) = (&self.hops[usize::from(worker.hop)].text, &worker.last_death);
            if worker.skipped > 0 {
                let last_death = last_death.clone();
                let reason = match worker.poisoned {
                    Some(_) if worker.takes_frames => LossReason::PoisonedFrame { last_death },
                    Some(_) => LossReason::Poisoned { last_death },
                    None if worker.deaths == 0 => LossReason::TooLate,
                    None => LossReason::TooLargeToReplay { last_death },
                };
                losses.push(Loss { hop: hop.clone(), count: worker.skipped, first: worker.poisoned, reason });
            }
            if worker.lost > 0 {
                let reason = LossReason::WorkerDied { last_death: last_death.clone() };
                losses.push(Loss { hop: hop.clone(), count: worker.lost, first: worker.first_lost, reason });
            }
            if worker.lost_states > 0 {
                let reason = LossReason::StateLost { last_death: last_death.clone() };
                losses.push(Loss { hop: hop.clone(), count: worker.lost_states, first: None, reason });
            }
        }
        losses
    }

    /// Returns the summary of the ledger; in a path with a `tee`, for the last sink. Leaves out frames with
    /// overwritten rows, and removes their rows from [`rows`](Report::rows). Sorts the rows.
    pub fn digest(&mut self) -> Digest {
        let hops = self.hop_tree();
        let last = hops.leaves().last().copied().unwrap_or_default();
        self.digest_of(last)
    }

    /// [`digest`](Report::digest) for the frames that reached the sink that is hop `sink`.
    pub fn digest_of(&mut self, sink: u16) -> Digest {
        let hops = self.hop_tree();
        if self.overwritten > 0 {
            self.drop_torn_frames(&hops);
        }
        digest(&mut self.rows, &hops, sink)
    }

    /// Returns the CPU time of each hop in `digest`, nanoseconds, by the clocks of its threads and workers,
    /// copies included; `None` for a link, for a hop without rows, and if it is not known: below level
    /// `full`, or because rows were overwritten.
    pub fn hops_cpu_ns(&self, digest: &Digest) -> Vec<Option<u64>> {
        let is_known = self.level == Level::Full && self.overwritten == 0;
        let cpu_ns = |(hop, figures): (&HopInfo, &HopDigest)| {
            figures.cpu_ns.filter(|_| is_known).map(|ns| ns + hop.cpu_without_frame_ns)
        };
        self.hops.iter().zip(&digest.hops).map(cpu_ns).collect()
    }

    /// Returns the CPU time of the run, its workers included, less that of all hops in `digest`, nanoseconds;
    /// negative if the clocks of the hops' threads show more. `None` if it is not known, as for
    /// [`hops_cpu_ns`](Report::hops_cpu_ns).
    pub fn other_cpu_ns(&self, digest: &Digest) -> Option<i64> {
        let hops = self.hops_cpu_ns(digest);
        // The hops of another machine are not in `cpu_ns`.
        let hops = &hops[self.own_hops()];
        let known: u64 = hops.iter().flatten().sum();
        // A service's processes are not in `cpu_ns`, but their hops have what they reported.
        let served = |worker: &WorkerReport| worker.reported_cpu_ns.saturating_sub(worker.cpu_ns);
        let all = self.cpu_ns + self.workers.iter().map(served).sum::<u64>();
        // The value is known when the run has ended.
        let is_known = self.cpu_ns > 0 && hops.iter().any(Option::is_some);
        is_known.then(|| all as i64 - known as i64)
    }

    /// Removes the rows of frames that did not end, and of frames with a missing row between the source and
    /// the hop where the frame ended. Sorts the other rows by frame and hop.
    ///
    /// The oldest remaining row does not show which later frames are complete, because threads write
    /// different numbers of rows and decoders change the order of frames.
    fn drop_torn_frames(&mut self, hops: &HopTree) {
        self.rows.sort_unstable_by_key(|r| (r.seq, r.hop));
        let mut whole = Vec::with_capacity(self.rows.len());
        for frame in self.rows.chunk_by(|a, b| a.seq == b.seq) {
            let ended = frame.iter().any(|r| r.has(flag::LAST) || r.has(flag::DROPPED));
            let has = |hop: u16| frame.binary_search_by_key(&hop, |row| row.hop).is_ok();
            // The rows of another machine may be missing.
            let own = |hop: &u16| self.own_hops().contains(&usize::from(*hop));
            let in_front = |row: &Row| hops.parent(row.hop).filter(own);
            let is_gapless =
                frame.iter().filter(|row| own(&row.hop)).all(|row| in_front(row).is_none_or(has));
            if ended && is_gapless {
                whole.extend_from_slice(frame);
            }
        }
        self.rows = whole;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_branches_is_written_as_it_is_typed() {
        let hops = |before: &[Option<u16>], texts: &str| -> Vec<HopInfo> {
            let texts = texts.split(' ').zip(before);
            texts.map(|(text, before)| HopInfo { before: *before, ..HopInfo::new(text) }).collect()
        };
        assert_eq!(path_text(&hops(&[None; 3], "test queue null")), "test ! queue ! null");
        let [of_0, of_1, of_2, of_3] = [0, 1, 2, 3].map(Some);
        let branches = hops(&[None, of_0, of_0, of_2, of_1], "test tee queue null y4m");
        assert_eq!(path_text(&branches), "test ! tee ( queue ! null ) ( y4m )");
        assert_eq!(depths(&branches), [0, 0, 1, 1, 0]);
        let three = hops(&[None, of_0, of_0, of_2, of_1, of_1, Some(5), Some(4)], "a tee b c tee d e f");
        assert_eq!(path_text(&three), "a ! tee ( b ! c ) ( tee ( d ! e ) ( f ) )");
        let nested = hops(&[None, of_0, of_0, of_2, of_2, Some(4), of_3, of_1], "a tee b tee c d e f");
        assert_eq!(path_text(&nested), "a ! tee ( b ! tee ( c ! d ) ( e ) ) ( f )");
    }
}
