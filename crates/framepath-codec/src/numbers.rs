// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matching of decoded pictures with their packets.
//!
//! Decoders reorder, hide and repeat pictures, but copy one 64-bit number from packet to picture.
//! So each packet gets a number, and the packet's metadata is stored here.

use std::collections::VecDeque;

use framepath_model::stream::{FrameMeta, Preroll};

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: i64,
    meta: FrameMeta,
    /// True if a picture of the packet was received from the decoder, also if it is not output.
    shown: bool,
    /// True if the packet's [`Preroll`] discards its picture. Pictures withheld by a [`Skip`] have
    /// false.
    discarded: bool,
}

/// Pictures that the decoder decodes but does not output: the next `left` in presentation order
/// that belong to packet number `from` or a later packet.
#[derive(Clone, Copy, Debug)]
struct Skip {
    from: i64,
    left: u64,
}

/// Table of the packets that a decoder may still hold. Its size is fixed: a new packet replaces the
/// oldest one, so that packets without a picture (hidden ones) do not accumulate.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// Last packets sent; `None` if unused or flushed. Number n is at index n modulo the length,
    /// which is a power of two.
    entries: Vec<Option<Entry>>,
    next: i64,
    /// Number of the first packet after the last flush; 0 without a flush.
    first: i64,
    /// Skips in decoding order. A skip whose pictures were all received is removed when the next
    /// skip begins.
    skips: VecDeque<Skip>,
    /// Presentation time, if known, and packet number of the last received picture; `None` before
    /// the first picture and after a flush.
    last: Option<(Option<i64>, i64)>,
}

impl Numbers {
    /// Creates a table for a decoder of `threads` threads. The table has room for
    /// `4 * (2 * threads + 32)` packets, rounded up to a power of two: a thread works on at most two
    /// packets, codecs reorder over at most 16 pictures, and hidden pictures may lie between them.
    pub(crate) fn new(threads: u32) -> Numbers {
        let length = (4 * (2 * threads as usize + 32)).next_power_of_two();
        Numbers { entries: vec![None; length], next: 0, first: 0, skips: VecDeque::new(), last: None }
    }

    /// Stores the metadata and preroll of the next packet in decoding order. Returns the packet's
    /// number, which counts from 0.
    pub(crate) fn insert(&mut self, meta: FrameMeta, preroll: Preroll) -> i64 {
        let number = self.next;
        self.next += 1;
        let place = self.place(number);
        self.entries[place] = Some(Entry { number, meta, shown: false, discarded: preroll.discarded });
        if preroll.skipped > 0 {
            self.skips.push_back(Skip { from: number, left: preroll.skipped });
        }
        number
    }

    /// Drops all packets, because the decoder was flushed. Returns the number of packets whose
    /// picture was neither received nor discarded and is shown after the last received picture (if
    /// a presentation time is missing: whose number is higher). Pictures that a [`Skip`] would have
    /// withheld count, too.
    pub(crate) fn flush(&mut self) -> u64 {
        let last = self.last.take();
        let comes = |entry: &Entry| match (entry.meta.pts, last) {
            (_, None) => true,
            (Some(pts), Some((Some(last), _))) => pts > last,
            (_, Some((_, last))) => entry.number > last,
        };
        let inside = self.entries.iter_mut().filter_map(Option::take);
        let inside = inside.filter(|entry| !entry.shown && !entry.discarded && comes(entry)).count();
        self.first = self.next;
        self.skips.clear();
        inside as u64
    }

    /// Returns the metadata of packet `number`, or default metadata if the table no longer has this
    /// packet.
    pub(crate) fn meta_of(&self, number: i64) -> FrameMeta {
        let entry = self.entries[self.place(number)].filter(|entry| entry.number == number);
        entry.map_or_else(FrameMeta::default, |entry| entry.meta)
    }

    /// Returns the number of packets inserted so far; a flush does not reset it.
    pub(crate) fn sent(&self) -> u64 {
        self.next as u64
    }

