// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts workers: children with one socket and, except for [`spawn_zygote`], namespaces of their own.
//!
//! The child has four file descriptors: the socket at [`SOCKET`], and /dev/null at 0, 1 and 2 (at 2 the
//! parent's standard error with [`KEEP_STDERR`], and always for a [`Zygote`]'s fork). The child has a session
//! of its own, so that Ctrl-C at the terminal does not reach it, and default signal dispositions. Its
//! environment has the parent's `LANG` and `LD_LIBRARY_PATH` if they are set, and `FRAMEPATH_SOCKET`,
//! which identifies the socket; a fork has the zygote's environment. The kernel kills the child when the
//! thread that started it ends.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::crossing::Socket;
use crate::process::cgroup::{Delegated, Group};
use crate::process::children::ResourceUsage;
use crate::process::inherited;
use crate::process::sandbox::{Layer, LayerState, Layers};
use crate::time::timespec;

mod child;
mod namespaces;
mod zygote;

pub use namespaces::Namespaces;
pub use zygote::Zygote;

/// Descriptor of the worker's end of the socket, in the worker.
pub const SOCKET: RawFd = inherited::FIRST;

/// Environment variable of the parent: if it is `1`, programs started by [`spawn`] and its variants keep the
/// parent's standard error; otherwise they get /dev/null.
pub const KEEP_STDERR: &str = "FRAMEPATH_WORKER_STDERR";

/// Takes the socket that [`spawn`] or one of its variants passed to this process as descriptor [`SOCKET`],
/// once. The environment variable FRAMEPATH_SOCKET, which [`spawn`] sets, identifies the socket.
///
/// # Errors
/// The descriptor is not open or not the socket of FRAMEPATH_SOCKET, because this process was not started
/// by [`spawn`] or a variant, or the socket was already taken; or a system call failed.
pub fn take_socket() -> io::Result<OwnedFd> {
    let named = std::env::var(inherited::SOCKET_VARIABLE).ok();
    inherited::claim(|fd| inherited::is_workers_socket(fd, named.as_deref()))
}

/// Error of starting a worker, or of making a [`Zygote`].
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program's path, an argument or an environment variable contains a zero byte.
    #[error("worker {program}: start: {what} contains a zero byte")]
    ZeroByte {
        /// Path of the worker's program.
        program: PathBuf,
        /// Text that contains the zero byte: `its path` (that of `program`), `an argument` or `the environment`.
        what: &'static str,
    },
    /// The parent could not prepare or make the child, read its report, or reap it after a reported error; or
    /// a process cannot become a [`Zygote`] or fork (it has several threads, for example).
    #[error("worker {program}: start: {call}: {source}")]
    Parent {
        /// Path of the worker's program; `this process` for a [`Zygote`].
        program: PathBuf,
        /// Name of the system call or step that failed.
        call: &'static str,
        /// Error of the call or step.
        source: io::Error,
    },
    /// The child was made, but a step of its preparation or its execve failed.
    #[error("worker {program}: start: {step} in the child: {source}")]
    Child {
        /// Path of the worker's program; `this process` for a [`Zygote`]'s fork.
        program: PathBuf,
        /// Failed step of the child's preparation, or its execve.
        step: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}

/// Started worker, a child of this process. Dropping it kills and reaps the process.
#[derive(Debug)]
pub struct WorkerProcess {
    /// Process id of the worker in the pid namespace of this process.
    pid: libc::pid_t,
    pidfd: OwnedFd,
    namespaces: Namespaces,
    /// Cgroup of the worker, removed when this value is dropped, after the process was reaped; `None` if the
    /// worker has no cgroup of its own.
    group: Option<Group>,
    /// Resource usage of the process; `None` until the process was reaped. From then on `pid` may belong
    /// to another process.
    ended: Option<ResourceUsage>,
}

/// Starts `program` with `args` (after its own name) and with `socket` as file descriptor
/// [`SOCKET`]. The parent's copy stays open.
///
/// Returns after the child's execve succeeded, or after the child was killed before. The kernel kills the
/// child when the calling *thread* ends (PR_SET_PDEATHSIG), so call this on a thread that lives as long as
/// the worker.
///
/// The worker gets the first of five sets of namespaces, largest first, that the kernel allows this user
/// ([`WorkerProcess::namespaces`]); the last set is empty, so a denied namespace is not an error. A user
/// namespace of the worker maps no user, so a worker with one has no capability from its execve on. The
/// worker opens files with the rights of the user who started it. Its environment has only the parent's
/// LANG and LD_LIBRARY_PATH (if they are set), and FRAMEPATH_SOCKET, which identifies its socket.
///
/// # Errors
/// [`SpawnError`] names the failed step of the parent or of the child, its execve included. No child is
/// left.
pub fn spawn(program: &Path, args: &[&OsStr], socket: BorrowedFd<'_>) -> Result<WorkerProcess, SpawnError> {
    exec(program, args, socket, ChildNamespaces::All, None)
}

