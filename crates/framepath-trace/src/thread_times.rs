// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of threads, from the events at which each began and ceased to run.
//!
//! This module is pure arithmetic.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use framepath_os::measure::process_events::{ThreadEvent, ThreadEventKind};
use serde::Serialize;

/// Times of one thread during the recording. Durations are nanoseconds of the wall clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ThreadRow {
    /// Id of the thread's process.
    pub process: i32,
    /// Id of the thread.
    pub thread: i32,
    /// Last name of the thread; empty if not known.
    pub name: String,
    /// Name of the codec that has started the thread; `None` for other threads, and if it is not known.
    pub codec: Option<String>,
    /// Time on a CPU. It includes interrupts, and in a virtual machine the time that the host took away.
    pub running_ns: u64,
    /// The same by the thread's CPU clock, as far as that is known, without interrupts and without what the host took away. It
    /// also has the end of the thread, of which there are no switch records.
    pub clock_ns: Option<u64>,
    /// Number of times that the thread began to run.
    pub runs: u64,
    /// Time in which the thread was runnable but another one had its CPU.
    pub preempted_ns: u64,
    /// Number of times that the thread was preempted.
    pub preemptions: u64,
    /// Time in which the thread waited, from the moment it left its CPU until it ran again.
    pub waiting_ns: u64,
    /// Number of times that the thread waited.
    pub waits: u64,
    /// Time from the thread's start until it first ran.
    pub start_ns: u64,
    /// Number of gaps: events that do not follow one another, because one is missing. The time of a gap is in no
    /// field.
    pub gaps: u64,
    /// True if the thread ended during the recording.
    pub has_ended: bool,
}

impl ThreadRow {
    /// Returns the time on a CPU by the best observer, nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.clock_ns.unwrap_or(self.running_ns)
    }
}

/// Activity of a thread since a time, CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// Unknown activity: the recording began, or events are missing.
    Unknown,
    Started(u64),
    Running(u64),
    Preempted(u64),
    Waiting(u64),
    Ended,
}

/// Most rows of ended threads whose number another thread has now: the first ones.
const MOST_ENDED: usize = 65_536;

/// Most threads whose numbers no other one has: with more, those that end have no row.
const MOST_THREADS: usize = 131_072;

/// Times of all threads of a recording.
#[derive(Debug, Default)]
pub struct ThreadTimes {
    threads: BTreeMap<i32, (Activity, ThreadRow)>,
    /// Threads of each process that have not ended: a program can start any number of threads and programs.
    living: HashMap<i32, BTreeSet<i32>>,
    /// Number of lost events, as far as the kernel reported it.
    lost: u64,
    /// Rows of ended threads whose number another thread has now.
    ended: Vec<ThreadRow>,
}

impl ThreadTimes {
    /// Adds a thread that existed before the recording. It waits since `waits_since_ns` (CLOCK_MONOTONIC); `None` if
    /// that is not known. Without this call, a thread has no name until its first event with one.
    pub fn add(&mut self, process: i32, thread: i32, name: &str, waits_since_ns: Option<u64>) {
        let row = ThreadRow { process, thread, name: name.to_owned(), ..ThreadRow::default() };
        let state = waits_since_ns.map_or(Activity::Unknown, Activity::Waiting);
        self.living.entry(process).or_default().insert(thread);
        self.threads.insert(thread, (state, row));
    }

    /// Returns the times of the part of the recording that begins at `from_ns`, CLOCK_MONOTONIC, and ends at `to_ns`: its rows, the
    /// most CPU time first. `events` are those of that part, in the order of their times; the last event of a thread before
    /// the part has the time `from_ns`.
    pub(crate) fn part(&self, events: &[ThreadEvent], from_ns: u64, to_ns: u64) -> Vec<ThreadRow> {
        let mut part = ThreadTimes::default();
        let moved: HashSet<i32> = events.iter().map(|event| event.thread).collect();
        for (state, row) in self.threads.values() {
            let waits = matches!(state, Activity::Waiting(_)) && !moved.contains(&row.thread);
            if *state != Activity::Ended || moved.contains(&row.thread) {
                part.add(row.process, row.thread, &row.name, waits.then_some(from_ns));
            }
        }
        for event in events.iter().filter(|event| event.at_ns >= from_ns) {
            part.record(event);
        }
        part.finish(to_ns).0
    }

