// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of a recording without a frame: which ones were seen, and what could help.

use std::collections::BTreeMap;

use crate::calls::{Call, CallEvent};
use crate::spans::spans;

/// Numbers of the calls that were seen and succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenCalls {
    /// Finished calls by function.
    pub(crate) calls: BTreeMap<Call, u64>,
    /// Marks of a program that names its frames itself.
    pub(crate) marks: u64,
    /// Calls of V4L2 devices.
    pub(crate) device_calls: u64,
}

/// Functions that are named in the sentence, in the order of a frame's way: the name of one item and of several, and what
/// happened to them.
const NAMED: [(Call, [&str; 2], &str); 10] = [
    (Call::ReadPacket, PACKET, "read"),
    (Call::SendPacket, PACKET, "given to a decoder"),
    (Call::ReceiveFrame, FRAME, "decoded"),
    (Call::FilterInput, FRAME, "given to a filter"),
    (Call::FilterOutput, FRAME, "filtered"),
    (Call::SendFrame, FRAME, "given to an encoder"),
    (Call::ReceivePacket, PACKET, "encoded"),
    (Call::WritePacket, PACKET, "written"),
    (Call::PadPush, ["buffer", "buffers"], "passed between elements"),
    (Call::Present, ["picture", "pictures"], "shown"),
];
const PACKET: [&str; 2] = ["packet", "packets"];
const FRAME: [&str; 2] = ["frame", "frames"];

/// Steps of which the next one is missed if it was not seen: a function, the next one, and what was not done.
const MISSED: [(Call, Call, &str); 2] = [
    (Call::ReadPacket, Call::SendPacket, "none was given to a decoder"),
    (Call::SendPacket, Call::ReceiveFrame, "none was decoded"),
];

impl SeenCalls {
    /// Counts the calls of `events`, which are in the order of their times.
    pub(crate) fn of(events: &[CallEvent]) -> SeenCalls {
        let mut calls = BTreeMap::new();
        for span in spans(events) {
            let has_item = span.data != 0 || span.call.is_opening();
            if has_item && span.result >= 0 {
                *calls.entry(span.call).or_default() += 1;
            }
        }
        SeenCalls { calls, ..SeenCalls::default() }
    }

    /// Returns true if no call was seen.
    pub(crate) fn is_empty(&self) -> bool {
        *self == SeenCalls::default()
    }

    fn count(&self, call: Call) -> u64 {
        self.calls.get(&call).copied().unwrap_or(0)
    }

    /// Returns the calls and their numbers, such as `12 packets were read, none was given to a decoder`.
    pub(crate) fn text(&self) -> String {
        let mut parts = Vec::new();
        let mut last_noun = "";
        for (call, [one, several], done) in NAMED {
            let number = self.count(call);
            if number == 0 {
                continue;
            }
            let (noun, verb) = if number == 1 { (one, "was") } else { (several, "were") };
            parts.push(if several == last_noun {
                format!("{number} {verb} {done}")
            } else {
                format!("{number} {noun} {verb} {done}")
            });
            last_noun = several;
            let missed = MISSED.iter().find(|(before, next, _)| *before == call && self.count(*next) == 0);
            parts.extend(missed.map(|(_, _, missed)| (*missed).to_owned()));
        }
        if self.marks > 0 {
            parts.push(format!("{} marks of the program's own frames were seen", self.marks));
        }
        if self.device_calls > 0 {
            parts.push(format!("{} calls of a V4L2 device were seen", self.device_calls));
        }
        if parts.is_empty() {
            let opened = self.count(Call::OpenInput) + self.count(Call::OpenCodec);
            parts.push(if opened > 0 {
                "files or codecs were opened, no packet was read".to_owned()
            } else {
                "calls were seen, none had a frame".to_owned()
            });
        }
        parts.join(", ")
    }

    /// Returns why these calls give no frame, and what could help.
    pub(crate) fn remedy(&self) -> &'static str {
        let has = |call| self.count(call) > 0;
        if self.marks > 0 {
            "a frame is whole when framepath_frame_end was called with its number"
        } else if self.device_calls > 0 {
            "a frame is whole when the program has queued a buffer and got it back; record for longer"
        } else if has(Call::PadPush) {
            "no buffer went from the first element to the last one, or none was video; record for longer"
        } else if has(Call::ReceiveFrame) {
            "these calls are of audio, or of frames that the recording could not tell apart"
        } else if has(Call::SendPacket) {
            "no frame came out of the decoder while the recording ran; record for longer"
        } else if has(Call::ReadPacket) && has(Call::WritePacket) {
            "the program copies packets; only frames that pass a decoder have stages"
        } else if has(Call::ReadPacket) {
            "the program decodes by other means than FFmpeg's shared libraries, or not at all"
        } else if has(Call::Present) {
            "the pictures come from no decoder that framepath observes"
        } else {
            "record for longer, or from the start of the program"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{NO_PTS, Phase};

    /// Makes a finished call with an item, and with this result.
    fn call(call: Call, at_ns: u64, result: i32) -> [CallEvent; 2] {
        let event = |phase, at_ns, result| {
            let (data, pts) = if call.is_opening() { (0, NO_PTS) } else { (5, 7) };
            CallEvent { at_ns, process: 1, thread: 1, call, phase, object: 9, data, pts, result }
        };
        [event(Phase::Enter, at_ns, 0), event(Phase::Leave, at_ns + 1, result)]
    }

    fn seen(calls: &[(Call, usize)]) -> SeenCalls {
        let all = calls.iter().flat_map(|(call, number)| std::iter::repeat_n(*call, *number));
        let events = all.enumerate().flat_map(|(at, kind)| call(kind, 10 * at as u64, 0));
        SeenCalls::of(&events.collect::<Vec<_>>())
    }

    #[test]
    fn the_calls_are_named_with_their_numbers_and_the_first_step_that_is_missing() {
        use Call::{OpenInput, PadPush, ReadPacket, ReceiveFrame, SendPacket, WritePacket};
        for (calls, text) in [
            (&[(ReadPacket, 12)][..], "12 packets were read, none was given to a decoder"),
            (
                &[(ReadPacket, 12), (SendPacket, 1)],
                "12 packets were read, 1 was given to a decoder, none was decoded",
            ),
            (
                &[(ReadPacket, 1), (WritePacket, 1)],
                "1 packet was read, none was given to a decoder, 1 was written",
            ),
            (
                &[(SendPacket, 2), (ReceiveFrame, 2)],
                "2 packets were given to a decoder, 2 frames were decoded",
            ),
            (&[(PadPush, 3)], "3 buffers were passed between elements"),
            (&[(OpenInput, 1)], "files or codecs were opened, no packet was read"),
        ] {
            assert_eq!(seen(calls).text(), text);
        }
    }

    #[test]
    fn calls_that_failed_are_not_counted() {
        let events = [call(Call::ReadPacket, 1, 0), call(Call::ReadPacket, 5, -11)].concat();
        assert_eq!(SeenCalls::of(&events), seen(&[(Call::ReadPacket, 1)]));
        assert!(SeenCalls::of(&events[2..]).is_empty() && SeenCalls::of(&[]).is_empty());
    }

    #[test]
    fn marks_and_devices_count_as_calls() {
        let marked = SeenCalls { marks: 4, ..SeenCalls::default() };
        assert_eq!(marked.text(), "4 marks of the program's own frames were seen");
        let device = SeenCalls { device_calls: 2, ..SeenCalls::default() };
        assert_eq!(device.text(), "2 calls of a V4L2 device were seen");
        assert!(!marked.is_empty() && !device.is_empty() && marked.remedy() != device.remedy());
    }
}
