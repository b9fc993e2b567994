// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timelines of threads: at each time a thread ran, could run but had no CPU, or waited.
//!
//! This module is pure arithmetic.

use std::collections::HashMap;

use framepath_os::measure::process_events::{ThreadEvent, ThreadEventKind};

use crate::probe_event::SwitchOut;
use crate::switch_records::{Slice, Switches};
use crate::wait_object::WaitObjects;
use crate::wait_reason::WaitReason;

/// Wait of a thread: for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ThreadWait {
    pub(crate) reason: WaitReason,
    /// Number of the object in the recording's [`WaitObjects`].
    pub(crate) object: Option<u32>,
    /// True if the thread waits until it can write.
    pub(crate) is_write: bool,
}

impl From<WaitReason> for ThreadWait {
    fn from(reason: WaitReason) -> ThreadWait {
        ThreadWait { reason, object: None, is_write: false }
    }
}

/// Longest time on a CPU between two slices of one wait, nanoseconds.
const BETWEEN_SLICES_NS: u64 = 1_000_000;

/// Activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It ran on a CPU.
    Running,
    /// It could run, but another thread had its CPU.
    Preempted,
    /// It could run, but its group had used up its CPU quota.
    Throttled,
    /// A signal, a debugger or the freezer had stopped it.
    Stopped,
    /// It waited for this.
    Waiting(ThreadWait),
    /// It had been woken up, and did not run yet.
    Woken,
}

/// Stretch of time in which a thread did one thing. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadStretch {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) doing: Doing,
    /// Thread that ended the wait; 0 if that is not known, and if the stretch is no wait.
    pub(crate) by: i32,
    /// Part of the time on a CPU in which interrupts or the host used it; where in the stretch is not known.
    pub(crate) stolen_ns: u64,
    /// Number of page faults without I/O in it.
    pub(crate) faults: u32,
}

impl ThreadStretch {
    /// True for a wait that the thread `by` ended.
    pub(crate) fn is_ended_by(&self, by: i32) -> bool {
        matches!(self.doing, Doing::Waiting(wait) if wait.reason.has_waker()) && self.by == by
    }

    /// True for a wait that the thread `by` may have ended: also if the level of the recording does not show who did.
    pub(crate) fn may_be_ended_by(&self, by: i32) -> bool {
        self.is_ended_by(by) || self.doing == Doing::Waiting(WaitReason::Unknown.into()) && self.by == 0
    }
}

/// Stretches of one thread in the order of time; what lies between two of them is not known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    stretches: Vec<ThreadStretch>,
}

/// Wake-up of a waiting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WakeUp {
    pub(crate) at_ns: u64,
    pub(crate) thread: i32,
    /// Thread that did it; 0 for an interrupt while no thread ran.
    pub(crate) by: i32,
    /// True if the freezer had stopped it, and its wait would have been over.
    pub(crate) is_thaw: bool,
}

/// Most stretches of a thread in which one is looked for: a program can make any number.
const MOST_LOOKS: usize = 10_000;