/// Starts `program` as [`spawn`] does, in a cgroup with the limits `bounds`. Starts it without a cgroup
/// if no part of the cgroup hierarchy is delegated to this user, or the cgroup cannot be made or
/// entered; [`WorkerProcess::layers`] shows whether the worker has one.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_bounded(
    program: &Path,
    args: &[&OsStr],
    socket: BorrowedFd<'_>,
    bounds: Bounds,
) -> Result<WorkerProcess, SpawnError> {
    exec(program, args, socket, ChildNamespaces::All, Some(bounds))
}

/// Starts `program` as [`spawn_bounded`] does, but in the network namespace of this process: the worker reaches
/// the network. [`SandboxRole::Network`](crate::process::sandbox::SandboxRole::Network) is its role.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_with_network(
    program: &Path,
    args: &[&OsStr],
    socket: BorrowedFd<'_>,
    bounds: Bounds,
) -> Result<WorkerProcess, SpawnError> {
    exec(program, args, socket, ChildNamespaces::AllButNetwork, Some(bounds))
}

/// Limits of a worker's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum memory of all kinds, kernel memory included, bytes.
    pub memory_bytes: u64,
    /// Maximum number of threads of the worker.
    pub threads: u64,
}

impl Bounds {
    /// Makes a cgroup with these limits; `None` if no part of the cgroup hierarchy is delegated to
    /// this user, or the cgroup cannot be made.
    fn group(self) -> Option<Group> {
        Delegated::find().ok()?.group(self.memory_bytes, self.threads).ok()
    }
}

/// Starts `program` as [`spawn`] does, but in the namespaces of this process. For a program that
/// calls [`Zygote::new`] and starts workers.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_zygote(
    program: &Path,
    args: &[&OsStr],
    socket: BorrowedFd<'_>,
) -> Result<WorkerProcess, SpawnError> {
    exec(program, args, socket, ChildNamespaces::None, None)
}

/// Namespaces of its own that a child gets, as far as the kernel allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChildNamespaces {
    All,
    AllButNetwork,
    None,
}

fn exec(
    program: &Path,
    args: &[&OsStr],
    socket: BorrowedFd<'_>,
    namespaces: ChildNamespaces,
    bounds: Option<Bounds>,
) -> Result<WorkerProcess, SpawnError> {
    let failed = |call| {
        let program = program.to_owned();
        move |source: io::Error| SpawnError::Parent { program, call, source }
    };
    let text = |what: &'static str, text: &OsStr| {
        CString::new(text.as_bytes()).map_err(|_| SpawnError::ZeroByte { program: program.to_owned(), what })
    };
    let path = text("its path", program.as_os_str())?;
    let mut argv = vec![path.clone()];
    for arg in args {
        argv.push(text("an argument", arg)?);
    }
    let mut envp = Vec::new();
    for name in ["LANG", "LD_LIBRARY_PATH"] {
        if let Some(value) = std::env::var_os(name) {
            let mut entry = std::ffi::OsString::from(name);
            entry.push("=");
            entry.push(value);
            envp.push(text("the environment", &entry)?);
        }
    }
    let named = inherited::identity(socket).map_err(failed("fstat of the worker's socket"))?;
    let named = format!("{}={named}", inherited::SOCKET_VARIABLE);
    envp.push(text("the environment", OsStr::new(&named))?);
    let keep_stderr = std::env::var_os(KEEP_STDERR).is_some_and(|v| v == "1");
    let group = bounds.and_then(Bounds::group);
    let prepared = Prepared::new(program, socket, keep_stderr, group)?;
    let plan = child::ChildPlan::new(&path, &argv, &envp, prepared.files());
    let made = match namespaces {
        ChildNamespaces::All => namespaces::clone_with_most(true, || plan.become_worker()),
        ChildNamespaces::AllButNetwork => namespaces::clone_with_most(false, || plan.become_worker()),
        ChildNamespaces::None => namespaces::clone_with_none(|| plan.become_worker()),
    };
    prepared.outcome(program, made.map_err(failed("clone"))?)
}

/// Descriptors with which the parent makes a child. The parent reads the child's report from `report_reader`.
/// The child copies `null`, `socket` and `report_writer` to the numbers 0 to 4, and enters the cgroup by the
/// file in `group`. The numbers of these files in the parent are 10 or more, so no copy overwrites a
/// descriptor that is still needed.
struct Prepared {
    report_reader: OwnedFd,
    null: OwnedFd,
    report_writer: OwnedFd,
    socket: OwnedFd,
    keep_stderr: bool,
    group: Option<(Group, OwnedFd)>,
}

