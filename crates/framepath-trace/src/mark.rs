// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moment at which a program says where a frame is, by a function of framepath_frame.h.

use std::collections::HashMap;

use crate::probe_programs::NAME_BYTES;

/// Beginning of the names of stages in which a frame waits for another thread.
const QUEUE: &str = "queue";

/// Moment at which a frame reaches a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub(crate) at_ns: u64,
    pub(crate) process: i32,
    pub(crate) thread: i32,
    pub(crate) frame: u64,
    /// Name of the stage; `None` if the frame has left its last one.
    pub(crate) stage: Option<String>,
}

/// Returns the name of a stage, which ends with a zero if it is shorter.
pub(crate) fn stage_name(bytes: &[u8; NAME_BYTES]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let shown = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '?' };
    let name: String = text.iter().map(shown).collect();
    if name.trim().is_empty() { "?".to_owned() } else { name.trim().to_owned() }
}

impl Mark {
    /// True if the frame waits for another thread in this stage.
    pub(crate) fn is_queue(&self) -> bool {
        self.stage.as_deref().is_some_and(|stage| stage.starts_with(QUEUE))
    }
}

/// Removes the marks before `from_ns`, and the later ones of the frames that began before. `marks` are in the order of their
/// times.
pub(crate) fn forget_marks(marks: &mut Vec<Mark>, from_ns: u64) {
    let mut first_stages: HashMap<(i32, u64), Option<String>> = HashMap::new();
    marks.retain(|mark| {
        let key = (mark.process, mark.frame);
        let first = first_stages.get(&key).cloned().flatten();
        // The frame has ended, or is another one.
        let is_new = first.is_none() || first == mark.stage;
        if mark.at_ns >= from_ns {
            if mark.stage.is_none() || is_new {
                first_stages.remove(&key);
            }
            return is_new;
        }
        if mark.stage.is_none() || is_new {
            first_stages.insert(key, mark.stage.clone());
        }
        false
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at_ns: u64, thread: i32, frame: u64, stage: &str) -> Mark {
        let stage = (!stage.is_empty()).then(|| stage.to_owned());
        Mark { at_ns, process: 1, thread, frame, stage }
    }

    #[test]
    fn a_frame_that_began_before_is_forgotten_whole() {
        let mut marks = vec![
            mark(10, 1, 1, "capture"),
            mark(20, 1, 2, "capture"),
            mark(30, 1, 1, ""),
            mark(50, 1, 2, "show"),
            mark(51, 1, 1, "capture"),
            mark(52, 1, 3, "capture"),
            mark(60, 1, 2, ""),
            mark(61, 1, 2, "capture"),
            mark(70, 1, 1, ""),
        ];
        forget_marks(&mut marks, 40);
        let kept: Vec<u64> = marks.iter().map(|mark| mark.at_ns).collect();
        assert_eq!(kept, [51, 52, 61, 70]);
    }

    #[test]
    fn names_are_printable() {
        let mut bytes = [0; NAME_BYTES];
        assert_eq!(stage_name(&bytes), "?");
        bytes[..7].copy_from_slice(b" a\x1b\xffb c");
        assert_eq!(stage_name(&bytes), "a??b c");
        assert_eq!(stage_name(&[b'x'; NAME_BYTES]).len(), NAME_BYTES);
    }
}
