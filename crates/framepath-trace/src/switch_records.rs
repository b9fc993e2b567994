// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the scheduler's switches beside those of perf: why a thread left its CPU, and what it waited for.
//!
//! This module is pure arithmetic.

use std::collections::{HashMap, HashSet};

use framepath_os::measure::process_events::{ThreadEvent, ThreadEventKind};

use crate::probe_event::{SwitchOut, SwitchReason, SystemCall};
use crate::timeline::{Doing, ThreadWait};
use crate::wait_object::WaitObjects;
use crate::wait_reason::{WaitCall, WaitReason};

/// Two records of one switch, by the scheduler's tracepoint and by perf, have times that differ by less than this,
/// nanoseconds.
pub(crate) const SAME_SWITCH_NS: u64 = 50_000;

/// Wait with a limit, which may be a slice of a longer one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    /// Number and first argument of the system call, and its object.
    number: i64,
    first: u64,
    object: Option<u32>,
    pub(crate) has_run_out: bool,
}

impl Slice {
    /// True for a wait for the same.
    pub(crate) fn is_same(&self, other: &Slice) -> bool {
        (self.number, self.first, self.object) == (other.number, other.first, other.object)
    }
}

/// True for a wait as the C library's mutexes do it (FUTEX_WAIT); its condition variables wait with a bit set.
fn is_mutex(call: &SystemCall) -> bool {
    const FUTEX_PRIVATE: u64 = 128;
    call.number == libc::SYS_futex
        && call.arguments[1] & 0xff & !FUTEX_PRIVATE == 0
        && call.limit_ns.is_none()
}

/// Switches of CPUs away from each thread, in the order of their times.
pub(crate) struct Switches<'a> {
    by_thread: HashMap<i32, Vec<&'a SwitchOut>>,
    /// Index in `by_thread` of the switch that perf recorded at a time, and true if the one before it is that of the thread's run
    /// before: by the thread and that time.
    by_perf: HashMap<(i32, u64), (usize, bool)>,
    /// Times in which the threads of a run queue were throttled, in their order: by the queue.
    throttled: HashMap<u64, Vec<(u64, u64)>>,
    /// Threads that were started during the recording: their clocks began at 0.
    started: HashSet<i32>,
    objects: &'a WaitObjects,
}

