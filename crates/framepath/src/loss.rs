// SPDX-License-Identifier: MIT OR Apache-2.0
//! Losses of a run: packets, frames or connections that were lost although no option asked for a drop.

use std::fmt;

use framepath_model::shown::shown;

/// Packets, frames or connections that one hop lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// Text of the hop in the path.
    pub hop: String,
    /// Number of lost packets (for [`LossReason::Poisoned`], [`LossReason::TooLargeToReplay`],
    /// [`LossReason::TooLate`] and [`LossReason::Network`]), pictures (for [`LossReason::NoPicture`]), connections (for
    /// [`LossReason::Disconnected`]), states of workers (for [`LossReason::StateLost`]) or frames (for other reasons).
    pub count: u64,
    /// Number, from 0, of the first lost packet or frame, in the order of the hop's input; `None` if unknown.
    pub first: Option<u64>,
    /// Reason of the loss. The packets that a hop's workers skipped for several reasons are one loss, with
    /// the first of these reasons: [`LossReason::Poisoned`] or [`LossReason::PoisonedFrame`], [`LossReason::TooLargeToReplay`] (if a worker
    /// died), [`LossReason::TooLate`].
    pub reason: LossReason,
}

/// Reason why packets or frames were lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// Packets were skipped: the first packet kills every worker, and the others depend on that packet.
    Poisoned {
        /// Reason of the last death of a worker.
        last_death: String,
    },
    /// Frames were skipped that kill every worker. No other frame depends on them.
    PoisonedFrame {
        /// Reason of the last death of a worker.
        last_death: String,
    },
    /// A worker died, and the next worker lacks packets since the last keyframe, because they were too
    /// many to keep.
    TooLargeToReplay {
        /// Reason of the last death of a worker.
        last_death: String,
    },
    /// A worker's decoder emitted frames so late that the process that runs the path had already removed
    /// their packets from its history. No worker died.
    TooLate,
    /// Frames were inside a worker that died, and the stage is of a kind that cannot repeat frames.
    WorkerDied {
        /// Reason of the last death of a worker.
        last_death: String,
    },
    /// A worker died that had taken frames, and the stage is of a kind that cannot repeat frames: the next worker
    /// does not know the earlier frames, so its output may differ, or lack frames.
    StateLost {
        /// Reason of the last death of a worker.
        last_death: String,
    },
    /// The source's device delivered damaged frames, or dropped frames: mostly because the path did not
    /// return buffers in time.
    Device,
    /// Packets of the network (RTP) did not arrive.
    Network,
    /// Files of an image sequence gave no picture: they are empty, are no pictures, or are damaged.
    NoPicture,
    /// Frames were not handed on, because packets of them, or of frames that they depend on, did not arrive or are not valid.
    NetworkFrames {
        /// Number of packets that did not arrive in time.
        packets: u64,
        /// Number of frames whose packets arrived, and are not valid.
        invalid: u64,
        /// Number of frames that the sender has dropped. If all three are 0, the path was too slow.
        unsent: u64,
    },
    /// The source's connection was lost and made again. The number of packets that the server sent meanwhile is not
    /// known.
    Disconnected {
        /// Total time from the loss of each connection to the next one, nanoseconds.
        gap_ns: u64,
    },
}

