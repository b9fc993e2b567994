// SPDX-License-Identifier: MIT OR Apache-2.0
//! The child between clone and execve. It uses only system calls and its own stack, because other
//! threads of the parent may have held any lock when the child was made.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::RawFd;

use super::SOCKET;

/// Descriptor of the child's end of the pipe on which it reports a failed step; closed by execve or, in
/// a fork, by [`Files::done`].
const REPORT: RawFd = SOCKET + 1;
/// Lowest number of the descriptors that the parent duplicates for the child before it makes the child. It is
/// above all numbers to which the child copies them.
pub(super) const FIRST_SPARE: RawFd = 10;
/// Highest signal number plus one.
const SIGNALS: libc::c_int = 65;

/// Names of the steps of a child's preparation, for errors; the child reports the index of a failed step.
const STEPS: [&str; 9] = [
    "setsid",
    "prctl(PR_SET_PDEATHSIG)",
    "check that the parent is alive",
    "dup2",
    "close_range",
    "fcntl(F_SETFD)",
    "prctl(PR_SET_NO_NEW_PRIVS)",
    "sigprocmask",
    "execve",
];

/// Descriptors that the child needs, by their numbers in the parent.
pub(super) struct Files {
    /// /dev/null, for standard input and output, and for standard error unless `keep_stderr` is true.
    pub(super) null: RawFd,
    /// Reading end of the report pipe, of which the child closes its copy.
    pub(super) report_reader: RawFd,
    /// Writing end of the report pipe.
    pub(super) report_fd: RawFd,
    /// The worker's end of its socket; /dev/null for the first process of a zygote's pid namespace, which has
    /// no socket.
    pub(super) socket: RawFd,
    /// True if the child keeps the parent's standard error; false if it gets /dev/null.
    pub(super) keep_stderr: bool,
    /// File by which the child enters its cgroup; -1 if the child gets no cgroup.
    pub(super) group: RawFd,
}

/// Everything that a child needs to execute a program, allocated before the child is made.
pub(super) struct ChildPlan<'a> {
    path: &'a CStr,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    files: Files,
}

impl<'a> ChildPlan<'a> {
    pub(super) fn new(
        path: &'a CStr,
        argv: &'a [CString],
        envp: &'a [CString],
        files: Files,
    ) -> ChildPlan<'a> {
        let pointers = |texts: &[CString]| {
            texts.iter().map(|t| t.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        ChildPlan { path, argv: pointers(argv), envp: pointers(envp), files }
    }

    /// Prepares the child and executes the program. If a step fails, reports the step to the parent and
    /// exits. Called in the child.
    pub(super) fn become_worker(&self) -> ! {
        let step = self.prepare();
        // SAFETY: reads the errno of this thread.
        let errno = unsafe { *libc::__errno_location() };
        self.files.report(step, errno)
    }

    /// Prepares the child and calls execve. Returns only if a step failed: its index in
    /// [`STEPS`].
    fn prepare(&self) -> u8 {
        if let Err(step) = self.files.confine() {
            return step;
        }
        // SAFETY: pointers into memory that the clone copied; all three arrays end with a null
        // pointer.
        unsafe { libc::execve(self.path.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
        8
    }
}

impl Files {
    /// Detaches the child from the parent's session, files and signals, enters its cgroup if there is
    /// one and it can be entered, copies the child's descriptors to their final numbers, and closes all
    /// others. Makes the kernel kill the child when the thread that started it ends, and sets no_new_privs.
    /// Called in the child. The error is the failed step, by its index in [`STEPS`].
    pub(super) fn confine(&self) -> Result<(), u8> {
        let Files { null, report_reader, report_fd, socket, keep_stderr, group } = *self;
        // SAFETY: system calls with numbers, and with pointers to sets and
        // structures on this stack.
        unsafe {
            // The terminal's signals go to its foreground group; setsid leaves that group.
            if libc::setsid() < 0 {
                return Err(0);
            }
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) != 0 {
                return Err(1);
            }
            // If the parent died before the prctl call, the kernel sends no signal, but the pipe has no
            // reader without this child's copy. The child has a descriptor table of its own.
            libc::close(report_reader);
            let mut pipe = libc::pollfd { fd: report_fd, events: 0, revents: 0 };
            if libc::poll(&mut pipe, 1, 0) != 0 {
                return Err(2);
            }
            // The parent checks whether this worked.
            libc::write(group, c"0".as_ptr().cast(), 1);
            if libc::dup2(report_fd, REPORT) < 0 || libc::dup2(socket, SOCKET) < 0 {
                return Err(3);
            }
            if libc::dup2(null, 0) < 0 || libc::dup2(null, 1) < 0 {
                return Err(3);
            }
            if !keep_stderr && libc::dup2(null, 2) < 0 {
                return Err(3);
            }
            let (first, last) = ((REPORT + 1) as libc::c_ulong, libc::c_ulong::from(libc::c_uint::MAX));
            if libc::syscall(libc::SYS_close_range, first, last, 0 as libc::c_ulong) != 0 {
                return Err(4);
            }
            if libc::fcntl(REPORT, libc::F_SETFD, libc::FD_CLOEXEC) != 0 {
                return Err(5);
            }
            let (yes, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, yes, unused, unused, unused) != 0 {
                return Err(6);
            }
            // The kernel's own struct sigaction: handler, flags, restorer, mask. The C library's
            // function would reject two signals.
            let default = [libc::SIG_DFL as u64, 0, 0, 0];
            let unwanted = std::ptr::null_mut::<u64>();
            for signal in 1..SIGNALS {
                // Fails for signals whose disposition cannot be changed.
                libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), unwanted, size_of::<u64>());
            }
            let mut none = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&mut none);
            if libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) != 0 {
                return Err(7);
            }
        }
        Ok(())
    }
}

