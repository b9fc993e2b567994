// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that are exported, read through a second mapping, and returned.

use std::sync::{Arc, Mutex};

use super::*;
use crate::sync::atomics::AtomicU64;
use framepath_model::stream::FrameMeta;

/// Number of times that a test repeats a race; fewer under Miri.
const ROUNDS: u32 = if cfg!(miri) { 15 } else { 200 };

/// Owner's sides of all tests. They are never freed; this list keeps them reachable, so that memory
/// checkers report no leak.
static KEPT: Mutex<Vec<&GiveBack>> = Mutex::new(Vec::new());

/// Makes the owner's side of `words`, which is never freed, and adds it to [`KEPT`].
pub(super) fn owner_of(words: GiveBackWords<'static>) -> &'static GiveBack {
    let give_back: &GiveBack = Box::leak(Box::new(GiveBack::new(words)));
    KEPT.lock().unwrap().push(give_back);
    give_back
}

/// Makes the words by which `slots` slots are returned, all 0: a count and a bit for each slot, and the
/// owner's wait word. They are never freed; both sides of a test use them.
pub(super) fn words(slots: u32) -> GiveBackWords<'static> {
    let counts: Vec<_> = (0..slots).map(|_| AtomicU32::new(0)).collect();
    let summary: Vec<_> = (0..GiveBackWords::summary_words(slots)).map(|_| AtomicU64::new(0)).collect();
    let waits = Box::leak(Box::new(AtomicU32::new(0)));
    GiveBackWords::new(waits, summary.leak(), counts.leak()).unwrap()
}