impl Prepared {
    fn new(
        program: &Path,
        socket: BorrowedFd<'_>,
        keep_stderr: bool,
        group: Option<Group>,
    ) -> Result<Prepared, SpawnError> {
        let failed =
            |call| move |source: io::Error| SpawnError::Parent { program: program.to_owned(), call, source };
        let null =
            File::options().read(true).write(true).open("/dev/null").map_err(failed("open /dev/null"))?;
        let (report_reader, report_writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|errno| failed("pipe2")(errno.into()))?;
        let high = |fd: BorrowedFd<'_>| {
            rustix::io::fcntl_dupfd_cloexec(fd, child::FIRST_SPARE)
                .map_err(|errno| failed("fcntl(F_DUPFD_CLOEXEC)")(errno.into()))
        };
        let (null, report_writer, socket) =
            (high(null.as_fd())?, high(report_writer.as_fd())?, high(socket)?);
        // If the group cannot be entered, its layer is missing.
        let group = group.and_then(|group| {
            let entry = high(group.entry().ok()?.as_fd()).ok()?;
            Some((group, entry))
        });
        Ok(Prepared { report_reader, null, report_writer, socket, keep_stderr, group })
    }

    fn files(&self) -> child::Files {
        child::Files {
            null: self.null.as_raw_fd(),
            report_reader: self.report_reader.as_raw_fd(),
            report_fd: self.report_writer.as_raw_fd(),
            socket: self.socket.as_raw_fd(),
            keep_stderr: self.keep_stderr,
            group: self.group.as_ref().map_or(-1, |(_, entry)| entry.as_raw_fd()),
        }
    }

    /// Waits until the child `made` has executed the program or, for a fork, is ready, or was killed before;
    /// returns the worker. If the child reports an error instead, reaps the child and returns the error.
    fn outcome(self, program: &Path, made: Made) -> Result<WorkerProcess, SpawnError> {
        let failed =
            |call| move |source: io::Error| SpawnError::Parent { program: program.to_owned(), call, source };
        // The pipe ends when the child closes the last writing end.
        drop(self.report_writer);
        let Made { pid, pidfd, namespaces } = made;
        let group = self.group.map(|(group, _)| group);
        let mut worker = WorkerProcess { pid, pidfd, namespaces, group, ended: None };
        let mut report = Vec::new();
        File::from(self.report_reader).read_to_end(&mut report).map_err(failed("read from the child"))?;
        match child::ChildFailure::decode(&report) {
            None => {
                worker.group = worker.group.take().filter(Group::has_process);
                Ok(worker)
            }
            Some(failure) => {
                // The child exits by itself after its report.
                worker.wait().map_err(failed("wait4"))?;
                let (program, step, source) = (program.to_owned(), failure.step, failure.error);
                Err(SpawnError::Child { program, step, source })
            }
        }
    }
}

/// Returns the namespaces that a worker gets if this process starts it by [`spawn`]. Finds out by making a
/// child that exits immediately. Fails if the child cannot be made or waited for.
pub fn namespaces_given() -> io::Result<Namespaces> {
    let made = namespaces::clone_with_most(true, || child::exit(0))?;
    let mut process = WorkerProcess {
        pid: made.pid,
        pidfd: made.pidfd,
        namespaces: made.namespaces,
        group: None,
        ended: None,
    };
    process.wait()?;
    Ok(process.namespaces)
}

impl WorkerProcess {
    /// Returns the process id, as seen by the parent.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Returns the pidfd; it is readable (poll(2)) after the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns the kinds of namespaces in which the worker is separate from the rest of the machine. Workers
    /// of one [`Zygote`] may share them (see [`Namespaces`]).
    pub fn namespaces(&self) -> Namespaces {
        self.namespaces
    }

    /// Returns the states of the sandbox layers that the parent makes: the namespaces and the cgroup. A
    /// missing one is [`LayerState::Refused`], even if it was not requested. The other layers are untried.
    pub fn layers(&self) -> Layers {
        let cgroup = if self.group.is_some() { LayerState::Given } else { LayerState::Refused };
        Layers::default().with_namespaces(self.namespaces).with(Layer::Cgroup, cgroup)
    }

    /// Kills the process (SIGKILL). Does nothing if it has already ended.
    pub fn kill(&self) -> io::Result<()> {
        kill(self.pidfd())
    }

