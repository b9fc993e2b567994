// SPDX-License-Identifier: MIT OR Apache-2.0
//! Zygote: a process that has loaded its program but read no untrusted data yet, and that forks workers from
//! itself.
//!
//! The workers of one zygote share a pid namespace, which the zygote makes once; each has its own
//! user, network, IPC and UTS namespace (or stays in the zygote's, if the kernel allows no more). If the
//! kernel denies the zygote some kinds of namespaces, its workers stay in those of the machine. The
//! first process of the pid namespace only keeps the namespace alive. No worker runs as that process: for
//! it, the kernel ignores signals that have their default action, so a worker could not die of its own
//! SIGABRT.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use super::{
    Bounds, Group, Made, Namespaces, Prepared, SOCKET, SpawnError, WorkerProcess, child, namespaces,
};
use crate::process::crash;

/// Name in errors in place of a program's path, because a zygote starts no program.
const PROGRAM: &str = "this process";

/// Handle by which a process forks workers from itself. Dropping the handle kills the first process of the
/// workers' pid namespace, if there is one, and the kernel then kills all workers.
#[derive(Debug)]
pub struct Zygote {
    namespaces: Namespaces,
    /// First process of the pid namespace, which keeps the namespace alive; `None` if the kernel denied
    /// a pid namespace.
    _init: Option<WorkerProcess>,
}

impl Zygote {
    /// Turns the calling process into a zygote: enters the first of five sets of namespaces, largest first,
    /// that the kernel allows this user (the last set is empty, so a denied namespace is not an error), and
    /// forks the first process of the pid namespace, if the set has one.
    ///
    /// # Errors
    /// This process has more than one thread, or a system call failed.
    pub fn new() -> Result<Zygote, SpawnError> {
        single_threaded()?;
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let namespaces = enter_most().map_err(failed("unshare"))?;
        if namespaces.user {
            map_self(user, group);
        }
        let init = match namespaces.pid {
            true => Some(fork(None, None, |_| crash::hang())?),
            false => None,
        };
        Ok(Zygote { namespaces, _init: init })
    }

    /// Returns the kinds of namespaces in which the zygote's workers are separate from the rest of the
    /// machine.
    pub fn namespaces(&self) -> Namespaces {
        self.namespaces
    }

    /// Forks a worker that continues with `run`, and returns when the worker is about to call `run`. The
    /// worker has `socket`, and the zygote's environment and standard error. The worker is in a cgroup with
    /// `bounds` if one can be made and entered. In the worker, `run` gets the socket; its result is the exit
    /// code, and a panic exits with 101.
    ///
    /// The child is made by fork(3), so that the C library knows its thread: raise(3), abort(3)
    /// and mutexes that check their owner work in it.
    ///
    /// # Errors
    /// As [`Zygote::new`]. The process must have one thread, because a lock of another thread,
    /// such as the allocator's, would stay locked in the child.
    pub fn fork(
        &self,
        socket: BorrowedFd<'_>,
        bounds: Bounds,
        run: impl FnOnce(OwnedFd) -> i32,
    ) -> Result<WorkerProcess, SpawnError> {
        single_threaded()?;
        let mut worker = fork(Some(socket), bounds.group(), |socket| {
            let own = Namespaces { pid: false, ..self.namespaces };
            // A limit may deny more namespaces. The worker then stays in those of the zygote, which
            // are of the same kinds and separate from the host's, too.
            // SAFETY: unshare(2) takes any number.
            unsafe { libc::unshare(own.flags()) };
            match socket {
                Some(socket) => run(socket),
                None => 1,
            }
        })?;
        worker.namespaces = self.namespaces;
        Ok(worker)
    }
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> SpawnError {
    move |source| SpawnError::Parent { program: Path::new(PROGRAM).to_owned(), call, source }
}

/// Returns an error unless this process has exactly one thread.
fn single_threaded() -> Result<(), SpawnError> {
    let tasks = std::fs::read_dir("/proc/self/task").map_err(failed("reading /proc/self/task"))?;
    match tasks.count() {
        1 => Ok(()),
        threads => {
            Err(failed("fork")(io::Error::other(format!("this process has {threads} threads; expected 1"))))
        }
    }
}

/// Enters the first set of [`Namespaces::CANDIDATES`] that the kernel allows, and returns it. The pid
/// namespace applies to children only.
fn enter_most() -> io::Result<Namespaces> {
    for namespaces in Namespaces::CANDIDATES {
        // SAFETY: unshare(2) takes any number.
        if unsafe { libc::unshare(namespaces.flags()) } == 0 {
            return Ok(namespaces);
        }
        let error = io::Error::last_os_error();
        if !namespaces::is_refusal(&error) {
            return Err(error);
        }
    }
    Ok(Namespaces::default())
}

/// Maps `user` and `group`, the effective ids that this process had before, to the same ids in this process's
/// new user namespace. Without the map, this process's children could not make a user namespace of their own
/// that maps no user. Ignores a failure.
fn map_self(user: u32, group: u32) {
    // If a file cannot be written, the workers stay in the zygote's user namespace.
    let write = |file: &str, text: &str| std::fs::write(format!("/proc/self/{file}"), text).is_ok();
    let _ = write("setgroups", "deny")
        && write("uid_map", &format!("{user} {user} 1"))
        && write("gid_map", &format!("{group} {group} 1"));
}

/// Calls fork(3). The child prepares its files, session and signals, calls `run` with its socket (`None`
/// if there is none), and exits with the result, or with 101 after a panic. Returns the child, in the parent,
/// when the child is prepared.
fn fork(
    socket: Option<BorrowedFd<'_>>,
    group: Option<Group>,
    run: impl FnOnce(Option<OwnedFd>) -> i32,
) -> Result<WorkerProcess, SpawnError> {
    let (program, failed) = (Path::new(PROGRAM), failed);
    let null;
    let child_socket = match socket {
        Some(socket) => socket,
        None => {
            null = std::fs::File::open("/dev/null").map_err(failed("open /dev/null"))?;
            std::os::fd::AsFd::as_fd(&null)
        }
    };
    let prepared = Prepared::new(program, child_socket, true, group)?;
    let files = prepared.files();
    // SAFETY: this process has one thread (checked by the callers), so the child has no lock of a
    // thread that it lacks.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        if let Err(step) = files.confine() {
            files.report(step, io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
        }
        files.done();
        // SAFETY: `confine` put the descriptor there, and closed every other file.
        let child_socket = unsafe { OwnedFd::from_raw_fd(SOCKET) };
        let child_socket = socket.is_some().then_some(child_socket);
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(child_socket)));
        child::exit(code.unwrap_or(101))
    }
    if pid < 0 {
        return Err(failed("fork")(io::Error::last_os_error()));
    }
    let opened = rustix::process::Pid::from_raw(pid)
        .ok_or(io::ErrorKind::InvalidData.into())
        .and_then(|pid| Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?));
    match opened {
        Ok(pidfd) => prepared.outcome(program, Made { pid, pidfd, namespaces: Namespaces::default() }),
        Err(error) => {
            // SAFETY: the child was not waited for, so the id still belongs to it.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
            Err(failed("pidfd_open")(error))
        }
    }
}
