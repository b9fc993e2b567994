// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals and job control for a program that stands in front of a command, as strace(1) and sudo(8) do: the command gets what
//! it would get alone.
//!
//! The two are in one process group. So the signals of a terminal (Ctrl-C, Ctrl-Z) reach both, and the program in front
//! leaves them to the command. A signal that a process sends to the program in front alone is passed on.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

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
    descriptor: OwnedFd,
    /// Signals that were blocked before.
    before: libc::sigset_t,
    /// True if the ends of children were ignored before: then this process could not wait for the command.
    ignored_children: bool,
}

impl KeptSignals {
    /// Blocks the signals in this thread and in those that it starts later. Call this on the main thread while it is the only
    /// one, and drop the value there.
    ///
    /// # Errors
    /// From pthread_sigmask(3) or signalfd(2).
    pub fn open() -> io::Result<KeptSignals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set, and the call that blocks it initialises `before` if it succeeds; both live
        // through all calls.
        let (raw, before) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for number in SIGNALS {
                libc::sigaddset(set.as_mut_ptr(), number);
            }
            let refused = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            if refused != 0 {
                return Err(io::Error::from_raw_os_error(refused));
            }
            (libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK), before.assume_init())
        };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd returned a new descriptor without another owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: the default action has no handler.
        let children = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        Ok(KeptSignals { descriptor, before, ignored_children: children == libc::SIG_IGN })
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
        while take(&self.descriptor).is_some() {}
        // SAFETY: the set was initialised by pthread_sigmask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

impl Drop for KeptSignals {
    fn drop(&mut self) {
        self.release();
    }
}

/// Thread that passes signals on to a command, until the value is dropped.
#[derive(Debug)]
pub struct SignalRelay {
    pid: u32,
    is_left: Arc<AtomicBool>,
    /// Process that watches for the end of a stop; 0 before the first one.
    watcher: Arc<AtomicI32>,
    /// Ends the thread.
    end: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl SignalRelay {
    /// Begins to pass on signals, those that were kept included, to the child `pid`, which was not waited for yet.
    ///
    /// # Errors
    /// There is no such process; the thread or a descriptor cannot be made.
    pub fn start(kept: &KeptSignals, pid: u32) -> io::Result<SignalRelay> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        let command = pidfd_open(raw, PidfdFlags::empty())?;
        let signals = kept.descriptor.try_clone()?;
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        let (ended, is_left) = (end.try_clone()?, Arc::new(AtomicBool::new(false)));
        let watcher = Arc::new(AtomicI32::new(0));
        let (left, of_watcher) = (is_left.clone(), watcher.clone());
        let thread = thread::Builder::new().name("fp-relay".to_owned());
        let thread = thread.spawn(move || pass_on(&signals, &ended, &command, (&left, &of_watcher)))?;
        Ok(SignalRelay { pid, is_left, watcher, end, thread: Some(thread) })
    }

    /// Returns true after the second signal that asks for the end: this process is to end, and the command goes on.
    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed)
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
        self.watcher.store(watcher, Ordering::Relaxed);
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

impl Drop for SignalRelay {
    fn drop(&mut self) {
        // Neither fails: the counter is far from its limit, and the thread does not panic.
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Passes signals on until `ended` is readable.
fn pass_on(
    signals: &OwnedFd,
    ended: &OwnedFd,
    command: &OwnedFd,
    (is_left, watcher): (&AtomicBool, &AtomicI32),
) {
    let mut first: Option<Instant> = None;
    loop {
        let mut events = [PollFd::new(signals, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        // Fails only for want of memory: this thread has no signals.
        let _ = poll(&mut events, None);
        if !events[1].revents().is_empty() {
            return;
        }
        // The terminal has sent its signals to the command, too.
        for signal in std::iter::from_fn(|| take(signals)).filter(|signal| !signal.is_of_kernel) {
            if signal.sender == watcher.load(Ordering::Relaxed) {
                continue;
            }
            first = first.filter(|first| first.elapsed() < MEMORY);
            let is_second = first.is_some_and(|first| first.elapsed() > ECHO);
            if ENDING.contains(&signal.number) {
                is_left.fetch_or(is_second, Ordering::Relaxed);
                first.get_or_insert_with(Instant::now);
            }
            if !is_left.load(Ordering::Relaxed) {
                // SAFETY: plain system call with a descriptor of the process. Fails if it has ended or has changed its user.
                unsafe {
                    libc::syscall(
                        libc::SYS_pidfd_send_signal,
                        command.as_raw_fd(),
                        signal.number,
                        std::ptr::null::<libc::siginfo_t>(),
                        0,
                    );
                }
            }
        }
    }
}

/// Takes a pending signal.
fn take(descriptor: &OwnedFd) -> Option<ReceivedSignal> {
    let mut record = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    // SAFETY: all-zero is a valid record; the slice covers it, and the kernel writes whole records.
    let (bytes, record) = unsafe {
        let bytes = std::slice::from_raw_parts_mut(
            record.as_mut_ptr().cast::<u8>(),
            size_of::<libc::signalfd_siginfo>(),
        );
        (rustix::io::read(descriptor, bytes), record.assume_init())
    };
    let is_whole = bytes.ok()? == size_of::<libc::signalfd_siginfo>();
    let (number, is_of_kernel) = (record.ssi_signo as libc::c_int, record.ssi_code == SI_KERNEL);
    is_whole.then_some(ReceivedSignal { number, is_of_kernel, sender: record.ssi_pid as i32 })
}

/// `SI_KERNEL` of linux/siginfo.h.
const SI_KERNEL: i32 = 0x80;

struct ReceivedSignal {
    number: libc::c_int,
    /// True if no process has sent it: a terminal's signals.
    is_of_kernel: bool,
    /// Id of the process that has sent it.
    sender: i32,
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

    /// In a process of its own, because the signals are blocked in all threads of the tests otherwise: they are blocked only in
    /// the thread of this test, and sent to it alone.
    #[test]
    fn a_kept_signal_reaches_the_command_and_a_second_one_ends_the_relay() {
        thread::spawn(|| {
            let kept = KeptSignals::open().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", "trap 'exit 7' USR1; echo ready; while :; do sleep 0.01; done"]);
            command.stdout(std::process::Stdio::piped());
            kept.prepare(&mut command);
            let mut child = command.spawn().unwrap();
            let mut ready = [0; 6];
            io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
            // SAFETY: a signal to this thread, which has it blocked.
            let send = |number: i32| unsafe {
                libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), number);
            };
            send(libc::SIGUSR1);
            // signalfd(2) reads the signals of the thread that calls read(2).
            let signal = take(&kept.descriptor).unwrap();
            assert_eq!((signal.number, signal.is_of_kernel), (libc::SIGUSR1, false));
            assert!(take(&kept.descriptor).is_none());
            let relay = SignalRelay::start(&kept, child.id()).unwrap();
            assert!(!relay.is_left());
            relay.follow_stop().unwrap();
            drop(relay);
            drop(kept);
            // SAFETY: plain system call; the child was not waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGUSR1) };
            assert_eq!(child.wait().unwrap().code(), Some(7));
        })
        .join()
        .unwrap();
    }
}