impl Timeline {
    /// Returns the stretches between `from_ns` and `to_ns`, cut to this time.
    pub(crate) fn between(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = ThreadStretch> {
        let to_ns = to_ns.max(from_ns);
        let first = self.stretches.partition_point(|stretch| stretch.to_ns <= from_ns);
        let inside = self.stretches[first..].iter().take_while(move |stretch| stretch.from_ns < to_ns);
        inside.map(move |stretch| {
            let (from_ns, to_ns) = (stretch.from_ns.max(from_ns), stretch.to_ns.min(to_ns));
            let share = (to_ns - from_ns) as f64 / (stretch.to_ns - stretch.from_ns) as f64;
            let stolen_ns = (stretch.stolen_ns as f64 * share) as u64;
            let faults = (f64::from(stretch.faults) * share).round() as u32;
            ThreadStretch { from_ns, to_ns, stolen_ns, faults, ..*stretch }
        })
    }

    /// Returns the end of the last stretch for which `is_wanted` holds and that ended between the two times, of the last
    /// [`MOST_LOOKS`].
    pub(crate) fn last_end(
        &self,
        from_ns: u64,
        to_ns: u64,
        is_wanted: impl Fn(&ThreadStretch) -> bool,
    ) -> Option<u64> {
        let end = self.stretches.partition_point(|stretch| stretch.to_ns <= to_ns);
        let mut before =
            self.stretches[..end].iter().rev().take(MOST_LOOKS).take_while(|stretch| stretch.to_ns > from_ns);
        before.find(|stretch| is_wanted(stretch)).map(|stretch| stretch.to_ns)
    }

    /// Returns the begin of the wait that goes on at `at_ns`, a wake-up at its end included; `None` if the thread did not
    /// wait then.
    pub(crate) fn wait_at(&self, at_ns: u64) -> Option<u64> {
        let mut index = self.stretches.partition_point(|stretch| stretch.to_ns < at_ns);
        let mut from_ns = None;
        loop {
            let stretch = self.stretches.get(index)?;
            match stretch.doing {
                Doing::Waiting(_) | Doing::Woken if stretch.from_ns < at_ns => {
                    from_ns = Some(stretch.from_ns)
                }
                // A part of the wake-up, if there is a wait in front of it.
                Doing::Throttled if stretch.from_ns < at_ns => {}
                _ => return from_ns,
            }
            index = match index.checked_sub(1) {
                Some(before) => before,
                None => return from_ns,
            };
        }
    }

    fn push(&mut self, from_ns: u64, to_ns: u64, doing: Doing, by: i32) {
        if from_ns < to_ns {
            self.stretches.push(ThreadStretch { from_ns, to_ns, doing, by, stolen_ns: 0, faults: 0 });
        }
    }

    /// Adds a stretch on a CPU, with the time by the thread's CPU clock and the page faults in it; `None` if they are not known.
    fn push_run(&mut self, from_ns: u64, to_ns: u64, run: Option<(u64, u32)>) {
        // The recording may have ended before.
        if from_ns >= to_ns {
            return;
        }
        self.push(from_ns, to_ns, Doing::Running, 0);
        if let (Some(stretch), Some((clock_ns, faults))) = (self.stretches.last_mut(), run) {
            stretch.stolen_ns = (to_ns - from_ns).saturating_sub(clock_ns);
            stretch.faults = faults;
        }
    }

    /// Names waits with a limit that are slices of one wait, and those that ran out. `slices` has the index of each wait with a
    /// limit. A slice that ran out is named as the next one, if the thread hardly ran in between and waits for the same
    /// again; behind the last one, nothing but the time has come.
    fn join_slices(&mut self, slices: &[(usize, Slice)]) {
        let mut next: Option<(usize, Slice)> = None;
        for (index, slice) in slices.iter().rev().copied() {
            if slice.has_run_out {
                let follower = next.filter(|(next, other)| {
                    let between = self.stretches.get(index + 1..*next).unwrap_or_default();
                    let is_wait = |stretch: &ThreadStretch| matches!(stretch.doing, Doing::Waiting(_));
                    let run_ns: u64 = between
                        .iter()
                        .filter(|stretch| stretch.doing == Doing::Running)
                        .map(|stretch| stretch.to_ns - stretch.from_ns)
                        .sum();
                    slice.is_same(other) && run_ns < BETWEEN_SLICES_NS && !between.iter().any(is_wait)
                });
                self.stretches[index].doing = match follower {
                    Some((next, _)) => self.stretches[next].doing,
                    None => Doing::Waiting(WaitReason::Timer.into()),
                };
            }
            next = Some((index, slice));
        }
    }
}

/// Adds a time in which a thread could run and had no CPU.
fn push_parts(line: &mut Timeline, from_ns: u64, doing: Doing, parts: &[(u64, bool)]) {
    let mut at_ns = from_ns;
    for (end_ns, is_throttled) in parts {
        line.push(at_ns, *end_ns, if *is_throttled { Doing::Throttled } else { doing }, 0);
        at_ns = *end_ns;
    }
}

/// Makes the timelines of all threads. `events`, `switches` and `wake_ups` are in the
/// order of their times; `objects` are those of the switches; the recording ended at `end_ns`.
pub(crate) fn timelines(
    events: &[ThreadEvent],
    switches: &[SwitchOut],
    objects: &WaitObjects,
    wake_ups: &[WakeUp],
    end_ns: u64,
) -> HashMap<i32, Timeline> {
    let switches = Switches::new(switches, events, objects);
    let mut slices: HashMap<i32, Vec<(usize, Slice)>> = HashMap::new();
    let mut woken: HashMap<i32, Vec<WakeUp>> = HashMap::new();
    for wake_up in wake_ups {
        woken.entry(wake_up.thread).or_default().push(*wake_up);
    }
    let mut lines: HashMap<i32, Timeline> = HashMap::new();
    // Activity of each thread, with the time of its begin.
    let mut now: HashMap<i32, (Doing, u64)> = HashMap::new();
    let mut next = |thread: i32, at_ns: u64, doing: Option<Doing>| {
        let before = now.remove(&thread);
        if let Some(doing) = doing {
            now.insert(thread, (doing, at_ns));
        }
        let Some((was, since_ns)) = before else { return };
        // Two switches in the same direction: one in between is missing.
        if doing == Some(Doing::Running) && was == Doing::Running
            || doing.is_some_and(|doing| doing != Doing::Running) && was != Doing::Running
        {
            return;
        }
        let line = lines.entry(thread).or_default();
        match was {
            Doing::Waiting(_) => {
                let wake_ups = woken.get(&thread).map_or(&[][..], Vec::as_slice);
                let first = wake_ups.partition_point(|wake_up| wake_up.at_ns < since_ns);
                let wake_up = wake_ups.get(first).filter(|wake_up| wake_up.at_ns <= at_ns);
                let (woken_ns, by) = wake_up.map_or((at_ns, 0), |wake_up| (wake_up.at_ns, wake_up.by));
                let (doing, slice) = switches.wait(thread, since_ns, woken_ns);
                let index = line.stretches.len();
                // Behind its limit, a wait of a frozen thread is over.
                let is_thaw = wake_up.is_some_and(|wake_up| wake_up.is_thaw);
                let limit_ns = switches.limit_ns(thread, since_ns).filter(|_| is_thaw);
                let over_ns = limit_ns.map_or(woken_ns, |limit_ns| limit_ns.clamp(since_ns, woken_ns));
                line.push(since_ns, over_ns, doing, by);
                line.push(over_ns, woken_ns, Doing::Stopped, 0);
                if let Some(slice) =
                    slice.filter(|_| line.stretches.get(index).is_some_and(|wait| wait.doing == doing))
                {
                    slices.entry(thread).or_default().push((index, slice));
                }
                push_parts(line, woken_ns, Doing::Woken, &switches.parts(thread, woken_ns, at_ns));
            }
            Doing::Preempted if switches.is_throttled(thread, since_ns) => {
                line.push(since_ns, at_ns, Doing::Throttled, 0);
            }
            Doing::Preempted => {
                push_parts(line, since_ns, Doing::Preempted, &switches.parts(thread, since_ns, at_ns));
            }
            Doing::Running => line.push_run(since_ns, at_ns, switches.run(thread, since_ns, at_ns)),
            was => line.push(since_ns, at_ns, was, 0),
        }
    };
    for event in events {
        match &event.kind {
            ThreadEventKind::SwitchedIn => next(event.thread, event.at_ns, Some(Doing::Running)),
            ThreadEventKind::SwitchedOut { preempted: true } => {
                next(event.thread, event.at_ns, Some(Doing::Preempted));
            }
            ThreadEventKind::SwitchedOut { preempted: false } => {
                next(event.thread, event.at_ns, Some(Doing::Waiting(WaitReason::Unknown.into())));
            }
            ThreadEventKind::Named { is_exec: true, .. } => {
                next(event.thread, event.at_ns, None);
                next(event.thread, event.at_ns, Some(Doing::Running));
            }
            ThreadEventKind::Started { thread, .. } => next(*thread, event.at_ns, Some(Doing::Preempted)),
            ThreadEventKind::Ended => next(event.thread, event.at_ns, None),
            ThreadEventKind::Named { .. }
            | ThreadEventKind::Lost { .. }
            | ThreadEventKind::Mapped { .. }
            | ThreadEventKind::Sampled { .. } => {}
        }
    }
    let threads: Vec<i32> = events.iter().map(|event| event.thread).collect();
    for thread in threads {
        next(thread, end_ns, None);
    }
    for (thread, slices) in slices {
        lines.entry(thread).or_default().join_slices(&slices);
    }
    lines
}

/// Returns the activity of a thread that waits for this, without an object.
#[cfg(test)]
pub(crate) const fn waiting(reason: WaitReason) -> Doing {
    Doing::Waiting(ThreadWait { reason, object: None, is_write: false })
}

/// Makes a timeline of stretches: begin, end, activity, and the thread that ended a wait.
#[cfg(test)]
pub(crate) fn line(stretches: &[(u64, u64, Doing, i32)]) -> Timeline {
    let stretch =
        |(from_ns, to_ns, doing, by)| ThreadStretch { from_ns, to_ns, doing, by, stolen_ns: 0, faults: 0 };
    Timeline::of(stretches.iter().copied().map(stretch).collect())
}

#[cfg(test)]
impl Timeline {
    /// Makes the timeline of these stretches.
    pub(crate) fn of(stretches: Vec<ThreadStretch>) -> Timeline {
        Timeline { stretches }
    }
}

#[cfg(test)]
mod tests {
    use super::Doing::{Preempted, Running, Woken};
    use super::*;
    use crate::probe_event::{SwitchReason, SystemCall};
    use crate::switch_records::SAME_SWITCH_NS;

