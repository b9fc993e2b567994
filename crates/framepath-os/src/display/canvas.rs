// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pictures in memory that a display server shares.
//!
//! Unlike the memfd of a shared pool, this memfd can be written by every process that has it: X11 requires
//! this of memory that becomes a pixmap. No code here or in the callers of this module reads the painted
//! bytes.

use std::os::fd::BorrowedFd;

use crate::memory::mapping::Mapping;

/// Pictures of equal size, one after the other in a memfd, zeroed at first. Used by one thread at
/// a time.
#[derive(Debug)]
pub struct Canvas {
    memory: Mapping,
    each: usize,
    pictures: usize,
}

impl Canvas {
    /// Makes `pictures` pictures of `each` bytes; both numbers are at least 1.
    ///
    /// # Errors
    /// There is not enough memory, or the total size is zero or too large.
    pub fn new(each: usize, pictures: usize) -> std::io::Result<Canvas> {
        let bytes = each.checked_mul(pictures).filter(|bytes| (1..=isize::MAX as usize).contains(bytes));
        let bytes = bytes.ok_or(std::io::ErrorKind::InvalidInput)?;
        let memory = Mapping::new(bytes, false).map_err(|(_, errno)| errno)?;
        Ok(Canvas { memory, each, pictures })
    }

    /// Returns the memfd, for the display server.
    ///
    /// # Panics
    /// This process may not create files, so the memory has no memfd.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.fd().expect("a mapping of our own has its memfd")
    }

    /// Returns the offset of picture number `picture`, from 0, in the memfd, bytes.
    pub fn offset(&self, picture: usize) -> usize {
        picture * self.each
    }

    /// Returns the bytes of picture number `picture`, from 0, for writing.
    ///
    /// # Panics
    /// There is no such picture.
    pub fn picture(&mut self, picture: usize) -> &mut [u8] {
        assert!(picture < self.pictures, "picture {picture} of {}", self.pictures);
        // SAFETY: inside the mapping, and the borrow is exclusive in this process. The display
        // server only reads it: it writes to pixmaps into which a client draws, and no other
        // client knows these pixmaps.
        unsafe {
            let first = self.memory.base().add(self.offset(picture));
            std::slice::from_raw_parts_mut(first.as_ptr(), self.each)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn painted_pixels_are_in_the_memory() {
        let mut canvas = Canvas::new(5000, 3).unwrap();
        let shared = std::fs::File::from(canvas.memory().try_clone_to_owned().unwrap());
        canvas.picture(1).fill(7);
        canvas.picture(2)[4999] = 9;
        let mut bytes = vec![1; 15_000];
        shared.read_exact_at(&mut bytes, 0).unwrap();
        assert!(
            bytes[..5000].iter().all(|byte| *byte == 0) && bytes[5000..10_000].iter().all(|byte| *byte == 7)
        );
        assert_eq!((bytes[14_998], bytes[14_999], canvas.offset(2)), (0, 9, 10_000));
        assert_eq!(shared.metadata().unwrap().len(), 15_000);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (each, pictures) in [(0, 1), (1, 0), (usize::MAX, 2), (isize::MAX as usize, 3)] {
            assert!(Canvas::new(each, pictures).is_err(), "{each} {pictures}");
        }
    }
}