/// Reader that replaces, in this process, a reader in another one.
struct Reader(GiveBackWords<'static>);

impl Returns for Reader {
    fn give_back(&self, slot: u32) {
        self.0.give_back(slot);
    }
}

fn both_sides(slots: u32) -> (&'static GiveBack, Arc<Reader>) {
    let words = words(slots);
    (owner_of(words), Arc::new(Reader(words)))
}

/// Returns the pool of `frame`, mapped a second time as another process would map it. The frames of the
/// result are returned through `reader`.
#[cfg(not(miri))]
fn mapped(frame: &Frame, reader: Arc<Reader>) -> ForeignPool {
    let PoolMemory { fd, slot_bytes, slots, first_slot, .. } = frame.read_only_memory().unwrap();
    ForeignPool::new(fd, slot_bytes, slots, first_slot, reader).unwrap()
}

/// Replacement under Miri, which has no mappings: a pool of four slots of 8192 zeroed bytes. Its pixels
/// are not those of `frame`.
#[cfg(miri)]
fn mapped(frame: &Frame, reader: Arc<Reader>) -> ForeignPool {
    let _ = frame;
    ForeignPool::of(crate::memory::mapping::ReadOnly::zeroed(4 * 8192), 8192, 4, 0, reader)
}

fn written(pool: &mut Pool, value: u8) -> Frame {
    let mut frame = pool.acquire().unwrap();
    frame.plane_mut(0).fill(value);
    frame.freeze(FrameMeta::default())
}

#[test]
fn pixels_cross_and_the_last_handle_gives_the_slot_back_once() {
    let (give_back, reader) = both_sides(4);
    let mut pool = Pool::new_shared(8192, 1, give_back).unwrap();
    let own = written(&mut pool, 7);
    let (layout, foreign) = (*own.layout(), mapped(&own, reader));
    assert!(own.plane(0).as_stable().is_some() && !own.is_foreign());
    let exported = own.export().unwrap();
    let meta = FrameMeta { seq: 3, ..FrameMeta::default() };
    let frame = foreign.frame(exported.slot, &layout, meta).unwrap();
    assert!(frame.is_foreign() && frame.plane(0).as_stable().is_none());
    assert_eq!((frame.meta().seq, *frame.layout(), frame.slot()), (3, layout, 0));
    assert_ne!(frame.pool_id(), exported.pool);
    if cfg!(not(miri)) {
        assert_eq!(frame.plane(0).to_vec(), [7; 8192]);
    }
    let mut looks = Vec::new();
    frame.plane(0).sub(5..8191).visit(|bytes| looks.push(bytes.len()));
    assert_eq!(looks, [4096, 8186 - 4096]);
    let frame = frame.try_unique().expect_err("another process owns it");
    let frame = frame.export().expect_err("not of a pool of this process");
    let twin = frame.share();
    drop(frame);
    give_back.collect();
    assert_eq!(give_back.exported(), 1);
    std::thread::spawn(move || drop(twin)).join().unwrap();
    assert!(pool.acquire().is_ok());
    assert_eq!((give_back.exported(), give_back.breaches()), (0, 0));
}

#[test]
fn a_slot_exported_twice_is_kept_until_it_came_back_twice() {
    let (give_back, reader) = both_sides(4);
    let mut pool = Pool::new_shared(64, 1, give_back).unwrap();
    let hold = pool.acquire_hold().unwrap();
    let frame = || hold.frame(&Layout::opaque(64), FrameMeta::default()).unwrap();
    let slots = [frame(), frame()].map(|frame| frame.export().unwrap().slot);
    assert_eq!(slots[0], slots[1]);
    reader.give_back(slots[0]);
    give_back.collect();
    assert_eq!(give_back.exported(), 1);
    reader.give_back(slots[0]);
    // Only the decoder has the slot now. The pool has to detect that and not wait.
    assert!(matches!(pool.acquire(), Err(PoolError::Starved { slots: 1 })));
    drop(hold);
    assert!(pool.acquire().is_ok());
    assert_eq!(give_back.breaches(), 0);
}

#[test]
fn a_sleeping_owner_is_woken_from_either_side() {
    let (give_back, reader) = both_sides(4);
    let mut pool = Pool::new_shared(64, 2, give_back).unwrap();
    for round in 0..ROUNDS {
        let (exported, local) = (written(&mut pool, 1).export().unwrap(), written(&mut pool, 2));
        let reader = reader.clone();
        let other = std::thread::spawn(move || {
            if round % 2 == 0 {
                std::thread::yield_now();
            }
            reader.give_back(exported.slot);
            drop(local);
        });
        drop([pool.acquire().unwrap(), pool.acquire().unwrap()]);
        other.join().unwrap();
    }
    assert_eq!(give_back.breaches(), 0);
}

#[test]
fn frames_outlive_both_pools() {
    let (give_back, reader) = both_sides(4);
    let mut pool = Pool::new_shared(4096, 2, give_back).unwrap();
    let own = written(&mut pool, 9);
    let (layout, foreign) = (*own.layout(), mapped(&own, reader.clone()));
    let frame = foreign.frame(own.export().unwrap().slot, &layout, FrameMeta::default()).unwrap();
    drop((pool, foreign));
    if cfg!(not(miri)) {
        assert_eq!(frame.plane(0).to_vec(), [9; 4096]);
    }
    drop(frame);
    give_back.collect();
    assert_eq!((give_back.exported(), give_back.breaches()), (0, 0));
    assert_eq!(Arc::strong_count(&reader), 1);
}

#[test]
fn pools_that_follow_each_other_have_numbers_of_their_own() {
    let (give_back, reader) = both_sides(8);
    let mut old = Pool::new_shared(64, 4, give_back).unwrap();
    let first = written(&mut old, 0).export().unwrap();
    drop(old);
    let mut new = Pool::new_shared(64, 4, give_back).unwrap();
    let second = written(&mut new, 0).export().unwrap();
    assert_eq!((first.slot, second.slot), (0, 4));
    assert_ne!(first.pool, second.pool);
    let full = Pool::new_shared(64, 1, give_back).unwrap_err();
    assert!(matches!(full, PoolError::NoNumbers { slots: 1 }));
    // The old pool ends with its last frame, and its numbers are free.
    reader.give_back(first.slot);
    let mut third = Pool::new_shared(64, 3, give_back).unwrap();
    assert_eq!(written(&mut third, 0).export().unwrap().slot, 0);
    assert_eq!((give_back.exported(), give_back.breaches()), (2, 0));
}

#[test]
fn more_than_was_exported_is_ignored_and_counted() {
    let (give_back, reader) = both_sides(70);
    let mut pool = Pool::new_shared(64, 70, give_back).unwrap();
    let kept = written(&mut pool, 5);
    reader.give_back(kept.slot());
    reader.give_back(69);
    reader.give_back(70);
    reader.give_back(u32::MAX);
    give_back.collect();
    assert_eq!(give_back.breaches(), 2);
    assert!(kept.try_unique().is_ok());
}

#[test]
fn a_frame_of_an_ordinary_pool_is_not_exported() {
    let mut pool = Pool::new(64, 1).unwrap();
    let frame = written(&mut pool, 1).export().expect_err("nobody could give it back");
    assert_eq!(frame.plane(0).as_stable(), Some(&[1; 64][..]));
}

#[test]
fn a_closed_pool_gives_what_is_free_and_waits_no_more() {
    for shared in [false, true] {
        let mut pool = match shared {
            false => Pool::new(64, 2).unwrap(),
            true => Pool::new_shared(64, 2, both_sides(2).0).unwrap(),
        };
        let first = pool.acquire().unwrap();
        let closer = pool.closer();
        let second = pool.acquire().unwrap();
        let other = std::thread::spawn(move || {
            std::thread::yield_now();
            closer.close();
            closer
        });
        assert!(matches!(pool.acquire(), Err(PoolError::Closed)));
        let closer = other.join().unwrap();
        drop(first);
        let first = pool.acquire().unwrap();
        assert!(matches!(pool.acquire(), Err(PoolError::Closed)));
        drop((pool, first, second));
        closer.close();
    }
}

#[test]
fn words_that_do_not_fit_together_are_refused() {
    let waits = AtomicU32::new(0);
    let summary: Vec<_> = (0..70).map(|_| AtomicU64::new(0)).collect();
    let counts: Vec<_> = (0..GIVE_BACK_SLOTS + 1).map(|_| AtomicU32::new(0)).collect();
    let made = |words: usize, slots: usize| GiveBackWords::new(&waits, &summary[..words], &counts[..slots]);
    assert!(made(0, 0).is_none());
    assert!(made(1, 65).is_none());
    assert!(made(65, 4097).is_none());
    assert!(made(2, 65).is_some() && made(64, 4096).is_some());
}

#[cfg(not(miri))]
mod refusals {
    use super::*;
    use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_getfl, ftruncate, memfd_create};
    use rustix::io::Errno;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};
    use std::os::fd::OwnedFd;

    fn mapped(fd: &OwnedFd, protection: ProtFlags) -> Result<*mut std::ffi::c_void, Errno> {
        // SAFETY: a new mapping at an address the kernel chooses.
        unsafe { mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, fd, 0) }
    }

    #[test]
    fn nobody_can_map_the_memory_of_a_shared_pool_writable() {
        let (give_back, _) = both_sides(1);
        let mut pool = Pool::new_shared(4096, 1, give_back).unwrap();
        let fd = written(&mut pool, 3).read_only_memory().unwrap().fd;
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        assert_eq!(mapped(&fd, writable).unwrap_err(), Errno::PERM);
        assert_eq!(rustix::io::pwrite(&fd, &[1], 0).unwrap_err(), Errno::PERM);
        assert!(ftruncate(&fd, 0).is_err());
        let readable = mapped(&fd, ProtFlags::READ).unwrap();
        // SAFETY: the mapping just made, which no other code uses.
        unsafe {
            let changed = mprotect(readable, 4096, MprotectFlags::READ | MprotectFlags::WRITE);
            assert_eq!(changed.unwrap_err(), Errno::ACCESS);
            munmap(readable, 4096).unwrap();
        }
        // The pool itself still writes.
        assert_eq!(written(&mut pool, 4).plane(0).to_vec(), [4; 4096]);
    }

    #[test]
    fn an_ordinary_pool_is_given_out_to_read() {
        let mut pool = Pool::new(4096, 2).unwrap();
        let frame = written(&mut pool, 6);
        let memory = frame.read_only_memory().unwrap();
        assert_eq!((memory.id, memory.slots, memory.first_slot), (frame.pool_id(), 2, 0));
        assert_eq!(fcntl_getfl(&memory.fd).unwrap() & OFlags::RWMODE, OFlags::RDONLY);
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        assert_eq!(mapped(&memory.fd, writable).unwrap_err(), Errno::ACCESS);
        let (_, reader) = both_sides(2);
        let foreign = ForeignPool::new(memory.fd, memory.slot_bytes, 2, 0, reader.clone()).unwrap();
        let copy = foreign.frame(frame.slot(), frame.layout(), frame.meta()).unwrap();
        assert_eq!(copy.plane(0).to_vec(), [6; 4096]);
        // The third process of the chain.
        let memory = copy.read_only_memory().unwrap();
        assert_eq!(memory.id, foreign.id());
        let further = ForeignPool::new(memory.fd, memory.slot_bytes, 2, 0, reader).unwrap();
        let third = further.frame(frame.slot(), frame.layout(), frame.meta()).unwrap();
        assert_eq!(third.row(0, 0).to_vec(), [6; 4096]);
    }

    #[test]
    fn memory_that_could_fault_is_refused() {
        let (_, reader) = both_sides(1);
        let opened = |fd, bytes, slots| ForeignPool::new(fd, bytes, slots, 0, reader.clone()).unwrap_err();
        let memfd = |seals| {
            let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&fd, 4096).unwrap();
            fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        let fixed = SealFlags::SHRINK | SealFlags::GROW;
        let what = |error| match error {
            ForeignError::Memory { what } => what,
            other => panic!("{other}"),
        };
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(what(opened(file.into(), 4096, 1)), "not a memfd");
        let size = "not sealed against a change of its size";
        assert_eq!(what(opened(memfd(SealFlags::empty()), 4096, 1)), size);
        assert_eq!(what(opened(memfd(SealFlags::GROW), 4096, 1)), size);
        let writable = "neither sealed against writing nor opened read-only";
        assert_eq!(what(opened(memfd(fixed), 4096, 1)), writable);
        let whole = memfd(fixed | SealFlags::FUTURE_WRITE);
        let short = opened(whole.try_clone().unwrap(), 4096, 2);
        assert!(matches!(short, ForeignError::Short { bytes: 4096, expected: 8192 }), "{short}");
        for (bytes, slots) in [(0, 1), (64, 0), (usize::MAX, 2), (usize::MAX, 1), (65, 2)] {
            let size = opened(whole.try_clone().unwrap(), bytes, slots);
            assert!(matches!(size, ForeignError::Size { .. }), "{size}");
        }
        let fd = whole.try_clone().unwrap();
        assert!(ForeignPool::new(fd, 64, 2, u32::MAX, reader.clone()).is_err());

        let pool = ForeignPool::new(whole, 2048, 2, 5, reader.clone()).unwrap();
        let frame = |slot, bytes| pool.frame(slot, &Layout::opaque(bytes), FrameMeta::default());
        for slot in [0, 4, 7, u32::MAX] {
            assert!(matches!(frame(slot, 1), Err(ForeignError::Slot { .. })), "{slot}");
        }
        assert!(matches!(frame(6, 2049), Err(ForeignError::Layout(_))));
        assert_eq!(frame(6, 2048).unwrap().plane(0).to_vec(), [0; 2048]);
    }
}

