// SPDX-License-Identifier: MIT OR Apache-2.0
//! One session's part of the exchange of ledgers: pings, and messages with rows. Without I/O and clock.
//!
//! A session has two data channels. Pings are on the one that sends nothing again and keeps no order, because a ping that waited
//! says nothing. Rows are on the other one, which loses nothing, and so is the way in which the session ends: an attacker on the
//! network can neither change nor forge it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use framepath_model::ledger::Row;

use crate::clock::{ClockEstimator, PingStamps};
use crate::ledger_exchange::{LedgerExchange, RemoteFrame};
use crate::ledger_message::{FrameRows, LedgerMessage, RemotePath, SessionEnd, VERSION, ViewerFrames};
use crate::sent_frame::SentFrame;

/// Attribute in the session description of an end that exchanges its ledger, with the version of the messages. It stands for two data channels whose numbers both ends
/// know, without a media description (`m=application`), which some servers refuse together with the whole offer.
pub(crate) const LEDGER_ATTRIBUTE: &str = "a=framepath-ledger:4";
/// Maximum number of frames of which only the rows or only the departure are known, and of frames that wait for the clock.
const MOST_WAITING: usize = 512;
/// Maximum number of rows of the frames that wait for the clock, about 1 MB. A viewer can leave all pings unanswered.
const MOST_UNCONVERTED: usize = 4096;
/// Number of pings at the start, and the time between two of them, nanoseconds.
const FIRST_PINGS: (u32, u64) = (10, 20_000_000);
/// Time between two later pings, nanoseconds. Rows that wait are sent with the next ping at the latest, before a stream that has
/// ended is closed.
const PING_INTERVAL_NS: u64 = 100_000_000;
/// Time between two pings while there are no frames, and the time without a frame from which on they are so rare, nanoseconds.
const IDLE_PING_INTERVAL_NS: u64 = 1_000_000_000;
/// Number of pings that are not rare, so that the drift of the clocks is known before.
const FREQUENT_PINGS: u32 = 50;
/// Time between two messages about the end beside the rows, nanoseconds. The one behind the rows is sent again after a second if it is lost.
const END_INTERVAL_NS: u64 = 50_000_000;
/// Number of answered pings from which the clock counts as known: the first one is often slow. Frames wait for them.
const SURE_PINGS: u32 = 8;
/// Longest time from a frame's birth to the arrival of its rows, nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Maximum number of own pings that wait for an answer; the oldest are forgotten.
const MOST_ASKED: usize = 64;
/// Maximum number of answers that wait. More pings get no answer.
const MOST_ANSWERS: usize = 16;

/// Data channel of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LedgerStream {
    /// Pings.
    Clock,
    /// Rows.
    Rows,
}

impl LedgerStream {
    /// Both channels.
    pub(crate) const ALL: [LedgerStream; 2] = [LedgerStream::Clock, LedgerStream::Rows];

    /// Returns the label of the channel.
    pub(crate) fn label(self) -> &'static str {
        match self {
            LedgerStream::Clock => "framepath-clock",
            LedgerStream::Rows => "framepath-ledger",
        }
    }
}