    /// Waits until the process has ended, and reaps it. Returns its resource usage; later calls return the
    /// same. Signals do not end the wait.
    pub fn wait(&mut self) -> io::Result<ResourceUsage> {
        loop {
            match self.reap(0) {
                Ok(Some(usage)) => return Ok(usage),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sleeps until the process has ended, or `limit` is over. Returns true if the process has ended, and false
    /// otherwise or if poll(2) fails. A signal's handler does not end the wait.
    pub fn ends_within(&self, limit: Duration) -> bool {
        let mut end = [rustix::event::PollFd::new(&self.pidfd, rustix::event::PollFlags::IN)];
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            match rustix::event::poll(&mut end, Some(&timespec(left))) {
                Err(rustix::io::Errno::INTR) => {}
                ended => return matches!(ended, Ok(1..)),
            }
        }
    }

    /// Reaps the worker if it has ended, and returns its resource usage. Returns `None` while the worker
    /// runs.
    pub fn try_wait(&mut self) -> io::Result<Option<ResourceUsage>> {
        self.reap(libc::WNOHANG)
    }

    fn reap(&mut self, options: libc::c_int) -> io::Result<Option<ResourceUsage>> {
        if self.ended.is_some() {
            return Ok(self.ended);
        }
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: both pointers are valid for the call. The child was not reaped yet, so the id
        // still belongs to it.
        let waited = unsafe { libc::wait4(self.pid, &mut status, options, usage.as_mut_ptr()) };
        if waited < 0 {
            return Err(io::Error::last_os_error());
        }
        if waited == self.pid {
            // SAFETY: all-zero is a valid rusage, and wait4 filled it.
            self.ended = Some(ResourceUsage::of(status, unsafe { usage.assume_init_ref() }));
        }
        Ok(self.ended)
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if self.ended.is_none() && self.kill().is_ok() {
            // Waiting fails only if there is no child to wait for.
            let _ = self.wait();
        }
    }
}

/// Handle to a worker that another process started and reaps; holds the worker's pidfd. Dropping it does
/// not end the worker.
#[derive(Debug)]
pub struct Remote(OwnedFd);

impl From<OwnedFd> for Remote {
    /// Accepts any descriptor: a descriptor that is not a pidfd fails in use.
    fn from(pidfd: OwnedFd) -> Remote {
        Remote(pidfd)
    }
}

impl Remote {
    /// Kills the process (SIGKILL). Does nothing if it has already ended.
    pub fn kill(&self) -> io::Result<()> {
        kill(self.0.as_fd())
    }

    /// Sleeps until the process has ended, or poll(2) fails.
    pub fn wait(&self) {
        let mut ended = [rustix::event::PollFd::new(&self.0, rustix::event::PollFlags::IN)];
        while let Err(rustix::io::Errno::INTR) | Ok(0) = rustix::event::poll(&mut ended, None) {}
    }
}

fn kill(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    match rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Sleeps until `socket` is readable or its peer is gone. Meanwhile, reaps the `children` that end, and
/// removes them from the list (also a child that cannot be waited for). For a process that only starts
/// workers. Signals do not end the sleep.
///
/// # Errors
/// From poll(2), except EINTR.
pub fn serve_spawner(socket: &Socket, children: &mut Vec<WorkerProcess>) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    loop {
        let mut fds = vec![PollFd::new(socket, PollFlags::IN)];
        fds.extend(children.iter().map(|child| PollFd::new(&child.pidfd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let has_message = !fds[0].revents().is_empty();
        // A process that cannot be waited for is no longer a child.
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if has_message {
            return Ok(());
        }
    }
}

/// New child process that was not waited for yet.
struct Made {
    pid: libc::pid_t,
    pidfd: OwnedFd,
    namespaces: Namespaces,
}

/// Calls clone(2) without shared memory, as fork does, with `flags` and a pidfd. Calls `run` in
/// the child with all signals blocked; the child exits with 127 when `run` returns. Returns the child's
/// id and pidfd in the parent.
///
/// Does not use clone3, because containers commonly block that call.
fn clone_child(flags: libc::c_int, run: impl FnOnce()) -> io::Result<(libc::pid_t, OwnedFd)> {
    let mut pidfd: libc::c_int = -1;
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // No handler of the parent may run in the child before its dispositions are reset.
    // SAFETY: sigfillset initialises its set; pthread_sigmask reads it and fills the other.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        let refused = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
    }
    let flags = (flags | libc::CLONE_PIDFD | libc::SIGCHLD) as libc::c_ulong;
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: a null stack and no CLONE_VM make this a fork: the child has its
    // own copy of all memory. The third argument is where the kernel writes the
    // pidfd on every architecture; the last two are not used with these flags.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, &raw mut pidfd, none, none) };
    if pid == 0 {
        run();
        child::exit(127)
    }
    let error = io::Error::last_os_error();
    // SAFETY: filled by the first call, which succeeded.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    if pid < 0 {
        return Err(error);
    }
    // SAFETY: clone succeeded, so the kernel stored a new descriptor there.
    Ok((pid as libc::pid_t, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}
