// SPDX-License-Identifier: MIT OR Apache-2.0
//! One ioctl with one structure, which the kernel reads, writes, or both.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, Result};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};

struct Call<'a, T> {
    opcode: Opcode,
    body: &'a mut T,
}

// SAFETY: the pointer is to a structure of the size in the opcode, borrowed
// exclusively during the call; the output is the kernel's number, not read from
// the pointer.
unsafe impl<T> Ioctl for Call<'_, T> {
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        (&raw mut *self.body).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut std::ffi::c_void) -> Result<i32> {
        Ok(out)
    }
}

/// Calls the ioctl `opcode` on `fd` with the structure `body`; repeats the call after a signal. Returns
/// the result of ioctl(2).
///
/// # Safety
/// `T` is the structure of `opcode`, and all memory to which pointers in `body` refer is valid for the reads and
/// writes of this ioctl.
pub(super) unsafe fn call<T>(fd: BorrowedFd<'_>, opcode: Opcode, body: &mut T) -> Result<i32> {
    loop {
        // SAFETY: guaranteed by the caller.
        match unsafe { ioctl(fd, Call { opcode, body: &mut *body }) } {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
