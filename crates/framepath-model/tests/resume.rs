// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the replay log of a stream with false random access points or gradual refreshes.

use framepath_model::access_point::{Leading, RandomAccess};
use framepath_model::replay::{Arrived, ReplayLog, RestartPlan};

fn access(is_point: bool) -> RandomAccess {
    if is_point { RandomAccess::Point } else { RandomAccess::PICTURE }
}

fn start<P>(log: &mut ReplayLog<P>) -> Option<u64> {
    log.died(None, false);
    log.next_unsent().map(|entry| entry.seq())
}

/// Returns a log of pictures in decode order I P B B, each flagged as a random access point and
/// submitted: the P is shown last.
fn false_points() -> ReplayLog<u64> {
    let mut log = ReplayLog::new(|packet| *packet = 7777);
    for (seq, pts) in [(0, 0), (1, 3), (2, 1), (3, 2), (4, 6), (5, 4), (6, 5)] {
        log.append(seq, Some(pts), RandomAccess::Point, seq);
        log.sent();
    }
    log
}

#[test]
fn late_frames_behind_false_access_points_are_delivered() {
    let mut log = false_points();
    for seq in [0, 2, 3, 1, 5, 6, 4] {
        assert_eq!(log.arrived(seq), Arrived::Deliver, "{seq}");
    }
    let mut log = false_points();
    let answers = [0, 2, 3].map(|seq| log.arrived(seq));
    assert_eq!(answers, [Arrived::Deliver; 3]);
    // 1 left the history without a frame, and without its bytes.
    assert_eq!((log.kept(), log.get(1)), (5, Some(&7777)));
    log.died(Some(6), false);
    assert_eq!((log.skipped(), log.get(1)), (1, None));
}

#[test]
fn packets_without_a_picture_are_no_loss() {
    let mut log = ReplayLog::new(|_| ());
    // Each third packet yields nothing, like VP8's alternate references.
    for seq in 0..30_000 {
        log.append(seq, Some(seq as i64), access(seq % 30 == 0), ());
        log.sent();
        if seq % 3 != 1 {
            assert_eq!(log.arrived(seq), Arrived::Deliver);
        }
    }
    log.died(Some(29_999), false);
    assert_eq!(log.skipped(), 0);
}

/// Returns the log of 100 pictures with a gradual refresh of four reference pictures every 20.
/// Pictures with odd numbers are not references. All packets were submitted, and the first 50 have
/// yielded their frames.
fn gradual() -> ReplayLog<u64> {
    let mut log = ReplayLog::new(|_| ());
    for seq in 0..100 {
        let access = match seq {
            0 => RandomAccess::Point,
            _ if seq % 20 == 0 => RandomAccess::Claimed { recovery: 4 },
            _ => RandomAccess::Picture { reference: seq % 2 == 0, leading: Leading::No },
        };
        log.append(seq, Some(seq as i64), access, seq);
        log.sent();
        if seq < 50 {
            assert_eq!(log.arrived(seq), Arrived::Deliver);
        }
    }
    log
}

#[test]
fn no_replay_starts_at_a_claim() {
    let mut log = gradual();
    assert_eq!((log.kept(), start(&mut log)), (100, Some(0)));
    assert_eq!(log.skipped(), 0);
}

#[test]
fn a_stream_resumes_at_a_claim_and_withholds_what_is_not_recovered() {
    let mut log = gradual();
    log.forget(55);
    log.died(Some(99), false);
    // The stream resumes at 60. The decoder may be unable to decode 60, so pictures are right when the
    // refresh that begins at 80 is complete.
    assert_eq!((log.kept(), log.next_unsent().map(|entry| entry.seq())), (40, Some(60)));
    assert_eq!(log.skipped(), 10 + 29);
    for seq in 60..100 {
        log.sent();
        let expected = if seq <= 88 { Arrived::Withheld } else { Arrived::Deliver };
        assert_eq!(log.arrived(seq), expected, "{seq}");
    }
    // Another death: nothing counts twice, and new frames are distinguished from delivered ones.
    log.died(Some(99), false);
    assert_eq!((log.next_unsent().map(|entry| entry.seq()), log.skipped()), (Some(60), 39));
    for seq in 60..100 {
        log.sent();
        assert_eq!(log.arrived(seq), Arrived::AlreadyDelivered, "{seq}");
    }
    // A point ends the withholding: no later frame is withheld.
    log.append(100, Some(100), RandomAccess::Point, 100);
    log.sent();
    assert_eq!(log.arrived(100), Arrived::Deliver);
}

#[test]
fn withheld_frames_are_dropped_behind_another_loss() {
    let mut log = gradual();
    log.forget(55);
    log.died(Some(99), false);
    (60..70).for_each(|_| log.sent());
    // 60 to 62 are lost too: the packets after them cannot be decoded up to 80.
    log.forget(7);
    log.died(Some(69), false);
    assert_eq!((log.kept(), log.next_unsent().map(|entry| entry.seq())), (20, Some(80)));
    // 50 to 79 are lost, and 80 to 99 are withheld.
    assert_eq!(log.skipped(), 30 + 20);
}

