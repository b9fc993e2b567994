// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times at which a frame's packets left.

use std::collections::VecDeque;

/// Frame whose packets were all handed to the kernel, for one viewer. Times are CLOCK_MONOTONIC, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentFrame {
    /// Number of the frame, as it was given to [`WhepSender::send`](crate::WhepSender::send).
    pub number: u64,
    /// RTP timestamp, 90 kHz.
    pub time: u32,
    /// Number of the viewer, counted from 0 in the order of the offers.
    pub viewer: u64,
    /// Time at which the frame was packetised and handed to the sender's thread.
    pub packetized_ns: u64,
    /// Time at which the first packet was handed to the kernel. Encryption of the first burst is before it.
    pub began_ns: u64,
    /// Time at which the last packet was handed to the kernel.
    pub sent_ns: u64,
    /// Sum of the payloads' sizes, bytes.
    pub bytes: usize,
    /// Number of packets.
    pub packets: usize,
}

/// Frame that is being sent to a viewer.
struct Departure {
    /// Sequence numbers of the first and last packet, without their upper bits.
    seqs: (u16, u16),
    has_begun: bool,
    frame: SentFrame,
}

/// Frames whose packets have not all left, in order.
#[derive(Default)]
pub(crate) struct Departures(VecDeque<Departure>);

impl Departures {
    /// Adds a frame, whose packets have the sequence numbers from `first` on.
    pub(crate) fn push(&mut self, first: u64, frame: SentFrame) {
        let last = first + (frame.packets as u64).saturating_sub(1);
        self.0.push_back(Departure { seqs: (first as u16, last as u16), has_begun: false, frame });
    }

    /// Records that the packet with the sequence number `seq` has been handed to the kernel. Returns its frame if it was the
    /// frame's last.
    pub(crate) fn sent(&mut self, seq: u16, handed_ns: u64) -> Option<SentFrame> {
        let is_in = |departure: &Departure| {
            let (first, last) = departure.seqs;
            seq.wrapping_sub(first) <= last.wrapping_sub(first)
        };
        // Packets leave in order, so frames in front of this one have lost their last packet.
        let at = self.0.iter().position(is_in)?;
        self.0.drain(..at);
        let departure = self.0.front_mut()?;
        if !std::mem::replace(&mut departure.has_begun, true) {
            departure.frame.began_ns = handed_ns;
        }
        departure.frame.sent_ns = handed_ns;
        let is_last = seq == departure.seqs.1;
        if is_last { self.0.pop_front().map(|departure| departure.frame) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u64, packets: usize) -> SentFrame {
        SentFrame { number, time: 0, viewer: 0, packetized_ns: 0, began_ns: 0, sent_ns: 0, bytes: 0, packets }
    }

    #[test]
    fn a_frame_is_sent_with_its_last_packet_also_where_sequence_numbers_wrap() {
        let mut departures = Departures::default();
        departures.push(65_535, frame(0, 3));
        departures.push(65_538, frame(1, 1));
        let sent: Vec<_> =
            [65_535, 0, 1, 2].map(|seq| departures.sent(seq, 5).map(|sent| sent.number)).into();
        assert_eq!(sent, [None, None, Some(0), Some(1)]);
        assert!(departures.0.is_empty());
    }

    #[test]
    fn times_are_those_of_the_first_and_last_packet() {
        let mut departures = Departures::default();
        departures.push(1, frame(0, 2));
        assert_eq!(departures.sent(1, 3), None);
        let sent = departures.sent(2, 4).unwrap();
        assert_eq!((sent.began_ns, sent.sent_ns), (3, 4));
    }

    #[test]
    fn a_frame_that_lost_its_last_packet_does_not_stop_the_next() {
        let mut departures = Departures::default();
        departures.push(1, frame(0, 2));
        departures.push(3, frame(1, 2));
        assert_eq!(
            [1, 3, 4].map(|seq| departures.sent(seq, 5).map(|sent| sent.number)),
            [None, None, Some(1)]
        );
        // A packet of no frame.
        assert_eq!(departures.sent(9, 5), None);
    }
}
