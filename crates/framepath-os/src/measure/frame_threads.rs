// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work of a decoder's frame threads, divided by picture.
//!
//! libavcodec's frame threads take packets in turn: the packet with index k since the last flush goes to
//! thread k modulo the number of threads (`submit_packet` and `ff_thread_decode_frame` in
//! `libavcodec/pthread_frame.c`). A thread gets its next packet only after the decoder has collected its
//! picture, so it is idle then. So all that a thread does between two of its packets belongs to the first
//! one. The CPU time is the thread's own CPU clock; the waits are in the kernel's switch records.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::measure::meter::{self, Level};
use crate::measure::switches::{SwitchLog, SwitchRecord};
use crate::time::{ThreadClock, now_ns};

/// Maximum number of finished pictures that are kept until they are output. It exceeds the reorder
/// delay of any decoder.
const MOST_FINISHED: usize = 128;

/// Work of one frame thread on one picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureWork {
    /// CPU time of the thread on the picture, nanoseconds.
    pub cpu_ns: u64,
    /// Waits of the thread; `None` if the kernel's switch records are not available.
    pub waits: Option<PictureWaits>,
}

/// Waits of a frame thread between its packet and the end of its picture. Times are CLOCK_MONOTONIC
/// nanoseconds, durations nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureWaits {
    /// Time at which the thread began to work on the packet.
    pub begin_ns: u64,
    /// Time at which the thread had finished the picture.
    pub end_ns: u64,
    /// Time asleep in between: waits for a reference picture or for a buffer.
    pub slept_ns: u64,
    /// Time in between in which the thread was runnable but did not run.
    pub preempted_ns: u64,
    /// Number of sleeps in between.
    pub sleeps: u32,
    /// Number of preemptions in between.
    pub preemptions: u32,
}

/// Observer of the frame threads of one decoder. It is idle unless the thread that sends the packets has
/// the ledger's level `full`.
#[derive(Debug, Default)]
pub struct FrameThreads {
    /// True if a thread's first picture is still to come, so that [`FrameThreads::begun`] has work.
    incomplete: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Threads in the order of their turns, `None` for a thread whose first picture was not seen yet;
    /// empty for a decoder without frame threads.
    threads: Vec<Option<FrameThread>>,
    /// Last packet of each thread, whose picture is not finished; `None` if the thread has no such
    /// packet. In the order of `threads`.
    packets: Vec<Option<SentPacket>>,
    /// Number of packets since the last flush.
    sent: usize,
    /// Work on finished pictures that were not output yet, by packet number.
    finished: BTreeMap<i64, PictureWork>,
}

#[derive(Clone, Copy, Debug)]
struct SentPacket {
    number: i64,
    /// Time at which the packet was sent, nanoseconds.
    sent_ns: u64,
}

/// A thread of the decoder, known since its first picture.
#[derive(Debug)]
struct FrameThread {
    clock: ThreadClock,
    /// CPU time at the end of the thread's last picture, nanoseconds.
    cpu_ns: u64,
    /// `None` if the kernel denies the records, as in a sandbox.
    switches: Option<SwitchLog>,
    /// Time at which the thread left the CPU, and true if it was preempted; `None` while it runs, or
    /// after lost records.
    off_cpu: Option<(u64, bool)>,
}

impl FrameThreads {
    /// Makes the observer of a decoder that is not open yet, so that its callbacks can refer to it.
    pub fn new() -> FrameThreads {
        FrameThreads::default()
    }

    /// Sets the number of frame threads of the open decoder, before the first packet. The observer
    /// does nothing for a decoder without frame threads (0 or 1).
    pub fn set_count(&self, threads: u32) {
        let count = if threads > 1 { threads as usize } else { 0 };
        let mut state = self.lock();
        state.threads = (0..count).map(|_| None).collect();
        state.packets = vec![None; count];
    }

    /// Records that packet `number` is sent next, and ends the last picture of the thread that will get
    /// the packet. Does nothing below [`Level::Full`], or without frame threads. Called by the thread
    /// that sends, just before it does.
    pub fn sending(&self, number: i64) {
        if meter::level() != Level::Full {
            return;
        }
        let mut state = self.lock();
        let Some(turn) = state.sent.checked_rem(state.threads.len()) else { return };
        state.sent += 1;
        // The thread's last picture is finished now, even if it is not output yet.
        state.finish(turn);
        if state.threads[turn].is_none() {
            // Release: pairs with the Acquire in `begun`, which runs on the decoder's thread.
            self.incomplete.store(true, Ordering::Release);
        }
        state.packets[turn] = Some(SentPacket { number, sent_ns: now_ns() });
    }

