// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGINT and SIGTERM: the first signal requests a clean end, the second ends the process
//! immediately.
//!
//! This module does nothing until a program calls [`install`]. Without that call there is no
//! handler, no thread and no signal, [`interrupted`] and [`overdue`] follow only stop requests
//! ([`stop`]), and [`interruptible`] only stores a number. ([`Stops`] is for programs that receive the two
//! signals by poll(2) instead, and works without [`install`].)
//!
//! A signal interrupts the system call of one thread only. From the first signal on, a thread of
//! this module sends SIGURG, whose handler does nothing, to every [`interruptible`] thread, and
//! repeats this every `NUDGE` until the process ends. So a blocking call soon returns EINTR, even
//! if the first SIGURG arrived between the check of the flag and the call. There is no cost
//! before the first signal.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::process::stop;
use crate::time::now_ns;

/// Time after the first signal, or after a run's stop request, in which pending frames may still be
/// delivered. Afterwards [`overdue`] returns true, and every wait that calls it ends.
pub const GRACE: Duration = Duration::from_millis(400);
/// Time after the first signal in which the same signal counts as the first one's echo: timeout(1), and programs that pass Ctrl-C on
/// to their children, send it twice.
const ECHO: Duration = Duration::from_millis(200);
/// Interval at which SIGURG is sent to the interruptible threads after the first signal.
const NUDGE: Duration = Duration::from_millis(20);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static OVERDUE: AtomicBool = AtomicBool::new(false);
/// Time at which the thread of [`install`] noticed the first SIGINT or SIGTERM, CLOCK_MONOTONIC nanoseconds;
/// 0 before that.
static SINCE_NS: AtomicU64 = AtomicU64::new(0);
/// Number of the first SIGINT or SIGTERM, and the time at which it was handled, CLOCK_MONOTONIC milliseconds; 0 before that.
static FIRST_NUMBER: AtomicI32 = AtomicI32::new(0);
static FIRST_MS: AtomicU64 = AtomicU64::new(0);
/// Event descriptor to which the handler of SIGINT and SIGTERM writes; -1 before [`install`]. Never closed
/// once that handler is installed.
static FIRST_SIGNAL: AtomicI32 = AtomicI32::new(-1);
/// Ids of the [`interruptible`] threads, and of the thread that called [`install`]; a thread with several
/// guards is here several times.
static THREADS: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

