// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages by which two ends exchange their clocks and their ledgers, in the form of postcard.
//!
//! The other end is a stranger: a message has a maximum size, lists have a maximum length, texts are made printable, and figures
//! that no frame can have are refused.

use framepath_model::ledger::{Row, flag};
use framepath_model::shown::shown;
use serde::{Deserialize, Serialize};

/// Version of the messages, also in [`LEDGER_ATTRIBUTE`](crate::ledger_channel::LEDGER_ATTRIBUTE). Ends with another version do not
/// exchange their ledgers.
pub(crate) const VERSION: u8 = 4;
/// Maximum size of a message, bytes.
pub(crate) const LARGEST_MESSAGE: usize = 16 << 10;
/// Maximum number of hops of a path, and of threads.
pub(crate) const MOST_HOPS: usize = 64;
/// Maximum number of rows of a frame.
const MOST_ROWS: usize = 128;
/// Maximum length of a name, characters.
const LONGEST_NAME: usize = 40;
/// Longest time of a row, nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Largest count in a row.
const MOST_COUNTED: u64 = 1 << 48;

/// Hop of the other end's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteHop {
    /// Name of the stage or link, without its arguments, which may be private.
    pub name: String,
    /// True for a link.
    pub link: bool,
}

/// Way of a frame at one end: a line of hops, without the other branches of a `tee`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemotePath {
    /// Hops in path order. [`Row::hop`] is an index into this list.
    pub hops: Vec<RemoteHop>,
    /// Names of the threads. [`Row::thread`] is an index into this list.
    pub threads: Vec<String>,
}

/// Rows of one frame at one end, in that end's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameRows {
    /// Number of the frame at the sender.
    pub id: u64,
    /// RTP timestamp, by which a browser finds the frame; `None` at the receiver.
    pub(crate) time: Option<u32>,
    /// Rows, in the order of the hops.
    pub rows: Vec<Row>,
}

impl FrameRows {
    /// Makes the rows of the frame with this number at the sender.
    pub fn new(id: u64, rows: Vec<Row>) -> FrameRows {
        FrameRows { id, time: None, rows }
    }
}

/// Way in which a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SessionEnd {
    /// The stream has ended.
    Complete,
    /// The stream cannot go on.
    Failed,
    /// The sender's user has ended this viewer's session, or another program that has the token.
    ByUser,
}

/// Numbers of the frames that a viewer was to get, from its first keyframe on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ViewerFrames {
    /// All of them.
    pub(crate) all: u64,
    /// Number of those that were dropped, because the viewer's network was slower than the stream.
    pub(crate) dropped: u64,
}

/// Message about the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LedgerMessage {
    /// The first message: the version, and the path.
    Path(u8, RemotePath),
    /// Rows of a frame.
    Frame(FrameRows),
    /// Question for the time.
    Ping {
        /// Departure by the asking end's clock, nanoseconds.
        sent_ns: u64,
    },
    /// Answer to a ping.
    Pong {
        /// Departure of the ping, as the ping says.
        sent_ns: u64,
        /// Arrival of the ping by the answering end's clock, nanoseconds.
        received_ns: u64,
        /// Departure of this answer by the answering end's clock, nanoseconds.
        replied_ns: u64,
    },
    /// The sender's last message.
    End {
        /// Way in which the session ends.
        end: SessionEnd,
        /// Frames that the viewer was to get.
        frames: ViewerFrames,
    },
}

impl LedgerMessage {
    /// Returns the bytes of the message; `None` if there are more than [`LARGEST_MESSAGE`].
    pub(crate) fn to_bytes(&self) -> Option<Vec<u8>> {
        postcard::to_allocvec(self).ok().filter(|bytes| bytes.len() <= LARGEST_MESSAGE)
    }

    /// Reads a message of the other end; `None` if it is not valid.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<LedgerMessage> {
        if bytes.len() > LARGEST_MESSAGE {
            return None;
        }
        match postcard::from_bytes(bytes).ok()? {
            LedgerMessage::Path(VERSION, path) => Some(LedgerMessage::Path(VERSION, checked_path(path)?)),
            LedgerMessage::Path(..) => None,
            LedgerMessage::Frame(frame) => {
                // Without its end, the frame would not count as one that has reached the sink.
                let is_possible =
                    frame.rows.len() <= MOST_ROWS && frame.rows.iter().any(|row| row.has(flag::LAST));
                let FrameRows { id, time, rows } = frame;
                let rows: Option<Vec<Row>> = rows.into_iter().map(checked_row).collect();
                Some(LedgerMessage::Frame(FrameRows { id, time, rows: rows.filter(|_| is_possible)? }))
            }
            message => Some(message),
        }
    }
}

/// Returns the rows in a message of the other end; `None` if it is not valid or has none. For fuzzing.
pub fn ledger_rows(bytes: &[u8]) -> Option<Vec<Row>> {
    match LedgerMessage::from_bytes(bytes)? {
        LedgerMessage::Frame(frame) => Some(frame.rows),
        _ => None,
    }
}

/// Returns a name of the other end as text for a terminal, of limited length.
fn checked_name(name: &str) -> String {
    let short: String = name.chars().take(LONGEST_NAME).collect();
    shown(&short).into_owned()
}