#[test]
fn pictures_decoded_behind_a_recovery_and_shown_before_it_are_withheld() {
    let mut log = ReplayLog::new(|_| ());
    log.append(0, Some(0), RandomAccess::Point, ());
    log.sent();
    log.died(Some(0), true);
    log.sent();
    assert!(matches!(log.died(Some(0), true), RestartPlan::Skip { poisoned: 0, .. }));
    let picture = RandomAccess::PICTURE;
    let claimed = RandomAccess::Claimed { recovery: 1 };
    for (seq, pts, access) in
        [(1, 1, claimed), (2, 2, claimed), (3, 6, picture), (4, 4, picture), (5, 7, picture)]
    {
        log.append(seq, Some(pts), access, ());
        log.sent();
    }
    use Arrived::{Deliver, Withheld};
    assert_eq!([1, 2, 4, 3].map(|seq| log.arrived(seq)), [Withheld; 4]);
    assert_eq!(log.arrived(5), Deliver);
    assert_eq!(log.skipped(), 5);
    // The next point arrives before the recovery is complete: its leading pictures lack their
    // references.
    log.forget(1);
    log.died(None, false);
    for (seq, pts, access) in
        [(6, 8, claimed), (7, 11, RandomAccess::Point), (8, 10, picture), (9, 12, picture)]
    {
        log.append(seq, Some(pts), access, ());
    }
    let mut resubmitted = Vec::new();
    while let Some(entry) = log.next_unsent() {
        resubmitted.push(entry.seq());
        log.sent();
    }
    assert_eq!(resubmitted, [6, 7, 9]);
    assert_eq!([6, 7, 9].map(|seq| log.arrived(seq)), [Withheld, Deliver, Deliver]);
    assert_eq!((log.skipped(), log.skipped_leading()), (5 + 2, 1));
}

#[test]
fn leading_pictures_without_times_are_known_by_their_types() {
    let mut log = ReplayLog::new(|_| ());
    let leading = RandomAccess::Picture { reference: true, leading: Leading::Skipped };
    // I B P B B, then I with two leading pictures, P, and a B picture that is not a leading picture.
    let kinds = [
        RandomAccess::Point,
        leading,
        RandomAccess::PICTURE,
        leading,
        leading,
        RandomAccess::Point,
        leading,
        leading,
        RandomAccess::PICTURE,
        leading,
    ];
    for (seq, kind) in (0..).zip(kinds) {
        log.append(seq, None, kind, ());
        log.sent();
        assert!(log.takes_all(), "{seq}");
    }
    log.arrived(0);
    assert_eq!(log.died(Some(2), false), RestartPlan::Replay { single_threaded: false });
    (0..10).for_each(|_| log.sent());
    assert_eq!(log.died(Some(2), true), RestartPlan::Skip { poisoned: 2, next: Some(5) });
    let mut kept = Vec::new();
    while let Some(entry) = log.next_unsent() {
        kept.push((entry.seq(), entry.is_after_loss()));
        log.sent();
    }
    assert_eq!(kept, [(0, false), (1, false), (5, true), (8, false), (9, false)]);
    // 2, 3, 4, and the leading pictures 6 and 7.
    assert_eq!((log.skipped(), log.skipped_leading()), (5, 2));
    assert!(log.takes_all());
}

#[test]
fn leading_pictures_end_at_a_later_time_or_a_type_that_is_not_leading() {
    let leading = RandomAccess::Picture { reference: true, leading: Leading::Skipped };
    let decodable = RandomAccess::Picture { reference: true, leading: Leading::Decodable };
    // The time of the point, the pictures after it in decode order, and the number of those among
    // them that are leading pictures.
    let groups = [
        // I P B B: the P has a time.
        (Some(10), vec![(Some(13), RandomAccess::PICTURE), (None, leading), (None, leading)], 0),
        // I B B P B: the first B and the P have times.
        (
            Some(10),
            vec![
                (Some(8), RandomAccess::PICTURE),
                (None, leading),
                (Some(13), RandomAccess::PICTURE),
                (None, leading),
            ],
            2,
        ),
        // The point has no time: the types decide.
        (
            None,
            vec![(Some(8), leading), (None, leading), (Some(13), RandomAccess::PICTURE), (None, leading)],
            2,
        ),
        // HEVC: I RASL RADL RASL P. Only RASL pictures are dropped, and RADL does not end them.
        (None, vec![(None, leading), (None, decodable), (None, leading), (None, RandomAccess::PICTURE)], 2),
    ];
    for (time, pictures, leading) in groups {
        let mut log = ReplayLog::new(|_| ());
        log.append(0, Some(0), RandomAccess::Point, ());
        log.sent();
        log.died(Some(0), true);
        log.sent();
        assert_eq!(log.died(Some(0), true), RestartPlan::Skip { poisoned: 0, next: None });
        log.append(1, time, RandomAccess::Point, ());
        let count = pictures.len();
        for (seq, (pts, access)) in (2..).zip(pictures) {
            log.append(seq, pts, access, ());
        }
        assert_eq!((log.skipped(), log.skipped_leading()), (1 + leading, leading));
        assert_eq!(log.kept(), 1 + count - leading as usize);
        assert!(log.takes_all() || time.is_some());
    }
}