/// Installs the handler for SIGINT, SIGTERM and SIGURG, and starts the thread that interrupts the
/// others. Calls [`survive_file_limit`]. Call this on a program's main thread, which becomes [`interruptible`]. A second SIGINT or
/// SIGTERM ends the process immediately, with exit code 128 plus the signal's number; the same signal within 0.2 s is no second
/// one. A second call of this function does nothing, even if the first failed, except when the first could not make the event
/// descriptor.
///
/// # Errors
/// A handler, thread or event descriptor could not be made.
pub fn install() -> io::Result<()> {
    if FIRST_SIGNAL.load(Ordering::Acquire) >= 0 {
        return Ok(());
    }
    let event = eventfd(0, EventfdFlags::CLOEXEC)?;
    // The thread keeps the descriptor open forever, because the handler writes to it.
    FIRST_SIGNAL.store(event.as_raw_fd(), Ordering::Release);
    std::thread::Builder::new().name("fp-signal".to_owned()).spawn(move || interrupt_others(&event))?;
    threads().push(thread_id());
    handle(libc::SIGURG, nothing)?;
    survive_file_limit()?;
    handle(libc::SIGINT, note)?;
    handle(libc::SIGTERM, note)
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail with an error (EFBIG); it does not end this process by SIGXFSZ any
/// more. A program that this process executes has the action that this process was started with: a handler is not inherited,
/// and an ignored signal stays ignored.
///
/// # Errors
/// From sigaction(2).
pub fn survive_file_limit() -> io::Result<()> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action, the call only writes the present one, which is read if it succeeded.
    let is_default = unsafe {
        libc::sigaction(libc::SIGXFSZ, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init_ref().sa_sigaction == libc::SIG_DFL
    };
    if is_default { handle(libc::SIGXFSZ, nothing) } else { Ok(()) }
}

fn handle(number: libc::c_int, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero is a valid sigaction; the fields set next are plain integers. Both
    // handlers call only async-signal-safe functions. No SA_RESTART: blocking calls return, and
    // their callers check the flags.
    unsafe {
        let action_ptr = action.as_mut_ptr();
        (*action_ptr).sa_sigaction = handler as usize;
        libc::sigemptyset(&raw mut (*action_ptr).sa_mask);
        if libc::sigaction(number, action_ptr, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Guard of [`interruptible`]: makes blocking calls of the thread that made the guard end after SIGINT or
/// SIGTERM, until the guard is dropped.
#[derive(Debug)]
pub struct Interruptible {
    thread: libc::pid_t,
    /// Makes the guard `!Send`, because the guard belongs to one thread.
    stays: PhantomData<*const ()>,
}

/// Makes SIGINT and SIGTERM interrupt the calling thread's blocking calls while the guard lives, in a program
/// that called [`install`].
pub fn interruptible() -> Interruptible {
    let thread = thread_id();
    threads().push(thread);
    Interruptible { thread, stays: PhantomData }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        let mut threads = threads();
        if let Some(at) = threads.iter().rposition(|id| *id == self.thread) {
            threads.swap_remove(at);
        }
    }
}

fn threads() -> MutexGuard<'static, Vec<libc::pid_t>> {
    // A list of numbers is never half changed, so a poisoned lock is valid.
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn thread_id() -> libc::pid_t {
    // SAFETY: plain system call. The C library's function may return a cached number from before a
    // clone.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// Waits for the first signal, then interrupts the blocking calls of the interruptible threads every
/// [`NUDGE`]. Never returns. Runs on the thread of [`install`]; `event` is readable after the first signal.
fn interrupt_others(event: &OwnedFd) {
    let mut count = [0; 8];
    while rustix::io::read(event, &mut count) == Err(Errno::INTR) {}
    let since = now_ns();
    SINCE_NS.store(since, Ordering::Relaxed);
    loop {
        if now_ns() - since >= GRACE.as_nanos() as u64 {
            OVERDUE.store(true, Ordering::Relaxed);
        }
        // Locked, so that no thread of the list ends, and its id is not reused, before the signal
        // is sent.
        let threads = threads();
        for thread in threads.iter() {
            // SAFETY: plain system call with a thread of this process.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), *thread, libc::SIGURG) };
        }
        drop(threads);
        std::thread::sleep(NUDGE);
    }
}

/// Descriptor through which a thread that sleeps in poll(2) receives SIGINT and SIGTERM.
#[derive(Debug)]
pub struct Stops(OwnedFd);

impl Stops {
    /// Opens the descriptor, and blocks both signals in this thread and in threads that it starts later,
    /// so that they have no other effect. Call this on the main thread while it is the only thread.
    ///
    /// # Errors
    /// From sigprocmask(2) or signalfd(2).
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

    /// Takes a pending SIGINT or SIGTERM. Returns true if a signal was pending.
    pub fn take(&self) -> bool {
        // Larger than the kernel's record; the call reads one record.
        let mut record = [0; 128];
        rustix::io::read(&self.0, &mut record).is_ok_and(|bytes| bytes > 0)
    }
}

/// Descriptor that is readable while a SIGINT or SIGTERM is pending.
impl AsFd for Stops {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns true if SIGINT or SIGTERM has arrived (in a program that called [`install`]), or if the calling
/// thread's run was requested to [`stop`]. Sources then stop, and pending frames are still delivered.
#[inline]
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed) || stop::requested()
}

/// Returns true if [`GRACE`] has passed since the first signal, or since the stop request to the calling
/// thread's run. Every wait that calls this function then ends, and pending frames are dropped.
#[inline]
pub fn overdue() -> bool {
    OVERDUE.load(Ordering::Relaxed) || stop::overdue()
}

/// Returns the time since the first SIGINT or SIGTERM; `None` if none has arrived, and always in a program
/// that did not call [`install`].
pub fn since() -> Option<Duration> {
    let since = SINCE_NS.load(Ordering::Relaxed);
    (since > 0).then(|| Duration::from_nanos(now_ns().saturating_sub(since)))
}

/// Returns the name of the signal with Linux's number `number`, such as `SIGKILL`, for the signals that most often end a
/// process; `None` for every other signal.
pub fn name(number: i32) -> Option<&'static str> {
    Some(match number {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

extern "C" fn nothing(_: libc::c_int) {}

extern "C" fn note(number: libc::c_int) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime, write and _exit are async-signal-safe; errno belongs to this thread, and is
    // restored for the interrupted code.
    unsafe {
        let errno = *libc::__errno_location();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        let now_ms = now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000;
        // A later signal knows the first one's number and time, or takes itself for another one.
        if INTERRUPTED.swap(true, Ordering::AcqRel) {
            let is_echo = FIRST_NUMBER.load(Ordering::Relaxed) == number
                && now_ms.saturating_sub(FIRST_MS.load(Ordering::Relaxed)) < ECHO.as_millis() as u64;
            if !is_echo {
                libc::_exit(128 + number)
            }
            *libc::__errno_location() = errno;
            return;
        }
        FIRST_MS.store(now_ms, Ordering::Relaxed);
        FIRST_NUMBER.store(number, Ordering::Relaxed);
        let one = 1u64;
        libc::write(FIRST_SIGNAL.load(Ordering::Relaxed), (&raw const one).cast(), size_of::<u64>());
        *libc::__errno_location() = errno;
    }
}