    /// Records an event. The events of a thread come in the order of their times.
    pub fn record(&mut self, event: &ThreadEvent) {
        let ThreadEvent { process, thread, at_ns, ref kind } = *event;
        match kind {
            ThreadEventKind::Lost { count } => {
                self.lost += count.max(&1);
                for thread in self.living.values().flatten() {
                    let Some((state, row)) = self.threads.get_mut(thread) else { continue };
                    row.gaps += u64::from(*state != Activity::Unknown);
                    *state = Activity::Unknown;
                }
                return;
            }
            ThreadEventKind::Started { thread: new, process } => {
                let name = self.threads.get(&thread).map(|(_, row)| row.name.clone()).unwrap_or_default();
                let row = ThreadRow { process: *process, thread: *new, name, ..ThreadRow::default() };
                if let Some((_, before)) = self.threads.remove(new) {
                    self.end(before);
                }
                self.living.entry(*process).or_default().insert(*new);
                self.threads.insert(*new, (Activity::Started(at_ns), row));
                return;
            }
            _ => {}
        }
        if let ThreadEventKind::Named { is_exec: true, .. } = kind {
            self.end_others(process, thread, at_ns);
        }
        let (state, row) = self.threads.entry(thread).or_insert_with(|| {
            self.living.entry(process).or_default().insert(thread);
            (Activity::Unknown, ThreadRow { process, thread, ..ThreadRow::default() })
        });
        match kind {
            ThreadEventKind::SwitchedIn => {
                row.runs += 1;
                *state = leave(*state, Activity::Running(at_ns), at_ns, row);
            }
            ThreadEventKind::SwitchedOut { preempted: true } => {
                row.preemptions += 1;
                *state = leave(*state, Activity::Preempted(at_ns), at_ns, row);
            }
            ThreadEventKind::SwitchedOut { preempted: false } => {
                row.waits += 1;
                *state = leave(*state, Activity::Waiting(at_ns), at_ns, row);
            }
            ThreadEventKind::Named { name, is_exec } => {
                row.name.clone_from(name);
                // The thread runs: it has executed the program itself.
                if *is_exec && matches!(state, Activity::Unknown | Activity::Ended) {
                    row.runs += 1;
                    row.has_ended = false;
                    *state = Activity::Running(at_ns);
                }
            }
            ThreadEventKind::Ended => {
                *state = leave(*state, Activity::Ended, at_ns, row);
                row.has_ended = true;
                forget(&mut self.living, row.process, thread);
                if self.threads.len() > MOST_THREADS {
                    self.threads.remove(&thread);
                }
            }
            ThreadEventKind::Started { .. }
            | ThreadEventKind::Lost { .. }
            | ThreadEventKind::Mapped { .. }
            | ThreadEventKind::Sampled { .. } => {}
        }
    }

    /// Ends all threads of `process` but `thread`, which executes a program: the kernel ends them, and a thread that was
    /// not the first one takes the first one's number.
    fn end_others(&mut self, process: i32, thread: i32, at_ns: u64) {
        for other in self.living.insert(process, BTreeSet::from([thread])).unwrap_or_default() {
            let Some((state, row)) = self.threads.get_mut(&other).filter(|_| other != thread) else {
                continue;
            };
            *state = leave(*state, Activity::Ended, at_ns, row);
            row.has_ended = true;
        }
    }

    /// Keeps the row of a thread whose number another one has now, as long as there are not too many.
    fn end(&mut self, row: ThreadRow) {
        forget(&mut self.living, row.process, row.thread);
        if self.ended.len() < MOST_ENDED {
            self.ended.push(row);
        }
    }

    /// Ends the recording at `at_ns`. Returns the rows, the most CPU time first, and the number of lost events.
    pub fn finish(self, at_ns: u64) -> (Vec<ThreadRow>, u64) {
        let open = self.threads.into_values().map(|(state, mut row)| {
            if state != Activity::Unknown && state != Activity::Ended {
                leave(state, Activity::Ended, at_ns, &mut row);
            }
            row
        });
        let mut rows: Vec<ThreadRow> = self.ended.into_iter().chain(open).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.running_ns), row.thread));
        (rows, self.lost)
    }
}

/// Removes a thread from those of its process that have not ended.
fn forget(living: &mut HashMap<i32, BTreeSet<i32>>, process: i32, thread: i32) {
    if let Some(threads) = living.get_mut(&process) {
        threads.remove(&thread);
        if threads.is_empty() {
            living.remove(&process);
        }
    }
}

