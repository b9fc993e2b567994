// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log of the stretches of frames that waited inside a hop, or on which another thread or process worked.

use framepath_model::ledger::{Span, SpanPlace};

use crate::helper::{HelperInfo, HelperKind};

/// Number of spans that are kept for each row of the recorder: a picture of a frame thread has six.
const PER_ROW: usize = 6;

/// Spans of one recorder, and the helpers in them. All memory for the spans is allocated with the first one.
#[derive(Debug, Default)]
pub(super) struct SpanLog {
    spans: Vec<Span>,
    /// Maximum number of spans; newer ones overwrite the oldest. 0 at level `off`.
    most: usize,
    /// Index of the oldest span, which the next one overwrites when the memory is full.
    oldest: usize,
    /// Helpers, each with the latest end of its spans, CLOCK_MONOTONIC nanoseconds; 0 before its first span.
    helpers: Vec<(HelperInfo, u64)>,
}

impl SpanLog {
    /// Makes the log of a recorder with room for `rows` rows.
    pub(super) fn new(rows: usize) -> SpanLog {
        SpanLog { most: rows.saturating_mul(PER_ROW), ..SpanLog::default() }
    }

    /// Records that frame `seq` was at `place` in hop `hop` from `start_ns` to `end_ns` (CLOCK_MONOTONIC). Leaves
    /// out an empty wait.
    pub(super) fn push(&mut self, (hop, seq): (u16, u64), place: SpanPlace, start_ns: u64, end_ns: u64) {
        if self.most == 0 || (end_ns <= start_ns && matches!(place, SpanPlace::Inside(_))) {
            return;
        }
        if let SpanPlace::Helper(at) = place {
            let end = &mut self.helpers[usize::from(at)].1;
            *end = end_ns.max(*end);
        }
        let span = Span { seq, start_ns, end_ns: end_ns.max(start_ns), hop, place };
        if self.spans.is_empty() {
            self.spans.reserve_exact(self.most);
        }
        if self.spans.len() < self.most {
            self.spans.push(span);
        } else {
            self.spans[self.oldest] = span;
            self.oldest = (self.oldest + 1) % self.most;
        }
    }

    /// Returns the place of the thread or process `id` that works for hop `hop`; adds it if it is new.
    pub(super) fn helper(&mut self, hop: u16, kind: HelperKind, id: u32) -> SpanPlace {
        let known = self.helpers.iter().position(|(h, _)| (h.hop, h.kind, h.id) == (hop, kind, id));
        let at = known.unwrap_or_else(|| {
            self.helpers.push((HelperInfo { hop, kind, id }, 0));
            self.helpers.len() - 1
        });
        SpanPlace::Helper(at as u16)
    }

    /// Returns the latest end of the spans of the helper at `place`, CLOCK_MONOTONIC nanoseconds; 0 without one.
    pub(super) fn last_end(&self, place: SpanPlace) -> u64 {
        let SpanPlace::Helper(at) = place else { return 0 };
        self.helpers.get(usize::from(at)).map_or(0, |(_, end_ns)| *end_ns)
    }

    /// Returns the spans, oldest first, and the helpers.
    pub(super) fn finish(mut self) -> (Vec<Span>, Vec<HelperInfo>) {
        self.spans.rotate_left(self.oldest);
        (self.spans, self.helpers.into_iter().map(|(helper, _)| helper).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use framepath_model::ledger::Cause;

    #[test]
    fn new_spans_overwrite_the_oldest_and_empty_waits_are_left_out() {
        let mut log = SpanLog::new(1);
        for seq in 0..8 {
            log.push((0, seq), SpanPlace::Thread(0), seq, seq);
            log.push((0, seq), SpanPlace::Inside(Cause::Held), seq, seq);
        }
        let (spans, _) = log.finish();
        assert_eq!(spans.iter().map(|span| span.seq).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
        let mut off = SpanLog::new(0);
        off.push((0, 0), SpanPlace::Thread(0), 0, 1);
        assert_eq!(off.finish().0, []);
    }

    #[test]
    fn a_helper_is_known_by_its_hop_and_id() {
        let mut log = SpanLog::new(1);
        let places =
            [(1, 7), (1, 8), (2, 7), (1, 7)].map(|(hop, id)| log.helper(hop, HelperKind::Worker, id));
        assert_eq!(places, [0, 1, 2, 0].map(SpanPlace::Helper));
        log.push((1, 0), places[0], 3, 9);
        log.push((1, 1), places[0], 4, 5);
        assert_eq!(places.map(|place| log.last_end(place)), [9, 0, 0, 9]);
        assert_eq!(log.finish().1.len(), 3);
    }
}