impl Files {
    /// Reports the failed step, an index in [`STEPS`], and its errno to the parent, and exits.
    pub(super) fn report(&self, step: u8, errno: libc::c_int) -> ! {
        let mut report = [0; 5];
        report[0] = step;
        report[1..].copy_from_slice(&errno.to_ne_bytes());
        // The parent's number comes first: it is the pipe or, after it was closed, unused. REPORT
        // may be any file of the parent until the pipe was moved there.
        for report_fd in [self.report_fd, REPORT] {
            // SAFETY: five readable bytes.
            let written = unsafe { libc::write(report_fd, report.as_ptr().cast(), report.len()) };
            if written == report.len() as isize {
                break;
            }
        }
        exit(127)
    }

    /// Closes the report pipe without a report, so that the parent continues: the child is ready.
    pub(super) fn done(&self) {
        // SAFETY: closes the pipe, of which this process has no other descriptor.
        unsafe { libc::close(REPORT) };
    }
}

/// Ends the calling process with exit code `code`, without the exit functions (atexit(3)) that it has from
/// its parent.
pub(super) fn exit(code: libc::c_int) -> ! {
    // SAFETY: _exit is async-signal-safe and takes any number.
    unsafe { libc::_exit(code) }
}

/// Error that a child reported: the name of the failed step, and the kernel's error.
pub(super) struct ChildFailure {
    pub(super) step: &'static str,
    pub(super) error: io::Error,
}

impl ChildFailure {
    /// Parses the report from the pipe. Returns `None` for an empty report, which means success, or that the
    /// child was killed before it could report. In an incomplete report the error is EIO.
    pub(super) fn decode(report: &[u8]) -> Option<ChildFailure> {
        let (step, errno) = report.split_first()?;
        let errno = errno.try_into().map_or(libc::EIO, i32::from_ne_bytes);
        let step = STEPS.get(usize::from(*step)).copied().unwrap_or("an unknown step");
        Some(ChildFailure { step, error: io::Error::from_raw_os_error(errno) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::super::namespaces::clone_with_none;
    use super::*;

    /// Returns the exit code of a child that enters its final state after the only reader of its report is gone:
    /// the index of the step that failed, or 99.
    fn orphaned() -> i32 {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let null = File::open("/dev/null").unwrap();
        let files = Files {
            null: null.as_raw_fd(),
            report_reader: reader.as_raw_fd(),
            report_fd: writer.as_raw_fd(),
            socket: null.as_raw_fd(),
            keep_stderr: true,
            group: -1,
        };
        let (wait_fd, go_fd) = (wait.as_raw_fd(), go.as_raw_fd());
        // SAFETY: the child makes system calls only, with its own copies of descriptors.
        let made = clone_with_none(|| unsafe {
            libc::close(go_fd);
            let mut byte = 0_u8;
            // Returns once the test has dropped `go`.
            libc::read(wait_fd, (&raw mut byte).cast(), 1);
            libc::_exit(files.confine().err().unwrap_or(99).into());
        })
        .unwrap();
        drop((reader, go));
        let mut status = 0;
        // SAFETY: waits for the child made above; the pointer is valid.
        assert_eq!(unsafe { libc::waitpid(made.pid, &mut status, 0) }, made.pid);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_child_whose_parent_is_gone_does_not_go_on() {
        // A child that another test makes meanwhile can hold a copy of the reader for a moment.
        let step = (0..5).map(|_| orphaned()).find(|step| *step != 99);
        assert_eq!(step.map(|step| STEPS[step as usize]), Some(STEPS[2]));
    }
}
