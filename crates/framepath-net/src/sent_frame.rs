// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times at which a frame's packets left.

use std::collections::VecDeque;

use framepath_model::ledger::{Row, flag};

/// Frame whose packets were all handed to the kernel, for one viewer. Times are CLOCK_MONOTONIC, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentFrame {
    /// Number of the frame, as it was given to [`WhepSender::send`](crate::WhepSender::send).
    pub number: u64,
    /// RTP timestamp, 90 kHz.
    pub time: u32,
    /// Number of the viewer, counted from 0 in the order of the offers.
    pub viewer: u64,
    /// Time at which the frame was packetised and handed to the sender's thread.
    pub packetized_ns: u64,
    /// Time at which the sender's thread began with the frame: with the encryption of its first packet.
    pub began_ns: u64,
    /// Time at which the last packet was handed to the kernel.
    pub sent_ns: u64,
    /// Part of the time from `began_ns` to `sent_ns` in which the packets were made and encrypted (SRTP).
    pub encrypt_ns: u64,
    /// CPU time of this part.
    pub encrypt_cpu_ns: u64,
    /// Sum of the payloads' sizes, bytes.
    pub bytes: usize,
    /// Number of packets.
    pub packets: usize,
}

/// RTP packet of the video that was handed to the kernel for the first time. Times are CLOCK_MONOTONIC, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentPacket {
    /// Sequence number, without its upper bits.
    pub(crate) seq: u16,
    /// Time just before the hand-over, so that the packet cannot arrive earlier.
    pub(crate) handed_ns: u64,
    /// Time in which the packet was made and encrypted, which ended at `handed_ns`.
    pub(crate) encrypt_ns: u64,
    /// CPU time of this part.
    pub(crate) encrypt_cpu_ns: u64,
}

impl SentFrame {
    /// Ends the row of the hop that has packetised this frame with the packetising, and adds the encryption for the viewers that
    /// got `departures` of the frame: as much as each of them needed.
    ///
    /// A frame's packets are encrypted one by one as they leave. In the ledger, this time is in front of the wait for the pace, so
    /// that each of both rows has one kind of time.
    pub fn end_packetizing(packetizing: &mut Row, departures: &[SentFrame]) {
        let Some(least) = departures.iter().min_by_key(|frame| frame.encrypt_ns) else { return };
        packetizing.end_at(least.packetized_ns);
        let split_ns = packetizing.leave_ns;
        let most_ns =
            departures.iter().map(|frame| frame.sent_ns.saturating_sub(frame.began_ns.max(split_ns)));
        let encrypt_ns = least.encrypt_ns.min(most_ns.min().unwrap_or_default());
        packetizing.leave_ns += encrypt_ns;
        if packetizing.has(flag::COUNTED) {
            let cpu_ns = least.encrypt_cpu_ns.min(encrypt_ns);
            packetizing.compute_ns += cpu_ns;
            packetizing.preempted_ns += encrypt_ns - cpu_ns;
        }
    }

    /// Returns the row of the frame's way from the packetising, whose row is `packetizing` and has ended
    /// ([`end_packetizing`](SentFrame::end_packetizing)), to the hand-over of its last packet. Its hop is that of `packetizing`.
    pub fn pace(&self, packetizing: &Row) -> Row {
        let enter_ns = packetizing.leave_ns;
        let split_ns = self.packetized_ns.min(enter_ns);
        let began_ns = self.began_ns.max(split_ns);
        let sent_ns = self.sent_ns.max(began_ns).max(enter_ns);
        let encrypt_ns = self.encrypt_ns.min(sent_ns - began_ns);
        // More than another viewer's packets needed.
        let rest_ns = (split_ns + encrypt_ns).saturating_sub(enter_ns);
        let queue_ns = (began_ns - split_ns).min(sent_ns - enter_ns - rest_ns);
        Row {
            seq: packetizing.seq,
            birth_ns: packetizing.birth_ns,
            enter_ns,
            leave_ns: sent_ns,
            queue_ns,
            compute_ns: rest_ns,
            paced_ns: sent_ns - enter_ns - rest_ns - queue_ns,
            flags: flag::LINK | if rest_ns > 0 { flag::COUNTED } else { 0 },
            hop: packetizing.hop,
            thread: packetizing.thread,
            ..Row::default()
        }
    }
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

