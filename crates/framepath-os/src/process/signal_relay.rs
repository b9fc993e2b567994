// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals and job control for a program that stands in front of a command, as strace(1) and sudo(8) do: the command gets what
//! it would get alone.
//!
//! The two are in one process group. So the signals of a terminal (Ctrl-C, Ctrl-Z) reach both, and the program in front
//! leaves them to the command. A signal that a process sends to the program in front alone is passed on.

use std::ffi::{CStr, CString, c_void};
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use super::end_watch::EndWatch;
use super::signal::survive_file_limit;
use super::start_state;

/// Signals that a command may expect from a terminal, its shell or another process.
const SIGNALS: [libc::c_int; 8] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// Signals of which a second one ends the program in front.
const ENDING: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// Time after a signal in which another one is an echo of it: timeout(1) sends two.
const ECHO: Duration = Duration::from_millis(200);

/// Time after which a signal does not count as the second one any more.
const MEMORY: Duration = Duration::from_secs(10);

/// Signals to this process, kept for a command that is not started yet. Dropping the value makes them reach this process
/// again; those that came before are gone.
#[derive(Debug)]
pub struct KeptSignals {
    /// Signals that were blocked before.
    before: libc::sigset_t,
    /// True if the ends of children were ignored before: then this process could not wait for the command.
    ignored_children: bool,
}

impl KeptSignals {
    /// Blocks the signals in this thread and in those that it starts later. Calls [`survive_file_limit`]: the limit is meant for the
    /// command. Call this on the main thread while it is the only one, and drop the value there.
    ///
    /// # Errors
    /// From pthread_sigmask(3) and sigaction(2).
    pub fn open() -> io::Result<KeptSignals> {
        survive_file_limit()?;
        let before = block()?;
        // SAFETY: the default action has no handler.
        let children = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        Ok(KeptSignals { before, ignored_children: children == libc::SIG_IGN })
    }

    /// Changes `command`, which is not started yet, so that it has the signals blocked that this process had blocked before,
    /// ignores those that this process was started to ignore, and lacks the standard files that this process lacked.
    pub fn prepare(&self, command: &mut Command) {
        let (before, ignored_children) = (self.before, self.ignored_children);
        // SAFETY: all functions are async-signal-safe, the set is a copy that the closure owns, and the child executes the command
        // next, which has inherited its standard files.
        unsafe {
            command.pre_exec(move || {
                if ignored_children {
                    libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                }
                start_state::restore();
                match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) {
                    0 => Ok(()),
                    refused => Err(io::Error::from_raw_os_error(refused)),
                }
            });
        }
    }
}

