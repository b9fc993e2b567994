// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the replay log with a simulated decoder that dies: the reader gets the same frames as
//! without the deaths.

use std::collections::VecDeque;

use framepath_model::access_point::RandomAccess;
use framepath_model::replay::{Arrived, FRUITLESS, ReplayLog, RestartPlan, UNOPENED};
use proptest::collection::vec;
use proptest::prelude::*;

fn access(is_point: bool) -> RandomAccess {
    if is_point { RandomAccess::Point } else { RandomAccess::PICTURE }
}

/// Packet of a simulated stream; its number is its position in decode order.
#[derive(Clone, Copy, Debug)]
struct Picture {
    /// Position in presentation order; also the pts if the container has one.
    shown: i64,
    key: bool,
    has_pts: bool,
    /// True for a leading picture, which refers to the random access point before that of its own
    /// group.
    leading: bool,
    /// Number of frames that the packet yields.
    frames: u32,
}

/// Shape of one group of pictures.
#[derive(Clone, Debug)]
struct Group {
    leading: usize,
    /// Number of frames that each picture after the leading pictures yields; pairs are swapped in
    /// presentation if `swapped` is set.
    later: Vec<u32>,
    swapped: bool,
    key_frames: u32,
}

fn group() -> impl Strategy<Value = Group> {
    let frames = || prop_oneof![8 => Just(1u32), 1 => Just(2), 1 => Just(0)];
    (0..3usize, vec(frames(), 0..8), any::<bool>(), 1..=2u32)
        .prop_map(|(leading, later, swapped, key_frames)| Group { leading, later, swapped, key_frames })
}

/// Number of pictures in the longest group that the strategy makes.
const LONGEST: usize = 1 + 2 + 7;

fn pictures(groups: &[Group], has_pts: bool) -> Vec<Picture> {
    let mut all = Vec::new();
    let mut shown = 0;
    for (number, group) in groups.iter().enumerate() {
        // The first group is closed: there is nothing before it to refer to.
        let leading = if number == 0 { 0 } else { group.leading };
        let picture = |shown, key, leading, frames| Picture { shown, key, has_pts, leading, frames };
        all.push(picture(shown + leading as i64, true, false, group.key_frames));
        for at in 0..leading {
            all.push(picture(shown + at as i64, false, true, 1));
        }
        shown += leading as i64 + 1;
        let swaps = if group.swapped { group.later.len() / 2 * 2 } else { 0 };
        for (at, frames) in group.later.iter().enumerate() {
            let place = if at < swaps { at ^ 1 } else { at };
            all.push(picture(shown + place as i64, false, false, *frames));
        }
        shown += group.later.len() as i64;
    }
    all
}

/// Frame of the simulated decoder: index of its packet, index in the packet, and true if all
/// references were available.
type Frame = (usize, u32, bool);

/// Returns the frames that a reader gets if no worker dies and the packets in `skipped` are
/// skipped: packet and index in the packet, in presentation order.
fn expected(pictures: &[Picture], skipped: &[usize]) -> Vec<(usize, u32)> {
    let mut order: Vec<usize> = (0..pictures.len()).filter(|at| !skipped.contains(at)).collect();
    order.sort_by_key(|at| pictures[*at].shown);
    order.into_iter().flat_map(|at| (0..pictures[at].frames).map(move |nth| (at, nth))).collect()
}

/// Number of pictures in the deepest reordering of the streams: a key picture waits for its leading
/// pictures.
const REORDER: usize = 3;

/// Simulated decoder with frame threads, and reordering after them.
#[derive(Default)]
struct Decoder {
    /// Indices of the packets inside frame threads, oldest first.
    inside: VecDeque<usize>,
    threads: usize,
    /// Pictures that wait to be shown: packet index, and true if all references were available.
    reorder: Vec<(usize, bool)>,
    /// True if the pictures of the present group were intact up to here.
    intact: bool,
    /// True if the group before the present one was intact to its end.
    intact_before: bool,
    last: Option<usize>,
    /// True if damaged pictures are output and not dropped.
    gives_damaged: bool,
    /// True after a poisonous packet was decoded, which kills the worker.
    dead: bool,
}

impl Decoder {
    fn take(&mut self, pictures: &[Picture], poison: &[usize], at: usize) -> Vec<Frame> {
        self.inside.push_back(at);
        let mut out = Vec::new();
        while self.inside.len() > self.threads {
            self.decode(pictures, poison, &mut out);
        }
        out
    }

