// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matching of a window's pictures with a stream's frames by their order, for programs whose pictures have other bytes than
//! the frames.
//!
//! A player may drop frames and show one twice. If a window got as many pictures as there are frames, and none before its
//! frame, the program did neither. Otherwise nothing is matched.

use std::collections::BTreeMap;

use crate::calls::Call;
use crate::identify::{Identified, TracedFrame};
use crate::spans::CallSpan;

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
pub(crate) fn shown_in_order(
    spans: &[CallSpan],
    process: i32,
    ready_ns: &[u64],
) -> Option<Result<Vec<usize>, Unmatched>> {
    let first_ns = *ready_ns.first()?;
    let mut windows: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, span) in spans.iter().enumerate() {
        if span.call == Call::Present && span.process == process && span.enter_ns >= first_ns {
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

/// Matches the frames of each process with one decoder that were not found by their bytes.
pub(crate) fn show_in_order(found: &mut Identified, spans: &[CallSpan]) {
    let mut processes: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for (index, frame) in found.frames.iter().enumerate().filter(|(_, frame)| frame.receive.is_some()) {
        processes.entry(frame.decoder.0).or_default().push(index);
    }
    for (process, mut frames) in processes {
        let at = |frame: usize| &found.frames[frame];
        if frames.iter().any(|frame| at(*frame).present.is_some()) {
            continue;
        }
        let is_one_way = frames.iter().all(|frame| at(*frame).decoder == at(frames[0]).decoder)
            && frames.windows(2).all(|pair| at(pair[0]).send != at(pair[1]).send);
        let has_graph = frames.iter().any(|frame| graph_output(at(*frame)).is_some());
        let ready_ns = |frame: &usize| {
            let last = if has_graph { graph_output(at(*frame)) } else { at(*frame).receive };
            last.map(|call| spans[call].leave_ns)
        };
        frames.retain(|frame| ready_ns(frame).is_some());
        frames.sort_by_key(ready_ns);
        let times: Vec<u64> = frames.iter().filter_map(ready_ns).collect();
        match shown_in_order(spans, process, &times) {
            Some(Ok(calls)) if is_one_way => {
                for (frame, call) in frames.into_iter().zip(calls) {
                    found.frames[frame].present = Some((None, call));
                }
            }
            Some(Ok(calls)) => {
                let (pictures, frames) = (calls.len() as u64, times.len() as u64);
                found.unmatched.push(Unmatched { pictures, frames });
            }
            Some(Err(unmatched)) => found.unmatched.push(unmatched),
            None => {}
        }
    }
}

/// Returns the call that got the frame from a graph of filters.
fn graph_output(frame: &TracedFrame) -> Option<usize> {
    frame.filter.and_then(|(_, output)| output)
}
