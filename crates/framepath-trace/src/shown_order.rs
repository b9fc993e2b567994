// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matching of a window's pictures with a stream's frames by their order, for programs whose pictures have other bytes than
//! the frames.
//!
//! A player may drop frames and show one twice. If a window got as many pictures as there are frames, and none before its
//! frame, the program did neither. Otherwise nothing is matched.

use std::collections::BTreeMap;

use crate::calls::Call;
use crate::spans::CallSpan;
use crate::traced_frame::TracedFrame;

/// Pictures of a program's window that are not matched with its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmatched {
    /// Number of pictures since the first frame.
    pub(crate) pictures: u64,
    /// Number of frames that could be shown.
    pub(crate) frames: u64,
}

impl Unmatched {
    /// Returns the sentence of the report.
    pub(crate) fn note(self) -> String {
        let Unmatched { pictures, frames } = self;
        format!("present: {pictures} pictures shown, {frames} frames: not matched")
    }
}

/// Finds the calls of `process` that show the frames, which are ready at these times, in the order of their presentation.
/// `None` if the process shows nothing.
///
/// # Errors
/// No window has this number of pictures, or several have it; or a picture comes before its frame.
/// `presents` are the indices of all calls that show pictures.
pub(crate) fn shown_in_order(
    spans: &[CallSpan],
    presents: &[usize],
    process: i32,
    ready_ns: &[u64],
) -> Option<Result<Vec<usize>, Unmatched>> {
    let first_ns = *ready_ns.first()?;
    let mut windows: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, span) in presents.iter().map(|index| (*index, &spans[*index])) {
        if span.process == process && span.enter_ns >= first_ns {
            windows.entry(span.object).or_default().push(index);
        }
    }
    let pictures = windows.values().map(Vec::len).max()? as u64;
    let mut fitting = windows.into_values().filter(|calls| calls.len() == ready_ns.len());
    let found = fitting.next().filter(|_| fitting.next().is_none());
    let is_behind = |(call, ready_ns): (&usize, &u64)| spans[*call].enter_ns >= *ready_ns;
    let found = found.filter(|calls| calls.iter().zip(ready_ns).all(is_behind));
    Some(found.ok_or(Unmatched { pictures, frames: ready_ns.len() as u64 }))
}

/// Returns the indices of the calls that show pictures.
pub(crate) fn presents(spans: &[CallSpan]) -> Vec<usize> {
    (0..spans.len()).filter(|index| spans[*index].call == Call::Present).collect()
}

/// Matches the frames of each process of which none was found by its bytes: those of a decoder that has as many as a window has
/// pictures. Other decoders may have read icons.
pub(crate) fn show_in_order(all: &mut [TracedFrame], spans: &[CallSpan]) -> Vec<Unmatched> {
    let presents = presents(spans);
    let mut others = Vec::new();
    if presents.is_empty() {
        return others;
    }
    let mut processes: BTreeMap<i32, BTreeMap<u64, Vec<usize>>> = BTreeMap::new();
    for (index, frame) in all.iter().enumerate().filter(|(_, frame)| frame.receive.is_some()) {
        let (process, decoder) = frame.decoder;
        processes.entry(process).or_default().entry(decoder).or_default().push(index);
    }
    for (process, decoders) in processes {
        if decoders.values().flatten().any(|frame| all[*frame].present.is_some()) {
            continue;
        }
        let mut unmatched: Vec<Unmatched> = Vec::new();
        let mut fitting: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
        for frames in decoders.into_values() {
            let (times, frames): (Vec<u64>, Vec<usize>) = ready(all, frames, spans).into_iter().unzip();
            match shown_in_order(spans, &presents, process, &times) {
                Some(Ok(calls)) => fitting.push((frames, calls)),
                Some(Err(other)) => unmatched.push(other),
                None => {}
            }
        }
        for (frames, calls) in &fitting {
            // Two decoders with as many frames: the window could be either's.
            if fitting.iter().filter(|(other, _)| other.len() == frames.len()).count() > 1 {
                let number = frames.len() as u64;
                unmatched.push(Unmatched { pictures: number, frames: number });
                continue;
            }
            for (frame, call) in frames.iter().zip(calls) {
                all[*frame].present = Some((None, *call));
            }
        }
        let most = fitting.iter().map(|(frames, _)| frames.len() as u64).max().unwrap_or(0);
        let largest = unmatched.into_iter().max_by_key(|unmatched| unmatched.frames);
        others.extend(largest.filter(|unmatched| unmatched.frames >= most));
    }
    others
}

/// Returns the frames of a decoder that could be shown, with the times at which they were ready, in the order of these. Of a
/// frame that goes several ways, each is one.
fn ready(all: &[TracedFrame], mut frames: Vec<usize>, spans: &[CallSpan]) -> Vec<(u64, usize)> {
    let output = |frame: usize| all[frame].filter.and_then(|(_, output)| output);
    if frames.iter().any(|frame| output(*frame).is_some()) {
        frames.retain(|frame| output(*frame).is_some());
    }
    let last = |frame: usize| output(frame).or(all[frame].receive).map(|call| (spans[call].leave_ns, frame));
    let mut ready: Vec<(u64, usize)> = frames.into_iter().filter_map(last).collect();
    ready.sort_unstable();
    ready
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::NO_PTS;

    fn picture(window: u64, enter_ns: u64) -> CallSpan {
        let (call, leave_ns) = (Call::Present, enter_ns + 1);
        let (process, thread, data, pts, result) = (1, 1, window, NO_PTS, 0);
        CallSpan { call, process, thread, enter_ns, leave_ns, object: window, data, pts, result }
    }

    #[test]
    fn pictures_and_frames_are_matched_only_if_their_numbers_are_equal() {
        let times = [10, 20, 30];
        let shown = |pictures: &[(u64, u64)]| {
            let spans: Vec<CallSpan> =
                pictures.iter().map(|(window, at_ns)| picture(*window, *at_ns)).collect();
            shown_in_order(&spans, &presents(&spans), 1, &times)
        };
        let unmatched = |pictures| Some(Err(Unmatched { pictures, frames: 3 }));
        assert_eq!(shown(&[]), None);
        // A picture before the first frame, and an icon.
        assert_eq!(shown(&[(7, 5), (7, 12), (8, 13), (7, 22), (7, 32)]), Some(Ok(vec![1, 3, 4])));
        // A frame was dropped, a picture was shown again, and both.
        assert_eq!(shown(&[(7, 12), (7, 32)]), unmatched(2));
        assert_eq!(shown(&[(7, 12), (7, 22), (7, 32), (7, 33)]), unmatched(4));
        assert_eq!(shown(&[(7, 12), (7, 13), (7, 32)]), unmatched(3));
        // Two windows.
        assert_eq!(shown(&[(7, 12), (8, 13), (7, 22), (8, 23), (7, 32), (8, 33)]), unmatched(3));
        let spans = [picture(7, 12)];
        let of = |process, times: &[u64]| shown_in_order(&spans, &presents(&spans), process, times);
        assert_eq!((of(2, &times), of(1, &[])), (None, None));
        let note = Unmatched { pictures: 212, frames: 180 }.note();
        assert_eq!(note, "present: 212 pictures shown, 180 frames: not matched");
    }
}
