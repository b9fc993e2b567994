// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the exchange of ledgers in one session.

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
    exchanges[0].begin(path(&["file", "packetise", "pace"]), 100);
    exchanges[1].begin(path(&["recv"]), 100);
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
    channels[0].push_packetized(FrameRows::new(4, rows));
    channels[1].push(FrameRows::new(4, vec![row(0, 20_000, 30_000)].into_iter().map(later).collect()));
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
    let times: Vec<_> = frame.rows.iter().map(|row| (row.enter_ns - offset, row.leave_ns - offset)).collect();
    // Packetising ends with the hand-over, although the thread went on.
    assert_eq!(times, [(1000, 2000), (2000, 4500), (4500, 9000)]);
    assert_eq!((frame.rows[2].queue_ns, frame.rows[2].paced_ns), (2000, 2500));
    assert!(frame.rows.iter().all(|row| row.has(flag::REMOTE)));
    let back = &near.remotes(|_| true)[&0].frames[&4];
    assert!(back.rows[0].enter_ns.abs_diff(start + 20_000) <= back.error_ns, "{back:?}");
}

#[test]
fn the_end_is_told_behind_all_rows_and_again_beside_them() {
    let (_, mut channels) = ends();
    pass(&mut channels, 0);
    let row = Row { flags: flag::LAST | flag::REMOTE, ..Row::default() };
    let frames = ViewerFrames { all: 8, dropped: 1 };
    channels[0].push(FrameRows::new(6, vec![row]));
    [SessionEnd::Failed, SessionEnd::Complete].into_iter().for_each(|end| channels[0].end(end, frames));
    let polled = |channel: &mut LedgerChannel, now_ns| -> [Vec<LedgerMessage>; 2] {
        let mut polled = [Vec::new(), Vec::new()];
        while let Some((stream, bytes)) = channel.poll(now_ns) {
            let message = LedgerMessage::from_bytes(&bytes).unwrap();
            polled[usize::from(stream == LedgerStream::Rows)].push(message);
        }
        polled
    };
    let frame = LedgerMessage::Frame(FrameRows::new(6, vec![row]));
    let end = LedgerMessage::End { end: SessionEnd::Failed, frames };
    assert_eq!(polled(&mut channels[0], 1), [vec![end.clone()], vec![frame, end.clone()]]);
    channels[0].end(SessionEnd::Complete, frames);
    assert!(channels[0].has_sent_end() && polled(&mut channels[0], 1) == [[], []]);
    // Beside the rows, it is told again, because the network can lose it.
    let [again, rows] = polled(&mut channels[0], 1 + END_INTERVAL_NS);
    assert!(again.contains(&end) && rows.is_empty());
    channels[1].recv(&end.to_bytes().unwrap(), 2);
    assert_eq!(channels[1].remote_end(), Some((SessionEnd::Failed, frames)));
}

#[test]
fn the_end_is_told_without_a_ledger() {
    let mut channel = LedgerChannel::new(Arc::default());
    channel.opened(LedgerStream::Rows);
    channel.push(FrameRows::new(1, vec![Row::default()]));
    let frames = ViewerFrames::default();
    channel.end(SessionEnd::ByUser, frames);
    let (stream, bytes) = channel.poll(1).unwrap();
    let end = LedgerMessage::End { end: SessionEnd::ByUser, frames };
    assert_eq!((stream, LedgerMessage::from_bytes(&bytes)), (LedgerStream::Rows, Some(end)));
}

#[test]
fn rows_that_come_before_the_first_ping_wait_for_it() {
    let ([_, far], mut channels) = ends();
    let row = Row { birth_ns: 1, enter_ns: 1, leave_ns: 2, flags: flag::LAST, ..Row::default() };
    let path = LedgerMessage::Path(VERSION, path(&["a"])).to_bytes().unwrap();
    let frame = |hop| {
        let rows = vec![Row { hop, ..row }];
        LedgerMessage::Frame(FrameRows::new(u64::from(hop), rows)).to_bytes().unwrap()
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
    exchange.begin(path(&["file"]), 100);
    let mut viewers = [(); 2].map(|()| LedgerChannel::new(exchange.clone()));
    let row = Row { leave_ns: 2, flags: flag::LAST, ..Row::default() };
    for (id, viewer) in viewers.iter_mut().enumerate() {
        viewer.viewer = id as u64 + 1;
        viewer.opened(LedgerStream::Clock);
        assert!(viewer.poll(0).is_some());
        let rows = LedgerMessage::Frame(FrameRows::new(id as u64, vec![row]));
        let pong = LedgerMessage::Pong { sent_ns: 0, received_ns: 1, replied_ns: 1 };
        for message in [LedgerMessage::Path(VERSION, path(&["recv"])), pong, rows] {
            viewer.recv(&message.to_bytes().unwrap(), 2);
        }
        viewer.finish();
    }
    let remotes = exchange.remotes(|_| true);
    let ids: Vec<_> =
        remotes.iter().map(|(viewer, remote)| (*viewer, remote.frames.keys().copied().collect())).collect();
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
    // A frame has frequent pings behind it.
    channel.push_departure(sent(1, 0, 0, 0));
    assert_eq!([8, 9, 10].map(|second| pings(&mut channel, second)), [9, 1, 1]);
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
        channels[0].push_packetized(FrameRows::new(id + 10_000, vec![row]));
        channels[0].push(FrameRows::new(id, vec![row]));
        let frame = LedgerMessage::Frame(FrameRows::new(id, vec![row]));
        for message in [frame, LedgerMessage::Ping { sent_ns: 1 }] {
            channels[0].recv(&message.to_bytes().unwrap(), 0);
        }
    }
    let LedgerChannel { departures, rows, outgoing, unconverted, answers, .. } = &channels[0];
    let sizes = [departures.len(), rows.len(), outgoing.len(), unconverted.len(), answers.len()];
    assert_eq!(sizes, [512, 512, 512, 512, MOST_ANSWERS]);
    for id in 0..100 {
        let frame = LedgerMessage::Frame(FrameRows::new(id, vec![row; 128]));
        channels[0].recv(&frame.to_bytes().unwrap(), 0);
    }
    assert_eq!(channels[0].unconverted_rows(), MOST_UNCONVERTED);
}
