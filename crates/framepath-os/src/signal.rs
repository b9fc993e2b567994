// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C as a flag: the first one asks for a clean end, the second ends at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler for SIGINT and SIGTERM. Call once, at the start.
pub fn install() -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int) = note;
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero is a valid sigaction; the fields set next are plain
    // integers. The handler touches only an atomic and calls _exit, both
    // async-signal-safe. No SA_RESTART: sleeping calls return and are retried
    // by loops that look at the flag.
    unsafe {
        let action_ptr = action.as_mut_ptr();
        (*action_ptr).sa_sigaction = handler as usize;
        libc::sigemptyset(&raw mut (*action_ptr).sa_mask);
        for number in [libc::SIGINT, libc::SIGTERM] {
            if libc::sigaction(number, action_ptr, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// SIGINT and SIGTERM as a descriptor, for a thread that sleeps in poll(2).
#[derive(Debug)]
pub struct Stops(OwnedFd);

impl Stops {
    /// Keeps both signals from doing anything else. Call it in the main thread
    /// while that is the only one.
    ///
    /// # Errors
    /// What sigprocmask(2) or signalfd(2) say.
    pub fn open() -> io::Result<Stops> {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set, the others read and change
        // it; it lives through all calls.
        let fd = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            let refused = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            if refused != 0 {
                return Err(io::Error::from_raw_os_error(refused));
            }
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd succeeded: a new descriptor of ours.
        Ok(Stops(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Whether a signal came; takes it.
    pub fn take(&self) -> bool {
        // Larger than the kernel's record, which is all that is read.
        let mut record = [0; 128];
        rustix::io::read(&self.0, &mut record).is_ok_and(|bytes| bytes > 0)
    }
}

/// Readable when a signal came.
impl AsFd for Stops {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether a signal came.
#[inline]
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

extern "C" fn note(number: libc::c_int) {
    if INTERRUPTED.swap(true, Ordering::Relaxed) {
        // SAFETY: _exit is async-signal-safe.
        unsafe { libc::_exit(128 + number) }
    }
}
