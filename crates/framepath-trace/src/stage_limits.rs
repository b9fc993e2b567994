// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selection of the stages that a ledger shows.

use std::ops::Range;

use crate::attribution::{Part, PartUntil};

/// First and last stage of a ledger; `None` is the first or last one that the frames pass. A name is that of the stage
/// (`decode h264`), its kind (`decode`), or that of an element with or without its number (`queue0`, `queue`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageLimits {
    /// Name of the first stage. The time in which a frame waits for this stage is left out.
    pub from: Option<String>,
    /// Name of the last stage; the last one of several.
    pub to: Option<String>,
}

impl StageLimits {
    /// Returns the indices of the stages to show; `None` if there is no such stage, or the last one comes before the first
    /// one.
    pub(crate) fn of(&self, stages: &[String]) -> Option<Range<usize>> {
        let find = |name: &str| stages.iter().position(|stage| is_named(stage, name));
        let find_last = |name: &str| stages.iter().rposition(|stage| is_named(stage, name));
        let from = self.from.as_deref().map_or(Some(0), find)?;
        let to = self.to.as_deref().map_or(stages.len().checked_sub(1), find_last)?;
        (from <= to).then_some(from..to + 1)
    }
}

/// Cuts the parts of a frame's time, a list for each stage, to the stages in `range`. Returns the time at which the first of
/// these begins, and their parts. The frame is born at `birth_ns`, CLOCK_MONOTONIC.
pub(crate) fn cut(
    mut stages: Vec<(Vec<PartUntil>, i32)>,
    range: Range<usize>,
    birth_ns: u64,
) -> (u64, Vec<(Vec<PartUntil>, i32)>) {
    stages.truncate(range.end);
    let mut kept = stages.split_off(range.start);
    let ends = stages.iter().flat_map(|(parts, _)| parts).map(|(_, until_ns)| *until_ns);
    let mut begin_ns = ends.fold(birth_ns, u64::max);
    if let (true, Some((parts, _))) = (range.start > 0, kept.first_mut()) {
        if let Some((Part::Way { .. } | Part::WayToWindow { .. }, until_ns)) = parts.first() {
            begin_ns = begin_ns.max(*until_ns);
            parts.remove(0);
        }
    }
    (begin_ns, kept)
}

fn is_named(stage: &str, name: &str) -> bool {
    let element = stage.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
    stage == name || stage.split(' ').next() == Some(name) || element == name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_found_by_their_kinds_and_names() {
        let of = |stages: &[&str], from: Option<&str>, to: Option<&str>| {
            let stages: Vec<String> = stages.iter().map(|stage| (*stage).to_owned()).collect();
            StageLimits { from: from.map(Into::into), to: to.map(Into::into) }.of(&stages)
        };
        let player = ["demux mov", "decode h264", "present"];
        assert_eq!(of(&player, Some("decode"), Some("present")), Some(1..3));
        let ffmpeg = ["demux mov", "decode h264", "filter", "mux mp4"];
        assert_eq!(of(&ffmpeg, None, None), Some(0..4));
        assert_eq!(of(&ffmpeg, Some("decode"), Some("filter")), Some(1..3));
        assert_eq!(of(&ffmpeg, Some("decode h264"), None), Some(1..4));
        assert_eq!(of(&ffmpeg, Some("filter"), Some("decode")), None);
        assert_eq!(of(&ffmpeg, Some("encode"), None), None);
        let elements = ["queue0", "avdec_h264-0", "queue1", "fakesink0"];
        assert_eq!(of(&elements, Some("avdec_h264"), Some("queue")), Some(1..3));
        assert_eq!(of(&elements, None, Some("queue1")), Some(0..3));
        assert_eq!(of(&[], None, None), None);
    }

    #[test]
    fn the_wait_for_the_first_stage_is_left_out() {
        let work = |until_ns| (Part::Thread { thread: 1, pool: None }, until_ns);
        let way = |until_ns| (Part::Way { from: 1, to: 2 }, until_ns);
        let stages = vec![(vec![work(10)], 1), (vec![way(20), work(30)], 2), (vec![way(31), work(40)], 2)];
        let (begin_ns, kept) = cut(stages.clone(), 1..2, 5);
        assert_eq!((begin_ns, kept.len(), kept[0].0.len(), kept[0].0[0].1), (20, 1, 1, 30));
        let mut shown = stages.clone();
        shown[2].0[0].0 = Part::WayToWindow { from: 1, to: 2 };
        let (begin_ns, kept) = cut(shown, 2..3, 5);
        assert_eq!((begin_ns, kept.len(), kept[0].0.len()), (31, 1, 1));
        let (begin_ns, kept) = cut(stages, 0..3, 5);
        assert_eq!((begin_ns, kept.len(), kept[1].0.len()), (5, 3, 2));
    }
}
