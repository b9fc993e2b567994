// SPDX-License-Identifier: MIT OR Apache-2.0
//! One row: one frame or packet on one hop.

use serde::{Deserialize, Serialize};

use super::{Cause, Causes};

/// Bits of [`Row::flags`].
pub mod flag {
    /// The hop is a sink, which has finished the frame: the frame's way ends here.
    pub const LAST: u32 = 1;
    /// The hop dropped the frame. A queue: it was full, or a seek or flush had made the frame stale. An encoder: [`CONGESTED`].
    pub const DROPPED: u32 = 2;
    /// The thread counters are filled in, as at level `full`.
    pub const COUNTED: u32 = 4;
    /// The hop is a link, which runs no stage.
    pub const LINK: u32 = 8;
    /// The time of the row is no single stretch of the thread that wrote the row: the frame waited
    /// inside the hop, or another thread or process worked on it. The
    /// [`Span`](crate::ledger::Span)s of the run have the stretches.
    pub const SPLIT: u32 = 16;
    /// A frame thread of a decoder in this process worked on the frame, and the row has the
    /// thread's waits from its switch records. Not set for a decoder in a worker.
    pub const FRAME_THREAD: u32 = 32;
    /// The row is of another program, which was observed from outside: its copies are not known but for [`SAMPLED`], and its
    /// other times come from the kernel's records of its threads.
    pub const TRACED: u32 = 64;
    /// The time of copies in a [`TRACED`] row is estimated from samples of its threads: its own, or for a short time those
    /// of all short rows of the hop.
    pub const SAMPLED: u32 = 128;
    /// With [`DROPPED`]: the hop, an encoder, dropped the frame because of congestion: encoded frames waited for a network that is
    /// slower than the stream.
    pub const CONGESTED: u32 = 256;
    /// The row is of the other end of a network stream. Its times were converted to this machine's CLOCK_MONOTONIC, so they
    /// have an error.
    pub const REMOTE: u32 = 512;
}

