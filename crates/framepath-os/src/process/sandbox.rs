// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sandbox for the calling process, entered permanently before the process reads an untrusted
//! byte.
//!
//! Afterwards a worker may still compute, on several threads, in memory up to its limit, and use
//! the file descriptors that it has or receives; some roles ([`SandboxRole`]) may do more. A system call
//! that the seccomp filter forbids fails with EPERM (clone3 with ENOSYS) and is not fatal: libraries that read
//! /sys or /proc continue without. Only a call with the numbering of another architecture ends the process.
//! `docs/sandbox.md` defines the guarantees.

use std::io;
use std::path::Path;
use std::thread;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, dumpable_behavior, set_dumpable_behavior, setrlimit,
};

mod aarch64;
mod capabilities;
mod filter;
mod landlocked;
mod layers;
mod policy;
mod x86_64;

pub use layers::{Layer, LayerState, Layers};

/// Purpose of a worker. The role determines the allowed system calls, files and TCP ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxRole<'a> {
    /// Runs a decoder, demuxer or other stage on received data, in its own memory and in memory that its
    /// caller grants; opens and makes no file.
    Decode,
    /// Decodes as in [`SandboxRole::Decode`], or with a V4L2 node that the worker receives. The worker may
    /// also make the ioctls of a V4L2 decoder's client, which only V4L2 nodes know.
    DecodeByDevice,
    /// Loads the plug-in `file` with its libraries: may read and map `file`, the files in the system's
    /// library folders and /etc/ld.so.cache, and no other file (without Landlock, every file that its user
    /// may read). The plug-in's constructors run in this role. [`SandboxRole::Plugin`] is entered next.
    PluginLoading {
        /// Shared object of the plug-in; the worker may read and map it.
        file: &'a Path,
    },
    /// Runs a loaded plug-in: opens no file, maps no code.
    Plugin,
    /// Demuxes as in [`SandboxRole::Decode`], and reads its stream from the network: makes TCP and UDP sockets
    /// (IPv4, IPv6), connects them, and binds UDP sockets. Listens on no TCP port. With Landlock's network
    /// layer, connects by TCP to one port at most. The process has to be in a network namespace that has the
    /// network.
    Network {
        /// TCP port of the server, at any address, to which Landlock allows connections; `None` if the worker
        /// needs no TCP, and Landlock then allows none.
        tcp_port: Option<u16>,
    },
}

/// Limits on the resources of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Maximum address space of the worker (stacks, heap and other mappings), with what is mapped before it
    /// enters the sandbox ([`mapped_bytes`]), bytes.
    pub address_space_bytes: u64,
    /// Maximum size to which the worker can extend a file by writing (RLIMIT_FSIZE), bytes.
    pub file_bytes: u64,
    /// Maximum number of open file descriptors. Unmapped memfds are not part of the address
    /// space: a worker can keep as many as it has descriptors, each of at most
    /// [`ResourceLimits::largest_grant`].
    pub open_files: u64,
    /// Maximum number of threads. Applies only if the process is in a user namespace that maps no user, as
    /// that of a worker, and not if its user is root, which the kernel exempts.
    pub threads: u64,
}

impl ResourceLimits {
    /// Returns the size in bytes of the largest memfd that a worker with the limit `memory_bytes` is
    /// granted by its caller: a quarter of `memory_bytes`. The worker itself cannot make memfds.
    pub const fn largest_grant(memory_bytes: u64) -> u64 {
        memory_bytes / 4
    }
}

impl Default for ResourceLimits {
    /// Returns the default limits: 4 GiB of address space, files of 1 GiB, 16 descriptors, 260 threads: 256 of a decoder,
    /// and the worker's own.
    fn default() -> ResourceLimits {
        ResourceLimits { address_space_bytes: 4 << 30, file_bytes: 1 << 30, open_files: 16, threads: 260 }
    }
}

/// Error of entering the sandbox. The process (or, for [`try_on_a_thread`], the thread) may be partly
/// confined.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel refused a layer that every machine has.
    #[error("sandbox: {layer}: {call}: {source}", layer = .layer.name())]
    Refused {
        /// Layer that the kernel refused.
        layer: Layer,
        /// System call that failed.
        call: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// No seccomp filter could be installed. The other layers were tried; `layers` has their states.
    #[error("sandbox: seccomp: {reason}")]
    NoSeccomp {
        /// States of the layers after the attempt.
        layers: Layers,
        /// Reason why there is no filter.
        reason: String,
    },
}

