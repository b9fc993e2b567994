// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomics and cells, from the standard library or, under `--cfg loom`, from
//! the model checker.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// `std`'s cell with loom's interface, so that one source serves both.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Keeps its value on cache lines of its own: two lines, because adjacent lines are
/// prefetched in pairs on x86-64.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CacheAligned<T>(pub(crate) T);
