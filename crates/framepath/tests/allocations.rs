// SPDX-License-Identifier: MIT OR Apache-2.0
//! A path in steady state allocates no memory. Alone in its binary, because the
//! allocator counts the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use framepath::{Level, Options};
use framepath_testkit::pipeline::at;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: passes every call unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract, and `ptr` came from `alloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the number of allocations of a run: the minimum of several runs, because the harness's own
/// thread allocates now and then, and a process allocates some memory only once.
fn allocations(path: &str, options: &Options) -> u64 {
    (0..4).map(|_| allocations_of_one(path, options)).min().expect("four runs")
}

fn allocations_of_one(path: &str, options: &Options) -> u64 {
    let path = framepath::path::parse(path).unwrap();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let report = framepath::run(&path, options).unwrap();
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(report.error.is_none(), "{:?}", report.error);
    after - before
}

/// Asserts that a run of twice `frames` frames makes as many allocations as a run of `frames`; with a queue, up
/// to 15 more or fewer. The two numbers must have the same length as text, because the text is allocated too.
fn assert_none_per_frame(source: &str, frames: u64, rest: &str) {
    for level in [Level::Off, Level::Times, Level::Full] {
        let options = at(level);
        let of = |frames: u64| allocations(&format!("{source}{frames}{rest}"), &options);
        let (once, twice) = (of(frames), of(2 * frames));
        if rest.contains("queue") {
            // The pool's own list grows with the number of slots in use at once, which depends on the
            // scheduling of the threads.
            assert!(once.abs_diff(twice) < 16, "{source}N{rest} at {level:?}: {once}, {twice}");
        } else {
            assert_eq!(once, twice, "{source}N{rest} at {level:?}");
        }
    }
}

/// The only test of this binary, because the allocator would count another test, too.
#[test]
fn steady_state_allocates_nothing() {
    pattern_frames();
    decoded_frames();
}

fn pattern_frames() {
    for rest in [
        " ! null",
        " ! threshold level=100 ! null",
        " ! encode raw ! encode raw copy=1 ! null",
        " ! copy bytes=100 ! null",
        " ! queue depth=4 ! null",
        " ! queue depth=2 leaky=downstream ! null",
        " ! queue depth=2 ! encode raw copy=1 ! queue depth=200 ! null",
    ] {
        assert_none_per_frame("test size=32x32 format=grey frames=", 400, rest);
    }
    assert_none_per_frame("test bytes=64 frames=", 400, " ! null");
}

/// Checks that the ledger adds no allocation to those of the decoder's library, although frames wait
/// inside. The clip is played several times, because it is short.
fn decoded_frames() {
    for (name, format) in [("h264-180p8-high.h264", "nv12"), ("vp9-180p8.ivf", "native")] {
        let stages = format!("decode threads=1 format={format} ! threshold level=9 ! null");
        let text = |loops: u64| format!("file {} loop={loops} ! {stages}", framepath_testkit::clip(name));
        let of_three_loops = [Level::Off, Level::Times, Level::Full].map(|level| {
            let options = at(level);
            allocations(&text(6), &options) - allocations(&text(3), &options)
        });
        assert_eq!(of_three_loops, [of_three_loops[0]; 3], "{name}");
    }
}