fn checked_path(path: RemotePath) -> Option<RemotePath> {
    let RemotePath { mut hops, mut threads } = path;
    if hops.is_empty() || hops.len() > MOST_HOPS || threads.len() > MOST_HOPS {
        return None;
    }
    hops.iter_mut().for_each(|hop| hop.name = checked_name(&hop.name));
    threads.iter_mut().for_each(|name| *name = checked_name(name));
    Some(RemotePath { hops, threads })
}

/// Returns a row of the other end, without the flags that mean something else here; `None` if the row is impossible.
fn checked_row(row: Row) -> Option<Row> {
    let is_ordered = row.birth_ns <= row.leave_ns && row.enter_ns <= row.leave_ns;
    let is_short = row.leave_ns - row.enter_ns.min(row.leave_ns) <= LONGEST_NS
        && row.leave_ns - row.birth_ns.min(row.leave_ns) <= LONGEST_NS;
    let durations = [
        row.copy_ns,
        row.blocked_ns,
        row.queue_ns,
        row.paced_ns,
        row.held_ns,
        row.held_depth_ns,
        row.pool_ns,
        row.wakeup_ns,
        row.network_ns,
        row.device_ns,
        row.compute_ns,
        row.preempted_ns,
        row.throttled_ns,
        row.stopped_ns,
        row.stolen_ns,
    ];
    let counts = [row.copied_bytes, row.cycles, row.instructions, row.cache_misses];
    let is_possible = is_ordered
        && is_short
        && durations.iter().all(|ns| *ns <= LONGEST_NS)
        && counts.iter().all(|count| *count <= MOST_COUNTED);
    let kept = flag::COUNTED | flag::LINK | flag::FRAME_THREAD | flag::LAST;
    is_possible.then_some(Row { flags: row.flags & kept | flag::REMOTE, ..row })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(name: &str) -> RemotePath {
        let hop = RemoteHop { name: name.to_owned(), link: false };
        RemotePath { hops: vec![hop; 2], threads: vec!["t".to_owned()] }
    }

    #[test]
    fn messages_pass_unchanged() {
        let row = Row {
            seq: 3,
            birth_ns: 5,
            enter_ns: 6,
            leave_ns: 9,
            hop: 1,
            flags: flag::REMOTE | flag::LAST,
            ..Row::default()
        };
        for message in [
            LedgerMessage::Frame(FrameRows { time: Some(7), ..FrameRows::new(u64::MAX, vec![row; 4]) }),
            LedgerMessage::Ping { sent_ns: 1 },
            LedgerMessage::Pong { sent_ns: 1, received_ns: u64::MAX, replied_ns: 3 },
            LedgerMessage::End { end: SessionEnd::ByUser, frames: ViewerFrames { all: 8, dropped: 1 } },
        ] {
            assert_eq!(LedgerMessage::from_bytes(&message.to_bytes().unwrap()), Some(message));
        }
    }

    #[test]
    fn names_are_short_and_printable() {
        let name = format!("a\x1b[31m\n{}", "x".repeat(1000));
        let bytes = LedgerMessage::Path(VERSION, path(&name)).to_bytes().unwrap();
        let Some(LedgerMessage::Path(_, path)) = LedgerMessage::from_bytes(&bytes) else { panic!("no path") };
        assert!(!path.hops[0].name.contains(char::is_control) && path.hops[0].name.len() < 100, "{path:?}");
    }

    #[test]
    fn impossible_messages_are_refused() {
        let is_refused = |message: LedgerMessage| {
            LedgerMessage::from_bytes(&postcard::to_allocvec(&message).unwrap()).is_none()
        };
        assert!(is_refused(LedgerMessage::Path(VERSION + 1, path("a"))));
        assert!(is_refused(LedgerMessage::Path(VERSION, RemotePath::default())));
        let many = RemotePath { hops: vec![path("a").hops[0].clone(); MOST_HOPS + 1], threads: Vec::new() };
        assert!(is_refused(LedgerMessage::Path(VERSION, many)));
        let frame = |row: Row, count| LedgerMessage::Frame(FrameRows::new(0, vec![row; count]));
        let end = Row { flags: flag::LAST, ..Row::default() };
        assert!(!is_refused(frame(end, MOST_ROWS)));
        assert!(is_refused(frame(end, MOST_ROWS + 1)) && is_refused(frame(end, 0)));
        assert!(is_refused(frame(Row::default(), 1)));
        for row in [
            Row { enter_ns: 1, ..end },
            Row { birth_ns: 1, ..end },
            Row { leave_ns: u64::MAX, ..end },
            Row { compute_ns: u64::MAX, ..end },
            Row { copied_bytes: u64::MAX, ..end },
        ] {
            assert!(is_refused(frame(row, 1)), "{row:?}");
        }
        assert!(LedgerMessage::from_bytes(&[0; LARGEST_MESSAGE + 1]).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0..6u8) {
            let bytes = [&[kind], &bytes[..]].concat();
            if let Some(LedgerMessage::Frame(frame)) = LedgerMessage::from_bytes(&bytes) {
                prop_assert!(frame.rows.iter().all(|row| row.wall_ns() <= LONGEST_NS));
            }
        }
    }
}
