// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conformance suite: every check, on every link and every host. A test binary
//! instantiates it with the macro [`conformance!`](crate::conformance!), one line per
//! combination.
//!
//! `crates/framepath/tests/conformance` tests the links within one process;
//! `crates/framepath-cli/tests/conformance` tests those that need the worker program.

pub mod back_pressure;
pub mod closing;
pub mod end_of_stream;
pub mod frame_return;
pub mod leaks;
pub mod order;
pub mod parts;
pub mod peer_death;
mod suite;
pub mod way;

pub use way::{Host, LinkUnderTest, PathUnderTest, WhenFull, inline};

/// Runs `check` while no other check runs in this process, and fails if it takes longer than 120 s
/// or leaves an open file, a child process or a thread of a path behind.
pub fn isolated(check: impl FnOnce() + Send + 'static) {
    // The deadline is inside, so that the wait for other checks does not count as a hang.
    leaks::none(|| crate::deadline::within_deadline(check));
}
