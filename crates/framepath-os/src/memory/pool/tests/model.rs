// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pool under the model checker: an owner waits while other threads return slots. A lost
//! wake-up ends the model as a livelock.

use super::*;
use framepath_model::stream::FrameMeta;

fn check(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(3));
    model.check(f);
}

#[test]
fn a_waiting_owner_gets_the_slot_that_two_readers_let_go_at_once() {
    check(|| {
        let mut pool = Pool::new(64, 1).unwrap();
        let frame = pool.acquire().unwrap().freeze(FrameMeta::default());
        let readers = [frame.share(), frame].map(|frame| loom::thread::spawn(move || drop(frame)));
        drop(pool.acquire().expect("nobody holds a reference"));
        drop(pool);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn a_waiting_owner_learns_that_only_holds_are_left() {
    check(|| {
        let mut pool = Pool::new(64, 1).unwrap();
        let hold = pool.acquire_hold().unwrap();
        let frame = hold.frame(&Layout::opaque(64), FrameMeta::default()).unwrap();
        let reader = loom::thread::spawn(move || drop(frame));
        assert!(matches!(pool.acquire(), Err(PoolError::Starved { slots: 1 })));
        drop(hold);
        drop(pool.acquire().unwrap());
        reader.join().unwrap();
    });
}

#[test]
fn a_hold_and_a_frame_let_go_at_once_give_the_slot_back() {
    check(|| {
        let mut pool = Pool::new(64, 2).unwrap();
        let hold = pool.acquire_hold().unwrap();
        let frame = hold.frame(&Layout::opaque(64), FrameMeta::default()).unwrap();
        let kept = pool.acquire().unwrap();
        let reader = loom::thread::spawn(move || drop(frame));
        let decoder = loom::thread::spawn(move || drop(hold));
        drop(pool.acquire().unwrap());
        drop((pool, kept));
        reader.join().unwrap();
        decoder.join().unwrap();
    });
}

fn words() -> GiveBackWords<'static> {
    let counts: &[_] = Box::leak(Box::new([AtomicU32::new(0)]));
    let summary: &[_] = Box::leak(Box::new([crate::sync::atomics::AtomicU64::new(0)]));
    GiveBackWords::new(Box::leak(Box::new(AtomicU32::new(0))), summary, counts).unwrap()
}

#[test]
fn a_waiting_owner_gets_the_slot_that_another_process_gives_back() {
    check(|| {
        let words = words();
        let give_back = Box::leak(Box::new(GiveBack::new(words)));
        let mut pool = Pool::new_shared(64, 1, give_back).unwrap();
        let slot = pool.acquire().unwrap().freeze(FrameMeta::default()).export().unwrap().slot;
        let reader = loom::thread::spawn(move || words.give_back(slot));
        drop(pool.acquire().expect("it comes back"));
        reader.join().unwrap();
        assert_eq!((give_back.exported(), give_back.breaches()), (0, 0));
    });
}

#[test]
fn a_waiting_owner_sees_both_returns_of_a_slot_exported_twice() {
    check(|| {
        let words = words();
        let give_back = Box::leak(Box::new(GiveBack::new(words)));
        let mut pool = Pool::new_shared(64, 1, give_back).unwrap();
        let frame = pool.acquire().unwrap().freeze(FrameMeta::default());
        let slots = [frame.share().export().unwrap().slot, frame.export().unwrap().slot];
        let readers = slots.map(|slot| loom::thread::spawn(move || words.give_back(slot)));
        drop(pool.acquire().expect("it comes back"));
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!((give_back.exported(), give_back.breaches()), (0, 0));
    });
}

#[test]
fn a_waiting_owner_learns_that_it_is_closed() {
    check(|| {
        let mut pool = Pool::new(64, 1).unwrap();
        let frame = pool.acquire().unwrap();
        let closer = pool.closer();
        let other = loom::thread::spawn(move || closer.close());
        assert!(matches!(pool.acquire(), Err(PoolError::Closed)));
        other.join().unwrap();
        drop(frame);
    });
}
