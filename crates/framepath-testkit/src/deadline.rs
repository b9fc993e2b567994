// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits with a time limit: a hang becomes a failure.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of a wait, longer than any operation under test takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `f` in a thread and returns its result. Panics if `f` panics or takes longer than 120 s; in
/// the second case the thread keeps running.
pub fn within_deadline<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = channel();
    let worker = thread::spawn(move || {
        // A failed test has no receiver.
        let _ = sender.send(f());
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("hangs: not finished after {} s", PATIENCE.as_secs()),
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => unreachable!("the result was sent"),
        },
    }
}

/// Waits until `holds` returns true, checking every 5 ms; panics with `what` after 120 s.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `holds` returns true, checking every 5 ms. Returns false if it does not within `limit`.
pub fn holds_within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}
