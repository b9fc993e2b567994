// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls with their begin and end.

use std::collections::{HashMap, HashSet};

use crate::calls::{Call, CallEvent, NO_PTS, Phase};

/// Finished call of an observed function. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallSpan {
    pub(crate) call: Call,
    pub(crate) process: i32,
    pub(crate) thread: i32,
    pub(crate) enter_ns: u64,
    pub(crate) leave_ns: u64,
    /// First argument.
    pub(crate) object: u64,
    /// Address of the item's bytes; 0 if it has none.
    pub(crate) data: u64,
    /// Presentation time of the item, or [`NO_PTS`].
    pub(crate) pts: i64,
    pub(crate) result: i32,
}

/// Returns the finished calls in the order of their begins, without those inside another call of the same function
/// (some functions are implemented by their relatives), and without those by which `avformat_find_stream_info` looks
/// at a file: their frames are not the program's. `events` are in the order of their times.
pub(crate) fn spans(events: &[CallEvent]) -> Vec<CallSpan> {
    let mut spans: Vec<CallSpan> = Vec::new();
    // Running calls of each thread: the indices of the spans, `None` for a call that is left out.
    let mut running: HashMap<(i32, Call), Vec<Option<usize>>> = HashMap::new();
    let mut is_finished = Vec::new();
    for event in events.iter().filter(|event| event.call.has_return()) {
        let inside = running.entry((event.thread, event.call.outer())).or_default();
        match event.phase {
            Phase::Enter if !inside.is_empty() && !event.call.is_nested() => inside.push(None),
            Phase::Enter => {
                inside.push(Some(spans.len()));
                spans.push(CallSpan {
                    call: event.call,
                    process: event.process,
                    thread: event.thread,
                    enter_ns: event.at_ns,
                    leave_ns: event.at_ns,
                    object: event.object,
                    data: event.data,
                    pts: event.pts,
                    result: 0,
                });
                is_finished.push(false);
            }
            // Without a begin, the call began before the recording.
            Phase::Leave => {
                if let Some(index) = inside.pop().flatten() {
                    let span = &mut spans[index];
                    (span.leave_ns, span.result) = (event.at_ns, event.result);
                    if event.data != 0 {
                        (span.data, span.pts) = (event.data, event.pts);
                    }
                    is_finished[index] = true;
                }
            }
        }
    }
    let mut is_finished = is_finished.into_iter();
    spans.retain(|_| is_finished.next() == Some(true));
    // Looks at files of each thread, one after the other.
    let mut looks: HashMap<i32, Vec<(u64, u64)>> = HashMap::new();
    for span in spans.iter().filter(|span| span.call == Call::OpenInput) {
        looks.entry(span.thread).or_default().push((span.enter_ns, span.leave_ns));
    }
    spans.retain(|span| {
        let looks = looks.get(&span.thread).map_or(&[][..], Vec::as_slice);
        let before = looks.partition_point(|(enter_ns, _)| *enter_ns <= span.enter_ns);
        let is_inside = before.checked_sub(1).is_some_and(|last| span.leave_ns <= looks[last].1);
        span.call == Call::OpenInput || !is_inside
    });
    let spans = pictures(spans);
    debug_assert!(spans.iter().all(|span| span.data != 0 || span.pts == NO_PTS));
    spans
}

/// Frame that a program makes from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameCopy {
    /// CLOCK_MONOTONIC nanoseconds.
    pub(crate) at_ns: u64,
    pub(crate) process: i32,
    /// Address of the other one's bytes, and of its own.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Returns the frames that were made from others, in the order of `events`. A frame without bytes of its own is left out.
pub(crate) fn frame_copies(events: &[CallEvent]) -> Vec<FrameCopy> {
    let copies = events.iter().filter(|event| event.call == Call::CopyFrame && event.object != 0);
    let copies = copies.filter(|event| event.object != event.data);
    copies
        .map(|event| FrameCopy {
            at_ns: event.at_ns,
            process: event.process,
            from: event.data,
            to: event.object,
        })
        .collect()
}

/// Buffer that a program makes from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferCopy {
    /// CLOCK_MONOTONIC nanoseconds.
    pub(crate) at_ns: u64,
    pub(crate) thread: i32,
    /// Addresses of the other one, and of its own.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Returns the buffers that were made from others, in the order of `events`.
pub(crate) fn buffer_copies(events: &[CallEvent]) -> Vec<BufferCopy> {
    let copies = events.iter().filter(|event| event.call == Call::CopyBuffer);
    let of = |event: &CallEvent| BufferCopy {
        at_ns: event.at_ns,
        thread: event.thread,
        from: event.data,
        to: event.object,
    };
    copies.map(of).collect()
}

/// Turns the requests with which surfaces of Wayland show a new picture into presents, and leaves out the others.
fn pictures(mut spans: Vec<CallSpan>) -> Vec<CallSpan> {
    let mut attached: HashSet<(i32, u64)> = HashSet::new();
    spans.retain_mut(|span| {
        let surface = (span.process, span.object);
        match span.call {
            Call::Attach => {
                attached.insert(surface);
                false
            }
            Call::Commit => {
                span.call = Call::Present;
                attached.remove(&surface)
            }
            _ => true,
        }
    });
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_and_ends_belong_together_by_thread_and_function() {
        let event = |at_ns, thread, call, phase, data, result| {
            let pts = if data == 0 { NO_PTS } else { 7 };
            CallEvent { at_ns, process: 1, thread, call, phase, object: 9, data, pts, result }
        };
        use Call::{FilterOutput, OpenInput, ReadPacket, SendPacket};
        let events = [
            event(1, 1, SendPacket, Phase::Leave, 0, 0),
            event(10, 1, FilterOutput, Phase::Enter, 0, 0),
            event(11, 1, FilterOutput, Phase::Enter, 0, 0),
            event(12, 2, ReadPacket, Phase::Enter, 0, 0),
            event(13, 1, FilterOutput, Phase::Leave, 5, 0),
            event(14, 1, FilterOutput, Phase::Leave, 5, 0),
            event(15, 2, ReadPacket, Phase::Leave, 0, -11),
            event(16, 2, SendPacket, Phase::Enter, 6, 0),
            event(20, 3, OpenInput, Phase::Enter, 0, 0),
            event(21, 3, SendPacket, Phase::Enter, 6, 0),
            event(22, 3, SendPacket, Phase::Leave, 0, 0),
            event(23, 3, OpenInput, Phase::Leave, 0, 0),
        ];
        let found: Vec<_> = spans(&events)
            .iter()
            .map(|span| (span.call, span.thread, span.enter_ns, span.leave_ns, span.data, span.result))
            .collect();
        let open = (OpenInput, 3, 20, 23, 0, 0);
        assert_eq!(found, [(FilterOutput, 1, 10, 14, 5, 0), (ReadPacket, 2, 12, 15, 0, -11), open]);
    }
}
