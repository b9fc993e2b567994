// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C and SIGTERM, so that a run that is ended leaves no shared memory.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};

use crate::Failure;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn signals() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals
}

/// The consumer's: its end is the producer's affair.
pub fn ignore() -> Result<(), Failure> {
    Ok(signals().thread_block()?)
}

/// The producer's: a thread waits for them. Before any other thread starts.
pub fn watch() -> Result<(), Failure> {
    let signals = signals();
    signals.thread_block()?;
    std::thread::spawn(move || {
        if signals.wait().is_ok() {
            // Relaxed: nothing else is told by it.
            INTERRUPTED.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Returns true if an interrupt came.
pub fn came() -> bool {
    // Relaxed: pairs with the store in `watch`, which carries no other data.
    INTERRUPTED.load(Ordering::Relaxed)
}
