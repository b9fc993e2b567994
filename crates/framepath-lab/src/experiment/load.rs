// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that occupy every CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use framepath_os::process::affinity;

/// One thread per CPU that never waits. Dropping the value ends them.
pub(super) struct Load {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the threads.
    pub(super) fn start() -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let spin = |cpu: usize| {
            let is_over = is_over.clone();
            thread::spawn(move || {
                // Without its own CPU, the thread still is a load.
                let _ = affinity::pin_to(cpu);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = affinity::allowed_cpus().unwrap_or_default().into_iter().map(spin).collect();
        Load { is_over, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The threads never panic.
            let _ = thread.join();
        }
    }
}
