// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of the probes, and their records of eight words.

use crate::calls::{ATTACH, CALL_SITES, Call, CallEvent, CallFilter, NO_PTS, Phase};
use crate::device_calls::DeviceCall;
use crate::mark::{Mark, stage_name};
use crate::probe_programs::{
    ELEMENT_BYTES, FILTER_LINK, FILTER_OPTION, LEAVE, NAME_BYTES, NAMED, PAD_LINKS, PAD_NEXT, PLACE_SHIFT,
    TAG_MARKED, TAG_MARKED_END, TAG_WOKEN,
};
use crate::switch_program::FROZEN;
use crate::wait_object::POLLED;

/// Event of a probe. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeEvent {
    /// A call began or ended.
    Call(CallEvent),
    /// An object is ready, or is used for the first time: its process and address, the kind of its stream, and its name, which ends with a
    /// zero if it is shorter.
    Named { process: i32, object: u64, media: u32, name: [u8; NAME_BYTES] },
    /// A graph of filters is ready, or is used for the first time: its process and address, and the address, place and name of one of its filters.
    Filter { process: i32, graph: u64, filter: u64, place: u64, name: [u8; NAME_BYTES] },
    /// First option of a filter `setpts`, behind [`ProbeEvent::Filter`]. It ends with a zero if it is shorter.
    FilterOption { process: i32, filter: u64, option: [u8; NAME_BYTES] },
    /// Next output of a filter, behind [`ProbeEvent::Filter`]: the filter to which it leads, and the words of the AVFilterLink at
    /// [`TIME_BASES`](crate::time_base::TIME_BASES).
    FilterOutput { process: i32, filter: u64, to: u64, words: [u64; 2] },
    /// A pad of GStreamer passes its first buffer: its process and address, and the addresses of its parent, of its peer, and of
    /// the peer's parent.
    Pad { process: i32, pad: u64, parent: u64, peer: u64, next: u64 },
    /// Name of a pad's parent or, if it is `next`, of the peer's parent, behind [`ProbeEvent::Pad`]. It ends with a zero.
    PadName { process: i32, pad: u64, is_next: bool, name: [u8; ELEMENT_BYTES] },
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

/// Returns the name at the end of a record.
fn name<const BYTES: usize>(words: &[u64; 8]) -> [u8; BYTES] {
    let mut name = [0; BYTES];
    for (to, word) in name.chunks_exact_mut(8).zip(&words[8 - BYTES / 8..]) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    name
}

/// Returns the event of a record of eight words.
pub(crate) fn parse(words: &[u64; 8]) -> Option<ProbeEvent> {
    let [at_ns, ids, tag, object, data, pts, result, last] = *words;
    let (process, thread) = ((ids >> 32) as i32, ids as i32);
    let tag = tag as i32;
    Some(match tag {
        TAG_WOKEN => {
            let is_thaw = data & FROZEN != 0;
            ProbeEvent::Woken { thread: object as i32, by: thread, at_ns, is_thaw }
        }
        TAG_MARKED | TAG_MARKED_END => {
            let stage = (tag == TAG_MARKED).then(|| stage_name(&name::<NAME_BYTES>(words)));
            ProbeEvent::Marked(Mark { at_ns, process, thread, frame: object, stage })
        }
        _ if tag & NAMED != 0 => {
            let site = CALL_SITES.get((tag & 0xff) as usize)?;
            let place = tag >> PLACE_SHIFT;
            match site.call {
                Call::PadPush if place == PAD_LINKS => {
                    let [parent, peer, next] = [data, pts, result];
                    ProbeEvent::Pad { process, pad: object, parent, peer, next }
                }
                Call::PadPush => {
                    let is_next = place == PAD_NEXT;
                    ProbeEvent::PadName { process, pad: object, is_next, name: name(words) }
                }
                Call::OpenGraph | Call::FilterInput | Call::FilterOutput => {
                    let (graph, filter) = (object, data);
                    if place & FILTER_LINK != 0 {
                        let words = [result, last];
                        return Some(ProbeEvent::FilterOutput { process, filter, to: pts, words });
                    }
                    if place & FILTER_OPTION != 0 {
                        return Some(ProbeEvent::FilterOption { process, filter, option: name(words) });
                    }
                    let place = place as u64;
                    ProbeEvent::Filter { process, graph, filter, place, name: name(words) }
                }
                _ => {
                    let media = (data >> 32) as u32;
                    ProbeEvent::Named { process, object, media, name: name(words) }
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ObjectNames;
    use crate::probe_programs::PAD_PARENT;

    /// Record of process 7 and thread 8 about the object 9, of the first site of `call`, with the name at its end.
    fn named(call: Call, place: i32, name: &str) -> [u64; 8] {
        let index = CALL_SITES.iter().position(|site| site.call == call).unwrap() as i32;
        let mut record = [50, 7 << 32 | 8, (index | NAMED | place << PLACE_SHIFT) as u64, 9, 0, 0, 0, 0];
        let words = if call == Call::PadPush { 4 } else { 5 };
        for (at, byte) in name.bytes().enumerate() {
            record[words + at / 8] |= u64::from_ne_bytes({
                let mut bytes = [0; 8];
                bytes[at % 8] = byte;
                bytes
            });
        }
        record
    }

    fn take(names: &mut ObjectNames, record: [u64; 8]) {
        names.take_names(parse(&record).unwrap());
    }

    #[test]
    fn a_pad_has_the_names_of_its_records() {
        let mut names = ObjectNames::default();
        let mut links = named(Call::PadPush, PAD_LINKS, "");
        links[4..7].copy_from_slice(&[1, 2, 3]);
        take(&mut names, links);
        take(&mut names, named(Call::PadPush, PAD_PARENT, "an-element-with-a-long-name-of-3"));
        take(&mut names, named(Call::PadPush, PAD_NEXT, "queue0"));
        let pad = names.pad(7, 9).unwrap();
        assert_eq!((pad.parent, pad.peer, pad.next), (1, 2, 3));
        assert_eq!(
            (pad.name.as_str(), pad.next_name.as_str()),
            ("an-element-with-a-long-name-of-3", "queue0")
        );
        // A pad that cannot be read, and a name whose first record was lost.
        let mut names = ObjectNames::default();
        take(&mut names, named(Call::PadPush, PAD_LINKS, ""));
        take(&mut names, named(Call::PadPush, PAD_NEXT, "queue0"));
        assert_eq!(names.pad(7, 9), None);
    }

    #[test]
    fn objects_have_the_names_of_their_records_at_their_first_use_too() {
        let mut names = ObjectNames::default();
        for call in [Call::OpenCodec, Call::ReceiveFrame] {
            let mut video = named(call, 0, "h264");
            video[3] = 20 + call as u64;
            take(&mut names, video);
            assert_eq!(names.of(7, video[3]).map(|named| named.name.as_str()), Some("h264"));
        }
        // Text that cannot be read, and bytes that are no text.
        for name in ["", "\u{1}\u{2}"] {
            take(&mut names, named(Call::OpenInput, 0, name));
            assert_eq!(names.of(7, 9), None);
        }
        for call in [Call::OpenGraph, Call::FilterInput, Call::FilterOutput] {
            for (place, name) in ["buffer", "scale", "eq"].into_iter().enumerate() {
                let mut filter = named(call, place as i32, name);
                filter[4] = 10 + place as u64;
                take(&mut names, filter);
            }
            assert_eq!(names.of(7, 9).map(|named| named.name.as_str()), Some("scale,eq"));
            assert_eq!(names.graph(7, 11), Some(9));
        }
    }
}