    const FUTEX: Doing = waiting(WaitReason::Lock);
    const TIMER: Doing = waiting(WaitReason::Timer);

    fn switch(at_ns: u64, reason: SwitchReason, clock_ns: u64) -> SwitchOut {
        SwitchOut { at_ns, process: 1, thread: 1, reason, queue: 0, clock_ns, faults: [clock_ns, 0] }
    }

    fn event(thread: i32, at_ns: u64, kind: ThreadEventKind) -> ThreadEvent {
        ThreadEvent { process: 1, thread, at_ns, kind }
    }

    const IN: ThreadEventKind = ThreadEventKind::SwitchedIn;
    const WAITS: ThreadEventKind = ThreadEventKind::SwitchedOut { preempted: false };
    const PREEMPTED: ThreadEventKind = ThreadEventKind::SwitchedOut { preempted: true };

    #[test]
    fn a_run_that_is_longer_than_its_clock_was_stolen_in_part() {
        const MS: u64 = 1_000_000;
        let started = ThreadEventKind::Started { thread: 1, process: 1 };
        let events = [
            event(9, 0, started),
            event(1, 0, IN),
            event(1, 10 * MS, PREEMPTED),
            event(1, 20 * MS, IN),
            event(1, 30 * MS, WAITS),
            event(1, 40 * MS, IN),
            event(1, 50 * MS, WAITS),
        ];
        // The record of the second switch is missing; records of the two observers are some microseconds apart.
        let preempted = |at_ns, clock_ns| switch(at_ns, SwitchReason::Preempted, clock_ns);
        let switches = [preempted(10 * MS - 2000, 8 * MS), preempted(50 * MS + 1000, 25 * MS)];
        let lines = timelines(&events, &switches, &WaitObjects::default(), &[], 60 * MS);
        let runs = |from_ns, to_ns| lines[&1].between(from_ns, to_ns).filter(|run| run.doing == Running);
        let stolen: Vec<u64> = runs(0, 60 * MS).map(|run| run.stolen_ns).collect();
        assert_eq!(stolen, [2 * MS, 0, 0]);
        // Half of the run has half of it.
        assert_eq!(runs(5 * MS, 10 * MS).map(|run| run.stolen_ns).collect::<Vec<_>>(), [MS]);
        assert_eq!(runs(0, 10 * MS).map(|run| u64::from(run.faults)).collect::<Vec<_>>(), [8 * MS]);
    }

