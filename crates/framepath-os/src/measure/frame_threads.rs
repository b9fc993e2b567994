// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work of a decoder's frame threads, divided by picture.
//!
//! libavcodec gives each frame thread one packet at a time, and the next one only after the decoder has
//! collected the picture (`submit_packet` and `ff_thread_decode_frame` in `libavcodec/pthread_frame.c`).
//! So the thread is idle when its packet is sent, and all that it does until its next packet belongs to
//! one picture. The decoder's callback for picture memory runs on the thread and names the picture. The CPU
//! time is the thread's own CPU clock; the waits are in the kernel's switch records, which the thread opens,
//! or in a sandbox has inherited.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::measure::inherited_switches::{self, InheritedLog};
use crate::measure::meter::{self, Level};
use crate::measure::switches::{SwitchLog, SwitchRecord};
use crate::time::{ThreadClock, now_ns};

/// Maximum number of finished pictures that are kept until they are output. One more replaces the picture
/// with the lowest packet number. The maximum exceeds the reorder delay of any decoder.
const MOST_FINISHED: usize = 128;

/// Number of the last packets whose times are kept. It exceeds the number of a decoder's threads.
const MOST_SENT: usize = 128;

/// Work of one frame thread on one picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureWork {
    /// Id of the thread in the kernel.
    pub thread: u32,
    /// CPU time of the thread on the picture, nanoseconds.
    pub cpu_ns: u64,
    /// Waits of the thread on the picture; `None` if the kernel's switch records are not available.
    pub waits: Option<PictureWaits>,
}

/// Waits of a frame thread between its packet and the end of its picture. Times are CLOCK_MONOTONIC
/// nanoseconds, durations nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureWaits {
    /// Time since which the thread had no other picture: the end of its picture before, or `begin_ns` for
    /// its first picture.
    pub idle_since_ns: u64,
    /// Time at which the thread woke up for the packet; the time of the decoder's callback for the picture's
    /// memory if the thread did not sleep before, or for the thread's first picture.
    pub begin_ns: u64,
    /// Time at which the thread fell asleep after the picture or, if it did not, the time at which the
    /// picture was collected or the next picture began.
    pub end_ns: u64,
    /// Time that the thread slept between `begin_ns` and `end_ns`: waits for a reference picture or for a
    /// buffer.
    pub slept_ns: u64,
    /// Time in which the thread was runnable but did not run between `begin_ns` and `end_ns`.
    pub preempted_ns: u64,
    /// Number of times that the thread slept between `begin_ns` and `end_ns`.
    pub sleeps: u32,
    /// Number of times that the thread was preempted between `begin_ns` and `end_ns`.
    pub preemptions: u32,
}

/// Observer of the frame threads of one decoder. It is idle until a packet is sent by a thread that has
/// the ledger's level `full`.
#[derive(Debug, Default)]
pub struct FrameThreads {
    /// True once a packet was sent at level `full`; never false again.
    active: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that have begun a picture, without those whose CPU clock could not be read.
    threads: Vec<FrameThread>,
    /// Numbers of the last [`MOST_SENT`] packets, and the times at which they were sent, CLOCK_MONOTONIC
    /// nanoseconds.
    sent: VecDeque<(i64, u64)>,
    /// Work on finished pictures that were not output yet, by the packet's number.
    finished: BTreeMap<i64, PictureWork>,
}

/// A thread of the decoder.
#[derive(Debug)]
struct FrameThread {
    clock: ThreadClock,
    /// CPU time of the thread at the beginning of its present picture, or at the end of its last one,
    /// nanoseconds.
    cpu_ns: u64,
    /// Switch records of the thread; `None` if there are none, because the kernel denies perf and the process
    /// opened no rings before.
    switches: Option<ThreadSwitches>,
    /// Time at which the thread left the CPU, and true if it was preempted; `None` while it runs, or
    /// after lost records.
    off_cpu: Option<(u64, bool)>,
    /// Present picture; `None` if the last one was output or flushed.
    picture: Option<Picture>,
}

/// Switch records of a thread.
#[derive(Debug)]
enum ThreadSwitches {
    /// Log that the thread opened.
    Own(SwitchLog),
    /// Log of rings that the process opened before it entered a sandbox.
    Inherited(InheritedLog),
}

