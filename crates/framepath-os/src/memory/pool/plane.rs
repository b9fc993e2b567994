// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pixels of a frame for reading: as a slice if no other process or device can write them, otherwise by
//! copies.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;

use crate::measure::meter;

/// Number of bytes of foreign memory that [`Plane::try_visit`] copies at a time; even, so that samples
/// of two bytes stay whole.
const LOOK: usize = 4096;

/// Bytes of a plane, or of a part of one, borrowed from a frame.
///
/// Memory that another process or a device can write (a *foreign* frame's, for example) is never a
/// `&[u8]`. The needed part is copied first, and only the copy is read.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a> {
    first: NonNull<u8>,
    len: usize,
    foreign: bool,
    frame: PhantomData<&'a [u8]>,
}

// SAFETY: only reads, as the frame it borrows does.
unsafe impl Send for Plane<'_> {}
// SAFETY: as above.
unsafe impl Sync for Plane<'_> {}

impl<'a> Plane<'a> {
    /// Makes a plane of the `len` bytes from `first` on. `foreign` says that other processes or a device
    /// may write them.
    ///
    /// # Safety
    /// `len` bytes from `first` on are readable for `'a`. No code writes them during that time,
    /// except other processes and devices if `foreign` is true.
    pub(super) unsafe fn new(first: NonNull<u8>, len: usize, foreign: bool) -> Plane<'a> {
        Plane { first, len, foreign, frame: PhantomData }
    }

    /// Wraps a slice that belongs to no frame, for functions that take a plane.
    pub fn of(bytes: &'a [u8]) -> Plane<'a> {
        Plane { first: NonNull::from(bytes).cast(), len: bytes.len(), foreign: false, frame: PhantomData }
    }

    /// Returns the number of bytes of the plane, or of the part of it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the plane has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte. The bytes may change if [`Plane::as_stable`] is
    /// `None`.
    pub fn as_ptr(&self) -> *const u8 {
        self.first.as_ptr()
    }

    /// Returns the bytes `range` of the plane, as a plane that borrows from the same frame.
    ///
    /// # Panics
    /// The range ends after the last byte of the plane, or its end is before its start.
    #[inline]
    pub fn sub(&self, range: Range<usize>) -> Plane<'a> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} bytes", self.len);
        // SAFETY: the start was just checked.
        let first = unsafe { self.first.add(range.start) };
        Plane { first, len: range.end - range.start, ..*self }
    }

    /// Returns the bytes themselves; `None` if another process or a device may write them.
    #[inline]
    pub fn as_stable(&self) -> Option<&'a [u8]> {
        if self.foreign {
            return None;
        }
        // SAFETY: by the contract of `new`, the bytes are not written for 'a.
        Some(unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) })
    }

    /// Copies all bytes to `to`. The meter counts the bytes as copied, unless this call runs inside
    /// [`meter::copy`] or [`meter::convert`], which count bytes themselves.
    ///
    /// # Panics
    /// The length of `to` differs.
    #[inline]
    pub fn copy_to(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len, "the destination has another length");
        meter::count_once(self.len);
        // SAFETY: both sides have so many bytes, `to` is borrowed exclusively, and no reference
        // is made to memory that another process may be writing.
        unsafe { std::ptr::copy_nonoverlapping(self.first.as_ptr(), to.as_mut_ptr(), self.len) }
    }

    /// Passes all bytes to `look` in order: in one call if they are stable, otherwise in copies
    /// of 4096 bytes (the last may be shorter; no call if there are no bytes). The meter does not count
    /// these copies.
    pub fn visit(&self, mut look: impl FnMut(&[u8])) {
        let done: Result<(), std::convert::Infallible> = self.try_visit(|bytes| {
            look(bytes);
            Ok(())
        });
        match done {
            Ok(()) => {}
        }
    }

    /// Passes bytes as [`Plane::visit`] does, until `look` fails.
    ///
    /// # Errors
    /// The first error of `look`.
    pub fn try_visit<E>(&self, mut look: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if let Some(bytes) = self.as_stable() {
            return look(bytes);
        }
        let mut copy = [MaybeUninit::<u8>::uninit(); LOOK];
        for start in (0..self.len).step_by(LOOK) {
            let part = self.sub(start..self.len.min(start + LOOK));
            // SAFETY: at most LOOK bytes, each written before it is read; no reference is made to
            // the foreign side.
            let copied = unsafe {
                std::ptr::copy_nonoverlapping(part.first.as_ptr(), copy.as_mut_ptr().cast(), part.len);
                std::slice::from_raw_parts(copy.as_ptr().cast(), part.len)
            };
            look(copied)?;
        }
        Ok(())
    }

    /// Returns a copy of all bytes. The meter counts it as [`Plane::copy_to`] does.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.len];
        self.copy_to(&mut copy);
        copy
    }
}
