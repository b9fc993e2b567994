// SPDX-License-Identifier: MIT OR Apache-2.0
//! A path in steady state allocates nothing. Alone in its binary, since the
//! allocator counts the whole process.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::at;
use framepath::{Level, Options};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: hands every call on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract, and `ptr` is of `alloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of one run.
fn allocations(path: &str, options: &Options) -> u64 {
    let path = framepath::path::parse(path).unwrap();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let report = framepath::run(&path, options).unwrap();
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(report.error.is_none(), "{:?}", report.error);
    after - before
}

fn assert_none_per_frame(source: &str, frames: u64, rest: &str) {
    for level in [Level::Off, Level::Times, Level::Full] {
        let options = at(level);
        let of = |frames: u64| allocations(&format!("{source}{frames}{rest}"), &options);
        // What the process sets up once is not the path's.
        of(frames);
        assert_eq!(of(frames), of(2 * frames), "{source}N{rest} at {level:?}");
    }
}

#[test]
fn frames_are_moved_without_allocating() {
    for rest in [
        "! null",
        "! threshold level=100 ! null",
        "! encode raw ! encode raw copy=1 ! null",
        "! copy bytes=100 ! null",
        "! queue depth=4 ! null",
        "! queue depth=2 leaky=downstream ! null",
        "! queue depth=2 ! encode raw copy=1 ! queue depth=200 ! null",
    ] {
        assert_none_per_frame("test size=32x32 format=grey frames=", 500, &format!(" {rest}"));
    }
    assert_none_per_frame("test bytes=64 frames=", 500, " ! null");
    // The libraries under a decoder allocate as they like; framepath does not.
    let file = common::clip("h264-180p8-high.h264");
    assert_none_per_frame(&format!("file {file} loop="), 3, " ! decode threads=1 format=nv12 ! null");
}
