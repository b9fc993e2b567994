// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations that safe code must not get, in release builds too: a slice of memory that another
//! process can write, and more handles than a counter can hold.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::crossing::{owner_of, words};
use super::*;
use crate::memory::mapping::Mapping;
use framepath_model::stream::FrameMeta;

fn lent_pool() -> (Pool, &'static GiveBack, GiveBackWords<'static>) {
    let shared = words(4);
    let give_back = owner_of(shared);
    let map =
        |_, bytes| Mapping::new(bytes, false).map_err(|(call, errno)| PoolError::Os { call, bytes, errno });
    let pool = Pool::from_peer_memory(64, 2, give_back, map).unwrap();
    (pool, give_back, shared)
}

#[test]
fn lent_memory_is_never_a_slice() {
    let (mut pool, give_back, shared) = lent_pool();
    shared.give_back(0);
    shared.give_back(1);
    assert!(matches!(pool.acquire(), Err(PoolError::PeerOwned)));
    let hold = pool.acquire_hold().unwrap();
    let frame = hold.frame(&Layout::opaque(64), FrameMeta::default()).unwrap();
    assert!(frame.plane(0).as_stable().is_none());
    drop(hold);
    assert!(frame.is_only());
    let frame = frame.try_unique().expect_err("its owner may write it");
    assert_eq!(frame.plane(0).to_vec(), [0; 64]);
    drop(frame);
    drop([pool.acquire_hold().unwrap(), pool.acquire_hold().unwrap()]);
    assert_eq!((give_back.exported(), give_back.breaches()), (0, 0));
}

/// The count of readers has 16 bits. An additional handle is rejected, and the count is unchanged
/// for a caller that catches the panic.
#[test]
#[cfg_attr(miri, ignore = "65,536 handles take minutes")]
fn a_handle_too_many_is_refused_and_not_counted() {
    let mut pool = Pool::new(64, 1).unwrap();
    // Closed, so that a lost slot shows as an error, not as a hang.
    pool.closer().close();
    let own = pool.acquire().unwrap().freeze(FrameMeta::default());
    let hold_and_boxed = |pool: &mut Pool| {
        let hold = pool.acquire_hold().unwrap();
        hold.frame(&Layout::opaque(64), FrameMeta::default()).unwrap()
    };
    let too_many = |frame: Frame| {
        let frames: Vec<Frame> = (1..FRAMES).map(|_| frame.share()).collect();
        for _ in 0..3 {
            assert!(catch_unwind(AssertUnwindSafe(|| frame.share())).is_err());
        }
        drop(frames);
        assert!(frame.is_only());
    };
    too_many(own);
    let boxed = hold_and_boxed(&mut pool);
    too_many(boxed);
    drop(pool.acquire().expect("the slot came back"));
}

#[test]
#[should_panic = "a foreign frame has no pool"]
fn a_foreign_place_has_no_pool() {
    let memory = [0u8; 8];
    let first = NonNull::from(&memory).cast();
    let place = FrameTarget::foreign(0, first, FrameMeta::default());
    let _ = place.pool_slots();
}

/// The pool's table of layouts grows while older frames point to layouts in the table.
#[test]
fn layouts_stay_where_they_are_while_others_come() {
    let mut pool = Pool::new(4096, 8).unwrap();
    let frames: Vec<Frame> = (1..8)
        .map(|bytes| {
            let mut frame = pool.acquire().unwrap();
            frame.set_layout(&Layout::opaque(bytes)).unwrap();
            frame.plane_mut(0).fill(bytes as u8);
            frame.freeze(FrameMeta::default())
        })
        .collect();
    for (frame, bytes) in frames.iter().zip(1..) {
        assert_eq!(frame.plane(0).as_stable(), Some(vec![bytes as u8; bytes].as_slice()));
    }
}