/// Present picture of a thread.
#[derive(Clone, Copy, Debug)]
struct Picture {
    /// Number of the packet; `None` for a hidden picture, which is never output.
    number: Option<i64>,
    waits: PictureWaits,
}

impl FrameThreads {
    /// Activates the observer, and the inherited switch records, if the calling thread has the ledger's level
    /// `full`. The thread that sends packets to the decoder calls this before it sends packet `number`.
    pub fn sending(&self, number: i64) {
        if meter::level() != Level::Full {
            return;
        }
        if !self.active.load(Ordering::Relaxed) {
            inherited_switches::enable();
            // Release: pairs with the Acquire in `begun` and `output`.
            self.active.store(true, Ordering::Release);
        }
        let mut state = self.lock();
        if state.sent.len() == MOST_SENT {
            state.sent.pop_front();
        }
        state.sent.push_back((number, now_ns()));
    }

    /// Records that the calling thread, a thread of the decoder, begins the picture of packet
    /// `number`; `None` for a hidden picture, which is never output. Does nothing while the observer is idle.
    pub fn begun(&self, number: Option<i64>) {
        // Acquire: pairs with the Release in `sending`.
        if !self.active.load(Ordering::Acquire) {
            return;
        }
        let clock = ThreadClock::current();
        let mut state = self.lock();
        let sent = state.sent.iter().rev().find(|(sent, _)| Some(*sent) == number);
        let sent_ns = sent.map_or(0, |(_, ns)| *ns);
        let Some(thread) = state.threads.iter_mut().find(|thread| thread.clock == clock) else {
            state.threads.extend(FrameThread::begin(clock, number));
            return;
        };
        if let Some((number, work)) = thread.begin_next(number, sent_ns) {
            state.finished.insert(number, work);
            if state.finished.len() > MOST_FINISHED {
                // Pictures that the decoder withholds are never output.
                state.finished.pop_first();
            }
        }
    }

    /// Returns the work on the picture of packet `number`, which is being output; `None` if it is not
    /// known. A second call for the same picture returns `None`.
    pub fn output(&self, number: i64) -> Option<PictureWork> {
        if !self.active.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.lock();
        let is_present = |thread: &&mut FrameThread| {
            thread.picture.as_ref().is_some_and(|picture| picture.number == Some(number))
        };
        let present = state.threads.iter_mut().find(is_present).and_then(FrameThread::finish);
        present.or_else(|| state.finished.remove(&number))
    }