    #[test]
    fn a_thread_does_one_thing_at_a_time_and_lost_switches_leave_holes() {
        let events = [
            event(1, 10, IN),
            event(1, 20, WAITS),
            event(1, 50, IN),
            event(1, 60, PREEMPTED),
            event(1, 70, IN),
            // A switch away is missing.
            event(1, 90, IN),
            event(1, 95, ThreadEventKind::Ended),
        ];
        let wake_ups =
            [(5, 7), (45, 8), (48, 9)].map(|(at_ns, by)| WakeUp { at_ns, thread: 1, by, is_thaw: false });
        let futex = |limit_ns| SystemCall {
            number: libc::SYS_futex,
            arguments: [0, 9],
            limit_ns,
            ..SystemCall::default()
        };
        let switches = [switch(19, SwitchReason::Waits(futex(None)), 0)];
        let objects = WaitObjects::default();
        let lines = timelines(&events, &switches, &objects, &wake_ups, 100);
        let all: Vec<_> =
            lines[&1].between(0, 100).map(|part| (part.from_ns, part.to_ns, part.doing)).collect();
        let wanted = [
            (10, 20, Running),
            (20, 45, FUTEX),
            (45, 50, Woken),
            (50, 60, Running),
            (60, 70, Preempted),
            (90, 95, Running),
        ];
        assert_eq!(all, wanted);
        // With a limit, the same wait ends by a timer, or because a thread ends it before.
        for (limit_ns, wanted) in [(45, TIMER), (45 + SAME_SWITCH_NS + 1, FUTEX)] {
            let switches = [switch(19, SwitchReason::Waits(futex(Some(limit_ns))), 0)];
            let lines = timelines(&events, &switches, &objects, &wake_ups, 100);
            assert_eq!(lines[&1].between(20, 45).map(|part| part.doing).collect::<Vec<_>>(), [wanted]);
        }
        let cut: Vec<_> =
            lines[&1].between(30, 46).map(|part| (part.from_ns, part.to_ns, part.doing)).collect();
        assert_eq!(cut, [(30, 45, FUTEX), (45, 46, Woken)]);
        let wake_ups = [(7, 0, 100), (8, 0, 45), (8, 45, 100), (9, 0, 100)];
        let last = wake_ups
            .map(|(by, from_ns, to_ns)| lines[&1].last_end(from_ns, to_ns, |wait| wait.is_ended_by(by)));
        assert_eq!(last, [None, Some(45), None, None]);
        // The thread that a timer's interrupt meets has not ended the wait.
        let timer = ThreadStretch { from_ns: 0, to_ns: 9, doing: TIMER, by: 8, stolen_ns: 0, faults: 0 };
        assert!(!timer.is_ended_by(8) && ThreadStretch { doing: FUTEX, ..timer }.is_ended_by(8));
        let unknown = ThreadStretch { doing: waiting(WaitReason::Unknown), by: 0, ..timer };
        assert!(!unknown.is_ended_by(8) && unknown.may_be_ended_by(8) && !timer.may_be_ended_by(8));
        assert_eq!(
            [15, 30, 47, 55, 200].map(|at| lines[&1].wait_at(at)),
            [None, Some(20), Some(20), None, None]
        );
    }