    fn drain(&mut self, pictures: &[Picture], poison: &[usize]) -> Vec<Frame> {
        let mut out = Vec::new();
        while !self.inside.is_empty() {
            self.decode(pictures, poison, &mut out);
        }
        self.show(pictures, 0, &mut out);
        out
    }

    fn decode(&mut self, pictures: &[Picture], poison: &[usize], out: &mut Vec<Frame>) {
        let Some(at) = self.inside.pop_front() else { return };
        self.dead |= poison.contains(&at);
        let picture = pictures[at];
        // Between two packets taken, only leading pictures may be missing.
        let whole = self.last.is_some_and(|last| pictures[last + 1..at].iter().all(|p| p.leading));
        self.last = Some(at);
        let good = if picture.key {
            self.intact_before = self.intact && whole;
            self.intact = true;
            true
        } else if picture.leading {
            self.intact_before
        } else {
            self.intact &= whole;
            self.intact
        };
        if good || self.gives_damaged {
            self.reorder.push((at, good));
        }
        self.show(pictures, REORDER, out);
    }

    fn show(&mut self, pictures: &[Picture], keep: usize, out: &mut Vec<Frame>) {
        self.reorder.sort_by_key(|(at, _)| pictures[*at].shown);
        while self.reorder.len() > keep {
            let (at, good) = self.reorder.remove(0);
            out.extend((0..pictures[at].frames).map(|nth| (at, nth, good)));
        }
    }
}

/// Disturbances of a simulated run.
#[derive(Clone, Debug, Default)]
struct Trouble {
    /// Lifetimes of the workers, in packets taken; the workers after these do not die at random.
    lives: Vec<usize>,
    /// Indices of the packets that kill every worker which decodes them.
    poison: Vec<usize>,
    threads: usize,
    gives_damaged: bool,
    /// Number of packets that are read ahead of the submitted ones.
    ahead: usize,
    /// True if every packet is flagged as a random access point.
    lying: bool,
}

struct Seen {
    frames: Vec<(usize, u32)>,
    damaged: usize,
    skips: Vec<u64>,
    most_kept: usize,
    log: ReplayLog<usize>,
}

fn run(pictures: &[Picture], trouble: &Trouble) -> Seen {
    let mut seen =
        Seen { frames: Vec::new(), damaged: 0, skips: Vec::new(), most_kept: 0, log: ReplayLog::new(|_| ()) };
    let mut lives = trouble.lives.iter().copied();
    let mut unread = pictures.iter().enumerate();
    let (mut single, mut last_popped, mut futile) = (false, None, 0);
    let mut furthest = 0;
    let mut counts = vec![0u32; pictures.len()];
    'worker: for worker in 0.. {
        assert!(worker < 40 * (pictures.len() + 1), "deaths without end");
        let mut life = lives.next();
        let mut decoder = Decoder {
            threads: if single { 0 } else { trouble.threads },
            gives_damaged: trouble.gives_damaged,
            ..Decoder::default()
        };
        let mut popped = None;
        let mut delivered = 0;
        let mut drained = false;
        while !drained {
            while seen.log.next_unsent().is_none()
                || unread.len() + furthest + trouble.ahead >= pictures.len()
            {
                let Some((at, picture)) = unread.next() else { break };
                seen.log.append(
                    at as u64,
                    picture.has_pts.then_some(picture.shown),
                    access(picture.key || trouble.lying),
                    at,
                );
            }
            seen.most_kept = seen.most_kept.max(seen.log.kept());
            let out = match seen.log.next_unsent() {
                Some(entry) => {
                    let at = *entry.packet();
                    assert_eq!(entry.seq(), at as u64);
                    seen.log.sent();
                    furthest = furthest.max(at);
                    popped = Some(at as u64);
                    decoder.take(pictures, &trouble.poison, at)
                }
                None => {
                    drained = true;
                    decoder.drain(pictures, &trouble.poison)
                }
            };
            // The frames of this step are output, or lost with the worker.
            let killed = match &mut life {
                Some(0) => {
                    // Random deaths do not repeat at one place; repeated ones are poison.
                    delivered > 0 || (popped != last_popped && futile + 2 < FRUITLESS)
                }
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            };
            if decoder.dead || killed {
                futile = if delivered > 0 { 0 } else { futile + 1 };
                last_popped = popped;
                match seen.log.died(popped, single) {
                    RestartPlan::Replay { single_threaded } => single = single_threaded,
                    RestartPlan::Skip { poisoned, .. } => {
                        single = true;
                        seen.skips.push(poisoned);
                    }
                    RestartPlan::GiveUp => panic!("packets were taken"),
                }
                continue 'worker;
            }
            for (at, _, good) in out {
                // Otherwise the frame would count as a protocol violation of the worker.
                assert!(seen.log.get(at as u64).is_some() || counts[at] > 0, "{at} is not known");
                match seen.log.arrived(at as u64) {
                    Arrived::Deliver => {
                        delivered += 1;
                        seen.frames.push((at, counts[at]));
                        counts[at] += 1;
                        seen.damaged += usize::from(!good);
                    }
                    Arrived::AlreadyDelivered => {}
                    Arrived::Withheld => panic!("nothing is withheld behind points"),
                    Arrived::Unknown => panic!("packet {at} was submitted"),
                }
            }
        }
        return seen;
    }
    unreachable!()
}

