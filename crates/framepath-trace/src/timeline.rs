// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timelines of threads: at each time a thread ran, could run but had no CPU, or waited.
//!
//! This module is pure arithmetic.

use std::collections::{HashMap, HashSet};

use framepath_os::measure::process_events::{ThreadEvent, ThreadEventKind};

use crate::probes::SwitchOut;

/// Why a thread waited: the system call in which it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum WaitReason {
    /// A timer: nanosleep and its relatives, and other waits that had a limit and that nothing ended before. The thread
    /// wanted to wait until a time.
    Timer,
    /// A lock or a condition variable (futex).
    Lock,
    /// Reading a file, pipe or socket.
    Read,
    /// Writing a file, pipe or socket.
    Write,
    /// Several files at once, for a child process, or until a signal.
    Poll,
    /// A device's call.
    Ioctl,
    /// No system call: a page was missing, mostly.
    Fault,
    /// Another system call.
    Other,
    /// The level of the recording does not show the reason.
    Unknown,
}

impl WaitReason {
    /// Returns the reason of a wait in system call `number`; negative outside of calls.
    fn of(number: i64) -> WaitReason {
        match number {
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => WaitReason::Timer,
            libc::SYS_futex => WaitReason::Lock,
            libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_accept4 => WaitReason::Read,
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_sendfile => WaitReason::Write,
            libc::SYS_ppoll
            | libc::SYS_pselect6
            | libc::SYS_epoll_pwait
            | libc::SYS_wait4
            | libc::SYS_waitid => WaitReason::Poll,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll | libc::SYS_select | libc::SYS_epoll_wait => WaitReason::Poll,
            libc::SYS_ioctl => WaitReason::Ioctl,
            ..0 => WaitReason::Fault,
            _ => WaitReason::Other,
        }
    }

    /// Returns the name of what the thread waited for.
    pub(crate) fn name(self) -> &'static str {
        match self {
            WaitReason::Timer => "timer",
            WaitReason::Lock => "lock",
            WaitReason::Read => "read",
            WaitReason::Write => "write",
            WaitReason::Poll => "poll",
            WaitReason::Ioctl => "ioctl",
            WaitReason::Fault => "page fault",
            WaitReason::Other => "other",
            WaitReason::Unknown => "unknown",
        }
    }
}

/// Activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It ran on a CPU.
    Running,
    /// It could run, but another thread had its CPU.
    Preempted,
    /// It waited, for this reason.
    Waiting(WaitReason),
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
}

impl ThreadStretch {
    /// True for a wait that the thread `by` ended. The waker of other waits than these may be any thread that an
    /// interrupt met: a timer's, a disk's.
    pub(crate) fn is_ended_by(&self, by: i32) -> bool {
        matches!(self.doing, Doing::Waiting(WaitReason::Lock | WaitReason::Poll)) && self.by == by
    }

