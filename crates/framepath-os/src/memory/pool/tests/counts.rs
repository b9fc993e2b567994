// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of slots, and the right to write.

use super::*;
use framepath_model::format::PixelFormat;
use framepath_model::stream::FrameMeta;

/// Number of times that a test repeats a race; fewer under Miri.
const ROUNDS: u32 = if cfg!(miri) { 15 } else { 200 };

#[test]
fn a_dropped_frame_goes_back_and_is_used_first() {
    let mut pool = Pool::new(100, 3).unwrap();
    let first = pool.acquire().unwrap();
    let address = first.inner_ptr();
    drop(first);
    let mut out: Vec<_> = (0..3).map(|_| pool.acquire().unwrap()).collect();
    let addresses: std::collections::HashSet<_> = out.iter().map(FrameMut::inner_ptr).collect();
    assert_eq!(addresses.len(), 3);
    assert!(addresses.contains(&address));
    out[0].plane_mut(0).fill(9);
    drop(out.remove(1));
    assert!(pool.acquire().is_ok());
}

#[test]
fn a_picture_gets_the_slot_that_was_returned_last() {
    let mut pool = Pool::new(SMALL_SLOT + 1, 4).unwrap();
    let [a, b, c] = [(); 3].map(|()| pool.acquire().unwrap());
    let [of_b, of_c] = [&b, &c].map(FrameMut::inner_ptr);
    drop(a);
    drop(b);
    let again = pool.acquire().unwrap();
    assert_eq!(again.inner_ptr(), of_b);
    // The owner has the slot of `a` already, but that of `c` was used more recently.
    drop(c);
    assert_eq!(pool.acquire().unwrap().inner_ptr(), of_c);
}

#[test]
fn a_slot_is_reused_only_when_hold_and_frame_let_go() {
    let mut pool = Pool::new(4096, 1).unwrap();
    let layout = Layout::packed(PixelFormat::Grey, 64, 64).unwrap();
    let hold = pool.acquire_hold().unwrap();
    let frame = hold.frame(&layout, FrameMeta::default()).unwrap();
    drop(hold);
    let twin = frame.share();
    let frame = frame.try_unique().expect_err("two readers");
    drop(twin);
    let unique = frame.try_unique().expect("the only reader");
    drop(unique);
    let hold = pool.acquire_hold().unwrap();
    let frame = hold.frame(&layout, FrameMeta::default()).unwrap();
    let frame = frame.try_unique().expect_err("the decoder still reads it");
    drop(frame);
    assert!(matches!(pool.acquire(), Err(PoolError::Starved { slots: 1 })));
    drop(hold);
    assert!(pool.acquire().is_ok());
}

#[test]
fn an_empty_pool_waits_for_a_reader_on_another_thread() {
    let mut pool = Pool::new(64, 2).unwrap();
    for round in 0..ROUNDS {
        let frames = [pool.acquire().unwrap(), pool.acquire().unwrap()];
        let reader = std::thread::spawn(move || {
            if round % 2 == 0 {
                std::thread::yield_now();
            }
            drop(frames);
        });
        let again = pool.acquire().unwrap();
        let and_again = pool.acquire().unwrap();
        drop((again, and_again));
        reader.join().unwrap();
    }
}

#[test]
fn a_waiting_owner_learns_that_the_last_reader_left_only_holds() {
    let mut pool = Pool::new(64, 1).unwrap();
    let hold = pool.acquire_hold().unwrap();
    let frame = hold.frame(&Layout::opaque(64), FrameMeta::default()).unwrap();
    let reader = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(10));
        drop(frame);
    });
    assert!(matches!(pool.acquire(), Err(PoolError::Starved { slots: 1 })));
    reader.join().unwrap();
    drop(hold);
}

/// A reader that returned its slot may still check for a sleeper to wake when the owner has used this slot
/// and dropped the pool. Memory checkers detect an access to freed memory.
#[test]
fn a_pool_closes_while_its_readers_let_go() {
    for round in 0..ROUNDS {
        let mut pool = Pool::new(64, 2).unwrap();
        let frames = [pool.acquire().unwrap(), pool.acquire().unwrap()];
        let readers = frames.map(|frame| std::thread::spawn(move || drop(frame)));
        if round % 2 == 0 {
            drop(pool.acquire().unwrap());
        }
        drop(pool);
        for reader in readers {
            reader.join().unwrap();
        }
    }
}

#[test]
fn frames_outlive_their_pool() {
    let mut pool = Pool::new(8192, 2).unwrap();
    let mut writable = pool.acquire().unwrap();
    writable.plane_mut(0)[8191] = 5;
    let frame = writable.freeze(FrameMeta { seq: 7, ..Default::default() });
    let other = pool.acquire().unwrap();
    drop(pool);
    assert_eq!((frame.meta().seq, frame.plane(0).to_vec()[8191]), (7, 5));
    drop(other);
    assert_eq!(frame.row(0, 0).len(), 8192);
}

#[test]
fn layouts_larger_than_the_slot_are_refused() {
    let mut pool = Pool::new(4096, 1).unwrap();
    let mut frame = pool.acquire().unwrap();
    assert!(frame.set_layout(&Layout::packed(PixelFormat::Rgba, 64, 64).unwrap()).is_err());
    frame.set_layout(&Layout::packed(PixelFormat::Nv12, 32, 32).unwrap()).unwrap();
    assert_eq!(frame.plane_mut(1).len(), 32 * 16);
}

#[test]
#[cfg(not(miri))]
fn the_memory_is_sealed() {
    use rustix::fs::SealFlags;
    let pool = Pool::new(4096, 2).unwrap();
    // SAFETY: nothing is written through it.
    let fd = unsafe { pool.memfd() }.unwrap();
    let seals = rustix::fs::fcntl_get_seals(fd).unwrap();
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
    assert!(rustix::fs::ftruncate(fd, 0).is_err());
}

#[test]
fn impossible_pools_are_refused() {
    assert!(matches!(Pool::new(0, 4), Err(PoolError::Size { .. })));
    assert!(matches!(Pool::new(10, 0), Err(PoolError::Size { .. })));
    assert!(matches!(Pool::new(usize::MAX, 2), Err(PoolError::Size { .. })));
}
