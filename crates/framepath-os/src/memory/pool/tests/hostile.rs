// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with a hostile reader in another process, which writes arbitrary values to the shared words.

use super::crossing::{owner_of, words};
use super::*;
use framepath_model::stream::FrameMeta;
use proptest::prelude::*;

const SLOTS: u32 = 3;

/// Next action of the test, of this side (the pool's owner) or of the other side (the reader).
#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire,
    /// Drops a frame. The number selects one of the frames that this side has, here and below.
    Drop(usize),
    /// Exports the only handle to a frame.
    Export(usize),
    /// Exports a second handle to a frame and keeps the first.
    ExportShared(usize),
    Collect,
    /// The other side returns the slot with this number, even a slot that it does not have.
    GiveBack(u32),
    /// The other side overwrites the count of a slot: number of the slot, new value.
    Count(usize, u32),
    /// The other side overwrites a word of the summary: index of the word, new value.
    Summary(usize, u64),
    /// The other side overwrites the flag of the sleeping owner with this value.
    Waits(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let odd = prop_oneof![0..4u32, any::<u32>()];
    prop_oneof![
        8 => Just(Step::Acquire),
        2 => any::<usize>().prop_map(Step::Drop),
        4 => any::<usize>().prop_map(Step::Export),
        2 => any::<usize>().prop_map(Step::ExportShared),
        1 => Just(Step::Collect),
        4 => (0..80u32).prop_map(|slot| Step::GiveBack(slot % (SLOTS + 2))),
        2 => (0..70usize, odd.clone()).prop_map(|(slot, value)| Step::Count(slot % 5, value)),
        2 => (0..2usize, any::<u64>()).prop_map(|(word, bits)| Step::Summary(word, bits)),
        1 => odd.prop_map(Step::Waits),
    ]
}

proptest! {
    /// For every value that the other side writes to the words: the pool takes no slot while this side
    /// has a handle to the slot, or before the slot was returned as often as it was exported. No call
    /// panics or hangs.
    #[test]
    #[cfg_attr(miri, ignore = "too slow, and it wants a directory")]
    fn a_hostile_reader_gets_no_slot_written_that_it_did_not_give_back(
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let counts: &'static [AtomicU32] = (0..70).map(|_| AtomicU32::new(0)).collect::<Vec<_>>().leak();
        let summary: &'static [_] = (0..2).map(|_| crate::sync::atomics::AtomicU64::new(0)).collect::<Vec<_>>().leak();
        let waits = Box::leak(Box::new(AtomicU32::new(0)));
        let shared = GiveBackWords::new(waits, summary, counts).unwrap();
        let give_back = owner_of(shared);
        let mut pool = Pool::new_shared(64, SLOTS, give_back).unwrap();
        // Closed, so that an owner without slots returns an error instead of sleeping forever.
        pool.closer().close();
        let mut frames: Vec<(Frame, u8)> = Vec::new();
        let mut exported = [0u64; SLOTS as usize];
        // For each slot, upper bound of the number of times that the other side may have returned it.
        let mut returned = [0u64; 70];
        let mut stamp = 0u8;
        for step in steps {
            match step {
                Step::Acquire => match pool.acquire() {
                    Ok(mut frame) => {
                        let slot = frame.slot() as usize;
                        prop_assert!(frames.iter().all(|(f, _)| f.slot() as usize != slot));
                        prop_assert!(exported[slot] <= returned[slot], "{exported:?} {returned:?}");
                        returned[slot] -= exported[slot];
                        exported[slot] = 0;
                        stamp = stamp.wrapping_add(1);
                        frame.plane_mut(0).fill(stamp);
                        frames.push((frame.freeze(FrameMeta::default()), stamp));
                    }
                    Err(error) => prop_assert!(matches!(error, PoolError::Closed)),
                },
                Step::Drop(n) if !frames.is_empty() => drop(frames.swap_remove(n % frames.len())),
                Step::Export(n) if !frames.is_empty() => {
                    let (frame, _) = frames.swap_remove(n % frames.len());
                    exported[frame.export().unwrap().slot as usize] += 1;
                }
                Step::ExportShared(n) if !frames.is_empty() => {
                    let frame = frames[n % frames.len()].0.share();
                    exported[frame.export().unwrap().slot as usize] += 1;
                }
                Step::Drop(_) | Step::Export(_) | Step::ExportShared(_) => {}
                Step::Collect => give_back.collect(),
                Step::GiveBack(slot) => {
                    shared.give_back(slot);
                    returned[slot as usize] += 1;
                }
                Step::Count(slot, value) => {
                    counts[slot].store(value, Ordering::Relaxed);
                    returned[slot] += u64::from(value);
                }
                Step::Summary(word, bits) => summary[word].store(bits, Ordering::Relaxed),
                Step::Waits(value) => waits.store(value, Ordering::Relaxed),
            }
            for (frame, stamp) in &frames {
                let written = [*stamp; 64];
                prop_assert_eq!(frame.plane(0).as_stable(), Some(&written[..]));
            }
        }
    }
}

/// The other side returns random slots continuously while the owner waits, sleeps and is woken. Most of
/// these returns are invalid; the valid returns still reach the owner.
#[test]
fn an_owner_gets_on_while_its_words_are_overwritten() {
    use std::sync::atomic::AtomicBool;
    let rounds = if cfg!(miri) { 5 } else { 500 };
    let shared = words(64);
    let give_back = owner_of(shared);
    let mut pool = Pool::new_shared(64, 2, give_back).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0u32;
            // Relaxed: the loop only has to end eventually.
            while !done.load(Ordering::Relaxed) {
                n = n.wrapping_mul(0x9e37_79b9).wrapping_add(1);
                shared.give_back(n % 64);
                std::thread::yield_now();
            }
        });
        for _ in 0..rounds {
            let mut frame = pool.acquire().unwrap();
            frame.plane_mut(0).fill(1);
            let frame = frame.freeze(FrameMeta::default());
            let kept = frame.share();
            frame.export().unwrap();
            assert_eq!(kept.plane(0).as_stable(), Some(&[1; 64][..]));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(give_back.breaches() > 0);
}
