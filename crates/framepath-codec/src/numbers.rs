// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which packet a decoded picture came from.
//!
//! Decoders reorder, hide and repeat pictures, and carry one 64-bit number
//! from packet to picture faithfully. So each packet is numbered, the number
//! travels, and what belongs to it waits here.

use framepath_model::stream::FrameMeta;

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: i64,
    meta: FrameMeta,
    shown: bool,
}

/// The packets a decoder may still have in it, at most a fixed number of them:
/// packets that never become a picture (hidden ones) must not pile up.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// Entry of number n at n modulo the length, which is a power of two.
    entries: Vec<Option<Entry>>,
    next: i64,
}

impl Numbers {
    /// Room for a decoder of `threads` threads: each may have a packet or two
    /// in work, and codecs reorder over 16 pictures at most. Four times that,
    /// for hidden pictures between.
    pub(crate) fn new(threads: u32) -> Numbers {
        let length = (4 * (2 * threads as usize + 32)).next_power_of_two();
        Numbers { entries: vec![None; length], next: 0 }
    }

    /// Remembers the next packet's data; gives the number it travels under.
    pub(crate) fn insert(&mut self, meta: FrameMeta) -> i64 {
        let number = self.next;
        self.next += 1;
        let place = self.place(number);
        self.entries[place] = Some(Entry { number, meta, shown: false });
        number
    }

    /// Packets numbered so far.
    pub(crate) fn sent(&self) -> u64 {
        self.next as u64
    }

    /// The earliest presentation time among the packets from `number` on;
    /// `None` where one of them has none, or there are none.
    pub(crate) fn earliest_from(&self, number: i64) -> Option<i64> {
        let from = number.max(self.next - self.entries.len() as i64).max(0);
        let times = (from..self.next).map(|number| self.entries[self.place(number)]?.meta.pts);
        times.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// What belongs to `number`. A number nobody gave out stands for the
    /// oldest packet that was not shown yet.
    pub(crate) fn find(&mut self, number: i64) -> FrameMeta {
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
                entry.meta
            }
            None => FrameMeta::default(),
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

    #[test]
    fn finds_across_reordering_and_repeats() {
        let mut numbers = Numbers::new(1);
        for seq in 0..5 {
            assert_eq!(numbers.insert(meta(seq + 100)), seq as i64);
        }
        for number in [0, 3, 1, 1, 2, 4] {
            assert_eq!(numbers.find(number).seq, 100 + number as u64);
        }
    }

    #[test]
    fn an_unknown_number_is_the_oldest_not_shown() {
        let mut numbers = Numbers::new(1);
        assert_eq!(numbers.find(i64::MIN), FrameMeta::default());
        for seq in 0..4 {
            numbers.insert(meta(seq));
        }
        assert_eq!(numbers.find(0).seq, 0);
        assert_eq!(numbers.find(i64::MIN).seq, 1);
        assert_eq!(numbers.find(77).seq, 2);
    }

    #[test]
    fn the_earliest_time_needs_all_times() {
        let mut numbers = Numbers::new(1);
        for pts in [0, 40, 10, 20, 30] {
            numbers.insert(FrameMeta { pts: Some(pts), ..FrameMeta::default() });
        }
        assert_eq!(numbers.earliest_from(1), Some(10));
        assert_eq!(numbers.earliest_from(4), Some(30));
        assert_eq!(numbers.earliest_from(5), None);
        numbers.insert(meta(5));
        assert_eq!(numbers.earliest_from(1), None);
    }

    #[test]
    fn hidden_packets_do_not_pile_up() {
        let mut numbers = Numbers::new(2);
        let length = numbers.entries.len();
        for seq in 0..100_000 {
            let number = numbers.insert(meta(seq));
            assert_eq!(numbers.find(number).seq, seq);
        }
        assert_eq!(numbers.entries.len(), length);
    }
}