/// Returns the packets that are lost if the packets in `poison` kill, and among them those that
/// kill. The lost packets are those from each poisonous packet to the next random access point, and
/// the leading pictures of that point.
fn lost(pictures: &[Picture], poison: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let (mut lost, mut kills) = (Vec::new(), Vec::new());
    let (mut skipping, mut resumed) = (false, false);
    for (at, picture) in pictures.iter().enumerate() {
        if picture.key {
            resumed = skipping;
            skipping = false;
        }
        if skipping || (resumed && picture.leading) {
            lost.push(at);
        } else if poison.contains(&at) {
            lost.push(at);
            kills.push(at);
            skipping = true;
        }
    }
    (lost, kills)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn kills_lose_and_repeat_nothing(
        groups in vec(group(), 1..10), lives in vec(0..40usize, 0..30), threads in 0..5usize,
        gives_damaged in any::<bool>(), has_pts in prop::bool::weighted(0.8), ahead in 0..4usize,
    ) {
        let pictures = pictures(&groups, has_pts);
        // Without pts a damaged picture cannot be distinguished from a good one, and only the
        // decoder knows which pictures are leading.
        let gives_damaged = gives_damaged && has_pts;
        let trouble = Trouble { lives, threads, gives_damaged, ahead, ..Trouble::default() };
        let seen = run(&pictures, &trouble);
        prop_assert_eq!(seen.frames, expected(&pictures, &[]));
        prop_assert_eq!((seen.damaged, seen.skips.len(), seen.log.skipped()), (0, 0, 0));
        prop_assert!(seen.most_kept <= 3 * LONGEST + REORDER + threads + ahead + 1, "{}", seen.most_kept);
    }

    /// Checks that false random access points lose nothing while the worker lives, and that after a
    /// death every frame is assigned to a known packet.
    #[test]
    fn points_that_are_none_lose_nothing_without_a_death(
        groups in vec(group(), 1..10), threads in 0..5usize, has_pts in prop::bool::weighted(0.8),
        ahead in 0..4usize, lives in vec(0..40usize, 0..4),
    ) {
        let pictures = pictures(&groups, has_pts);
        let lying = Trouble { threads, ahead, lying: true, ..Trouble::default() };
        let seen = run(&pictures, &lying);
        prop_assert_eq!(seen.frames, expected(&pictures, &[]));
        prop_assert_eq!(seen.log.skipped(), 0);
        run(&pictures, &Trouble { lives, ..lying });
    }

    #[test]
    fn poison_costs_what_hangs_on_it_and_no_more(
        groups in vec(group(), 1..8), picks in vec(any::<prop::sample::Index>(), 1..5),
        threads in 0..5usize, gives_damaged in any::<bool>(), ahead in 0..4usize,
    ) {
        let pictures = pictures(&groups, true);
        let poison: Vec<usize> = picks.iter().map(|pick| pick.index(pictures.len())).collect();
        let (lost, kills) = lost(&pictures, &poison);
        let trouble = Trouble { poison, threads, gives_damaged, ahead, ..Trouble::default() };
        let seen = run(&pictures, &trouble);
        prop_assert_eq!(seen.frames, expected(&pictures, &lost));
        prop_assert_eq!(seen.skips, kills.iter().map(|at| *at as u64).collect::<Vec<_>>());
        prop_assert_eq!(seen.log.skipped(), lost.len() as u64);
        prop_assert_eq!(seen.damaged, 0);
        let leading = lost.iter().filter(|at| pictures[**at].leading).count() as u64;
        prop_assert!(seen.log.skipped_leading() <= leading);
    }
}