impl<'a> Switches<'a> {
    pub(crate) fn new(
        switches: &'a [SwitchOut],
        events: &[ThreadEvent],
        objects: &'a WaitObjects,
    ) -> Switches<'a> {
        let mut by_thread: HashMap<i32, Vec<&SwitchOut>> = HashMap::new();
        for switch in switches {
            by_thread.entry(switch.thread).or_default().push(switch);
        }
        let started = events.iter().filter_map(|event| match event.kind {
            ThreadEventKind::Started { thread, .. } => Some(thread),
            _ => None,
        });
        let started = started.collect();
        let by_perf = by_perf(&by_thread, events);
        let mut switches = Switches { by_thread, by_perf, throttled: HashMap::new(), started, objects };
        switches.throttled = switches.throttled(events);
        switches
    }

    /// Returns the switch that perf recorded at `at_ns`, and the one before it.
    fn at(&self, thread: i32, at_ns: u64) -> Option<(&'a SwitchOut, Option<&'a SwitchOut>)> {
        let (index, _) = *self.by_perf.get(&(thread, at_ns))?;
        let switches = self.by_thread.get(&thread)?;
        let before = index.checked_sub(1).map(|before| switches[before]);
        Some((*switches.get(index)?, before))
    }

    /// Returns the run queue of the thread that gets a CPU at `at_ns`; 0 if it is not known.
    fn queue(&self, thread: i32, at_ns: u64) -> u64 {
        let switches = self.by_thread.get(&thread).map_or(&[][..], Vec::as_slice);
        let next = switches.partition_point(|switch| switch.at_ns < at_ns);
        switches.get(next).map_or(0, |switch| switch.queue)
    }

    /// Returns the times in which the threads of run queues were throttled: from a switch with the mark until one of the
    /// queue's threads has a CPU again.
    fn throttled(&self, events: &[ThreadEvent]) -> HashMap<u64, Vec<(u64, u64)>> {
        let mut times: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
        let mut since: HashMap<u64, u64> = HashMap::new();
        for event in events {
            match event.kind {
                ThreadEventKind::SwitchedOut { .. } => {
                    let switch = self.at(event.thread, event.at_ns).map(|(switch, _)| switch);
                    let marked = switch.filter(|switch| switch.reason == SwitchReason::Throttled);
                    if let Some(switch) = marked.filter(|switch| switch.queue != 0) {
                        since.entry(switch.queue).or_insert(event.at_ns);
                    }
                }
                ThreadEventKind::SwitchedIn => {
                    let queue = self.queue(event.thread, event.at_ns);
                    if let Some(since_ns) = since.remove(&queue) {
                        times.entry(queue).or_default().push((since_ns, event.at_ns));
                    }
                }
                _ => {}
            }
        }
        times
    }

    /// Divides a time in which a thread could run and had no CPU, until it got one at `to_ns`: returns the ends of its parts,
    /// each with true if its group had used up its CPU quota.
    pub(crate) fn parts(&self, thread: i32, from_ns: u64, to_ns: u64) -> Vec<(u64, bool)> {
        let times = self.throttled.get(&self.queue(thread, to_ns)).map_or(&[][..], Vec::as_slice);
        let first = times.partition_point(|(_, end_ns)| *end_ns <= from_ns);
        let inside = times[first..].iter().take_while(|(begin_ns, _)| *begin_ns < to_ns);
        let mut parts: Vec<(u64, bool)> = inside
            .flat_map(|(begin_ns, end_ns)| [(from_ns.max(*begin_ns), false), (to_ns.min(*end_ns), true)])
            .collect();
        parts.push((to_ns, false));
        parts
    }

    /// Returns what the thread waited for from `since_ns` to `woken_ns`, and the wait of which that may be a slice.
    pub(crate) fn wait(&self, thread: i32, since_ns: u64, woken_ns: u64) -> (Doing, Option<Slice>) {
        let call = match self.at(thread, since_ns).map(|(switch, _)| switch.reason) {
            Some(SwitchReason::Waits(call)) => call,
            Some(SwitchReason::Stopped) => return (Doing::Stopped, None),
            Some(SwitchReason::Throttled) => return (Doing::Throttled, None),
            Some(SwitchReason::Preempted) | None => {
                return (Doing::Waiting(WaitReason::Unknown.into()), None);
            }
        };
        let of_call = WaitCall::of(call.number);
        let object = call.object.and_then(|number| Some((number, self.objects.get(number)?.reason)));
        let reason = match (of_call, object) {
            _ if call.is_reclaim => WaitReason::Reclaim,
            _ if call.is_clock => WaitReason::Timer,
            (WaitCall::For(_), _) if is_mutex(&call) => WaitReason::Mutex,
            (WaitCall::For(reason), _) => reason,
            (_, Some((_, reason))) => reason,
            (WaitCall::Object(reason, _), None) => reason,
            (WaitCall::Poll | WaitCall::Select, None) => WaitReason::Poll,
        };
        let is_write = matches!(of_call, WaitCall::Object(_, true));
        let wait = ThreadWait { reason, object: object.map(|(number, _)| number), is_write };
        // The kernel counts a duration from a little before the switch on.
        let has_run_out =
            call.limit_ns.is_some_and(|limit_ns| woken_ns.saturating_add(SAME_SWITCH_NS) >= limit_ns);
        let slice = Slice { number: call.number, first: call.arguments[0], object: wait.object, has_run_out };
        (Doing::Waiting(wait), call.limit_ns.map(|_| slice))
    }

    /// Returns the time at which the thread's wait ends if nothing else ends it before; `None` if it has no limit.
    pub(crate) fn limit_ns(&self, thread: i32, since_ns: u64) -> Option<u64> {
        match self.at(thread, since_ns)?.0.reason {
            SwitchReason::Waits(call) => call.limit_ns,
            _ => None,
        }
    }

    /// Returns true if the kernel marked this thread itself when it left its CPU: its group had used up its CPU quota.
    pub(crate) fn is_throttled(&self, thread: i32, since_ns: u64) -> bool {
        let switch = self.at(thread, since_ns).map(|(switch, _)| switch);
        switch.is_some_and(|switch| switch.reason == SwitchReason::Throttled && switch.queue == 0)
    }

    /// Returns by how much the thread's CPU clock went on in the run between the two times, and its page faults without I/O;
    /// `None` if that is not known.
    pub(crate) fn run(&self, thread: i32, from_ns: u64, to_ns: u64) -> Option<(u64, u32)> {
        let (switch, before) = self.at(thread, to_ns)?;
        let follows = self.by_perf.get(&(thread, to_ns)).is_some_and(|(_, follows)| *follows);
        let faults = |before: u64| u32::try_from(switch.faults[0].saturating_sub(before)).unwrap_or(u32::MAX);
        match before.filter(|before| before.clock_ns <= switch.clock_ns) {
            // Without the record of a switch in between, the difference would be that of two runs.
            Some(before) if before.at_ns < from_ns && follows => {
                Some((switch.clock_ns - before.clock_ns, faults(before.faults[0])))
            }
            Some(_) => None,
            // Of a thread that had the same number, there may be records with a greater clock.
            None => self.started.contains(&thread).then_some((switch.clock_ns, faults(0))),
        }
    }
}

/// Returns the index of the switch that belongs to each of perf's: the kernel calls the probe of a switch first, and perf
/// behind it, in an emulated machine some milliseconds later.
fn by_perf(
    by_thread: &HashMap<i32, Vec<&SwitchOut>>,
    events: &[ThreadEvent],
) -> HashMap<(i32, u64), (usize, bool)> {
    let mut found = HashMap::new();
    // Index of the switch behind each thread's run before.
    let mut before: HashMap<i32, usize> = HashMap::new();
    // When each thread got its CPU.
    let mut since: HashMap<i32, u64> = HashMap::new();
    for event in events {
        match event.kind {
            ThreadEventKind::SwitchedIn => _ = since.insert(event.thread, event.at_ns),
            ThreadEventKind::SwitchedOut { .. } => {
                let since_ns = since.remove(&event.thread);
                let switches = by_thread.get(&event.thread).map_or(&[][..], Vec::as_slice);
                let next = switches.partition_point(|switch| switch.at_ns <= event.at_ns);
                let since_ns = since_ns.unwrap_or_else(|| event.at_ns.saturating_sub(SAME_SWITCH_NS));
                if let Some(last) = next.checked_sub(1).filter(|last| switches[*last].at_ns >= since_ns) {
                    let follows = before.insert(event.thread, last).is_some_and(|before| before + 1 == last);
                    found.insert((event.thread, event.at_ns), (last, follows));
                } else {
                    before.remove(&event.thread);
                }
            }
            _ => {}
        }
    }
    found
}