/// One session's part of the exchange.
pub(crate) struct LedgerChannel {
    exchange: Arc<LedgerExchange>,
    /// Number of the viewer at the other end; 0 if the other end is the sender.
    pub(crate) viewer: u64,
    clock: ClockEstimator,
    open: Vec<LedgerStream>,
    has_sent_path: bool,
    pings: u32,
    /// Time of the next ping, CLOCK_MONOTONIC nanoseconds.
    next_ping_ns: u64,
    /// True if a frame was given since the last call of [`poll`](LedgerChannel::poll).
    has_frame: bool,
    /// Time of the last call of [`poll`](LedgerChannel::poll) behind a frame, CLOCK_MONOTONIC nanoseconds.
    last_frame_ns: u64,
    /// Departures of own pings without an answer, oldest first. Any other answer is forged: its round trip, and so the error of the
    /// clocks, could be as long as the other end likes.
    asked: VecDeque<u64>,
    /// Stamps of pings to answer: departure there, and arrival here.
    answers: Vec<(u64, u64)>,
    /// Frames to send.
    outgoing: VecDeque<FrameRows>,
    /// Rows of frames that have not left, and departures of frames without rows, by the frames' numbers.
    rows: BTreeMap<u64, FrameRows>,
    departures: BTreeMap<u64, SentFrame>,
    /// Last frames that have left, for the rows that come back.
    left: BTreeMap<u64, SentFrame>,
    /// Way in which the session ends, with the viewer's frames, and true once it is sent behind the rows.
    end: Option<(SessionEnd, ViewerFrames)>,
    has_sent_end: bool,
    /// Time at which it is sent beside them, CLOCK_MONOTONIC nanoseconds.
    next_end_ns: u64,
    /// Way in which the sender ends the session, and the frames that the viewer was to get.
    remote_end: Option<(SessionEnd, ViewerFrames)>,
    /// Path of the other end.
    path: Option<RemotePath>,
    /// Number of pings that were answered.
    answered: u32,
    /// Frames of the other end that wait for the first pings, each with its arrival, CLOCK_MONOTONIC nanoseconds.
    unconverted: VecDeque<(u64, FrameRows)>,
    jumps: u64,
}

impl LedgerChannel {
    pub(crate) fn new(exchange: Arc<LedgerExchange>) -> LedgerChannel {
        LedgerChannel {
            exchange,
            viewer: 0,
            clock: ClockEstimator::default(),
            open: Vec::new(),
            has_sent_path: false,
            pings: 0,
            next_ping_ns: 0,
            has_frame: false,
            last_frame_ns: 0,
            asked: VecDeque::new(),
            answers: Vec::new(),
            outgoing: VecDeque::new(),
            rows: BTreeMap::new(),
            departures: BTreeMap::new(),
            left: BTreeMap::new(),
            end: None,
            has_sent_end: false,
            next_end_ns: 0,
            remote_end: None,
            path: None,
            answered: 0,
            unconverted: VecDeque::new(),
            jumps: 0,
        }
    }

    /// Records that a data channel is open.
    pub(crate) fn opened(&mut self, stream: LedgerStream) {
        if !self.open.contains(&stream) {
            self.open.push(stream);
        }
    }

    /// Gives the whole rows of a frame to be sent.
    pub(crate) fn push(&mut self, frame: FrameRows) {
        self.has_frame = true;
        if self.outgoing.len() == MOST_WAITING {
            self.outgoing.pop_front();
        }
        self.outgoing.push_back(frame);
    }

    /// Gives the rows of a frame, up to its hand-over to the sender's thread. They are sent once the frame has left.
    pub(crate) fn push_packetized(&mut self, frame: FrameRows) {
        match self.departures.remove(&frame.id) {
            Some(departure) => self.push(departed(frame, &departure)),
            None => {
                self.rows.insert(frame.id, frame);
                limit(&mut self.rows);
            }
        }
    }

    /// Records that all packets of a frame have left.
    pub(crate) fn push_departure(&mut self, departure: SentFrame) {
        self.has_frame = true;
        self.left.insert(departure.number, departure);
        limit(&mut self.left);
        match self.rows.remove(&departure.number) {
            Some(frame) => self.push(departed(frame, &departure)),
            None => {
                self.departures.insert(departure.number, departure);
                limit(&mut self.departures);
            }
        }
    }

    /// Takes a message of the other end, which arrived at `arrived_ns`. Ignores one that is not valid.
    pub(crate) fn recv(&mut self, bytes: &[u8], arrived_ns: u64) {
        match LedgerMessage::from_bytes(bytes) {
            Some(LedgerMessage::Path(_, path)) => self.path = self.path.take().or(Some(path)),
            Some(LedgerMessage::Frame(frame)) => {
                self.unconverted.push_back((arrived_ns, frame));
                self.convert(SURE_PINGS);
                while self.unconverted.len() > MOST_WAITING || self.unconverted_rows() > MOST_UNCONVERTED {
                    self.unconverted.pop_front();
                }
            }
            Some(LedgerMessage::Ping { sent_ns }) => {
                if self.answers.len() < MOST_ANSWERS {
                    self.answers.push((sent_ns, arrived_ns));
                }
            }
            Some(LedgerMessage::Pong { sent_ns, received_ns, replied_ns }) => {
                let Some(at) = self.asked.iter().position(|asked_ns| *asked_ns == sent_ns) else { return };
                self.asked.remove(at);
                self.clock.push(PingStamps { sent_ns, received_ns, replied_ns, returned_ns: arrived_ns });
                self.answered = self.answered.saturating_add(1);
                let jumps = self.clock.jumps();
                let new = jumps - std::mem::replace(&mut self.jumps, jumps);
                self.exchange.count_jumps(self.viewer, new);
                self.convert(SURE_PINGS);
            }
            Some(LedgerMessage::End { end, frames }) => self.remote_end = Some((end, frames)),
            None => log::debug!("ledger: a message of {} bytes is not valid", bytes.len()),
        }
    }

