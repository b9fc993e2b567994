// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF programs that observe other processes: instructions, maps, probes of functions, tracepoints, and the ring
//! through which the programs send records. Needs root, or the capabilities CAP_BPF and CAP_PERFMON.
//!
//! The programs are assembled here, so no compiler and no library is needed at run time. The kernel verifies each
//! program before it runs, so assembling one is safe code.
//!
//! Sources: bpf(2), and linux/bpf.h of the kernel.

pub mod assembler;
pub mod btf;
pub mod link_removal;
pub mod map;
pub mod program;
pub mod ring;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Commands of bpf(2) (enum bpf_cmd).
#[derive(Clone, Copy)]
enum Operation {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    ProgramLoad = 5,
    RawTracepointOpen = 17,
    LinkCreate = 28,
}

/// Attributes of one command: a struct with a fixed layout whose pointers are those that the command takes.
///
/// # Safety
/// The type has the layout of the command's part of `union bpf_attr`, without padding bytes that are not zero, and all
/// addresses in a value are valid for the command.
unsafe trait Attributes: Sized {}

/// Calls bpf(2). Returns its result, which is not negative.
fn call<A: Attributes>(operation: Operation, attributes: &A) -> io::Result<i32> {
    // SAFETY: `Attributes` promises the layout, and that the addresses in it are valid.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            operation as libc::c_long,
            std::ptr::from_ref(attributes),
            size_of::<A>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// Calls bpf(2) with an operation that returns a new descriptor.
fn call_for_descriptor<A: Attributes>(operation: Operation, attributes: &A) -> io::Result<OwnedFd> {
    let raw = call(operation, attributes)?;
    // SAFETY: the operation returned a new descriptor without another owner. The kernel sets close-on-exec on it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}