    /// Returns the earliest presentation time of the stored packets with number `number` or later
    /// since the last flush; `None` if such a packet has no time, or there is no such packet.
    pub(crate) fn earliest_from(&self, number: i64) -> Option<i64> {
        let from = number.max(self.next - self.entries.len() as i64).max(self.first);
        let times = (from..self.next).map(|number| self.entries[self.place(number)]?.meta.pts);
        times.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// Returns the metadata of packet `number`, and marks its picture as received. The caller asks in
    /// presentation order, because a skip counts the calls. Returns `None` if the picture is not output
    /// (discarded or skipped). For an unknown number, uses the oldest packet whose picture was not
    /// received; without such a packet, returns default metadata.
    pub(crate) fn find(&mut self, number: i64) -> Option<FrameMeta> {
        let place = self.place(number);
        let known = self.entries[place].filter(|entry| entry.number == number).map(|_| place);
        let place = known.or_else(|| {
            let waiting = self.entries.iter().enumerate().filter_map(|(place, entry)| {
                entry.filter(|entry| !entry.shown).map(|entry| (entry.number, place))
            });
            waiting.min().map(|(_, place)| place)
        });
        match place.and_then(|place| self.entries[place].as_mut()) {
            Some(entry) => {
                entry.shown = true;
                let Entry { number, meta, discarded, .. } = *entry;
                self.last = Some((meta.pts, number));
                (!discarded && !self.skips(number)).then_some(meta)
            }
            None => Some(FrameMeta::default()),
        }
    }

    /// Returns true if a [`Skip`] withholds the picture of packet `number`, and then decrements the
    /// count of the skip.
    fn skips(&mut self, number: i64) -> bool {
        while self.skips.get(1).is_some_and(|next| number >= next.from) {
            self.skips.pop_front();
        }
        match self.skips.front_mut() {
            Some(skip) if skip.left > 0 && number >= skip.from => {
                skip.left -= 1;
                true
            }
            _ => false,
        }
    }

    fn place(&self, number: i64) -> usize {
        (number as usize) & (self.entries.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(seq: u64) -> FrameMeta {
        FrameMeta { seq, ..FrameMeta::default() }
    }

    fn insert(numbers: &mut Numbers, meta: FrameMeta) -> i64 {
        numbers.insert(meta, Preroll::default())
    }

    #[test]
    fn discarded_and_skipped_pictures_are_not_output() {
        let mut numbers = Numbers::new(1);
        numbers.insert(meta(0), Preroll { discarded: true, ..Preroll::default() });
        numbers.insert(meta(1), Preroll { skipped: 2, ..Preroll::default() });
        (2..5).for_each(|seq| assert_eq!(insert(&mut numbers, meta(seq)), seq as i64));
        // Pictures of packets before the packet with the count do not count.
        let found = [0, 2, 1, 3, 4].map(|number| numbers.find(number).map(|meta| meta.seq));
        assert_eq!(found, [None, None, None, Some(3), Some(4)]);
        // A repeated file: the next count arrives before the pictures of this one.
        for seq in 5..9 {
            let skipped = if seq % 2 == 1 { 1 } else { 0 };
            numbers.insert(meta(seq), Preroll { skipped, ..Preroll::default() });
        }
        let found = [5, 6, 7, 8].map(|number| numbers.find(number).map(|meta| meta.seq));
        assert_eq!(found, [None, Some(6), None, Some(8)]);
    }

    #[test]
    fn a_flush_forgets_what_is_inside_and_counts_it() {
        let mut numbers = Numbers::new(1);
        for pts in [0, 40, 10, 20, 30, 30] {
            insert(&mut numbers, FrameMeta { pts: Some(pts), ..FrameMeta::default() });
        }
        numbers.insert(meta(9), Preroll { discarded: true, skipped: 5, ..Preroll::default() });
        assert!([0, 2, 3].into_iter().all(|number| numbers.find(number).is_some()));
        // 40 and both of 30; not the discarded one.
        assert_eq!(numbers.flush(), 3);
        assert_eq!((numbers.flush(), numbers.sent()), (0, 7));
        assert_eq!((insert(&mut numbers, meta(10)), numbers.find(7)), (7, Some(meta(10))));
        assert_eq!(numbers.earliest_from(0), None);
    }

    #[test]
    fn finds_across_reordering_and_repeats() {
        let mut numbers = Numbers::new(1);
        for seq in 0..5 {
            assert_eq!(insert(&mut numbers, meta(seq + 100)), seq as i64);
        }
        for number in [0, 3, 1, 1, 2, 4] {
            assert_eq!(numbers.find(number).unwrap().seq, 100 + number as u64);
        }
    }

    #[test]
    fn an_unknown_number_is_the_oldest_not_shown() {
        let mut numbers = Numbers::new(1);
        assert_eq!(numbers.find(i64::MIN), Some(FrameMeta::default()));
        for seq in 0..4 {
            insert(&mut numbers, meta(seq));
        }
        assert_eq!(numbers.find(0).unwrap().seq, 0);
        assert_eq!(numbers.find(i64::MIN).unwrap().seq, 1);
        assert_eq!(numbers.find(77).unwrap().seq, 2);
    }

    #[test]
    fn the_earliest_time_needs_all_times() {
        let mut numbers = Numbers::new(1);
        for pts in [0, 40, 10, 20, 30] {
            insert(&mut numbers, FrameMeta { pts: Some(pts), ..FrameMeta::default() });
        }
        assert_eq!(numbers.earliest_from(1), Some(10));
        assert_eq!(numbers.earliest_from(4), Some(30));
        assert_eq!(numbers.earliest_from(5), None);
        insert(&mut numbers, meta(5));
        assert_eq!(numbers.earliest_from(1), None);
    }

    #[test]
    fn hidden_packets_do_not_pile_up() {
        let mut numbers = Numbers::new(2);
        let length = numbers.entries.len();
        for seq in 0..100_000 {
            let number = insert(&mut numbers, meta(seq));
            assert_eq!(numbers.find(number).unwrap().seq, seq);
        }
        assert_eq!(numbers.entries.len(), length);
    }
}