    /// Returns the next message to send at `now_ns`; `None` if there is none. Call it again until it returns `None`.
    pub(crate) fn poll(&mut self, now_ns: u64) -> Option<(LedgerStream, Vec<u8>)> {
        let clock = |message: LedgerMessage| Some((LedgerStream::Clock, message.to_bytes()?));
        if std::mem::take(&mut self.has_frame) {
            self.last_frame_ns = now_ns;
            self.next_ping_ns = self.next_ping_ns.min(now_ns + PING_INTERVAL_NS);
        }
        if self.open.contains(&LedgerStream::Clock) {
            if let Some((sent_ns, received_ns)) = self.answers.pop() {
                return clock(LedgerMessage::Pong { sent_ns, received_ns, replied_ns: now_ns });
            }
            if let Some((end, frames)) = self.end.filter(|_| now_ns >= self.next_end_ns) {
                self.next_end_ns = now_ns + END_INTERVAL_NS;
                return clock(LedgerMessage::End { end, frames });
            }
            if now_ns >= self.next_ping_ns {
                let interval = match now_ns - self.last_frame_ns {
                    _ if self.pings < FIRST_PINGS.0 => FIRST_PINGS.1,
                    _ if self.pings < FREQUENT_PINGS => PING_INTERVAL_NS,
                    0..IDLE_PING_INTERVAL_NS => PING_INTERVAL_NS,
                    _ => IDLE_PING_INTERVAL_NS,
                };
                self.pings = self.pings.saturating_add(1);
                self.next_ping_ns = now_ns + interval;
                if self.asked.len() == MOST_ASKED {
                    self.asked.pop_front();
                }
                self.asked.push_back(now_ns);
                return clock(LedgerMessage::Ping { sent_ns: now_ns });
            }
        }
        if !self.open.contains(&LedgerStream::Rows) {
            return None;
        }
        let rows = |message: LedgerMessage| Some((LedgerStream::Rows, message.to_bytes()?));
        match self.exchange.path() {
            Some(path) if !self.has_sent_path => {
                self.has_sent_path = true;
                return rows(LedgerMessage::Path(VERSION, path));
            }
            Some(_) => {
                if let Some(frame) = self.outgoing.pop_front() {
                    return rows(LedgerMessage::Frame(frame));
                }
            }
            // Without a ledger here.
            None => {}
        }
        let (end, frames) = self.end.filter(|_| !self.has_sent_end)?;
        self.has_sent_end = true;
        rows(LedgerMessage::End { end, frames })
    }

    /// Ends the session in this way, after these frames. The other end gets the message behind all rows, and beside them as long as the
    /// session is open. Does nothing after the first call.
    pub(crate) fn end(&mut self, end: SessionEnd, frames: ViewerFrames) {
        self.end.get_or_insert((end, frames));
    }

    /// Returns true once the message about the end was given out behind all rows.
    pub(crate) fn has_sent_end(&self) -> bool {
        self.has_sent_end
    }

    /// Returns the way in which the sender ends the session, as far as it has said so, and the frames that this viewer was to get.
    pub(crate) fn remote_end(&self) -> Option<(SessionEnd, ViewerFrames)> {
        self.remote_end
    }

