// SPDX-License-Identifier: MIT OR Apache-2.0
//! Synchronisation between threads and processes: the bounded queue, the rings below it, futexes, and
//! the barriers that pair a sleeping side with the side that wakes it.

pub(crate) mod adaptive_poll;
pub(crate) mod atomics;
pub(crate) mod barrier;
pub mod futex;
pub mod queue;
pub mod ring;
