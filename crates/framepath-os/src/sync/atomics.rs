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

/// Cell of `std` with loom's interface, so that the same source works with both.
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

/// Value on cache lines of its own: two lines, because x86-64 prefetches adjacent lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CacheAligned<T>(pub(crate) T);