    /// Marks of the kernel in the switches name what the thread itself cannot know.
    #[test]
    fn quotas_and_stops_are_told_from_preemptions_and_waits() {
        let events = [
            event(1, 0, IN),
            event(1, 10, PREEMPTED),
            event(1, 1_000_000, IN),
            event(1, 2_000_000, WAITS),
            event(1, 3_000_000, IN),
        ];
        let switches = [switch(9, SwitchReason::Throttled, 9), switch(2_000_000, SwitchReason::Stopped, 20)];
        let lines = timelines(&events, &switches, &WaitObjects::default(), &[], 3_000_001);
        let doing: Vec<Doing> = lines[&1].between(0, 3_000_001).map(|part| part.doing).collect();
        assert_eq!(doing, [Running, Doing::Throttled, Running, Doing::Stopped, Running]);
    }

    /// Before Linux 6.18, the kernel marks a run queue: its threads that could run without a CPU are throttled, too.
    #[test]
    fn all_threads_of_a_queue_are_throttled_from_its_mark_until_one_of_them_runs() {
        let events = [
            event(1, 10, IN),
            event(1, 20, PREEMPTED),
            event(3, 15, IN),
            event(3, 25, WAITS),
            event(2, 20, IN),
            // This thread used up the quota at 30; the next period begins at 80.
            event(2, 31, PREEMPTED),
            event(2, 80, IN),
            event(2, 90, WAITS),
            event(1, 90, IN),
            event(1, 100, WAITS),
            event(3, 100, IN),
            event(3, 110, WAITS),
        ];
        let on = |thread, at_ns, reason| SwitchOut { thread, queue: 7, ..switch(at_ns, reason, 0) };
        let futex = SystemCall { number: libc::SYS_futex, arguments: [0, 9], ..SystemCall::default() };
        let waits = SwitchReason::Waits(futex);
        let switches = [
            on(1, 19, SwitchReason::Preempted),
            on(3, 24, waits),
            on(2, 30, SwitchReason::Throttled),
            on(2, 90, waits),
            on(1, 99, waits),
            on(3, 109, waits),
        ];
        let wake_ups = [WakeUp { at_ns: 50, thread: 3, by: 0, is_thaw: false }];
        let lines = timelines(&events, &switches, &WaitObjects::default(), &wake_ups, 110);
        let parts = |thread: i32, from_ns, to_ns| {
            let parts = lines[&thread].between(from_ns, to_ns);
            parts.map(|part| (part.from_ns, part.to_ns, part.doing)).collect::<Vec<_>>()
        };
        assert_eq!(parts(2, 31, 80), [(31, 80, Doing::Throttled)]);
        assert_eq!(parts(1, 20, 90), [(20, 31, Preempted), (31, 80, Doing::Throttled), (80, 90, Preempted)]);
        assert_eq!(parts(3, 25, 100), [(25, 50, FUTEX), (50, 80, Doing::Throttled), (80, 100, Woken)]);
        assert_eq!([70, 95].map(|at_ns| lines[&3].wait_at(at_ns)), [Some(25); 2]);
        assert_eq!(lines[&1].wait_at(70), None);
    }

