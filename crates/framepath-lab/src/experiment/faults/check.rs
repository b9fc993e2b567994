// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of the delivered frames with those of an undisturbed run, without I/O.

use std::collections::HashMap;

/// A frame at the sink: the number of its packet in the whole stream, and the MD5 of its pixels.
pub(super) type SinkFrame = (u64, String);

/// Expected frames of one pass over a clip, from an undisturbed run.
pub(super) struct Expected {
    /// Position in the order of presentation, and MD5, of the frame of each packet, by the packet's
    /// number in the pass.
    pass: HashMap<u64, (u64, String)>,
    /// Number of packets of one pass.
    packets: u64,
}

/// Numbers of frame errors in one or more streams, by type of error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FrameErrors {
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) out_of_order: u64,
    /// Frames with other pixels, and frames of packets that have no frame or do not exist.
    pub(super) wrong: u64,
}

impl Expected {
    /// Creates the reference from `seen`, the frames of an undisturbed run of two passes over a clip that
    /// has a frame for every packet. Returns `None` if there is no frame or the passes differ, because the
    /// reference could not predict further passes.
    pub(super) fn of_two_passes(seen: &[SinkFrame]) -> Option<Expected> {
        let (first, second) = seen.split_at_checked(seen.len() / 2)?;
        // Every packet of these clips has a frame.
        let packets = first.len() as u64;
        let alike = |(a, b): (&SinkFrame, &SinkFrame)| a.0 + packets == b.0 && a.1 == b.1;
        if packets == 0 || first.len() != second.len() || !first.iter().zip(second).all(alike) {
            return None;
        }
        let places = first.iter().zip(0..).map(|((seq, hash), place)| (*seq, (place, hash.clone())));
        Some(Expected { pass: places.collect(), packets })
    }

    /// Returns the number of frames of one pass.
    pub(super) fn frames(&self) -> u64 {
        self.pass.len() as u64
    }

    /// Returns the position in the whole stream, and the hash, of the frame of packet `seq`; `None`
    /// for a packet without a frame.
    fn of(&self, seq: u64) -> Option<(u64, &str)> {
        let (place, hash) = self.pass.get(&(seq % self.packets))?;
        Some((seq / self.packets * self.frames() + place, hash))
    }

    /// Counts the errors in `seen`, the delivered frames of a stream of `passes` passes.
    pub(super) fn judge(&self, seen: &[SinkFrame], passes: u64) -> FrameErrors {
        let mut faults = FrameErrors::default();
        let mut times: HashMap<u64, u64> = HashMap::new();
        let mut latest = None;
        for (seq, hash) in seen {
            let Some((place, expected)) = self.of(*seq).filter(|_| *seq < passes * self.packets) else {
                faults.wrong += 1;
                continue;
            };
            faults.wrong += u64::from(hash != expected);
            faults.out_of_order += u64::from(latest > Some(place));
            latest = latest.max(Some(place));
            *times.entry(*seq).or_default() += 1;
        }
        faults.duplicated = times.values().map(|times| times - 1).sum();
        faults.lost = passes * self.frames() - times.len() as u64;
        faults
    }
}

impl std::ops::AddAssign for FrameErrors {
    fn add_assign(&mut self, other: FrameErrors) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
        self.wrong += other.wrong;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(frames: &[(u64, &str)]) -> Vec<SinkFrame> {
        frames.iter().map(|(seq, hash)| (*seq, (*hash).to_owned())).collect()
    }

    /// Creates the reference of a clip with three packets, presented in the order 0, 2, 1.
    fn expected() -> Expected {
        let two = seen(&[(0, "a"), (2, "c"), (1, "b"), (3, "a"), (5, "c"), (4, "b")]);
        Expected::of_two_passes(&two).unwrap()
    }

    #[test]
    fn different_passes_give_no_reference() {
        assert!(Expected::of_two_passes(&seen(&[(0, "a"), (1, "b")])).is_none());
        assert!(Expected::of_two_passes(&seen(&[(0, "a"), (2, "a")])).is_none());
        assert!(Expected::of_two_passes(&[]).is_none());
        assert!(Expected::of_two_passes(&seen(&[(0, "a"), (1, "a")])).is_some());
    }

    #[test]
    fn each_fault_has_its_own_counter() {
        let good = [(0, "a"), (2, "c"), (1, "b"), (3, "a"), (5, "c"), (4, "b")];
        let judge = |frames: &[(u64, &str)]| expected().judge(&seen(frames), 2);
        assert_eq!(judge(&good), FrameErrors::default());
        let mut lost = good.to_vec();
        lost.remove(2);
        assert_eq!(judge(&lost), FrameErrors { lost: 1, ..FrameErrors::default() });
        let mut twice = good.to_vec();
        twice.insert(1, (0, "a"));
        assert_eq!(judge(&twice), FrameErrors { duplicated: 1, ..FrameErrors::default() });
        let mut swapped = good.to_vec();
        swapped.swap(1, 2);
        assert_eq!(judge(&swapped), FrameErrors { out_of_order: 1, ..FrameErrors::default() });
        let mut wrong = good.to_vec();
        wrong[4].1 = "x";
        assert_eq!(judge(&wrong), FrameErrors { wrong: 1, ..FrameErrors::default() });
        let mut more = good.to_vec();
        more.push((6, "a"));
        assert_eq!(judge(&more), FrameErrors { wrong: 1, ..FrameErrors::default() });
        assert_eq!(judge(&[]), FrameErrors { lost: 6, ..FrameErrors::default() });
    }
}
