// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the replay log of a stream with frames that a seek or an edit list leaves out.

use framepath_model::access_point::RandomAccess;
use framepath_model::replay::{Arrived, ReplayLog, RestartPlan};
use framepath_model::stream::Preroll;

fn skipping(skipped: u64) -> Preroll {
    Preroll { skipped, ..Preroll::default() }
}

/// Returns a log of 40 pictures without times in presentation order, with a random access point
/// every 10. A seek skips the first 16. All packets are submitted.
fn sought() -> ReplayLog<()> {
    let mut log = ReplayLog::new(|()| ());
    append(&mut log, 0, 16);
    log
}

fn append(log: &mut ReplayLog<()>, from: u64, skipped: u64) {
    for seq in from..from + 40 {
        let access = if seq % 10 == 0 { RandomAccess::Point } else { RandomAccess::PICTURE };
        let preroll = if seq == from { skipping(skipped) } else { Preroll::default() };
        log.append_preroll(seq, None, access, preroll, ());
        log.sent();
    }
}

/// Submits all packets of the history, and returns their numbers.
fn submit(log: &mut ReplayLog<()>) -> Vec<u64> {
    let mut seqs = Vec::new();
    while let Some(entry) = log.next_unsent() {
        seqs.push(entry.seq());
        log.sent();
    }
    seqs
}

/// Submits all packets of the history. Each yields its frame; returns the numbers of the delivered
/// ones.
fn replay(log: &mut ReplayLog<()>) -> Vec<u64> {
    let seqs = submit(log);
    seqs.into_iter().filter(|seq| log.arrived(*seq) == Arrived::Deliver).collect()
}

#[test]
fn no_replay_delivers_the_frames_that_a_seek_skips() {
    for delivered in 0..40 {
        let mut log = sought();
        let mut got: Vec<u64> = (0..delivered).filter(|seq| log.arrived(*seq) == Arrived::Deliver).collect();
        log.died(Some(39), false);
        got.extend(replay(&mut log));
        assert_eq!(got, (16..40).collect::<Vec<_>>(), "{delivered}");
        assert_eq!(log.skipped(), 0);
    }
}

#[test]
fn each_loop_of_a_file_has_its_own_count() {
    for delivered in 0..80 {
        let mut log = sought();
        append(&mut log, 40, 16);
        let mut got: Vec<u64> = (0..delivered).filter(|seq| log.arrived(*seq) == Arrived::Deliver).collect();
        log.died(Some(79), false);
        got.extend(replay(&mut log));
        assert_eq!(got, (16..40).chain(56..80).collect::<Vec<_>>(), "{delivered}");
    }
}

#[test]
fn lost_packets_before_the_place_of_a_seek_are_no_loss() {
    // The stream resumes at 10 or 20, or is lost from 30 on.
    for (poisoned, skipped) in [(0, 0), (2, 0), (9, 0), (12, 4), (17, 3), (30, 10)] {
        // The first worker dies before it has output a frame, or after three.
        for output in [0, 3.min(poisoned)] {
            let mut log = sought();
            assert!((0..output).all(|seq| log.arrived(seq) == Arrived::Withheld));
            assert!(matches!(log.died(Some(poisoned), false), RestartPlan::Replay { .. }));
            submit(&mut log);
            assert!(matches!(log.died(Some(poisoned), true), RestartPlan::Skip { .. }));
            let lost = poisoned..(poisoned / 10 + 1) * 10;
            let right: Vec<u64> = (16..40).filter(|seq| !lost.contains(seq)).collect();
            assert_eq!((replay(&mut log), log.skipped()), (right, skipped), "{poisoned}");
        }
    }
}

#[test]
fn a_forgotten_count_goes_on_at_the_next_point() {
    let mut log = sought();
    log.forget(32);
    assert_eq!([0, 1].map(|seq| log.arrived(seq)), [Arrived::Withheld; 2]);
    log.died(Some(39), false);
    assert_eq!((replay(&mut log), log.skipped()), ((16..40).collect(), 0));
}

#[test]
fn packets_whose_frames_are_discarded_are_no_loss() {
    // An edit list that shows the file twice, the second time from picture 9 on.
    let mut log = ReplayLog::new(|()| ());
    for seq in 0..80 {
        let access = if seq % 20 == 0 { RandomAccess::Point } else { RandomAccess::PICTURE };
        let preroll = Preroll { discarded: (40..49).contains(&seq), ..Preroll::default() };
        log.append_preroll(seq, Some(seq as i64), access, preroll, ());
        log.sent();
    }
    assert!((0..40).all(|seq| log.arrived(seq) == Arrived::Deliver));
    log.forget(30);
    // The stream resumes at 60: packets 49 to 59 are lost.
    log.died(Some(79), false);
    assert_eq!((log.next_unsent().map(|entry| entry.seq()), log.skipped()), (Some(60), 11));
}

#[test]
fn a_discarded_packet_does_not_hold_the_history() {
    let mut log = ReplayLog::new(|()| ());
    for seq in 0..30 {
        let access = if seq % 10 == 0 { RandomAccess::Point } else { RandomAccess::PICTURE };
        let preroll = Preroll { discarded: seq < 15, ..Preroll::default() };
        log.append_preroll(seq, Some(seq as i64), access, preroll, ());
        log.sent();
    }
    assert!((15..22).all(|seq| log.arrived(seq) == Arrived::Deliver));
    log.died(Some(29), false);
    assert_eq!((log.next_unsent().map(|entry| entry.seq()), log.skipped()), (Some(20), 0));
    assert_eq!(replay(&mut log), (22..30).collect::<Vec<_>>());
}