impl KeptSignals {
    /// Makes the signals reach this thread again; those that came before are gone. Call this where the value was made.
    pub fn release(&self) {
        let (set, no_time) = (signals(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: plain system calls; the set and the time outlive them.
        while unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const no_time) } > 0 {}
        // SAFETY: the set was initialised by pthread_sigmask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

impl Drop for KeptSignals {
    fn drop(&mut self) {
        self.release();
    }
}

/// Handler that passes signals on to a command, until the value is dropped. It needs no thread, which would count as a process of
/// the command's user and cgroup, and works whatever this process is doing.
#[derive(Debug)]
pub struct SignalRelay<'a> {
    pid: u32,
    /// Handlers before this one.
    before: [libc::sigaction; SIGNALS.len()],
    /// The handler has the descriptor of the command's watch. The value stays on one thread, whose signals it has made pass.
    watch: PhantomData<(&'a EndWatch, *const ())>,
}

/// Process whose handler passes signals on; 0 for none. A forked child, which has the handler, too, passes none on.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Descriptor of the command.
static COMMAND: AtomicI32 = AtomicI32::new(-1);
/// Process that watches for the end of a stop; 0 before the first one.
static WATCHER: AtomicI32 = AtomicI32::new(0);
/// True after the second signal that asks for the end.
static IS_LEFT: AtomicBool = AtomicBool::new(false);
/// Time of the first such signal, CLOCK_MONOTONIC milliseconds; 0 for none.
static FIRST_MS: AtomicU64 = AtomicU64::new(0);

impl<'a> SignalRelay<'a> {
    /// Begins to pass on signals, those that were kept included, to the child `pid` with the watch `watch`. Call this on the
    /// thread that keeps the signals.
    ///
    /// # Errors
    /// There is a relay already, or from sigaction(2) and pthread_sigmask(3).
    pub fn start(_kept: &KeptSignals, pid: u32, watch: &'a EndWatch) -> io::Result<SignalRelay<'a>> {
        // SAFETY: plain system call.
        let own = unsafe { libc::getpid() };
        if OWNER.compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "signals are passed on already"));
        }
        COMMAND.store(watch.as_fd().as_raw_fd(), Ordering::Release);
        WATCHER.store(0, Ordering::Relaxed);
        IS_LEFT.store(false, Ordering::Relaxed);
        FIRST_MS.store(0, Ordering::Relaxed);
        let mut relay = SignalRelay { pid, before: no_actions(), watch: PhantomData };
        for (number, before) in SIGNALS.into_iter().zip(&mut relay.before) {
            *before = pass_on(number)?;
        }
        let set = signals();
        // SAFETY: the set is initialised. The handlers of the signals are in place.
        match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut()) } {
            0 => Ok(relay),
            refused => Err(io::Error::from_raw_os_error(refused)),
        }
    }

    /// Returns true after the second signal that asks for the end: this process is to end, and the command goes on.
    pub fn is_left(&self) -> bool {
        IS_LEFT.load(Ordering::Relaxed)
    }

    /// Stops this process while the command is stopped, so that its parent sees that, as a shell with job control wants to. Returns when
    /// this process or the command is continued; then both are.
    ///
    /// # Errors
    /// No process can be started that watches for the end of the stop; then this process does not stop.
    pub fn follow_stop(&self) -> io::Result<()> {
        if !has_stopped(self.pid) {
            return Ok(());
        }
        let state = CString::new(format!("/proc/{}/stat", self.pid))?;
        // SAFETY: the child makes only system calls, and ends in `watch_stop`.
        let watcher = unsafe {
            let parent = libc::getpid();
            match libc::fork() {
                0 => watch_stop(&state, parent),
                watcher => watcher,
            }
        };
        WATCHER.store(watcher, Ordering::Relaxed);
        if watcher < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: plain system calls. The process goes on behind the first one when it is continued. Neither child was waited
        // for yet, so the ids are their own.
        unsafe {
            libc::kill(libc::getpid(), libc::SIGSTOP);
            libc::kill(watcher, libc::SIGKILL);
            libc::waitpid(watcher, std::ptr::null_mut(), 0);
            libc::kill(self.pid as libc::pid_t, libc::SIGCONT);
        }
        Ok(())
    }
}

impl Drop for SignalRelay<'_> {
    fn drop(&mut self) {
        // Kept again, until the value that keeps them is dropped or released. Fails for no set of signals.
        let _ = block();
        for (number, before) in SIGNALS.into_iter().zip(&self.before) {
            // SAFETY: the action is one that sigaction returned; that of a number without one is the default action.
            unsafe { libc::sigaction(number, before, ptr::null_mut()) };
        }
        COMMAND.store(-1, Ordering::Relaxed);
        OWNER.store(0, Ordering::Release);
    }
}

/// Returns the set of [`SIGNALS`].
fn signals() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set, and the others change it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in SIGNALS {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        set.assume_init()
    }
}

/// Blocks [`SIGNALS`] in this thread. Returns the signals that were blocked before.
fn block() -> io::Result<libc::sigset_t> {
    let (set, mut before) = (signals(), MaybeUninit::<libc::sigset_t>::uninit());
    // SAFETY: the set is initialised; the call initialises `before` if it succeeds.
    unsafe {
        match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) {
            0 => Ok(before.assume_init()),
            refused => Err(io::Error::from_raw_os_error(refused)),
        }
    }
}

