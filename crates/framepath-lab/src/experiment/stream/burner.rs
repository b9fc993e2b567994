// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load of the machine: a thread for each processor that computes without a pause.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Running load. It ends when this value is dropped.
pub(super) struct Burner {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Burner {
    /// Starts one thread for each processor that this process may use.
    pub(super) fn start() -> Burner {
        let stop = Arc::new(AtomicBool::new(false));
        let count = thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..count).map(|_| {
            let stop = stop.clone();
            thread::spawn(move || {
                let mut value = 1u64;
                while !stop.load(Ordering::Relaxed) {
                    value = black_box(value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
                }
            })
        });
        let threads = threads.collect();
        Burner { stop, threads }
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The threads cannot panic.
            let _ = thread.join();
        }
    }
}