    /// True for a wait that the thread `by` may have ended: also if the level of the recording does not show who did.
    pub(crate) fn may_be_ended_by(&self, by: i32) -> bool {
        self.is_ended_by(by) || self.doing == Doing::Waiting(WaitReason::Unknown) && self.by == 0
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
}

/// Two records of one switch, by the scheduler's tracepoint and by perf, have times that differ by less than this,
/// nanoseconds.
const SAME_SWITCH_NS: u64 = 50_000;

impl Timeline {
    /// Returns the stretches between `from_ns` and `to_ns`, cut to this time.
    pub(crate) fn between(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = ThreadStretch> {
        let first = self.stretches.partition_point(|stretch| stretch.to_ns <= from_ns);
        let inside = self.stretches[first..].iter().take_while(move |stretch| stretch.from_ns < to_ns);
        inside.map(move |stretch| {
            let (from_ns, to_ns) = (stretch.from_ns.max(from_ns), stretch.to_ns.min(to_ns));
            let share = (to_ns - from_ns) as f64 / (stretch.to_ns - stretch.from_ns) as f64;
            let stolen_ns = (stretch.stolen_ns as f64 * share) as u64;
            ThreadStretch { from_ns, to_ns, stolen_ns, ..*stretch }
        })
    }

    /// Returns the end of the last stretch for which `is_wanted` holds and that ended between the two times.
    pub(crate) fn last_end(
        &self,
        from_ns: u64,
        to_ns: u64,
        is_wanted: impl Fn(&ThreadStretch) -> bool,
    ) -> Option<u64> {
        let end = self.stretches.partition_point(|stretch| stretch.to_ns <= to_ns);
        let mut before = self.stretches[..end].iter().rev().take_while(|stretch| stretch.to_ns > from_ns);
        before.find(|stretch| is_wanted(stretch)).map(|stretch| stretch.to_ns)
    }

    /// Returns the begin of the wait that goes on at `at_ns`, a wake-up at its end included; `None` if the thread did not
    /// wait then.
    pub(crate) fn wait_at(&self, at_ns: u64) -> Option<u64> {
        let mut index = self.stretches.partition_point(|stretch| stretch.to_ns < at_ns);
        let is_wait = |stretch: &ThreadStretch| matches!(stretch.doing, Doing::Waiting(_) | Doing::Woken);
        let mut from_ns = None;
        loop {
            let stretch = self.stretches.get(index)?;
            match is_wait(stretch) && stretch.from_ns < at_ns {
                true => from_ns = Some(stretch.from_ns),
                false => return from_ns,
            }
            index = match index.checked_sub(1) {
                Some(before) => before,
                None => return from_ns,
            };
        }
    }

    fn push(&mut self, from_ns: u64, to_ns: u64, doing: Doing, by: i32) {
        if from_ns < to_ns {
            self.stretches.push(ThreadStretch { from_ns, to_ns, doing, by, stolen_ns: 0 });
        }
    }

    /// Adds a stretch on a CPU, in which the thread ran for `clock_ns` by its CPU clock; `None` if that is not known.
    fn push_run(&mut self, from_ns: u64, to_ns: u64, clock_ns: Option<u64>) {
        self.push(from_ns, to_ns, Doing::Running, 0);
        if let (Some(run), Some(clock_ns)) = (self.stretches.last_mut(), clock_ns) {
            run.stolen_ns = (to_ns - from_ns).saturating_sub(clock_ns);
        }
    }
}

/// Switches of CPUs away from each thread, in the order of their times.
struct Switches<'a> {
    by_thread: HashMap<i32, Vec<&'a SwitchOut>>,
    /// Threads that were started during the recording: their clocks began at 0.
    started: HashSet<i32>,
}

impl<'a> Switches<'a> {
    fn new(switches: &'a [SwitchOut], events: &[ThreadEvent]) -> Switches<'a> {
        let mut by_thread: HashMap<i32, Vec<&SwitchOut>> = HashMap::new();
        for switch in switches {
            by_thread.entry(switch.thread).or_default().push(switch);
        }
        let started = events.iter().filter_map(|event| match event.kind {
            ThreadEventKind::Started { thread, .. } => Some(thread),
            _ => None,
        });
        Switches { by_thread, started: started.collect() }
    }

    /// Returns the switch that perf recorded at `at_ns`, and the one before it.
    fn at(&self, thread: i32, at_ns: u64) -> Option<(&'a SwitchOut, Option<&'a SwitchOut>)> {
        let switches = self.by_thread.get(&thread)?;
        let next = switches.partition_point(|switch| switch.at_ns < at_ns + SAME_SWITCH_NS);
        let last = next.checked_sub(1)?;
        let before = last.checked_sub(1).map(|before| switches[before]);
        (switches[last].at_ns + SAME_SWITCH_NS > at_ns).then_some((switches[last], before))
    }

    /// Returns why the thread waited from `since_ns` to `woken_ns`.
    fn reason(&self, thread: i32, since_ns: u64, woken_ns: u64) -> WaitReason {
        // The kernel counts a duration from a little before the switch on.
        let is_over = |limit_ns: u64| woken_ns.saturating_add(SAME_SWITCH_NS) >= limit_ns;
        match self.at(thread, since_ns).and_then(|(switch, _)| switch.wait) {
            Some(call) if call.limit_ns.is_some_and(is_over) => WaitReason::Timer,
            Some(call) => WaitReason::of(call.number),
            None => WaitReason::Unknown,
        }
    }

    /// Returns by how much the thread's CPU clock went on in the run between the two times; `None` if that is not known.
    fn clock_ns(&self, thread: i32, from_ns: u64, to_ns: u64) -> Option<u64> {
        let (switch, before) = self.at(thread, to_ns)?;
        match before.filter(|before| before.clock_ns <= switch.clock_ns) {
            // Without the record of a switch in between, the difference would be that of two runs.
            Some(before) if before.at_ns < from_ns + SAME_SWITCH_NS => {
                Some(switch.clock_ns - before.clock_ns)
            }
            Some(_) => None,
            // Of a thread that had the same number, there may be records with a greater clock.
            None => self.started.contains(&thread).then_some(switch.clock_ns),
        }
    }
}

/// Makes the timelines of all threads. `events`, `switches` and `wake_ups` are in the
/// order of their times; the recording ended at `end_ns`.
pub(crate) fn timelines(
    events: &[ThreadEvent],
    switches: &[SwitchOut],
    wake_ups: &[WakeUp],
    end_ns: u64,
) -> HashMap<i32, Timeline> {
    let switches = Switches::new(switches, events);
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
                let doing = Doing::Waiting(switches.reason(thread, since_ns, woken_ns));
                line.push(since_ns, woken_ns, doing, by);
                line.push(woken_ns, at_ns, Doing::Woken, 0);
            }
            Doing::Running => line.push_run(since_ns, at_ns, switches.clock_ns(thread, since_ns, at_ns)),
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
                next(event.thread, event.at_ns, Some(Doing::Waiting(WaitReason::Unknown)));
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
    lines
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
    use crate::probes::SystemCall;

