// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU time of the hops, and of threads that belong to no hop.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use framepath::{Options, Pipeline};
use framepath_os::time::thread_cpu_ns;

#[test]
fn a_thread_outside_the_path_appears_as_cpu_time_of_no_hop() {
    const MOST_NS: u64 = 20_000_000_000;
    let (barrier, ended) = (Barrier::new(2), AtomicBool::new(false));
    let path = "test frames=50 rate=500 ! burn time=500us ! null";
    let pipeline = Pipeline::parse(path).unwrap();
    let (report, burnt_ns) = thread::scope(|scope| {
        let burner = scope.spawn(|| {
            barrier.wait();
            let since = thread_cpu_ns();
            // Bounded, for the case that the run panics.
            while !ended.load(Ordering::Acquire) && thread_cpu_ns() < since + MOST_NS {
                std::hint::spin_loop();
            }
            thread_cpu_ns() - since
        });
        barrier.wait();
        let report = pipeline.run(&Options::default()).unwrap();
        ended.store(true, Ordering::Release);
        (report, burner.join().unwrap())
    });
    let mut report = report;
    let digest = report.digest();
    let hops: u64 = report.hops_cpu_ns(&digest).into_iter().flatten().sum();
    let other = report.other_cpu_ns(&digest).unwrap();
    assert_eq!(hops as i64 + other, report.cpu_ns as i64);
    // The burner may have started a little earlier than the run, and ended a little later.
    assert!(other as f64 > 0.5 * burnt_ns as f64, "{other} of {burnt_ns}");
    let burn_hop = report.hops_cpu_ns(&digest)[1].unwrap();
    assert!(burn_hop >= 50 * 500_000, "{burn_hop}");
}