/// Writes one line, such as `decode host=process: skipped 12 packets, the first is packet 3: it kills ...`.
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { hop, count, first, reason } = self;
        let s = if *count == 1 { "" } else { "s" };
        let (verb, thing) = match reason {
            LossReason::Poisoned { .. } | LossReason::TooLargeToReplay { .. } | LossReason::TooLate => {
                ("skipped", "packet")
            }
            LossReason::PoisonedFrame { .. } => ("skipped", "frame"),
            LossReason::WorkerDied { .. } | LossReason::Device | LossReason::NetworkFrames { .. } => {
                ("lost", "frame")
            }
            LossReason::StateLost { .. } => ("lost", "worker state"),
            LossReason::NoPicture => ("lost", "picture"),
            LossReason::Network => ("lost", "RTP packet"),
            LossReason::Disconnected { .. } => ("lost", "connection"),
        };
        write!(f, "{}: {verb} {count} {thing}{s}", shown(hop))?;
        if let Some(first) = first {
            write!(f, ", the first is {thing} {first}")?;
        }
        match reason {
            LossReason::Poisoned { last_death } => write!(
                f,
                ": it kills every worker ({}), and the packets up to the next keyframe depend on it",
                shown(last_death)
            ),
            LossReason::PoisonedFrame { last_death } => {
                let subject = if *count == 1 { "it kills" } else { "each of them kills" };
                write!(f, ": {subject} every worker ({})", shown(last_death))
            }
            LossReason::TooLargeToReplay { last_death } => write!(
                f,
                ": a worker died ({}), and the packets since the last keyframe were too many to keep; raise memory=",
                shown(last_death)
            ),
            LossReason::TooLate => f.write_str(
                ": the decoder emitted their frames after the packets had been removed from the history; raise \
                 memory=",
            ),
            LossReason::WorkerDied { last_death } => {
                write!(f, ": a worker died while they were inside ({})", shown(last_death))
            }
            LossReason::StateLost { last_death } => write!(
                f,
                ": a worker died ({}), and the next one does not know the earlier frames: later frames may differ or \
                 be missing",
                shown(last_death)
            ),
            LossReason::NoPicture => f.write_str(": nothing could be decoded from their files"),
            LossReason::Network => f.write_str(
                ": they did not arrive; use transport=tcp, raise latency=, or lower the stream's bit rate",
            ),
            LossReason::NetworkFrames { packets: 0, invalid: 0, unsent: 0 } => f.write_str(
                ": the path is slower than the stream, and the frames up to the next keyframe depend on dropped ones",
            ),
            LossReason::NetworkFrames { packets, invalid, unsent } => {
                let s = |count: u64| if count == 1 { "" } else { "s" };
                f.write_str(": ")?;
                if *packets > 0 {
                    write!(f, "{packets} RTP packet{} did not arrive in time, ", s(*packets))?;
                }
                if *invalid > 0 {
                    write!(f, "{invalid} frame{} had invalid packets, ", s(*invalid))?;
                }
                if *unsent > 0 {
                    let was = if *unsent == 1 { "frame was" } else { "frames were" };
                    write!(
                        f,
                        "{unsent} {was} dropped by the sender, because the network is slower than the stream, "
                    )?;
                }
                f.write_str("and the frames up to the next keyframe depend on them")?;
                f.write_str(match (*packets, *unsent) {
                    (0, 0) => "",
                    (0, _) => "; lower the stream's bit rate",
                    _ => "; raise latency=, or lower the stream's bit rate",
                })
            }
            LossReason::Disconnected { gap_ns } => write!(
                f,
                ": reconnected, {:.2} s without a connection; the packets of this time are missing",
                *gap_ns as f64 / 1e9
            ),
            LossReason::Device => {
                f.write_str(
                    ": the device dropped or damaged them, mostly because it had no free buffer; use a faster path, \
                     raise buffers=, or lower rate=",
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_names_hop_count_and_first_on_one_line() {
        let reason = LossReason::Poisoned { last_death: "the worker\nended".to_owned() };
        let loss = Loss { hop: "decode\u{1b}[2J".to_owned(), count: 7, first: Some(3), reason };
        let text = loss.to_string();
        assert!(text.starts_with("decode\\u{1b}[2J: skipped 7 packets, the first is packet 3: "), "{text}");
        assert_eq!(text.lines().count(), 1);
        let loss =
            Loss { hop: "v4l2 /dev/video0".to_owned(), count: 1, first: None, reason: LossReason::Device };
        assert!(loss.to_string().starts_with("v4l2 /dev/video0: lost 1 frame: "));
    }

    #[test]
    fn lost_packets_and_invalid_ones_are_different_reasons() {
        for (packets, invalid, unsent, text) in [
            (
                0,
                0,
                0,
                "the path is slower than the stream, and the frames up to the next keyframe depend on dropped ones",
            ),
            (0, 1, 0, "1 frame had invalid packets, and the frames up to the next keyframe depend on them"),
            (
                0,
                0,
                3,
                "3 frames were dropped by the sender, because the network is slower than the stream, and the frames up to the next \
                 keyframe depend on them; lower the stream's bit rate",
            ),
            (
                2,
                0,
                0,
                "2 RTP packets did not arrive in time, and the frames up to the next keyframe depend on them; raise \
                 latency=, or lower the stream's bit rate",
            ),
            (
                1,
                2,
                0,
                "1 RTP packet did not arrive in time, 2 frames had invalid packets, and the frames up to the next \
                 keyframe depend on them; raise latency=, or lower the stream's bit rate",
            ),
        ] {
            let reason = LossReason::NetworkFrames { packets, invalid, unsent };
            let loss = Loss { hop: "recv x".to_owned(), count: 4, first: None, reason };
            assert_eq!(loss.to_string(), format!("recv x: lost 4 frames: {text}"));
        }
    }
}