    const FUTEX: Doing = Doing::Waiting(WaitReason::Lock);
    const TIMER: Doing = Doing::Waiting(WaitReason::Timer);

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
        let switch = |at_ns, clock_ns| SwitchOut { at_ns, thread: 1, wait: None, clock_ns };
        let switches = [switch(10 * MS - 2000, 8 * MS), switch(50 * MS + 1000, 25 * MS)];
        let lines = timelines(&events, &switches, &[], 60 * MS);
        let runs = |from_ns, to_ns| lines[&1].between(from_ns, to_ns).filter(|run| run.doing == Running);
        let stolen: Vec<u64> = runs(0, 60 * MS).map(|run| run.stolen_ns).collect();
        assert_eq!(stolen, [2 * MS, 0, 0]);
        // Half of the run has half of it.
        assert_eq!(runs(5 * MS, 10 * MS).map(|run| run.stolen_ns).collect::<Vec<_>>(), [MS]);
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
        let wake_ups = [(5, 7), (45, 8), (48, 9)].map(|(at_ns, by)| WakeUp { at_ns, thread: 1, by });
        let wait = Some(SystemCall { number: libc::SYS_futex, limit_ns: None });
        let switches = [SwitchOut { at_ns: 19, thread: 1, wait, clock_ns: 0 }];
        let lines = timelines(&events, &switches, &wake_ups, 100);
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
            let wait = Some(SystemCall { number: libc::SYS_futex, limit_ns: Some(limit_ns) });
            let switches = [SwitchOut { wait, ..switches[0] }];
            let lines = timelines(&events, &switches, &wake_ups, 100);
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
        let timer = ThreadStretch {
            from_ns: 0,
            to_ns: 9,
            doing: Doing::Waiting(WaitReason::Timer),
            by: 8,
            stolen_ns: 0,
        };
        assert!(!timer.is_ended_by(8) && ThreadStretch { doing: FUTEX, ..timer }.is_ended_by(8));
        let unknown = ThreadStretch { doing: Doing::Waiting(WaitReason::Unknown), by: 0, ..timer };
        assert!(!unknown.is_ended_by(8) && unknown.may_be_ended_by(8) && !timer.may_be_ended_by(8));
        assert_eq!(
            [15, 30, 47, 55, 200].map(|at| lines[&1].wait_at(at)),
            [None, Some(20), Some(20), None, None]
        );
    }
}