#[test]
fn a_stream_in_which_everything_kills_ends() {
    let group = Group { leading: 2, later: vec![1; 5], swapped: true, key_frames: 1 };
    let pictures = pictures(&vec![group; 6], true);
    let poison: Vec<usize> = (0..pictures.len()).collect();
    let seen = run(&pictures, &Trouble { poison, threads: 3, ..Trouble::default() });
    assert_eq!(seen.frames, []);
    assert_eq!(seen.log.skipped(), pictures.len() as u64);
    assert_eq!(seen.skips.len(), 6, "one skip per random access point");
}

#[test]
fn the_history_is_what_follows_the_last_delivered_random_access_point() {
    let mut log = ReplayLog::new(|_| ());
    for seq in 0..30 {
        log.append(seq, Some(seq as i64), access(seq % 10 == 0), ());
        log.sent();
        assert_eq!(log.arrived(seq), Arrived::Deliver);
    }
    assert_eq!(log.kept(), 10);
    assert_eq!(log.died(Some(29), false), RestartPlan::Replay { single_threaded: false });
    assert_eq!(log.next_unsent().map(|entry| (entry.seq(), entry.access())), Some((20, RandomAccess::Point)));
    assert_eq!(log.arrived(20), Arrived::Unknown, "not submitted to this worker");
    log.sent();
    assert_eq!(log.arrived(20), Arrived::AlreadyDelivered);
    assert_eq!(log.arrived(20), Arrived::Deliver, "one frame more than before");
    assert_eq!((log.deaths(), log.replayed()), (1, 1));
}

#[test]
fn blame_needs_the_same_packet_twice_on_one_thread() {
    let mut log = ReplayLog::new(|_| ());
    for seq in 0..8 {
        log.append(seq, Some(seq as i64), access(seq == 0 || seq == 6), ());
    }
    let submit = |log: &mut ReplayLog<()>, count: usize| (0..count).for_each(|_| log.sent());
    submit(&mut log, 6);
    assert_eq!(log.died(Some(5), false), RestartPlan::Replay { single_threaded: false });
    submit(&mut log, 5);
    assert_eq!(log.died(Some(4), false), RestartPlan::Replay { single_threaded: true });
    submit(&mut log, 3);
    assert_eq!(log.died(Some(2), true), RestartPlan::Replay { single_threaded: true });
    submit(&mut log, 4);
    assert_eq!(log.died(Some(3), true), RestartPlan::Replay { single_threaded: true });
    submit(&mut log, 4);
    assert_eq!(log.died(Some(3), true), RestartPlan::Skip { poisoned: 3, next: Some(6) });
    assert_eq!((log.skipped(), log.kept()), (3, 5));

    // Deaths at different packets are tolerated a few times.
    for popped in 0..FRUITLESS as u64 - 1 {
        submit(&mut log, 3);
        assert_eq!(log.died(Some(popped), true), RestartPlan::Replay { single_threaded: true });
    }
    submit(&mut log, 4);
    assert_eq!(log.died(Some(6), true), RestartPlan::Skip { poisoned: 6, next: None });
    log.append(8, Some(8), access(false), ());
    log.append(9, Some(9), access(true), ());
    assert_eq!((log.skipped(), log.kept()), (6, 4));
}

#[test]
fn a_stream_that_cannot_be_opened_is_given_up() {
    let mut log = ReplayLog::new(|_| ());
    log.append(0, None, access(true), ());
    for death in 1..UNOPENED {
        assert_eq!(log.died(None, false), RestartPlan::Replay { single_threaded: death > 1 });
    }
    // A worker cannot have taken a packet that was not submitted to it.
    assert_eq!(log.died(Some(0), true), RestartPlan::GiveUp);
}

/// Returns the log of a stream whose second and third group begin at packets 2 and 6. Packet 2 is
/// shown after its leading pictures 3 and 4.
fn open_group() -> ReplayLog<()> {
    let mut log = ReplayLog::new(|_| ());
    for (seq, pts) in [0, 1, 4, 2, 3, 5, 6, 7].into_iter().enumerate() {
        log.append(seq as u64, Some(pts), access([0, 2, 6].contains(&seq)), ());
        log.sent();
    }
    log
}

fn start(log: &mut ReplayLog<()>) -> Option<u64> {
    log.died(None, false);
    log.next_unsent().map(|entry| entry.seq())
}

