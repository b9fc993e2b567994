// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of the probes, and their records of eight words.

use crate::calls::{ATTACH, CALL_SITES, Call, CallEvent, CallFilter, NO_PTS, Phase};
use crate::device_calls::DeviceCall;
use crate::mark::{Mark, stage_name};
use crate::probe_programs::{
    LEAVE, NAME_BYTES, NAMED, PLACE_SHIFT, TAG_EXECUTED, TAG_LOADED, TAG_MARKED, TAG_MARKED_END, TAG_WOKEN,
};
use crate::switch_program::FROZEN;
use crate::wait_object::POLLED;

/// Event of a probe. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeEvent {
    /// A call began or ended.
    Call(CallEvent),
    /// A call has made an object ready: its process and address, the kind of its stream, and its name, which ends with a
    /// zero if it is shorter.
    Named { process: i32, object: u64, media: u32, name: [u8; NAME_BYTES] },
    /// A graph of filters is ready: its process and address, and the address, place and name of one of its filters.
    Filter { process: i32, graph: u64, filter: u64, place: u64, name: [u8; NAME_BYTES] },
    /// A frame that the program names itself reaches a stage, or leaves its last one.
    Marked(Mark),
    /// A program has exchanged a buffer with a V4L2 device.
    Device(DeviceCall),
    /// A thread leaves its CPU.
    Switched(SwitchOut),
    /// A waiting thread was woken up.
    Woken {
        /// The thread.
        thread: i32,
        /// Thread that did it; 0 for an interrupt while no thread ran.
        by: i32,
        at_ns: u64,
        /// True if the freezer had stopped it, and its wait would have been over.
        is_thaw: bool,
    },
    /// A traced process has executed a program, or has loaded or unloaded libraries: it has mapped files.
    Loaded,
}

/// Switch of a CPU away from a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwitchOut {
    pub(crate) at_ns: u64,
    pub(crate) process: i32,
    pub(crate) thread: i32,
    pub(crate) reason: SwitchReason,
    /// Address of the run queue of the thread's group on its CPU; 0 if the kernel marks each throttled thread itself.
    pub(crate) queue: u64,
    /// CPU clock of the thread, nanoseconds.
    pub(crate) clock_ns: u64,
    /// Numbers of the thread's page faults so far: without and with I/O.
    pub(crate) faults: [u64; 2],
}

/// Reason why a thread leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchReason {
    /// Another thread has the CPU.
    Preempted,
    /// Its group has used up its CPU quota.
    Throttled,
    /// A signal, a debugger or the freezer stops it.
    Stopped,
    Waits(SystemCall),
}

/// System call in which a thread waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SystemCall {
    /// Number of the call; negative if the thread was in none, as for a page fault.
    pub(crate) number: i64,
    /// Its first arguments.
    pub(crate) arguments: [u64; 2],
    /// First entries of the array of a poll(2), or the first words of the sets of a select(2); otherwise 0.
    pub(crate) polled: [u64; POLLED],
    /// Time at which the wait ends if nothing else ends it, CLOCK_MONOTONIC nanoseconds; `None` without a limit.
    pub(crate) limit_ns: Option<u64>,
    /// True if the kernel makes room in memory for the thread.
    pub(crate) is_reclaim: bool,
    /// True if only a clock can end the wait: there is no descriptor, or a timer's alone.
    pub(crate) is_clock: bool,
    /// Number of the object behind the call's descriptor, in [`WaitObjects`](crate::wait_object::WaitObjects).
    pub(crate) object: Option<u32>,
}

/// Returns the name in a record.
fn name(words: &[u64; 8]) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    for (to, word) in name.chunks_exact_mut(8).zip(&words[5..]) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    name
}

/// Returns the event of a record of eight words.
pub(crate) fn parse(words: &[u64; 8]) -> Option<ProbeEvent> {
    let [at_ns, ids, tag, object, data, pts, result, _] = *words;
    let (process, thread) = ((ids >> 32) as i32, ids as i32);
    let tag = tag as i32;
    Some(match tag {
        TAG_WOKEN => {
            let is_thaw = data & FROZEN != 0;
            ProbeEvent::Woken { thread: object as i32, by: thread, at_ns, is_thaw }
        }
        TAG_EXECUTED | TAG_LOADED => ProbeEvent::Loaded,
        TAG_MARKED | TAG_MARKED_END => {
            let stage = (tag == TAG_MARKED).then(|| stage_name(&name(words)));
            ProbeEvent::Marked(Mark { at_ns, process, thread, frame: object, stage })
        }
        _ if tag & NAMED != 0 => {
            let name = name(words);
            let site = CALL_SITES.get((tag & 0xff) as usize)?;
            if site.call == Call::OpenGraph {
                let place = (tag >> PLACE_SHIFT) as u64;
                return Some(ProbeEvent::Filter { process, graph: object, filter: data, place, name });
            }
            ProbeEvent::Named { process, object, media: (data >> 32) as u32, name }
        }
        _ => {
            let site = CALL_SITES.get((tag & 0xff) as usize)?;
            let phase = if tag & LEAVE == 0 { Phase::Enter } else { Phase::Leave };
            let result = if phase == Phase::Leave { result as i32 } else { 0 };
            // Without an item, and for one without bytes, the time means nothing.
            let has_time = data != 0 && site.item.pts_offset().is_some();
            let pts = if has_time { pts as i64 } else { NO_PTS };
            let call = match (site.filter, data) {
                (CallFilter::Surface, data) if data == u64::from(ATTACH) => Call::Attach,
                _ => site.call,
            };
            ProbeEvent::Call(CallEvent { at_ns, process, thread, call, phase, object, data, pts, result })
        }
    })
}
