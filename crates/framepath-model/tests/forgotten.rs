// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the replay log of a stream whose history grows too large to be kept.

use framepath_model::access_point::RandomAccess;
use framepath_model::replay::{Arrived, ReplayLog, RestartPlan};

fn access(is_point: bool) -> RandomAccess {
    if is_point { RandomAccess::Point } else { RandomAccess::PICTURE }
}

#[test]
fn a_history_that_was_forgotten_goes_on_at_the_next_key() {
    let mut log = ReplayLog::new(|packet| *packet = 7777);
    for seq in 0..100 {
        log.append(seq, Some(seq as i64), access(seq == 0), seq);
        log.sent();
        if seq >= 2 {
            assert_eq!(log.arrived(seq - 2), Arrived::Deliver);
        }
    }
    assert_eq!(log.packets().count(), 100);
    log.forget(10);
    assert_eq!(log.packets().copied().collect::<Vec<_>>(), (90..100).collect::<Vec<_>>());
    assert_eq!((log.get(89), log.get(90)), (Some(&7777), Some(&90)));
    // A late frame of a packet that is kept.
    assert_eq!(log.arrived(98), Arrived::Deliver);
    // Packets taken by the dead worker cannot be decoded again without the stream's start.
    assert!(matches!(log.died(Some(99), true), RestartPlan::Replay { .. }));
    assert_eq!((log.packets().count(), log.skipped()), (0, 1));
    for seq in 100..105 {
        log.append(seq, Some(seq as i64), access(seq == 103), seq);
    }
    assert_eq!(log.packets().copied().collect::<Vec<_>>(), [103, 104]);
    assert_eq!(log.skipped(), 4);
}

#[test]
fn frames_of_forgotten_packets_are_delivered_and_missed_ones_count() {
    let mut log = ReplayLog::new(|_| ());
    for seq in 0..100 {
        log.append(seq, Some(seq as i64), access(seq == 0), seq);
        log.sent();
    }
    log.forget(10);
    for seq in 0..60 {
        assert_eq!((log.get(seq).copied(), log.arrived(seq)), (Some(seq), Arrived::Deliver));
    }
    // 60 to 89 were forgotten, 90 to 99 kept: all are lost with the worker.
    assert!(matches!(log.died(Some(99), true), RestartPlan::Replay { .. }));
    assert_eq!(log.skipped(), 40);
    assert_eq!((log.get(70).copied(), log.arrived(70)), (None, Arrived::AlreadyDelivered));
}

#[test]
fn the_memory_of_forgotten_packets_is_bounded() {
    let mut log = ReplayLog::new(|_| ());
    for seq in 0..20_000 {
        log.append(seq, None, access(seq == 0), seq);
        log.sent();
    }
    log.forget(100);
    assert_eq!(log.get(19_899), Some(&19_899));
    assert_eq!((0..20_000).filter(|seq| log.get(*seq).is_some()).count(), 100 + 16 * 1024);
    // A frame of an unknown packet is lost, and counts; a worker that sends too many such
    // frames violates the protocol.
    let unknown = 20_000 - 100 - 16 * 1024;
    assert!(log.is_unknown(unknown - 1) && !log.is_unknown(unknown));
    assert!(!log.lose_unknown(unknown));
    assert!((0..unknown).all(|seq| log.lose_unknown(seq)) && !log.lose_unknown(0));
    assert_eq!(log.skipped(), unknown);
    // All remaining packets are outstanding when the worker dies: nothing was delivered.
    log.died(Some(19_999), true);
    assert_eq!(log.skipped(), 20_000);
}

#[test]
fn unknown_packets_that_are_owed_count_with_the_worker() {
    let mut log = ReplayLog::new(|_| ());
    for seq in 0..20_000 {
        log.append(seq, Some(seq as i64), access(seq == 0), seq);
        log.sent();
        if seq == 10 {
            assert_eq!(log.arrived(0), Arrived::Deliver);
        }
    }
    log.forget(100);
    log.died(Some(19_999), true);
    assert_eq!(log.skipped(), 19_999);
}

