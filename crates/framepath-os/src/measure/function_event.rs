// SPDX-License-Identifier: MIT OR Apache-2.0
//! Perf event at a function of a user program, which can run a BPF program.
//!
//! Format: perf_event_open(2), "uprobe".

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use perf_event_open_sys as sys;
use sys::bindings as perf;

use super::perf_ring::open_event;
use crate::process::affinity::online_cpus;

const FOLDER: &str = "/sys/bus/event_source/devices/uprobe";

/// Opens an event at the instruction at `offset` of the file `path`, or, with `at_return`, at the return of the function
/// that begins there. The kernel puts the probe into the memory of `process` when that has mapped the file, now or later, or of each
/// process with `None`; all threads meet it on every CPU.
///
/// # Errors
/// The kernel has no such events (before 4.17) or denies them, there is no such file, or there are too many descriptors.
pub(crate) fn open(path: &CStr, offset: u64, at_return: bool, process: Option<u32>) -> io::Result<OwnedFd> {
    let mut attr = perf::perf_event_attr {
        type_: number("type")?,
        size: size_of::<perf::perf_event_attr>() as u32,
        // The format file says which bit it is; it has been this one since the beginning.
        config: at_return.into(),
        ..Default::default()
    };
    attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
    attr.__bindgen_anon_4.probe_offset = offset;
    if let Some(process) = process {
        let process = i32::try_from(process).map_err(|_| io::ErrorKind::InvalidInput)?;
        return open_event(&mut attr, process, -1);
    }
    // An event of all processes has a CPU. Its BPF program runs on every one.
    let cpu = online_cpus()?.first().copied().unwrap_or(0);
    open_event(&mut attr, -1, cpu as i32)
}

/// Runs the BPF program `program` at each event until the event is closed.
///
/// # Errors
/// The program is not for events of this kind.
pub(crate) fn run(event: &OwnedFd, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both are open descriptors, and the request takes the number of one.
    match unsafe { sys::ioctls::SET_BPF(event.as_raw_fd(), program.as_raw_fd() as u32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn number(name: &str) -> io::Result<u32> {
    let path = format!("{FOLDER}/{name}");
    let text = fs::read_to_string(&path).map_err(|error| {
        io::Error::new(error.kind(), format!("the kernel has no uprobes: {path}: {error}"))
    })?;
    text.trim().parse().map_err(|_| io::Error::other(format!("{path}: expected a number, found {text:?}")))
}