/// Adds the time in `state`, which ends at `at_ns`, to `row`, and counts a gap if `next` cannot follow. Returns
/// `next`.
fn leave(state: Activity, next: Activity, at_ns: u64, row: &mut ThreadRow) -> Activity {
    let can_follow = match (state, next) {
        (Activity::Unknown, _) | (Activity::Running(_), Activity::Ended) => true,
        (Activity::Running(_), Activity::Running(_)) => false,
        (Activity::Running(_), _) | (_, Activity::Running(_) | Activity::Ended) => true,
        _ => false,
    };
    if !can_follow {
        row.gaps += 1;
        return next;
    }
    let (since_ns, sum) = match state {
        Activity::Unknown | Activity::Ended => return next,
        Activity::Started(since) => (since, &mut row.start_ns),
        Activity::Running(since) => (since, &mut row.running_ns),
        Activity::Preempted(since) => (since, &mut row.preempted_ns),
        Activity::Waiting(since) => (since, &mut row.waiting_ns),
    };
    *sum += at_ns.saturating_sub(since_ns);
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(thread: i32, at_ns: u64, kind: ThreadEventKind) -> ThreadEvent {
        ThreadEvent { process: 1, thread, at_ns, kind }
    }

    const IN: ThreadEventKind = ThreadEventKind::SwitchedIn;
    const WAITS: ThreadEventKind = ThreadEventKind::SwitchedOut { preempted: false };
    const PREEMPTED: ThreadEventKind = ThreadEventKind::SwitchedOut { preempted: true };

    fn rows(events: &[(i32, u64, ThreadEventKind)]) -> (Vec<ThreadRow>, u64) {
        let mut times = ThreadTimes::default();
        for (thread, at_ns, kind) in events {
            times.record(&event(*thread, *at_ns, kind.clone()));
        }
        times.finish(1000)
    }

    #[test]
    fn each_time_counts_for_what_the_thread_did() {
        let exec = ThreadEventKind::Named { name: "ffmpeg".to_owned(), is_exec: true };
        let started = ThreadEventKind::Started { thread: 2, process: 1 };
        let name = ThreadEventKind::Named { name: "decoder".to_owned(), is_exec: false };
        let (rows, lost) = rows(&[
            (1, 100, exec),
            (1, 110, started),
            (2, 115, IN),
            (2, 116, name),
            (1, 120, WAITS),
            (2, 125, PREEMPTED),
            (1, 130, IN),
            (2, 132, IN),
            (2, 142, ThreadEventKind::Ended),
        ]);
        assert_eq!(lost, 0);
        let first = &rows[0];
        assert_eq!((first.name.as_str(), first.running_ns, first.waiting_ns), ("ffmpeg", 20 + 870, 10));
        assert_eq!((first.runs, first.waits, first.preemptions, first.has_ended), (2, 1, 0, false));
        let second = &rows[1];
        assert_eq!((second.name.as_str(), second.start_ns, second.running_ns), ("decoder", 5, 10 + 10));
        assert_eq!((second.preempted_ns, second.preemptions, second.has_ended), (7, 1, true));
        assert!(rows.iter().all(|row| row.gaps == 0));
    }

    #[test]
    fn a_thread_that_waits_all_the_time_has_no_event() {
        let mut times = ThreadTimes::default();
        times.add(1, 1, "waits", Some(100));
        times.add(1, 2, "runs", None);
        let (rows, _) = times.finish(1000);
        assert_eq!(rows.iter().map(|row| (row.waiting_ns, row.gaps)).collect::<Vec<_>>(), [(900, 0), (0, 0)]);
    }

    #[test]
    fn a_program_that_another_thread_than_the_first_executes_has_the_first_ones_number() {
        let exec = ThreadEventKind::Named { name: "next".to_owned(), is_exec: true };
        let ended = ThreadEventKind::Ended;
        let (rows, _) = rows(&[(1, 10, IN), (2, 20, IN), (1, 30, ended), (1, 50, exec), (1, 60, WAITS)]);
        let of = |thread| rows.iter().find(|row| row.thread == thread).unwrap();
        assert_eq!((of(1).running_ns, of(1).waiting_ns, of(1).has_ended), (20 + 10, 940, false));
        assert_eq!((of(2).running_ns, of(2).has_ended, of(2).gaps), (30, true, 0));
    }

    #[test]
    fn a_missing_event_is_a_gap_and_its_time_is_not_guessed() {
        // The thread left its CPU between 10 and 50, and this event is missing.
        let (rows, _) = rows(&[(1, 10, IN), (1, 50, IN), (1, 60, WAITS), (1, 70, WAITS), (1, 80, IN)]);
        assert_eq!((rows[0].running_ns, rows[0].waiting_ns, rows[0].gaps), (10 + 920, 10, 2));
    }

    #[test]
    fn lost_events_are_gaps_of_all_threads() {
        let lost = ThreadEventKind::Lost { count: 7 };
        let (rows, lost) = rows(&[(1, 10, IN), (2, 10, WAITS), (0, 50, lost), (1, 60, WAITS), (1, 70, IN)]);
        assert_eq!(lost, 7);
        assert_eq!(rows.iter().map(|row| row.gaps).collect::<Vec<_>>(), [1, 1]);
        assert_eq!((rows[0].running_ns, rows[0].waiting_ns), (930, 10));
    }

    #[test]
    fn a_number_that_is_used_again_is_another_thread() {
        let start = || ThreadEventKind::Started { thread: 2, process: 1 };
        let ended = ThreadEventKind::Ended;
        let (rows, _) = rows(&[(1, 5, start()), (2, 10, IN), (2, 20, ended), (1, 30, start()), (2, 40, IN)]);
        let times: Vec<_> = rows.iter().filter(|row| row.thread == 2).map(|row| row.running_ns).collect();
        assert_eq!(times, [960, 10]);
    }
}