    /// Records that the calling thread, a thread of the decoder, begins the picture of packet
    /// `number`. Cheap after each thread's first picture.
    pub fn begun(&self, number: i64) {
        // Acquire: pairs with the Release in `sending`.
        if !self.incomplete.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.lock();
        let of_number = |packet: &Option<SentPacket>| packet.is_some_and(|packet| packet.number == number);
        let Some(turn) = state.packets.iter().position(of_number) else { return };
        if state.threads[turn].is_none() {
            state.threads[turn] = FrameThread::current();
        }
        let complete = state.threads.iter().all(Option::is_some);
        self.incomplete.store(!complete, Ordering::Release);
    }

    /// Returns the work on the picture of packet `number`, which is being output; `None` if it is not
    /// known. A second call for the same picture returns `None`.
    pub fn output(&self, number: i64) -> Option<PictureWork> {
        let mut state = self.lock();
        let of_number = |packet: &Option<SentPacket>| packet.is_some_and(|packet| packet.number == number);
        if let Some(turn) = state.packets.iter().position(of_number) {
            state.finish(turn);
        }
        state.finished.remove(&number)
    }

    /// Forgets all packets, because the decoder was flushed: the turns begin anew.
    pub fn flush(&self) {
        let mut state = self.lock();
        state.packets.fill(None);
        state.finished.clear();
        state.sent = 0;
        for thread in state.threads.iter_mut().flatten() {
            thread.forget();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Ends the picture of the thread whose turn is `turn`, and keeps its work until the picture is
    /// output. If the thread has no packet, skips its time until now.
    fn finish(&mut self, turn: usize) {
        let Some(thread) = &mut self.threads[turn] else {
            self.packets[turn] = None;
            return;
        };
        let Some(packet) = self.packets[turn].take() else { return thread.forget() };
        if let Some(work) = thread.work_since(packet.sent_ns) {
            if self.finished.len() == MOST_FINISHED {
                // Packets of hidden pictures are never output.
                self.finished.pop_first();
            }
            self.finished.insert(packet.number, work);
        }
    }
}

impl FrameThread {
    /// Returns the calling thread; `None` if its CPU clock cannot be read.
    fn current() -> Option<FrameThread> {
        let clock = ThreadClock::current();
        let cpu_ns = clock.read()?;
        Some(FrameThread { clock, cpu_ns, switches: SwitchLog::open().ok(), off_cpu: None })
    }

    /// Skips the time until now, in which the thread had no picture.
    fn forget(&mut self) {
        self.work_since(now_ns());
    }

    /// Returns the work since the last call, for a packet sent at `sent_ns`; `None` if the thread's CPU
    /// clock cannot be read.
    fn work_since(&mut self, sent_ns: u64) -> Option<PictureWork> {
        let mut tally = PictureTally::new(sent_ns, self.off_cpu);
        let waits = self.switches.as_mut().map(|switches| {
            switches.drain(|record| tally.record(record));
            self.off_cpu = tally.off_cpu;
            tally.waits(now_ns())
        });
        let cpu_ns = self.clock.read()?;
        let before = std::mem::replace(&mut self.cpu_ns, cpu_ns);
        Some(PictureWork { cpu_ns: cpu_ns.saturating_sub(before), waits })
    }
}

/// Sum of one thread's switch records for one picture, without I/O for tests.
#[derive(Clone, Copy, Debug)]
struct PictureTally {
    sent_ns: u64,
    begin_ns: Option<u64>,
    off_cpu: Option<(u64, bool)>,
    waits: PictureWaits,
}

impl PictureTally {
    /// Begins with a thread that is off the CPU since before the packet was sent (`off_cpu`, as in
    /// [`FrameThread`]), or running.
    fn new(sent_ns: u64, off_cpu: Option<(u64, bool)>) -> PictureTally {
        let waits = PictureWaits {
            begin_ns: sent_ns,
            end_ns: sent_ns,
            slept_ns: 0,
            preempted_ns: 0,
            sleeps: 0,
            preemptions: 0,
        };
        PictureTally { sent_ns, begin_ns: None, off_cpu, waits }
    }

    fn record(&mut self, record: SwitchRecord) {
        match record {
            SwitchRecord::Lost => self.off_cpu = None,
            SwitchRecord::Out { at_ns, preempted } => {
                if at_ns > self.sent_ns {
                    // The thread ran before, so it had not slept for want of a packet.
                    self.begin_ns.get_or_insert(self.sent_ns);
                }
                self.off_cpu = Some((at_ns, preempted));
            }
            SwitchRecord::In { at_ns } => {
                let Some((out_ns, preempted)) = self.off_cpu.take() else { return };
                if self.begin_ns.is_none() {
                    // The end of the idle time in front of the packet.
                    self.begin_ns = (at_ns >= self.sent_ns).then_some(at_ns);
                    return;
                }
                let away_ns = at_ns.saturating_sub(out_ns);
                if preempted {
                    self.waits.preempted_ns += away_ns;
                    self.waits.preemptions += 1;
                } else {
                    self.waits.slept_ns += away_ns;
                    self.waits.sleeps += 1;
                }
            }
        }
    }

    /// Returns the sums of a picture that was finished by `now_ns`. A thread that is asleep then
    /// finished it when it fell asleep.
    fn waits(&self, now_ns: u64) -> PictureWaits {
        let begin_ns = self.begin_ns.unwrap_or(self.sent_ns);
        let end_ns = match self.off_cpu {
            Some((out_ns, false)) => out_ns,
            _ => now_ns,
        };
        PictureWaits { begin_ns, end_ns: end_ns.max(begin_ns), ..self.waits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn out(at_ns: u64) -> SwitchRecord {
        SwitchRecord::Out { at_ns, preempted: false }
    }

    fn waits(sent_ns: u64, asleep_since: Option<u64>, records: &[SwitchRecord]) -> PictureWaits {
        let mut tally = PictureTally::new(sent_ns, asleep_since.map(|since| (since, false)));
        records.iter().for_each(|record| tally.record(*record));
        tally.waits(1000)
    }

    #[test]
    fn a_picture_begins_at_the_wake_up_and_ends_at_the_sleep_for_the_next_packet() {
        let records = [
            SwitchRecord::In { at_ns: 110 },
            out(200),
            SwitchRecord::In { at_ns: 250 },
            SwitchRecord::Out { at_ns: 300, preempted: true },
            SwitchRecord::In { at_ns: 330 },
            out(400),
        ];
        let found = waits(100, Some(50), &records);
        assert_eq!((found.begin_ns, found.end_ns), (110, 400));
        assert_eq!((found.slept_ns, found.sleeps), (50, 1));
        assert_eq!((found.preempted_ns, found.preemptions), (30, 1));
    }

    #[test]
    fn a_thread_that_did_not_sleep_begins_when_the_packet_is_sent() {
        let found = waits(100, None, &[out(200), SwitchRecord::In { at_ns: 250 }, out(400)]);
        assert_eq!((found.begin_ns, found.end_ns, found.slept_ns), (100, 400, 50));
    }

    #[test]
    fn a_thread_that_still_runs_ends_now() {
        let found = waits(100, Some(50), &[SwitchRecord::In { at_ns: 110 }]);
        assert_eq!((found.begin_ns, found.end_ns), (110, 1000));
    }

    #[test]
    fn sleeps_before_the_packet_do_not_count() {
        let records = [SwitchRecord::In { at_ns: 60 }, out(70), SwitchRecord::In { at_ns: 120 }, out(150)];
        let found = waits(100, Some(50), &records);
        assert_eq!((found.begin_ns, found.end_ns, found.slept_ns), (120, 150, 0));
    }

    /// Threads that take turns like libavcodec's: each spins for its picture, then sleeps.
    #[test]
    fn each_picture_gets_the_work_of_its_thread() {
        use std::sync::mpsc::{channel, sync_channel};
        use std::time::Duration;

        use crate::time::thread_cpu_ns;

        const WORK_NS: u64 = 20_000_000;
        meter::set_level(Level::Full);
        let observer = FrameThreads::new();
        observer.set_count(2);
        std::thread::scope(|scope| {
            let (done, collected) = channel();
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (send, packets) = sync_channel::<i64>(1);
                    let (done, observer) = (done.clone(), &observer);
                    scope.spawn(move || {
                        for number in packets {
                            observer.begun(number);
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
            drop(threads);
            for number in 0..6 {
                let work = observer.output(number).expect("each picture has its work");
                assert_eq!(observer.output(number), None);
                assert_eq!(work.cpu_ns >= WORK_NS, number % 2 == 0, "{number}: {work:?}");
                if let Some(waits) = work.waits {
                    assert!(waits.begin_ns <= waits.end_ns);
                }
            }
        });
        meter::set_level(Level::Off);
    }

    #[test]
    fn nothing_is_recorded_below_level_full_or_without_frame_threads() {
        let observer = FrameThreads::new();
        observer.set_count(4);
        observer.sending(0);
        observer.begun(0);
        assert_eq!(observer.output(0), None);
        meter::set_level(Level::Full);
        let observer = FrameThreads::new();
        observer.set_count(1);
        observer.sending(0);
        observer.begun(0);
        assert_eq!(observer.output(0), None);
        meter::set_level(Level::Off);
    }
}