/// Returns the default action of each signal.
fn no_actions() -> [libc::sigaction; SIGNALS.len()] {
    // SAFETY: all-zero is a valid sigaction: that of SIG_DFL.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Makes the handler pass the signal `number` on. Returns the action before.
fn pass_on(number: libc::c_int) -> io::Result<libc::sigaction> {
    let [mut before, mut action, ..] = no_actions();
    action.sa_sigaction = relay as *const () as usize;
    // System calls go on: what this process does is not the command's matter. One signal at a time.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    action.sa_mask = signals();
    // SAFETY: the handler calls only async-signal-safe functions.
    match unsafe { libc::sigaction(number, &raw const action, &raw mut before) } {
        0 => Ok(before),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `SI_KERNEL` of linux/siginfo.h.
const SI_KERNEL: i32 = 0x80;

/// Passes a signal on.
extern "C" fn relay(number: libc::c_int, info: *const libc::siginfo_t, _: *const c_void) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel passes a valid record to a handler with SA_SIGINFO; the sender is read only if the record has one or
    // zeroed bytes there. All functions are async-signal-safe; errno belongs to this thread, and is restored for the interrupted
    // code.
    unsafe {
        let errno = *libc::__errno_location();
        // The terminal has sent its signals to the command, too.
        let is_of_kernel = (*info).si_code == SI_KERNEL;
        // A sender outside of this pid namespace has no number: 0.
        let watcher = WATCHER.load(Ordering::Relaxed);
        let is_of_watcher = watcher > 0 && (*info).si_pid() == watcher;
        if libc::getpid() == OWNER.load(Ordering::Relaxed) && !is_of_kernel && !is_of_watcher {
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
            let now_ms = now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000;
            note_end(number, now_ms);
            if !IS_LEFT.load(Ordering::Relaxed) {
                // Fails if the command has ended or has changed its user.
                libc::syscall(
                    libc::SYS_pidfd_send_signal,
                    COMMAND.load(Ordering::Acquire),
                    number,
                    ptr::null::<libc::siginfo_t>(),
                    0,
                );
            }
        }
        *libc::__errno_location() = errno;
    }
}

/// Notes a signal, and sets [`IS_LEFT`] if it is the second one that asks for the end.
fn note_end(number: libc::c_int, now_ms: u64) {
    let since =
        |duration: Duration, first_ms: u64| now_ms - first_ms.min(now_ms) > duration.as_millis() as u64;
    let first_ms = FIRST_MS.load(Ordering::Relaxed);
    let first = Some(first_ms).filter(|first_ms| *first_ms != 0 && !since(MEMORY, *first_ms));
    if ENDING.contains(&number) {
        IS_LEFT.fetch_or(first.is_some_and(|first_ms| since(ECHO, first_ms)), Ordering::Relaxed);
        FIRST_MS.store(first.unwrap_or(now_ms), Ordering::Relaxed);
    }
}

/// Returns true if the child `pid` is stopped by a signal, once for each stop.
fn has_stopped(pid: u32) -> bool {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the pointer is valid for the call, and all-zero is a valid siginfo, which the kernel fills only for a stopped
    // child; without one, its process stays 0.
    unsafe {
        let flags = libc::WSTOPPED | libc::WNOHANG;
        let result = libc::waitid(libc::P_PID, pid, info.as_mut_ptr(), flags);
        result == 0 && info.assume_init().si_pid() != 0
    }
}

/// Waits until the process of the file `state` is not stopped any more, and continues `parent` then. Never returns. Calls only
/// functions that are async-signal-safe, because it runs behind a fork of a process with threads.
fn watch_stop(state: &CStr, parent: libc::pid_t) -> ! {
    // SAFETY: plain system calls; the buffer is as long as they are told.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        loop {
            let mut text = [0u8; 512];
            let file = libc::open(state.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            let bytes = libc::read(file, text.as_mut_ptr().cast(), text.len());
            libc::close(file);
            let text = text.get(..usize::try_from(bytes).unwrap_or(0)).unwrap_or_default();
            // The name, in parentheses, may have any bytes; then come a space and the state.
            let end = text.iter().rposition(|byte| *byte == b')');
            let state = end.and_then(|end| text.get(end + 2));
            // Again and again until the parent ends this process: it may not have stopped yet.
            if !matches!(state, Some(b'T' | b't')) {
                libc::kill(parent, libc::SIGCONT);
            }
            if libc::getppid() != parent {
                libc::_exit(0);
            }
            libc::usleep(20_000);
        }
    }
}

/// Gives SIGINT and SIGQUIT their default action in this process and in those that it starts from now on. A background job of a
/// shell without job control has both ignored.
pub fn restore_keys() {
    for number in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: the default action has no handler.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// Ends this process by the signal `number`, as a command has ended: the parent sees the same. Leaves no core file. Returns if
/// the signal does not end a process.
pub fn end_by(number: i32) {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: plain system calls; the set is initialised before it is used. The default action needs no handler.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::signal(number, libc::SIG_DFL);
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), number);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::raise(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a thread of its own: only there are the signals blocked, and the one of this test is sent to it alone.
    #[test]
    fn a_kept_signal_reaches_the_command() {
        std::thread::spawn(|| {
            let kept = KeptSignals::open().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", "trap 'exit 7' USR1; echo ready; while :; do sleep 0.01; done"]);
            command.stdout(std::process::Stdio::piped());
            kept.prepare(&mut command);
            let mut child = command.spawn().unwrap();
            let mut ready = [0; 6];
            io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
            // SAFETY: a signal to this thread, which has it blocked.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), libc::SIGUSR1) };
            let watch = EndWatch::new(child.id()).unwrap();
            let relay = SignalRelay::start(&kept, child.id(), &watch).unwrap();
            assert!(SignalRelay::start(&kept, child.id(), &watch).is_err());
            assert!(!relay.is_left());
            relay.follow_stop().unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(7));
            drop(relay);
            drop(kept);
        })
        .join()
        .unwrap();
    }
}