#[test]
fn forgetting_up_to_a_key_leaves_its_leading_pictures_to_be_counted() {
    // An open group: 50 is the key, shown after 51 and 52, which need the pictures before it.
    let pts = |seq: u64| match seq {
        50 => 52,
        51 | 52 => seq as i64 - 1,
        seq => seq as i64,
    };
    let mut log = ReplayLog::new(|_| ());
    for seq in 0..60 {
        log.append(seq, Some(pts(seq)), access(seq == 0 || seq == 50), seq);
        log.sent();
        if seq < 50 {
            assert_eq!(log.arrived(seq), Arrived::Deliver);
        }
    }
    log.forget(10);
    assert_eq!(log.packets().copied().next(), Some(50));
    log.died(Some(55), true);
    assert_eq!((log.skipped(), log.skipped_leading()), (2, 2));
    assert_eq!(log.packets().copied().collect::<Vec<_>>(), [50, 53, 54, 55, 56, 57, 58, 59]);
}

#[test]
fn a_forgotten_picture_that_is_held_for_its_time_is_owed() {
    let mut log = ReplayLog::new(|_| ());
    // In decode order I P B: the P, 1, is shown after the B, 2.
    for (seq, pts) in [(0, 0), (1, 2), (2, 1), (3, 4), (4, 3)] {
        log.append(seq, Some(pts), access(seq == 0), seq);
        log.sent();
    }
    log.forget(1);
    assert_eq!((log.arrived(0), log.arrived(2)), (Arrived::Deliver, Arrived::Deliver));
    log.died(Some(4), true);
    // 1 and 3 were forgotten, 4 was kept.
    assert_eq!(log.skipped(), 3);
}

/// Sends the pictures in decode order, as (time, is a random access point), to a worker that outputs
/// the frame of each at once, except those in `held`. Returns the number of packets that count as
/// skipped after the worker's death.
fn skipped_of(pictures: &[(i64, bool)], held: &[u64]) -> u64 {
    let mut log = ReplayLog::new(|_| ());
    for (seq, (pts, is_point)) in (0..).zip(pictures) {
        log.append(seq, Some(*pts), access(*is_point), seq);
        log.sent();
        if !held.contains(&seq) {
            assert_eq!(log.arrived(seq), Arrived::Deliver);
        }
    }
    log.died(Some(pictures.len() as u64 - 1), false);
    log.skipped()
}

#[test]
fn a_picture_that_is_dropped_before_times_restart_is_not_owed() {
    // A second encoding begins at 4, with earlier times: the decoder drops the last reference, 3.
    let (before, behind) =
        ([(100, true), (102, false), (101, false), (103, false)], [(10, true), (11, false)]);
    let restart = [&before[..], &behind, &[(12, true), (13, false)]].concat();
    assert_eq!(skipped_of(&restart, &[3]), 0);
    // The second encoding begins with a leading picture, which is output first.
    let leading = [&before[..], &[(10, true), (9, false), (11, false), (12, true), (13, false)]].concat();
    assert_eq!(skipped_of(&leading, &[3]), 0);
}

#[test]
fn pictures_behind_a_restart_of_times_are_owed_by_their_new_times() {
    let mut log = ReplayLog::new(|_| ());
    // Times restart at 2. In decode order I P B: the P, 3, is shown after the B, 4.
    for (seq, pts) in [(0, 100), (1, 101), (2, 0), (3, 2), (4, 1), (5, 3)] {
        log.append(seq, Some(pts), access(seq == 0 || seq == 2), seq);
        log.sent();
    }
    for seq in [0, 1, 2, 4] {
        assert_eq!(log.arrived(seq), Arrived::Deliver);
    }
    log.forget(0);
    log.died(Some(5), true);
    assert_eq!(log.skipped(), 2, "3 and 5");
}

#[test]
fn an_earlier_time_of_another_picture_than_a_random_access_point_is_no_restart() {
    let mut log = ReplayLog::new(|_| ());
    // The decoder has output 1 too early, and holds 2 for its time.
    for (seq, pts) in [(0, 0), (1, 8), (2, 16), (3, 4)] {
        log.append(seq, Some(pts), access(seq == 0), seq);
        log.sent();
        if seq != 2 {
            assert_eq!(log.arrived(seq), Arrived::Deliver);
        }
    }
    log.forget(0);
    log.died(Some(3), true);
    assert_eq!(log.skipped(), 1);
}