    /// Returns the time at which [`poll`](LedgerChannel::poll) has to be called if nothing else happens, CLOCK_MONOTONIC
    /// nanoseconds; `None` before the channel for pings is open.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let next_ns =
            if self.end.is_some() { self.next_ping_ns.min(self.next_end_ns) } else { self.next_ping_ns };
        self.open.contains(&LedgerStream::Clock).then_some(next_ns)
    }

    /// Passes on the frames that still wait for more pings, if there was any.
    pub(crate) fn finish(&mut self) {
        self.convert(1);
    }

    /// Returns the number of rows of the frames that wait for the first pings.
    fn unconverted_rows(&self) -> usize {
        self.unconverted.iter().map(|(_, frame)| frame.rows.len()).sum()
    }

    /// Passes on the frames of the other end in this machine's clock, once `pings` pings were answered.
    fn convert(&mut self, pings: u32) {
        let Some(path) = &self.path else { return };
        if self.answered < pings {
            return;
        }
        while let Some((arrived_ns, frame)) = self.unconverted.pop_front() {
            let is_known = |row: &Row| {
                usize::from(row.hop) < path.hops.len() && usize::from(row.thread) < path.threads.len().max(1)
            };
            if !frame.rows.iter().all(is_known) {
                continue;
            }
            let departure = self.left.get(&frame.id).copied();
            match converted(&self.clock, &frame) {
                Some(remote) if !is_past(&remote, arrived_ns) => {}
                Some(remote) => {
                    let remote = RemoteFrame { departure, ..remote };
                    self.exchange.keep(self.viewer, path, frame.id, remote);
                }
                None => {
                    self.unconverted.push_front((arrived_ns, frame));
                    return;
                }
            }
        }
    }
}

/// Returns true if the end that made this session description exchanges its ledger.
pub(crate) fn exchanges_ledger(description: &str) -> bool {
    description.lines().any(|line| line.trim_end() == LEDGER_ATTRIBUTE)
}

/// Adds the attribute to the last media of a session description.
pub(crate) fn add_ledger_attribute(description: &mut String) {
    description.push_str(LEDGER_ATTRIBUTE);
    description.push_str("\r\n");
}

/// Removes the oldest entries of a map that has too many.
fn limit<T>(map: &mut BTreeMap<u64, T>) {
    while map.len() > MOST_WAITING {
        map.pop_first();
    }
}

/// Returns the rows of a frame with one more for its way through the sender's thread.
fn departed(mut frame: FrameRows, departure: &SentFrame) -> FrameRows {
    let Some(last) = frame.rows.last_mut() else { return frame };
    frame.time = Some(departure.time);
    SentFrame::end_packetizing(last, &[*departure]);
    let pace = departure.pace(last);
    let hop = last.hop + 1;
    frame.rows.push(Row { hop, ..pace });
    frame
}

/// Returns true if the rows are of the last hour before they arrived. Other rows are forged, and would make the report's figures
/// absurd.
fn is_past(frame: &RemoteFrame, arrived_ns: u64) -> bool {
    let begin_ns = frame.rows.iter().map(|row| row.birth_ns.min(row.enter_ns)).min().unwrap_or_default();
    let end_ns = frame.rows.iter().map(|row| row.leave_ns).max().unwrap_or_default();
    end_ns <= arrived_ns.saturating_add(frame.error_ns) && arrived_ns.saturating_sub(begin_ns) <= LONGEST_NS
}

/// Returns the rows of a frame in this machine's clock; `None` before the first ping.
fn converted(clock: &ClockEstimator, frame: &FrameRows) -> Option<RemoteFrame> {
    // One conversion for all rows, so that their lengths stay what they are.
    let end_ns = frame.rows.iter().map(|row| row.leave_ns).max()?;
    let end = clock.to_local(end_ns)?;
    let local = |ns: u64| end.ns.saturating_sub(end_ns.saturating_sub(ns));
    let convert = |row: &Row| Row {
        birth_ns: local(row.birth_ns),
        enter_ns: local(row.enter_ns),
        leave_ns: local(row.leave_ns),
        ..*row
    };
    let rows = frame.rows.iter().map(convert).collect();
    Some(RemoteFrame { rows, error_ns: end.error_ns, departure: None })
}

#[cfg(test)]
mod tests;
