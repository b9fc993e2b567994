// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a recording.

use std::io;
use std::path::Path;

/// Error of a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The command cannot be started.
    #[error("cannot start {program}: {error}")]
    Start {
        /// The program, as it was named.
        program: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// There is no process with this number, or it has ended.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The number.
        pid: u32,
    },
    /// /proc is not there, as in some chroots, so that no running process can be found.
    #[error("cannot read /proc/{pid}/status: /proc is not mounted; mount it: mount -t proc proc /proc")]
    NoProc {
        /// Number of the process.
        pid: u32,
    },
    /// The process has the rights of another user.
    #[error("cannot observe {what}: it runs as user {user}; only root may observe processes of other users")]
    OtherUser {
        /// The process.
        what: String,
        /// Number of the user.
        user: u32,
    },
    /// The process belongs to another user, or the kernel denies perf to this user.
    #[error(
        "the kernel denies the observation of {what}: it must be a process of this user, and \
         /proc/sys/kernel/perf_event_paranoid at most 2; root may observe every process"
    )]
    Denied {
        /// The command or process.
        what: String,
    },
    /// The kernel denies probes, or cannot have them.
    #[error(
        "no level `bpf`: {error}; it needs root, or CAP_BPF and CAP_PERFMON, and Linux 5.18 with BTF; level `threads` \
         needs neither"
    )]
    NoProbes {
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The library cannot be preloaded into the program.
    #[error("no level `preload`: {error}; level `threads` needs no library")]
    NoPreload {
        /// The reason, or the system's error.
        #[source]
        error: io::Error,
    },
    /// The process has more threads than this process may have descriptors for.
    #[error("{what} has {threads} threads, too many for the limit of open files; raise it with `ulimit -n`")]
    TooManyThreads {
        /// The command or process.
        what: String,
        /// Number of its threads.
        threads: usize,
    },
    /// Another system call failed.
    #[error("cannot {operation}: {error}")]
    System {
        /// Failed operation, as a verb phrase.
        operation: &'static str,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}

impl TraceError {
    /// Returns the error for a process `pid` whose files in /proc cannot be read.
    pub(crate) fn no_process(pid: u32) -> TraceError {
        if Path::new("/proc/self/status").exists() {
            TraceError::NoProcess { pid }
        } else {
            TraceError::NoProc { pid }
        }
    }
}