/// Fixed-size record of one frame or packet on one hop. Times are CLOCK_MONOTONIC nanoseconds;
/// durations are nanoseconds; a duration that is not known is 0. The rows of a frame leave no gap:
/// each `enter_ns` is the `leave_ns` of the predecessor in the [`HopTree`](super::HopTree).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Number of the frame or packet; a decoded frame has the number of its packet.
    pub seq: u64,
    /// Time at which the frame was created, nanoseconds.
    pub birth_ns: u64,
    /// Time at which the hop received the frame, nanoseconds.
    pub enter_ns: u64,
    /// Time at which the hop passed the frame on or dropped it, or the sink finished it, nanoseconds.
    pub leave_ns: u64,
    /// Number of bytes that the CPU copied for the frame in this hop.
    pub copied_bytes: u64,
    /// Time of the copies in `copied_bytes`: CPU time at level `full`, wall time at level `times`.
    pub copy_ns: u64,
    /// Time of waits: those stamped by framepath, and at level `full` also those that the kernel
    /// recorded, such as the wait of a packet for a frame thread that works on another picture.
    pub blocked_ns: u64,
    /// Time in which the frame waited for a busy consumer: in a link, on the way to or from a
    /// worker, or in a capture device before the thread took it.
    pub queue_ns: u64,
    /// Time of deliberate waits until a given time, such as the frame's presentation time.
    pub paced_ns: u64,
    /// Time inside a stage, mostly a decoder, in which no thread is known to have worked on the
    /// frame: kept for presentation order or for the depth of frame threads; 0 if there was none or
    /// it is not known.
    pub held_ns: u64,
    /// Part of `held_ns` for the depth of frame threads: one thread would have output the frame
    /// earlier. 0 if there was none or it is not known.
    pub held_depth_ns: u64,
    /// Time inside a decoder whose threads share the frames, or whose frame thread has no switch
    /// records; 0 if there was none.
    pub pool_ns: u64,
    /// Time from hand-off until an idle consumer ran: a thread, a worker or a decoder's frame
    /// thread.
    pub wakeup_ns: u64,
    /// Time on the network, from the departure of the frame's last packet to its arrival; 0 for a hop that crosses no network.
    pub network_ns: u64,
    /// Time inside a V4L2 device: from the hand-over until the thread has the frame back.
    pub device_ns: u64,
    /// Part of `device_ns` in which the frame was queued and not worked on; 0 if the device does
    /// not report this time.
    pub device_queue_ns: u32,
    /// Part of `device_ns` in which the device worked on the frame; 0 if the device does not report
    /// this time.
    pub device_run_ns: u32,
    /// CPU time of the hop's thread, worker and a decoder's frame thread, without copies and waits;
    /// 0 below level `full`.
    pub compute_ns: u64,
    /// Time in which the hop's thread or worker, or a decoder's frame thread, could run but had no
    /// CPU; 0 below level `full`.
    pub preempted_ns: u64,
    /// Time in which a thread could run, but its cgroup had used up its CPU quota; 0 if there was none or it is not known.
    pub throttled_ns: u64,
    /// Time in which a thread was stopped: by a signal, a debugger or the freezer; 0 if there was none or it is not known.
    pub stopped_ns: u64,
    /// Time in which a thread was on a CPU that served interrupts or that the host had taken away; 0 if there was none or
    /// it is not known.
    pub stolen_ns: u64,
    /// Number of CPU cycles of the path's thread in the hop, without workers and threads of
    /// decoders; 0 below level `full` and if the machine does not count cycles.
    pub cycles: u64,
    /// Number of instructions of the path's thread in the hop, without workers and threads of
    /// decoders; 0 below level `full` and if the machine does not count instructions.
    pub instructions: u64,
    /// Number of last-level cache misses of the path's thread in the hop, without workers and
    /// threads of decoders; 0 below level `full` and if the machine does not count cache misses.
    pub cache_misses: u64,
    /// Number of voluntary context switches of the hop's thread, worker and a decoder's frame
    /// thread; 0 below level `full`.
    pub voluntary_switches: u32,
    /// Number of involuntary context switches of the hop's thread, worker and a decoder's frame
    /// thread; 0 below level `full`.
    pub involuntary_switches: u32,
    /// Number of page faults without I/O of the path's thread in the hop, without workers and
    /// threads of decoders; 0 below level `full`.
    pub minor_faults: u32,
    /// Properties of the row, bits of [`flag`].
    pub flags: u32,
    /// Index of the hop in the path.
    pub hop: u16,
    /// Index of the thread that wrote the row.
    pub thread: u16,
}

impl Row {
    /// Returns true if all bits of `flags` are set in the row.
    pub fn has(&self, flags: u32) -> bool {
        self.flags & flags == flags
    }

    /// Returns the time from entering to leaving the hop, nanoseconds.
    pub fn wall_ns(&self) -> u64 {
        self.leave_ns.saturating_sub(self.enter_ns)
    }

    /// Lets the row begin later, at `ns`, but not behind its end. Takes the time that is left out from the waits at its start.
    pub fn begin_at(&mut self, ns: u64) {
        let enter_ns = ns.max(self.enter_ns).min(self.leave_ns);
        let left_out_ns = enter_ns - self.enter_ns;
        // A frame from the network waits for its packets first.
        take_from(
            [&mut self.blocked_ns, &mut self.queue_ns, &mut self.wakeup_ns, &mut self.held_ns],
            left_out_ns,
        );
        self.enter_ns = enter_ns;
    }

    /// Lets the row end earlier, at `ns`, but not in front of its start. Takes the time that is left out from what a thread does
    /// at the end of a row.
    pub fn end_at(&mut self, ns: u64) {
        let leave_ns = ns.min(self.leave_ns).max(self.enter_ns);
        let left_out_ns = self.leave_ns - leave_ns;
        take_from(
            [
                &mut self.paced_ns,
                &mut self.preempted_ns,
                &mut self.throttled_ns,
                &mut self.stopped_ns,
                &mut self.compute_ns,
                &mut self.blocked_ns,
            ],
            left_out_ns,
        );
        self.leave_ns = leave_ns;
    }