#[test]
fn leading_pictures_hold_the_start_back_even_where_the_key_was_shown_too_early() {
    for (shown, from) in [
        (&[0, 1, 2][..], 0),
        (&[0, 1, 2, 3], 0),
        (&[0, 1, 2, 5], 0),
        (&[0, 1, 3, 4, 2], 0),
        (&[0, 1, 3, 4, 2, 5], 2),
        (&[0, 1, 3, 4, 2, 5, 6], 2),
        (&[0, 1, 3, 4, 2, 5, 6, 7], 6),
        // Two packets yield nothing: the next key proves it.
        (&[0, 1, 2, 5, 6], 2),
    ] {
        let mut log = open_group();
        for seq in shown {
            assert_eq!(log.arrived(*seq), Arrived::Deliver);
        }
        assert_eq!(start(&mut log), Some(from), "{shown:?}");
    }
}

#[test]
fn packets_without_output_have_none_in_a_replay() {
    let mut log = open_group();
    for seq in [0, 1, 2, 5, 6] {
        log.arrived(seq);
    }
    assert_eq!(start(&mut log), Some(2));
    (0..log.kept()).for_each(|_| log.sent());
    let answers = [3, 4, 2, 5, 6, 7, 1, 8].map(|seq| log.arrived(seq));
    use Arrived::{AlreadyDelivered as Old, Deliver as New, Unknown};
    assert_eq!(answers, [Old, Old, Old, Old, Old, New, Old, Unknown]);

    // The packets also have no output after the whole replay was sent.
    let mut log = open_group();
    for seq in [0, 1, 2, 5, 6] {
        log.arrived(seq);
    }
    assert_eq!(start(&mut log), Some(2));
    log.append(8, Some(8), RandomAccess::Point, ());
    (0..log.kept()).for_each(|_| log.sent());
    let answers = [2, 5, 6, 7, 8, 3].map(|seq| log.arrived(seq));
    assert_eq!((answers, log.kept()), ([Old, Old, Old, New, New, Old], 3));

    // The frames are new for the worker that output them too late, trimmed or not.
    let mut log = open_group();
    let answers = [0, 1, 2, 5, 6, 3, 1].map(|seq| log.arrived(seq));
    assert_eq!(answers, [New; 7]);
}

#[test]
fn packets_never_taken_by_a_dead_worker_are_kept() {
    let mut log = ReplayLog::new(|_| ());
    for seq in 0..6 {
        log.append(seq, Some(seq as i64), access(true), ());
        log.sent();
    }
    assert_eq!(log.arrived(0), Arrived::Deliver);
    // The worker had taken up to 2, and gave 0.
    let lost = log.abandon(Some(2));
    assert_eq!((lost.count, lost.first), (2, Some(1)));
    assert_eq!(log.next_unsent().map(|entry| entry.seq()), Some(3));
    for seq in 3..6 {
        assert_eq!(log.next_unsent().map(|entry| entry.seq()), Some(seq));
        assert_eq!(log.arrived(seq), Arrived::Unknown);
        log.sent();
        assert_eq!(log.arrived(seq), Arrived::Deliver);
    }
    // A worker that took nothing loses nothing, nor does a number that it never had.
    for popped in [None, Some(99)] {
        let mut log = ReplayLog::new(|_| ());
        log.append(7, Some(0), access(true), ());
        log.sent();
        assert_eq!((log.abandon(popped).count, log.kept()), (0, 1));
        assert_eq!(log.next_unsent().map(|entry| entry.seq()), Some(7));
    }
}

#[test]
fn frames_that_a_reversing_stage_has_not_output_are_lost() {
    let taken = |outputs: &[u64]| {
        let mut log = ReplayLog::new(|_| ());
        for seq in 0..10 {
            log.append(seq, Some(seq as i64), access(true), ());
            log.sent();
        }
        for seq in outputs {
            assert_eq!(log.arrived(*seq), Arrived::Deliver);
        }
        log.abandon(Some(9)).count
    };
    assert_eq!(taken(&[9, 8, 7]), 7);
    // A stage that leaves frames out: only those behind its last output may come.
    assert_eq!(taken(&[0, 3, 6]), 3);
}

