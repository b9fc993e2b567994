// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handlers of Ctrl-C and SIGTERM, so that an interrupted run leaves no shared memory.

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

/// Blocks SIGINT and SIGTERM in the consumer, because the producer handles them and
/// ends the consumer. Call this before any other thread starts.
pub fn ignore() -> Result<(), Failure> {
    Ok(signals().thread_block()?)
}

/// Blocks SIGINT and SIGTERM in the producer and starts a thread that waits for them.
/// Call this before any other thread starts.
pub fn watch() -> Result<(), Failure> {
    let signals = signals();
    signals.thread_block()?;
    std::thread::spawn(move || {
        if signals.wait().is_ok() {
            // Relaxed: the flag carries no other data.
            INTERRUPTED.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Returns true after SIGINT or SIGTERM, in the producer only.
pub fn came() -> bool {
    // Relaxed: pairs with the store in `watch`, which carries no other data.
    INTERRUPTED.load(Ordering::Relaxed)
}