    /// Polls of one descriptor with a limit are one wait for it; the last one may run out, and the next one may be for another.
    #[test]
    fn slices_of_a_wait_are_one_wait() {
        const MS: u64 = 1_000_000;
        const POLL: Doing = waiting(WaitReason::Poll);
        // Waits of 10 ms from 10, 20 (behind a short run) and 30 ms on, one behind a long run, one for another address.
        let mut events = Vec::new();
        let mut switches = Vec::new();
        let begins = [(10, 0x10), (20, 0x10), (30, 0x10), (50, 0x10), (60, 0x20)];
        for (index, (begin, address)) in begins.into_iter().enumerate() {
            events.extend([event(1, begin * MS, WAITS), event(1, (begin + 10) * MS - 1000, IN)]);
            let call = SystemCall {
                number: libc::SYS_ppoll,
                arguments: [address, 1],
                // The third one is ended by its descriptor.
                limit_ns: Some(begin * MS + if index == 2 { 500 * MS } else { 9 * MS }),
                ..SystemCall::default()
            };
            switches.push(switch(begin * MS, SwitchReason::Waits(call), 0));
        }
        let lines = timelines(&events, &switches, &WaitObjects::default(), &[], 70 * MS);
        let waits = lines[&1].between(0, 70 * MS).filter(|part| matches!(part.doing, Doing::Waiting(_)));
        let doing: Vec<Doing> = waits.map(|part| part.doing).collect();
        assert_eq!(doing, [POLL, POLL, POLL, TIMER, TIMER]);
    }
}