/// Confines the calling process to `role` and `limits`, permanently; existing lower limits stay.
/// Returns the states of the layers.
///
/// Call this on the main thread while it is the only thread, and when no capability or file is
/// needed any more. Missing or refused Landlock is reported in the result. If the seccomp filter cannot be
/// installed, the error is [`SandboxError::NoSeccomp`], which comes after all other layers were tried, and
/// the caller decides whether to continue. A failure of any other layer is [`SandboxError::Refused`]. The
/// worker's parent adds the states of the namespaces and of the cgroup
/// ([`WorkerProcess::layers`](crate::process::spawn::WorkerProcess::layers)).
///
/// Afterwards the system call fstat works; stat and newfstatat fail, except that newfstatat works in
/// [`SandboxRole::PluginLoading`]. The C library's `fstat` may use newfstatat; rustix's uses fstat.
pub fn enter(role: SandboxRole<'_>, limits: &ResourceLimits) -> Result<Layers, SandboxError> {
    let refused = |layer, call| {
        move |errno: rustix::io::Errno| SandboxError::Refused { layer, call, source: errno.into() }
    };
    rustix::thread::set_no_new_privs(true)
        .map_err(refused(Layer::NoNewPrivileges, "prctl(PR_SET_NO_NEW_PRIVS)"))?;
    // A process that is already in a role cannot change this any more, and need not.
    if dumpable_behavior() != Ok(DumpableBehavior::NotDumpable) {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(refused(Layer::NotDumpable, "prctl(PR_SET_DUMPABLE)"))?;
    }
    for (resource, value) in [
        (Resource::As, limits.address_space_bytes),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Nofile, limits.open_files),
        (Resource::Core, 0),
    ] {
        lower(resource, value).map_err(refused(Layer::Limits, "setrlimit"))?;
    }
    // The kernel counts a user's threads per user namespace: in a shared one, the threads of
    // other programs would count too.
    if has_own_user_namespace() {
        lower(Resource::Nproc, limits.threads).map_err(refused(Layer::Limits, "setrlimit"))?;
    }
    let layers = Layers::default()
        .with(Layer::NoNewPrivileges, LayerState::Given)
        .with(Layer::NotDumpable, LayerState::Given)
        .with(Layer::Limits, LayerState::Given);
    let layers = lock_thread(role, layers)?;
    install_filter(role, layers, filter::FilterScope::All)
}

/// Tests the steps of [`enter`] for [`SandboxRole::Decode`] on a temporary thread, without limits
/// and dumpability, which apply to the whole process. Returns the layers that the thread got; fails as
/// [`enter`] does. The calling process stays unconfined.
pub fn try_on_a_thread() -> Result<Layers, SandboxError> {
    let attempt = || {
        rustix::thread::set_no_new_privs(true).map_err(|errno| SandboxError::Refused {
            layer: Layer::NoNewPrivileges,
            call: "prctl(PR_SET_NO_NEW_PRIVS)",
            source: errno.into(),
        })?;
        let layers = Layers::default().with(Layer::NoNewPrivileges, LayerState::Given);
        let layers = lock_thread(SandboxRole::Decode, layers)?;
        install_filter(SandboxRole::Decode, layers, filter::FilterScope::This)
    };
    thread::spawn(attempt).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Enters Landlock and drops capabilities; both apply to the calling thread. Returns `layers` with the
/// states of these layers added.
fn lock_thread(role: SandboxRole<'_>, layers: Layers) -> Result<Layers, SandboxError> {
    // Landlock comes first: its rules open a plug-in's file, and root may need a capability for
    // that.
    let layers = landlocked::enter(role, layers);
    capabilities::drop_all().map_err(|errno| SandboxError::Refused {
        layer: Layer::Capabilities,
        call: "capset",
        source: errno.into(),
    })?;
    Ok(layers.with(Layer::Capabilities, LayerState::Given))
}

fn install_filter(
    role: SandboxRole<'_>,
    layers: Layers,
    threads: filter::FilterScope,
) -> Result<Layers, SandboxError> {
    match filter::install(role, threads) {
        Ok(()) => Ok(layers.with(Layer::Seccomp, LayerState::Given)),
        Err(error) => {
            let layers = layers.with(Layer::Seccomp, error.state());
            Err(SandboxError::NoSeccomp { layers, reason: error.to_string() })
        }
    }
}

/// Returns true if this process is in a user namespace that maps no user, as a worker is.
fn has_own_user_namespace() -> bool {
    std::fs::read("/proc/self/uid_map").is_ok_and(|map| map.is_empty())
}

/// Returns the size of this process's address space, bytes. A program linked with the codec libraries has
/// 200 MiB mapped at its start.
///
/// # Errors
/// /proc/self/statm cannot be read, for example because this process is in a sandbox, or is not understood.
pub fn mapped_bytes() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: Option<u64> = statm.split(' ').next().and_then(|pages| pages.parse().ok());
    let pages = pages.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a number of pages"))?;
    Ok(pages.saturating_mul(rustix::param::page_size() as u64))
}

/// Sets both limits of `resource` to `value`, but does not raise a lower limit.
fn lower(resource: Resource, value: u64) -> rustix::io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    let most = now.maximum.map_or(value, |maximum| maximum.min(value));
    let current = now.current.map_or(most, |current| current.min(most));
    setrlimit(resource, Rlimit { current: Some(current), maximum: Some(most) })
}