    /// Forgets all packets and pictures, because the decoder was flushed.
    pub fn flush(&self) {
        let mut state = self.lock();
        state.finished.clear();
        for thread in &mut state.threads {
            thread.finish();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FrameThread {
    /// Returns the calling thread, with the CPU clock `clock`, at the beginning of its first picture; `None`
    /// if the clock cannot be read. The work on the packet before this call is not known.
    fn begin(clock: ThreadClock, number: Option<i64>) -> Option<FrameThread> {
        let cpu_ns = clock.read()?;
        let switches = ThreadSwitches::of_this_thread();
        let now_ns = now_ns();
        let picture = Some(Picture { number, waits: PictureWaits::new(now_ns, now_ns) });
        Some(FrameThread { clock, cpu_ns, switches, off_cpu: None, picture })
    }

    fn id(&self) -> u32 {
        self.clock.id().unsigned_abs()
    }

    /// Begins the picture of packet `number` (`None`: a hidden picture), which was sent at `sent_ns` (0 if not
    /// known), on the calling thread; does nothing, and returns `None`, if it is the present picture already.
    /// Returns the number and the work of
    /// the picture before; `None` if there was none, if it was hidden or already output, or if the CPU clock
    /// cannot be read.
    fn begin_next(&mut self, number: Option<i64>, sent_ns: u64) -> Option<(i64, PictureWork)> {
        if number.is_some() && self.picture.is_some_and(|picture| picture.number == number) {
            // Another buffer for the same picture.
            return None;
        }
        let before = self.picture.take();
        let mut tally = Tally::new(before.map(|picture| picture.waits), self.off_cpu.take(), sent_ns);
        if let Some(switches) = &mut self.switches {
            switches.drain(|record| tally.record(record));
        }
        let now_ns = now_ns();
        let (ended, next) = tally.split(now_ns);
        self.picture = Some(Picture { number, waits: next });
        let cpu_ns = self.clock.read()?;
        // CPU time since the thread was woken for the new packet: its headers. The thread runs now.
        let headers_ns = now_ns.saturating_sub(next.begin_ns + next.slept_ns + next.preempted_ns);
        let begin_cpu_ns = cpu_ns.saturating_sub(headers_ns).max(self.cpu_ns);
        let work_ns = begin_cpu_ns - std::mem::replace(&mut self.cpu_ns, begin_cpu_ns);
        let waits = self.switches.as_ref().map(|_| ended);
        Some((before?.number?, PictureWork { thread: self.id(), cpu_ns: work_ns, waits }))
    }

    /// Ends the present picture, which the decoder has collected, so that the thread is idle. Returns its
    /// work; `None` without a picture, or if the thread has ended.
    fn finish(&mut self) -> Option<PictureWork> {
        let picture = self.picture.take();
        let mut tally = Tally::new(picture.map(|picture| picture.waits), self.off_cpu, 0);
        let waits = self.switches.as_mut().map(|switches| {
            switches.drain(|record| tally.record(record));
            self.off_cpu = tally.off_cpu;
            tally.end(now_ns())
        });
        let cpu_ns = self.clock.read()?;
        let before = std::mem::replace(&mut self.cpu_ns, cpu_ns);
        let thread = self.id();
        picture.map(|_| PictureWork { thread, cpu_ns: cpu_ns.saturating_sub(before), waits })
    }
}

impl ThreadSwitches {
    /// Returns the switch records of the calling thread, from now on: its own log or, if the kernel denies
    /// that, those of the inherited rings; `None` if there are no such rings either.
    fn of_this_thread() -> Option<ThreadSwitches> {
        match SwitchLog::open() {
            Ok(log) => Some(ThreadSwitches::Own(log)),
            Err(_) => InheritedLog::of_this_thread().map(ThreadSwitches::Inherited),
        }
    }

    /// Calls `take` with each record since the last call of this function, in their order. No system call.
    fn drain(&mut self, take: impl FnMut(SwitchRecord)) {
        match self {
            ThreadSwitches::Own(log) => log.drain(take),
            ThreadSwitches::Inherited(log) => log.drain(take),
        }
    }
}

impl PictureWaits {
    /// Returns the waits of a picture that begins at `begin_ns` on a thread that was idle since
    /// `idle_since_ns`: none yet.
    fn new(idle_since_ns: u64, begin_ns: u64) -> PictureWaits {
        PictureWaits {
            idle_since_ns,
            begin_ns,
            end_ns: begin_ns,
            slept_ns: 0,
            preempted_ns: 0,
            sleeps: 0,
            preemptions: 0,
        }
    }

    /// Adds the waits of `later`, and the sleep before them from `later.idle_since_ns` to `later.begin_ns`.
    fn join(&mut self, later: &PictureWaits) {
        self.slept_ns += later.begin_ns.saturating_sub(later.idle_since_ns) + later.slept_ns;
        self.sleeps += 1 + later.sleeps;
        self.preempted_ns += later.preempted_ns;
        self.preemptions += later.preemptions;
    }
}

/// Sum of one thread's switch records, divided at the thread's last sleep. Does no I/O, so that tests can
/// use it.
#[derive(Clone, Copy, Debug)]
struct Tally {
    /// Waits of the present picture up to the last sleep; without use if there is no picture.
    present: PictureWaits,
    /// Waits after the sleep before the next picture, which lasted from their `idle_since_ns` to their
    /// `begin_ns`; `None` before this sleep.
    since_sleep: Option<PictureWaits>,
    /// Waits of a thread that has not slept since `sent_ns`: only preemptions.
    since_sent: PictureWaits,
    /// Time at which the next picture's packet was sent; 0 if not known.
    sent_ns: u64,
    /// As [`FrameThread::off_cpu`].
    off_cpu: Option<(u64, bool)>,
}

impl Tally {
    fn new(present: Option<PictureWaits>, off_cpu: Option<(u64, bool)>, sent_ns: u64) -> Tally {
        let present = present.unwrap_or(PictureWaits::new(0, 0));
        let since_sent = PictureWaits::new(sent_ns, sent_ns);
        Tally { present, since_sleep: None, since_sent, sent_ns, off_cpu }
    }

    fn record(&mut self, record: SwitchRecord) {
        match record {
            SwitchRecord::Lost => self.off_cpu = None,
            SwitchRecord::Out { at_ns, preempted } => self.off_cpu = Some((at_ns, preempted)),
            SwitchRecord::In { at_ns } => match self.off_cpu.take() {
                Some((out_ns, true)) => {
                    let is_late = self.sent_ns > 0 && out_ns >= self.sent_ns;
                    let sleepless = if is_late { &mut self.since_sent } else { &mut self.present };
                    let waits = self.since_sleep.as_mut().unwrap_or(sleepless);
                    waits.preempted_ns += at_ns.saturating_sub(out_ns);
                    waits.preemptions += 1;
                }
                // The thread did not wait for a packet that was not sent yet.
                Some((out_ns, false)) if at_ns < self.sent_ns => {
                    self.present.join(&PictureWaits::new(out_ns, at_ns));
                }
                Some((out_ns, false)) => {
                    // The sleep before was a wait of the present picture.
                    if let Some(before) = self.since_sleep.replace(PictureWaits::new(out_ns, at_ns)) {
                        self.present.join(&before);
                    }
                }
                None => {}
            },
        }
    }

    /// Returns the waits of the present picture and of the next one, which the running thread begins at
    /// `now_ns`. The thread's last sleep after the packet was sent was the one for the packet: the headers, which
    /// it has read since, need no waits. If it did not sleep, it had ended the present picture when the packet was
    /// sent; if that time is not known, `now_ns` divides the two.
    fn split(mut self, now_ns: u64) -> (PictureWaits, PictureWaits) {
        let sleepless = if self.sent_ns > 0 { self.since_sent } else { PictureWaits::new(now_ns, now_ns) };
        let next = self.since_sleep.unwrap_or(sleepless);
        self.present.end_ns = next.idle_since_ns.max(self.present.begin_ns);
        (self.present, next)
    }

    /// Returns the waits of the present picture, which was collected by `now_ns`. It ended when the thread
    /// fell asleep; if the thread still runs, at `now_ns`.
    fn end(mut self, now_ns: u64) -> PictureWaits {
        if let Some(since_sleep) = self.since_sleep {
            self.present.join(&since_sleep);
        }
        let end_ns = match self.off_cpu {
            Some((out_ns, false)) => out_ns,
            _ => now_ns,
        };
        self.present.end_ns = end_ns.max(self.present.begin_ns);
        self.present
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn out(at_ns: u64) -> SwitchRecord {
        SwitchRecord::Out { at_ns, preempted: false }
    }

    fn tally(off_cpu: Option<u64>, records: &[SwitchRecord]) -> Tally {
        tally_of_sent(0, off_cpu, records)
    }

    fn tally_of_sent(sent_ns: u64, off_cpu: Option<u64>, records: &[SwitchRecord]) -> Tally {
        let off_cpu = off_cpu.map(|since| (since, false));
        let mut tally = Tally::new(Some(PictureWaits::new(5, 10)), off_cpu, sent_ns);
        records.iter().for_each(|record| tally.record(*record));
        tally
    }

    #[test]
    fn the_last_sleep_before_the_next_picture_divides_the_two() {
        let records = [
            out(20),
            SwitchRecord::In { at_ns: 25 },
            SwitchRecord::Out { at_ns: 30, preempted: true },
            SwitchRecord::In { at_ns: 33 },
            out(50),
            SwitchRecord::In { at_ns: 110 },
            SwitchRecord::Out { at_ns: 120, preempted: true },
            SwitchRecord::In { at_ns: 121 },
        ];
        let (present, next) = tally(None, &records).split(1000);
        assert_eq!((present.idle_since_ns, present.begin_ns, present.end_ns), (5, 10, 50));
        assert_eq!((present.slept_ns, present.sleeps), (5, 1));
        assert_eq!((present.preempted_ns, present.preemptions), (3, 1));
        assert_eq!((next.idle_since_ns, next.begin_ns), (50, 110));
        assert_eq!((next.slept_ns, next.preempted_ns, next.preemptions), (0, 1, 1));
    }

    #[test]
    fn a_thread_that_did_not_sleep_is_divided_when_the_next_picture_begins() {
        let (present, next) = tally(None, &[]).split(1000);
        assert_eq!((present.end_ns, next.idle_since_ns, next.begin_ns), (1000, 1000, 1000));
    }

    #[test]
    fn a_sleep_before_the_packet_was_sent_is_a_wait_of_the_picture_before() {
        let wait = [
            out(20),
            SwitchRecord::In { at_ns: 25 },
            SwitchRecord::Out { at_ns: 30, preempted: true },
            SwitchRecord::In { at_ns: 33 },
        ];
        let late = [SwitchRecord::Out { at_ns: 60, preempted: true }, SwitchRecord::In { at_ns: 64 }];
        // The thread has not slept since: it ended the picture before when the packet was sent.
        let (present, next) = tally_of_sent(50, None, &[&wait[..], &late].concat()).split(1000);
        assert_eq!(
            (present.begin_ns, present.end_ns, present.slept_ns, present.preempted_ns),
            (10, 50, 5, 3)
        );
        assert_eq!((next.idle_since_ns, next.begin_ns, next.preempted_ns), (50, 50, 4));
        // It slept while the packet was sent.
        let records = [&wait[..], &[out(40), SwitchRecord::In { at_ns: 55 }]].concat();
        let (present, next) = tally_of_sent(50, None, &records).split(1000);
        assert_eq!((present.end_ns, present.slept_ns, present.preempted_ns), (40, 5, 3));
        assert_eq!((next.idle_since_ns, next.begin_ns, next.preempted_ns), (40, 55, 0));
    }

    #[test]
    fn a_collected_picture_ends_when_its_thread_falls_asleep_or_now() {
        let wake = SwitchRecord::In { at_ns: 25 };
        let ended = tally(None, &[out(20), wake, out(60)]).end(1000);
        assert_eq!((ended.end_ns, ended.slept_ns, ended.sleeps), (60, 5, 1));
        assert_eq!(tally(None, &[out(20), wake]).end(1000).end_ns, 1000);
        assert_eq!(tally(Some(15), &[]).end(1000).end_ns, 15);
    }

    /// Threads that take turns like libavcodec's: each spins for its picture, then sleeps.
    #[test]
    fn each_picture_gets_the_work_of_its_thread() {
        use std::sync::mpsc::{channel, sync_channel};
        use std::time::Duration;

        use crate::time::thread_cpu_ns;

        const WORK_NS: u64 = 20_000_000;
        meter::set_level(Level::Full);
        let observer = FrameThreads::default();
        std::thread::scope(|scope| {
            let (done, collected) = channel();
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (send, packets) = sync_channel::<i64>(1);
                    let (done, observer) = (done.clone(), &observer);
                    scope.spawn(move || {
                        for number in packets {
                            observer.begun(Some(number));
                            // The second thread, which has the odd pictures, does nothing.
                            let end = thread_cpu_ns() + if number % 2 == 0 { WORK_NS } else { 0 };
                            while thread_cpu_ns() < end {}
                            done.send(number).unwrap();
                        }
                    });
                    send
                })
                .collect();
            for number in 0..6 {
                observer.sending(number);
                threads[number as usize % 2].send(number).unwrap();
                assert_eq!(collected.recv().unwrap(), number);
                // Time in which the thread falls asleep.
                std::thread::sleep(Duration::from_millis(5));
            }
            // The threads still exist: the clock of a thread that has ended cannot be read.
            for number in 0..6 {
                let work = observer.output(number).expect("each picture has its work");
                assert_eq!(observer.output(number), None);
                assert_eq!(work.cpu_ns > WORK_NS / 2, number % 2 == 0, "{number}: {work:?}");
                if let Some(waits) = work.waits {
                    assert!(waits.begin_ns <= waits.end_ns);
                }
            }
            // The end of their channels ends the threads.
            drop(threads);
        });
        meter::set_level(Level::Off);
    }

    #[test]
    fn nothing_is_recorded_below_level_full_and_hidden_pictures_have_no_number() {
        let observer = FrameThreads::default();
        observer.sending(0);
        observer.begun(Some(0));
        assert_eq!(observer.output(0), None);
        meter::set_level(Level::Full);
        observer.sending(1);
        observer.begun(None);
        observer.begun(Some(1));
        assert!(observer.output(1).is_some());
        assert_eq!(observer.output(1), None);
        observer.sending(2);
        observer.begun(Some(2));
        observer.flush();
        assert_eq!(observer.output(2), None);
        meter::set_level(Level::Off);
    }
}
