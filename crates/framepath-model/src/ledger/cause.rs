// SPDX-License-Identifier: MIT OR Apache-2.0
//! Causes of a frame's latency.

use std::ops::{AddAssign, Index, IndexMut};

/// Cause of a frame's latency. Every output calls a cause by [`Cause::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// CPU time in a stage, without copies.
    Compute,
    /// Time in which the CPU copied pixel or packet bytes.
    Copy,
    /// Time in which the frame waited for a busy consumer.
    Queue,
    /// Time inside a stage, mostly a decoder, in which no thread is known to have worked on the
    /// frame: kept for presentation order or for the depth of frame threads.
    Held,
    /// Time from hand-off until an idle consumer ran: a thread, a worker or a decoder's frame
    /// thread.
    Wakeup,
    /// Time in which a stage's thread, or a decoder's frame thread, could run but had no CPU.
    Preempted,
    /// Time in which a thread could run, but its cgroup had used up its CPU quota. Known only for programs that are
    /// observed from outside.
    Throttled,
    /// Time in which a thread was stopped: by a signal, a debugger or the freezer. Known only for programs that are
    /// observed from outside.
    Stopped,
    /// Time in which a thread was on a CPU and did not run, because the CPU served interrupts, or the host of a virtual
    /// machine ran something else on it. Known only for programs that are observed from outside.
    Stolen,
    /// Time of known waits: for an empty pool, I/O, a lock, a futex, or a busy frame thread of a
    /// decoder.
    Blocked,
    /// Deliberate waits until a given time, such as the time at which `play` shows the frame.
    Paced,
    /// Time inside a V4L2 device.
    Device,
    /// Time on the network between two ends that exchange their rows, with the waits for lost packets.
    Network,
    /// Time inside a decoder of whose threads the work cannot be assigned to one frame: they share
    /// the frames, or have no switch records.
    Pool,
    /// Latency that no other cause accounts for: the only figure obtained by subtraction. Negative if
    /// the other causes exceed the latency.
    Unexplained,
}

/// All causes, in the order of every table.
pub const CAUSES: [Cause; 15] = [
    Cause::Compute,
    Cause::Copy,
    Cause::Queue,
    Cause::Held,
    Cause::Wakeup,
    Cause::Preempted,
    Cause::Throttled,
    Cause::Stopped,
    Cause::Stolen,
    Cause::Blocked,
    Cause::Paced,
    Cause::Device,
    Cause::Network,
    Cause::Pool,
    Cause::Unexplained,
];

impl Cause {
    /// Returns the name of the cause in tables and summaries.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Compute => "compute",
            Cause::Copy => "copy",
            Cause::Queue => "queue",
            Cause::Held => "held",
            Cause::Wakeup => "wakeup",
            Cause::Preempted => "preempted",
            Cause::Throttled => "throttled",
            Cause::Stopped => "stopped",
            Cause::Stolen => "stolen",
            Cause::Blocked => "blocked",
            Cause::Paced => "paced",
            Cause::Device => "device",
            Cause::Network => "network",
            Cause::Pool => "pool",
            Cause::Unexplained => "unexplained",
        }
    }

    /// Returns a short text that says how the figure of this cause is obtained.
    pub fn known_by(self) -> &'static str {
        match self {
            Cause::Compute => "measured: thread CPU clock",
            Cause::Copy => "measured: CPU clock around each copy",
            Cause::Queue => "measured: hand-off stamps, consumer busy",
            Cause::Held => "measured: end of the decoding, stamp of the output",
            Cause::Wakeup => "measured: hand-off stamps, consumer idle",
            Cause::Preempted => "measured: the kernel's switch records or run delay",
            Cause::Throttled => "not measured: part of `preempted`",
            Cause::Stopped => {
                "not measured: part of `blocked`, or of `unexplained` without the kernel's switch records"
            }
            Cause::Stolen => "not measured: the CPU clocks leave it out, so it is in `unexplained`",
            Cause::Blocked => "measured: stamps at the wait, the kernel's switch records",
            Cause::Paced => "measured: stamps around the timer",
            Cause::Device => "measured: stamps at both ends",
            Cause::Network => "measured: stamps at both ends, and the offset of their clocks by pings",
            Cause::Pool => "measured: stamps around the codec's thread pool",
            Cause::Unexplained => "derived: latency less all rows above",
        }
    }
}

impl Cause {
    /// Returns a short text that says how the figure of this cause is obtained for a program that is observed from
    /// outside.
    pub fn traced_by(self) -> &'static str {
        match self {
            Cause::Compute => "measured: the kernel's switch records of the threads, time on a CPU",
            Cause::Copy => {
                "sampled: instructions of `memcpy` and `memmove`, about 1000 samples for each second on a CPU"
            }
            Cause::Queue => {
                "measured: from one call with the frame to the next one, the next thread busy with others"
            }
            Cause::Held => "measured: from the call that gave the frame to the one that got it back",
            Cause::Wakeup => "measured: the scheduler's wake-ups and switch records",
            Cause::Preempted => "measured: the kernel's switch records",
            Cause::Throttled => {
                "measured: the kernel's switch records, and the mark of the CPU quota in the thread"
            }
            Cause::Stopped => "measured: the kernel's switch records, and the state of the thread",
            Cause::Stolen => {
                "measured: time on a CPU less the thread's CPU clock, spread over each of its runs"
            }
            Cause::Blocked => "measured: the kernel's switch records, and the system call of the wait",
            Cause::Paced => "measured: waits in a timer's system call or for a pipeline's clock",
            Cause::Pool => "measured: inside a codec with threads of its own, which share the frames",
            Cause::Device => "measured: the driver's time stamp and the kernel's records of its buffers",
            Cause::Network => "not measured for other programs",
            Cause::Unexplained => "derived: latency less all rows above",
        }
    }
}

/// Time by cause, nanoseconds; `None` for a cause that was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Causes([Option<f64>; CAUSES.len()]);

impl Causes {
    /// Returns the sum of all known figures, unexplained included, nanoseconds; 0 if none is known.
    pub fn total(&self) -> f64 {
        self.0.iter().flatten().sum()
    }

    /// Iterates over all causes with their figures, nanoseconds, in table order; `None` for a cause that
    /// was not measured.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, Option<f64>)> + '_ {
        CAUSES.into_iter().map(|cause| (cause, self[cause]))
    }

    /// Returns the causes with every known figure multiplied by `factor`.
    pub fn scaled(mut self, factor: f64) -> Causes {
        for figure in self.0.iter_mut().flatten() {
            *figure *= factor;
        }
        self
    }
}

impl Index<Cause> for Causes {
    type Output = Option<f64>;
    fn index(&self, cause: Cause) -> &Option<f64> {
        &self.0[cause as usize]
    }
}

impl IndexMut<Cause> for Causes {
    fn index_mut(&mut self, cause: Cause) -> &mut Option<f64> {
        &mut self.0[cause as usize]
    }
}

impl AddAssign for Causes {
    /// Adds the figures of `other`. A sum is known if either part is known: a hop that cannot have
    /// a cause leaves it `None`.
    fn add_assign(&mut self, other: Causes) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            if let Some(theirs) = theirs {
                *mine = Some(mine.unwrap_or(0.0) + theirs);
            }
        }
    }
}