/// A pool of another process's buffers takes only slots that the owner of the buffers has returned.
#[test]
#[cfg(not(miri))]
fn lent_slots_are_taken_only_when_given() {
    use std::os::fd::AsFd;
    let (give_back, reader) = both_sides(8);
    let buffers: Vec<_> = (0..3).map(|_| Pool::new(8192, 1).unwrap()).collect();
    // SAFETY: no frame of these pools exists.
    let fds: Vec<_> = buffers.iter().map(|pool| unsafe { pool.memfd() }.unwrap()).collect();
    let fd = |index: u32| Ok(fds[index as usize].try_clone_to_owned().unwrap());
    assert!(matches!(Pool::from_buffers(3, 1 << 30, give_back, fd), Err(PoolError::Os { .. })) || cfg!(miri));
    let mut pool = Pool::from_buffers(3, 8000, give_back, fd).unwrap();
    assert_eq!((pool.slots(), pool.slot_bytes(), give_back.exported()), (3, 8192, 3));
    reader.give_back(2);
    let hold = pool.acquire_hold().unwrap();
    // SAFETY: a slot of 8192 bytes, just taken.
    unsafe { hold.as_ptr().write_bytes(9, 8192) };
    let frame = hold.frame(&Layout::opaque(8000), FrameMeta::default()).unwrap();
    assert!(frame.plane(0).as_stable().is_none() && frame.slot() == 2);
    assert!(frame.read_only_memory().is_err());
    let exported = frame.export().unwrap();
    let unseen = ForeignPool::unmapped(8192, 3, 0, reader.clone()).unwrap();
    let seen = unseen.frame(exported.slot, &Layout::opaque(8000), FrameMeta::default()).unwrap();
    assert_eq!(seen.plane(0).to_vec(), [0; 8000]);
    let mapped = rustix::io::dup(fds[2].as_fd()).unwrap();
    let mut byte = [0];
    rustix::io::pread(&mapped, &mut byte, 8191).unwrap();
    assert_eq!(byte, [9], "written where the owner sees it");
    // The buffer was returned, but a reference is still held: it must not be written.
    drop(seen);
    reader.give_back(0);
    assert_eq!(
        pool.acquire_hold().unwrap().frame(&Layout::opaque(1), FrameMeta::default()).unwrap().slot(),
        0
    );
    drop(hold);
    assert_eq!(give_back.breaches(), 0);
}