/// Checks a file that is looped: times restart at a key picture, and the pictures after the restart
/// are no leading pictures of the key picture before it.
#[test]
fn frames_of_a_repeated_file_are_delivered_after_a_death() {
    let mut log = ReplayLog::new(|_| ());
    let mut next = 0;
    let mut send = |log: &mut ReplayLog<u64>, until: u64| {
        while next < until {
            log.append(next, Some((next % 20) as i64), access(next % 10 == 0), next);
            log.sent();
            next += 1;
        }
    };
    // The worker is fifteen packets ahead of its frames.
    for seq in 0..22 {
        send(&mut log, seq + 16);
        assert_eq!(log.arrived(seq), Arrived::Deliver);
    }
    assert!(matches!(log.died(Some(36), false), RestartPlan::Replay { .. }));
    let mut delivered = Vec::new();
    while let Some(entry) = log.next_unsent() {
        let seq = entry.seq();
        log.sent();
        match log.arrived(seq) {
            Arrived::Deliver => delivered.push(seq),
            Arrived::AlreadyDelivered => assert!(seq < 22, "{seq}"),
            other => panic!("{seq} {other:?}"),
        }
    }
    assert_eq!((delivered, log.skipped()), ((22..37).collect(), 0));
}

#[test]
fn every_packet_is_kept_again_behind_the_second_key_after_a_skip() {
    let mut log = ReplayLog::new(|_| ());
    (0..4).for_each(|seq| log.append(seq, Some(seq as i64), access(seq == 0), ()));
    (0..4).for_each(|_| log.sent());
    assert!(log.takes_all());
    log.died(Some(1), false);
    (0..4).for_each(|_| log.sent());
    assert_eq!(log.died(Some(1), true), RestartPlan::Skip { poisoned: 1, next: None });
    assert!(!log.takes_all());
    log.append(4, Some(4), access(false), ());
    log.append(5, Some(9), access(true), ());
    assert!(!log.takes_all(), "leading pictures are dropped");
    log.append(6, Some(8), access(false), ());
    log.append(7, Some(20), access(true), ());
    assert!(log.takes_all());
    assert_eq!((log.kept(), log.skipped()), (3, 5));
}

#[test]
fn the_last_packet_that_a_worker_had_is_one_that_was_submitted_to_it() {
    let mut log = ReplayLog::new(|_| ());
    (0..4).for_each(|cell| log.append(10 + cell, None, access(cell == 0), cell));
    (0..3).for_each(|_| log.sent());
    assert_eq!(log.last_submitted(|cell| *cell < 2), Some(11));
    assert_eq!(log.last_submitted(|_| true), Some(12));
    assert_eq!(log.last_submitted(|_| false), None);
}

/// Times restart at packet 3. Behind the restart, packet 5 is shown before packet 4.
#[test]
fn a_flush_counts_what_is_owed_behind_a_restart_of_times() {
    for (frames, owed) in
        [(&[0, 2][..], 4), (&[0, 2, 1], 3), (&[0, 2, 1, 3], 2), (&[0, 2, 3], 2), (&[0, 2, 3, 5], 1)]
    {
        let mut log = ReplayLog::new(|_| ());
        for (seq, pts) in [(0, 100), (1, 102), (2, 101), (3, 0), (4, 2), (5, 1)] {
            log.append(seq, Some(pts), access(seq == 0 || seq == 3), ());
            log.sent();
        }
        frames.iter().for_each(|seq| assert_eq!(log.arrived(*seq), Arrived::Deliver));
        assert_eq!(log.flush(), owed, "{frames:?}");
    }
}

#[test]
fn a_flush_forgets_what_was_given_and_counts_what_was_owed() {
    let mut log = ReplayLog::new(|_| ());
    for (seq, pts) in [(0, 0), (1, 3), (2, 1), (3, 2)] {
        log.append(seq, Some(pts), access(seq == 0), ());
        log.sent();
    }
    for seq in [0, 2] {
        assert_eq!(log.arrived(seq), Arrived::Deliver);
    }
    // Packets 1 and 3 are shown after the delivered ones.
    assert_eq!((log.flush(), log.kept(), log.skipped()), (2, 0, 0));
    log.append(5, Some(100), access(true), ());
    log.sent();
    // A worker that dies right after it has only that packet to repeat.
    assert_eq!(log.died(Some(5), false), RestartPlan::Replay { single_threaded: false });
    assert_eq!(log.next_unsent().map(|entry| entry.seq()), Some(5));
    log.sent();
    assert_eq!(log.arrived(5), Arrived::Deliver);
    assert_eq!((log.arrived(0), log.replayed()), (Arrived::AlreadyDelivered, 1));
}