    /// Records that a packet has been handed to the kernel. Returns its frame if it was the frame's last.
    pub(crate) fn sent(&mut self, packet: SentPacket) -> Option<SentFrame> {
        let SentPacket { seq, handed_ns, encrypt_ns, encrypt_cpu_ns } = packet;
        let is_in = |departure: &Departure| {
            let (first, last) = departure.seqs;
            seq.wrapping_sub(first) <= last.wrapping_sub(first)
        };
        // Packets leave in order, so frames in front of this one have lost their last packet.
        let at = self.0.iter().position(is_in)?;
        self.0.drain(..at);
        let departure = self.0.front_mut()?;
        if !std::mem::replace(&mut departure.has_begun, true) {
            departure.frame.began_ns = handed_ns.saturating_sub(encrypt_ns);
        }
        departure.frame.encrypt_ns += encrypt_ns;
        departure.frame.encrypt_cpu_ns += encrypt_cpu_ns;
        departure.frame.sent_ns = handed_ns;
        let is_last = seq == departure.seqs.1;
        if is_last { self.0.pop_front().map(|departure| departure.frame) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u64, packets: usize) -> SentFrame {
        SentFrame { number, packets, ..SentFrame::default() }
    }

    fn packet(seq: u16, handed_ns: u64) -> SentPacket {
        SentPacket { seq, handed_ns, ..SentPacket::default() }
    }

    #[test]
    fn a_frame_is_sent_with_its_last_packet_also_where_sequence_numbers_wrap() {
        let mut departures = Departures::default();
        departures.push(65_535, frame(0, 3));
        departures.push(65_538, frame(1, 1));
        let sent: Vec<_> =
            [65_535, 0, 1, 2].map(|seq| departures.sent(packet(seq, 5)).map(|sent| sent.number)).into();
        assert_eq!(sent, [None, None, Some(0), Some(1)]);
        assert!(departures.0.is_empty());
    }

    #[test]
    fn times_are_those_of_the_first_and_last_packet() {
        let mut departures = Departures::default();
        departures.push(1, frame(0, 2));
        assert_eq!(departures.sent(SentPacket { encrypt_ns: 10, encrypt_cpu_ns: 8, ..packet(1, 30) }), None);
        let last = SentPacket { encrypt_ns: 15, encrypt_cpu_ns: 9, ..packet(2, 90) };
        let sent = departures.sent(last).unwrap();
        assert_eq!((sent.began_ns, sent.sent_ns), (20, 90));
        assert_eq!((sent.encrypt_ns, sent.encrypt_cpu_ns), (25, 17));
    }

    #[test]
    fn a_frame_that_lost_its_last_packet_does_not_stop_the_next() {
        let mut departures = Departures::default();
        departures.push(1, frame(0, 2));
        departures.push(3, frame(1, 2));
        assert_eq!(
            [1, 3, 4].map(|seq| departures.sent(packet(seq, 5)).map(|sent| sent.number)),
            [None, None, Some(1)]
        );
        // A packet of no frame.
        assert_eq!(departures.sent(packet(9, 5)), None);
    }

    #[test]
    fn the_encryption_is_in_the_row_of_the_packetising_and_no_time_is_counted_twice() {
        let row =
            Row { enter_ns: 100, leave_ns: 260, compute_ns: 150, flags: flag::COUNTED, ..Row::default() };
        let frame = SentFrame {
            packetized_ns: 200,
            began_ns: 230,
            sent_ns: 400,
            encrypt_ns: 50,
            encrypt_cpu_ns: 40,
            ..SentFrame::default()
        };
        // Another viewer's packets needed less of the encryption, and left later.
        let other = SentFrame { began_ns: 400, sent_ns: 460, encrypt_ns: 30, encrypt_cpu_ns: 30, ..frame };
        let mut alone = row;
        SentFrame::end_packetizing(&mut alone, &[frame]);
        // The path's thread worked for 60 ns behind the hand-over.
        assert_eq!((alone.leave_ns, alone.compute_ns, alone.preempted_ns), (250, 90 + 40, 10));
        let pace = frame.pace(&alone);
        assert_eq!((pace.enter_ns, pace.leave_ns, pace.queue_ns, pace.paced_ns), (250, 400, 30, 120));
        let mut both = row;
        SentFrame::end_packetizing(&mut both, &[frame, other]);
        assert_eq!((both.leave_ns, both.compute_ns), (230, 90 + 30));
        for (frame, expected) in [(frame, (230, 400, 30, 20, 120)), (other, (230, 460, 200, 0, 30))] {
            let pace = frame.pace(&both);
            let Row { enter_ns, leave_ns, queue_ns, compute_ns, paced_ns, .. } = pace;
            assert_eq!((enter_ns, leave_ns, queue_ns, compute_ns, paced_ns), expected);
            assert_eq!(pace.wall_ns(), queue_ns + compute_ns + paced_ns);
        }
        // Impossible times stay in order.
        let wrong = SentFrame { packetized_ns: 900, began_ns: 0, sent_ns: 0, encrypt_ns: u64::MAX, ..frame };
        let mut strange = row;
        SentFrame::end_packetizing(&mut strange, &[wrong]);
        assert_eq!((strange.leave_ns, wrong.pace(&strange).wall_ns()), (260, 0));
    }
}
