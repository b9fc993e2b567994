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
use crate::ledger_message::{FrameRows, LedgerMessage, RemotePath, SessionEnd, VERSION};
use crate::sent_frame::SentFrame;

/// Attribute in the session description of an end that exchanges its ledger. It stands for two data channels whose numbers both ends
/// know, without a media description (`m=application`), which some servers refuse together with the whole offer.
pub(crate) const LEDGER_ATTRIBUTE: &str = "a=framepath-ledger:1";
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
    /// Number of the newest frame that has left, and true if it is to be sent behind a ping.
    newest: Option<u64>,
    tells_newest: bool,
    /// Number of the newest frame that has left the other end.
    remote_newest: Option<u64>,
    /// Way in which the session ends, until it is sent, and true from then on.
    end: Option<SessionEnd>,
    has_sent_end: bool,
    /// Way in which the sender ends the session.
    remote_end: Option<SessionEnd>,
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
            newest: None,
            tells_newest: false,
            remote_newest: None,
            end: None,
            has_sent_end: false,
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
        self.newest = self.newest.max(Some(departure.number));
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
            Some(LedgerMessage::Newest { number }) => {
                self.remote_newest = self.remote_newest.max(Some(number));
            }
            Some(LedgerMessage::End { end, newest }) => {
                self.remote_newest = self.remote_newest.max(newest);
                self.remote_end = Some(end);
            }
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
            if let Some(number) = self.newest.filter(|_| std::mem::take(&mut self.tells_newest)) {
                return clock(LedgerMessage::Newest { number });
            }
            if now_ns >= self.next_ping_ns {
                self.tells_newest = true;
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
        let end = self.end.take()?;
        self.has_sent_end = true;
        rows(LedgerMessage::End { end, newest: self.newest })
    }

    /// Ends the session in this way: the other end gets the message behind all others. Does nothing after the first call.
    pub(crate) fn end(&mut self, end: SessionEnd) {
        if !self.has_sent_end {
            self.end.get_or_insert(end);
        }
    }

    /// Returns true once the message about the end was given out.
    pub(crate) fn has_sent_end(&self) -> bool {
        self.has_sent_end
    }

    /// Returns the way in which the sender ends the session, as far as it has said so.
    pub(crate) fn remote_end(&self) -> Option<SessionEnd> {
        self.remote_end
    }

    /// Returns the time at which [`poll`](LedgerChannel::poll) has to be called if nothing else happens, CLOCK_MONOTONIC
    /// nanoseconds; `None` before the channel for pings is open.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.open.contains(&LedgerStream::Clock).then_some(self.next_ping_ns)
    }

    /// Returns the number of the newest frame that has left the other end, as far as it has said so.
    pub(crate) fn remote_newest(&self) -> Option<u64> {
        self.remote_newest
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
mod tests {
    use framepath_model::ledger::flag;

    use super::*;
    use crate::ledger_message::RemoteHop;

    const DAY: u64 = 86_400_000_000_000;

    fn path(names: &[&str]) -> RemotePath {
        let hop = |name: &&str| RemoteHop { name: (*name).to_owned(), link: false };
        RemotePath { hops: names.iter().map(hop).collect(), threads: vec!["a".to_owned()] }
    }

    fn sent(number: u64, packetized_ns: u64, began_ns: u64, sent_ns: u64) -> SentFrame {
        SentFrame { number, packetized_ns, began_ns, sent_ns, encrypt_ns: 500, ..SentFrame::default() }
    }

    /// Passes all messages of both ends from `now_ns` on, by the first end's clock; the second one's is a day ahead. A message is on
    /// the way for 1 microsecond.
    fn pass(ends: &mut [LedgerChannel; 2], now_ns: u64) {
        for round in 0.. {
            let now_ns = now_ns + 2000 * round;
            let clocks = [now_ns, now_ns + DAY];
            let messages = [0, 1].map(|end| ends[end].poll(clocks[end]));
            if messages == [None, None] {
                return;
            }
            for (end, message) in messages.into_iter().enumerate() {
                if let Some((_, bytes)) = message {
                    ends[1 - end].recv(&bytes, clocks[1 - end] + 1000);
                }
            }
        }
    }

    fn ends() -> ([Arc<LedgerExchange>; 2], [LedgerChannel; 2]) {
        let exchanges = [(); 2].map(|()| Arc::new(LedgerExchange::default()));
        exchanges[0].begin(path(&["file", "packetise", "pace"]));
        exchanges[1].begin(path(&["recv"]));
        let mut channels = exchanges.clone().map(LedgerChannel::new);
        for (channel, stream) in channels.iter_mut().zip([LedgerStream::ALL; 2]) {
            stream.into_iter().for_each(|stream| channel.opened(stream));
        }
        (exchanges, channels)
    }

    #[test]
    fn rows_go_both_ways_in_the_clock_of_the_end_that_gets_them() {
        let ([near, far], mut channels) = ends();
        for ping in 1..=20 {
            pass(&mut channels, 20_000_000 * ping);
        }
        let start = 400_100_000;
        let row = |hop, enter_ns, leave_ns| {
            let (enter_ns, leave_ns) = (start + enter_ns, start + leave_ns);
            let flags = flag::LAST;
            Row { seq: 4, birth_ns: start + 1000, enter_ns, leave_ns, hop, flags, ..Row::default() }
        };
        let rows = vec![row(0, 1000, 2000), row(1, 2000, 5000)];
        let later = |row: Row| Row {
            birth_ns: row.birth_ns + DAY,
            enter_ns: row.enter_ns + DAY,
            leave_ns: row.leave_ns + DAY,
            ..row
        };
        channels[0].push_departure(sent(4, start + 4000, start + 6000, start + 9000));
        channels[0].push_packetized(FrameRows { id: 4, rows });
        channels[1]
            .push(FrameRows { id: 4, rows: vec![row(0, 20_000, 30_000)].into_iter().map(later).collect() });
        pass(&mut channels, start + 40_000);
        let got = &far.remotes(|_| true)[&0];
        assert_eq!(got.path.hops.len(), 3);
        let frame = &got.frames[&4];
        let offset = frame.rows[0].birth_ns - 1000;
        assert!(
            offset.abs_diff(start + DAY) <= frame.error_ns && frame.error_ns < 5000,
            "{offset} {}",
            frame.error_ns
        );
        let times: Vec<_> =
            frame.rows.iter().map(|row| (row.enter_ns - offset, row.leave_ns - offset)).collect();
        // Packetising ends with the hand-over, although the thread went on.
        assert_eq!(times, [(1000, 2000), (2000, 4500), (4500, 9000)]);
        assert_eq!((frame.rows[2].queue_ns, frame.rows[2].paced_ns), (2000, 2500));
        assert!(frame.rows.iter().all(|row| row.has(flag::REMOTE)));
        let back = &near.remotes(|_| true)[&0].frames[&4];
        assert!(back.rows[0].enter_ns.abs_diff(start + 20_000) <= back.error_ns, "{back:?}");
    }

    #[test]
    fn the_newest_frame_is_told_with_each_ping() {
        let (_, mut channels) = ends();
        pass(&mut channels, 0);
        assert_eq!(channels[1].remote_newest(), None);
        for number in [3, 5, 4] {
            channels[0].push_departure(sent(number, 1, 2, 3));
        }
        for ping in 1..=2 {
            channels[1].remote_newest = None;
            pass(&mut channels, 20_000_000 * ping);
            assert_eq!([0, 1].map(|end| channels[end].remote_newest()), [None, Some(5)]);
        }
    }

    #[test]
    fn the_end_is_told_behind_all_rows_and_once() {
        let (_, mut channels) = ends();
        pass(&mut channels, 0);
        let row = Row { flags: flag::LAST | flag::REMOTE, ..Row::default() };
        channels[0].push_departure(sent(7, 1, 2, 3));
        channels[0].push(FrameRows { id: 6, rows: vec![row] });
        [SessionEnd::Failed, SessionEnd::Complete].into_iter().for_each(|end| channels[0].end(end));
        let messages: Vec<_> = std::iter::from_fn(|| channels[0].poll(1)).collect();
        let read = |(_, bytes): &(_, Vec<u8>)| LedgerMessage::from_bytes(bytes).unwrap();
        let frame = LedgerMessage::Frame(FrameRows { id: 6, rows: vec![row] });
        let end = LedgerMessage::End { end: SessionEnd::Failed, newest: Some(7) };
        assert_eq!(messages.iter().map(read).skip(messages.len() - 2).collect::<Vec<_>>(), [frame, end]);
        messages.iter().for_each(|(_, bytes)| channels[1].recv(bytes, 2));
        assert_eq!(
            (channels[1].remote_end(), channels[1].remote_newest()),
            (Some(SessionEnd::Failed), Some(7))
        );
        channels[0].end(SessionEnd::Complete);
        assert!(channels[0].has_sent_end() && channels[0].poll(1).is_none());
    }

    #[test]
    fn the_end_is_told_without_a_ledger() {
        let mut channel = LedgerChannel::new(Arc::default());
        channel.opened(LedgerStream::Rows);
        channel.push(FrameRows { id: 1, rows: vec![Row::default()] });
        channel.end(SessionEnd::ByUser);
        let (stream, bytes) = channel.poll(1).unwrap();
        let end = LedgerMessage::End { end: SessionEnd::ByUser, newest: None };
        assert_eq!((stream, LedgerMessage::from_bytes(&bytes)), (LedgerStream::Rows, Some(end)));
    }

    #[test]
    fn rows_that_come_before_the_first_ping_wait_for_it() {
        let ([_, far], mut channels) = ends();
        let row = Row { birth_ns: 1, enter_ns: 1, leave_ns: 2, flags: flag::LAST, ..Row::default() };
        let path = LedgerMessage::Path(VERSION, path(&["a"])).to_bytes().unwrap();
        let frame = |hop| {
            let rows = vec![Row { hop, ..row }];
            LedgerMessage::Frame(FrameRows { id: u64::from(hop), rows }).to_bytes().unwrap()
        };
        for message in [path, frame(0), frame(1)] {
            channels[1].recv(&message, DAY + 100);
        }
        assert!(far.remotes(|_| true).is_empty());
        pass(&mut channels, 10_000);
        assert!(far.remotes(|_| true).is_empty());
        channels[1].finish();
        // Hop 1 is not in the path.
        assert_eq!(far.remotes(|_| true)[&0].frames.keys().collect::<Vec<_>>(), [&0]);
    }

    #[test]
    fn the_rows_of_each_viewer_are_kept() {
        let exchange = Arc::new(LedgerExchange::default());
        let mut viewers = [(); 2].map(|()| LedgerChannel::new(exchange.clone()));
        let row = Row { leave_ns: 2, flags: flag::LAST, ..Row::default() };
        for (id, viewer) in viewers.iter_mut().enumerate() {
            viewer.viewer = id as u64 + 1;
            viewer.opened(LedgerStream::Clock);
            assert!(viewer.poll(0).is_some());
            let rows = LedgerMessage::Frame(FrameRows { id: id as u64, rows: vec![row] });
            let pong = LedgerMessage::Pong { sent_ns: 0, received_ns: 1, replied_ns: 1 };
            for message in [LedgerMessage::Path(VERSION, path(&["recv"])), pong, rows] {
                viewer.recv(&message.to_bytes().unwrap(), 2);
            }
            viewer.finish();
        }
        let remotes = exchange.remotes(|_| true);
        let ids: Vec<_> = remotes
            .iter()
            .map(|(viewer, remote)| (*viewer, remote.frames.keys().copied().collect()))
            .collect();
        assert_eq!(ids, [(1, vec![0]), (2, vec![1])]);
        assert!(exchange.remotes(|id| id == 1)[&1].frames.is_empty());
    }

    #[test]
    fn answers_without_a_question_are_ignored() {
        let mut channel = LedgerChannel::new(Arc::default());
        let answer = |channel: &mut LedgerChannel, sent_ns, at_ns| {
            let pong = LedgerMessage::Pong { sent_ns, received_ns: at_ns, replied_ns: at_ns };
            channel.recv(&pong.to_bytes().unwrap(), at_ns);
            channel.clock.error_ns(at_ns)
        };
        channel.opened(LedgerStream::Clock);
        assert!(channel.poll(DAY).is_some());
        assert_eq!(answer(&mut channel, 0, DAY + 100), None);
        assert_eq!(answer(&mut channel, DAY, DAY + 100), Some(53));
        assert_eq!((answer(&mut channel, DAY, DAY + 100), channel.answered), (Some(53), 1));
        for ping in 1..=2 * MOST_ASKED as u64 {
            assert!(channel.poll(DAY + ping * IDLE_PING_INTERVAL_NS).is_some());
        }
        assert_eq!(channel.asked.len(), MOST_ASKED);
    }

    #[test]
    fn pings_are_rare_while_there_are_no_frames() {
        let (_, [mut channel, _]) = ends();
        // Calls once in 10 ms of a second.
        let pings = |channel: &mut LedgerChannel, second: u64| {
            let times = (0..100).map(|call| DAY + second * 1_000_000_000 + call * 10_000_000);
            times.map(|at_ns| std::iter::from_fn(|| channel.poll(at_ns)).count()).sum::<usize>()
        };
        // Eleven within 200 ms, and the path; then ten a second up to the fiftieth.
        let first: Vec<_> = (0..8).map(|second| pings(&mut channel, second)).collect();
        assert_eq!(first, [19, 10, 10, 10, 3, 1, 1, 1]);
        // A frame has frequent pings behind it. Each ping then has the number of the newest frame.
        channel.push_departure(sent(1, 0, 0, 0));
        assert_eq!([8, 9, 10].map(|second| pings(&mut channel, second)), [19, 2, 2]);
    }

    #[test]
    fn rows_of_the_future_and_of_hours_are_forged() {
        let row = |birth_ns, leave_ns| Row { birth_ns, enter_ns: birth_ns, leave_ns, ..Row::default() };
        let is_past = |rows: Vec<Row>| is_past(&RemoteFrame { rows, error_ns: 50, departure: None }, DAY);
        assert!(is_past(vec![row(DAY - 1000, DAY - 10), row(DAY - 1000, DAY + 50)]));
        assert!(!is_past(vec![row(DAY - 1000, DAY + 51)]));
        assert!(!is_past(vec![row(DAY - LONGEST_NS - 1, DAY - 10), row(DAY - 1000, DAY)]));
        // Of a frame that would have been on the way for hours.
        assert!(!is_past(vec![row(DAY - LONGEST_NS - 20, DAY - LONGEST_NS - 10)]));
    }

    #[test]
    fn nobody_fills_the_memory() {
        let (_, mut channels) = ends();
        let row = Row { leave_ns: 2, flags: flag::LAST, ..Row::default() };
        for id in 0..2000 {
            channels[0].push_departure(sent(id, 0, 0, 0));
            channels[0].push_packetized(FrameRows { id: id + 10_000, rows: vec![row] });
            channels[0].push(FrameRows { id, rows: vec![row] });
            let frame = LedgerMessage::Frame(FrameRows { id, rows: vec![row] });
            for message in [frame, LedgerMessage::Ping { sent_ns: 1 }] {
                channels[0].recv(&message.to_bytes().unwrap(), 0);
            }
        }
        let LedgerChannel { departures, rows, outgoing, unconverted, answers, .. } = &channels[0];
        let sizes = [departures.len(), rows.len(), outgoing.len(), unconverted.len(), answers.len()];
        assert_eq!(sizes, [512, 512, 512, 512, MOST_ANSWERS]);
        for id in 0..100 {
            let frame = LedgerMessage::Frame(FrameRows { id, rows: vec![row; 128] });
            channels[0].recv(&frame.to_bytes().unwrap(), 0);
        }
        assert_eq!(channels[0].unconverted_rows(), MOST_UNCONVERTED);
    }
}