    /// Returns the hop's time by cause, nanoseconds; `None` for a cause that is not known. Copy (of
    /// [`flag::TRACED`] rows only with [`flag::SAMPLED`]), queue, wakeup and blocked are always known. Compute and preempted are known only if the row
    /// has the thread's counters ([`flag::COUNTED`]), unexplained also for a link. Throttled,
    /// stopped, stolen, held, paced, device, network and pool are known only if they are not 0.
    pub fn causes(&self) -> Causes {
        let mut causes = Causes::default();
        if !self.has(flag::TRACED) || self.has(flag::SAMPLED) {
            causes[Cause::Copy] = Some(self.copy_ns as f64);
        }
        causes[Cause::Queue] = Some(self.queue_ns as f64);
        causes[Cause::Wakeup] = Some(self.wakeup_ns as f64);
        causes[Cause::Blocked] = Some(self.blocked_ns as f64);
        if self.throttled_ns > 0 {
            causes[Cause::Throttled] = Some(self.throttled_ns as f64);
        }
        if self.stopped_ns > 0 {
            causes[Cause::Stopped] = Some(self.stopped_ns as f64);
        }
        if self.stolen_ns > 0 {
            causes[Cause::Stolen] = Some(self.stolen_ns as f64);
        }
        if self.held_ns > 0 {
            causes[Cause::Held] = Some(self.held_ns as f64);
        }
        if self.paced_ns > 0 {
            causes[Cause::Paced] = Some(self.paced_ns as f64);
        }
        if self.pool_ns > 0 {
            causes[Cause::Pool] = Some(self.pool_ns as f64);
        }
        if self.network_ns > 0 {
            causes[Cause::Network] = Some(self.network_ns as f64);
        }
        if self.device_ns > 0 {
            causes[Cause::Device] = Some(self.device_ns as f64);
        }
        if self.has(flag::COUNTED) {
            causes[Cause::Compute] = Some(self.compute_ns as f64);
            causes[Cause::Preempted] = Some(self.preempted_ns as f64);
        }
        if self.has(flag::COUNTED) || self.has(flag::LINK) {
            causes[Cause::Unexplained] = Some(self.wall_ns() as f64 - causes.total());
        }
        causes
    }
}

/// Takes `ns` nanoseconds from `times`, from the first ones first.
fn take_from<const N: usize>(times: [&mut u64; N], mut ns: u64) {
    for time in times {
        let taken = ns.min(*time);
        (*time, ns) = (*time - taken, ns - taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_row_has_less_of_the_waits_at_its_start_and_of_the_work_at_its_end() {
        let row = Row {
            enter_ns: 100,
            leave_ns: 200,
            blocked_ns: 5,
            queue_ns: 5,
            wakeup_ns: 20,
            compute_ns: 50,
            preempted_ns: 2,
            throttled_ns: 2,
            stopped_ns: 1,
            ..Row::default()
        };
        let mut later = row;
        later.begin_at(115);
        assert_eq!(later, Row { enter_ns: 115, blocked_ns: 0, queue_ns: 0, wakeup_ns: 15, ..row });
        let mut earlier = row;
        earlier.end_at(180);
        assert_eq!(
            earlier,
            Row { leave_ns: 180, preempted_ns: 0, throttled_ns: 0, stopped_ns: 0, compute_ns: 35, ..row }
        );
        for ns in [0, 1000] {
            let (mut begun, mut ended) = (row, row);
            begun.begin_at(ns);
            ended.end_at(ns);
            assert_eq!((begun.wall_ns(), ended.wall_ns()), if ns == 0 { (100, 0) } else { (0, 100) });
        }
    }
}
