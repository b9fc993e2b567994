// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sandbox for the calling process, entered for good before it reads a foreign byte.
//!
//! Afterwards a worker may still compute, on several threads, in memory up to its limit,
//! and use the file descriptors it has or is sent. A forbidden call fails with EPERM and
//! is not fatal: libraries that look into /sys or /proc continue without.
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

/// Purpose of a worker, which decides what the worker may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxRole<'a> {
    /// Decodes packets it receives into memory it made.
    Decode,
    /// As [`SandboxRole::Decode`], by a V4L2 node that it is sent: may use the node as a client
    /// of a decoder does, and make no such call on any other file.
    DecodeByDevice,
    /// Loads the plug-in `file` with the libraries it needs: may read and map
    /// `file` and the system's library folders, and no other file. The plug-in's
    /// constructors run under this. [`SandboxRole::Plugin`] is entered next.
    PluginLoading {
        /// The shared object.
        file: &'a Path,
    },
    /// Runs a plug-in that is loaded: opens no file, maps no code.
    Plugin,
}

/// Limits of the resources that a worker may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Address space, bytes, beyond what is mapped when the process is locked in:
    /// stacks, heap and everything that is mapped later.
    pub memory_bytes: u64,
    /// Largest regular file it can write, bytes.
    pub file_bytes: u64,
    /// Open file descriptors. Memory in memfds that are not mapped is not part
    /// of the address space: a worker can hold back as many as it has
    /// descriptors for, each of at most [`ResourceLimits::largest_grant`].
    pub open_files: u64,
    /// Threads. In force if the process has a user namespace of its own and its user is
    /// not root, which the kernel exempts.
    pub threads: u64,
}

impl ResourceLimits {
    /// Returns the number of bytes of the largest memfd that a worker with `memory_bytes`
    /// is granted. The worker can make none by itself.
    pub const fn largest_grant(memory_bytes: u64) -> u64 {
        memory_bytes / 4
    }
}

impl Default for ResourceLimits {
    /// 4 GiB of memory, files of 1 GiB, 16 descriptors, 256 threads.
    fn default() -> ResourceLimits {
        ResourceLimits { memory_bytes: 4 << 30, file_bytes: 1 << 30, open_files: 16, threads: 256 }
    }
}

/// Error of locking a process in. The process may be locked in partly: end it.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A layer that every machine has was refused.
    #[error("sandbox: {layer}: {call}: {source}", layer = .layer.name())]
    Refused {
        /// The layer.
        layer: Layer,
        /// The system call.
        call: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// No filter of system calls; all other layers of `layers` are in force.
    #[error("sandbox: seccomp: {reason}")]
    NoSeccomp {
        /// The layers that were entered.
        layers: Layers,
        /// Why there is no filter.
        reason: String,
    },
}

/// Locks the calling process in as `role`, within `limits`; it cannot be undone. Returns
/// the layers in force.
///
/// Call it from the main thread while it is the only one, with no capability or file
/// needed any more. Missing Landlock is reported in the result; missing seccomp is
/// [`SandboxError::NoSeccomp`], and the caller decides. The parent knows the namespaces
/// ([`Layers::with_namespaces`]).
///
/// Afterwards fstat(2) works and stat(2) does not: the C library's `fstat` is
/// one or the other, rustix's is fstat(2).
pub fn enter(role: SandboxRole<'_>, limits: &ResourceLimits) -> Result<Layers, SandboxError> {
    let refused = |layer, call| {
        move |errno: rustix::io::Errno| SandboxError::Refused { layer, call, source: errno.into() }
    };
    rustix::thread::set_no_new_privs(true)
        .map_err(refused(Layer::NoNewPrivileges, "prctl(PR_SET_NO_NEW_PRIVS)"))?;
    // A process in its first role cannot change this any more, and need not.
    if dumpable_behavior() != Ok(DumpableBehavior::NotDumpable) {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(refused(Layer::NotDumpable, "prctl(PR_SET_DUMPABLE)"))?;
    }
    for (resource, value) in [
        (Resource::As, limits.memory_bytes.saturating_add(mapped_bytes())),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Nofile, limits.open_files),
        (Resource::Core, 0),
    ] {
        lower(resource, value).map_err(refused(Layer::Limits, "setrlimit"))?;
    }
    // The kernel counts the threads of a user per user namespace: in a shared one,
    // threads of other programs would count too.
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

/// Tries the steps of [`enter`] for [`SandboxRole::Decode`] on a thread that ends right after,
/// without limits and dumpability, which hold for the whole process.
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

/// Enters Landlock and drops capabilities, both of which are per thread.
fn lock_thread(role: SandboxRole<'_>, layers: Layers) -> Result<Layers, SandboxError> {
    // Landlock first: its rules open a plug-in's file, which root may reach by
    // capability alone.
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

/// Returns true if this process is in a user namespace that maps no user, as a worker's does.
fn has_own_user_namespace() -> bool {
    std::fs::read("/proc/self/uid_map").is_ok_and(|map| map.is_empty())
}

/// Address space of this process: a program linked with the codec libraries has 200 MiB
/// mapped before it does anything. 0 where the kernel does not report it.
fn mapped_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0).saturating_mul(rustix::param::page_size() as u64)
}

/// Sets both limits of `resource` to `value`, or leaves a limit that is lower already.
fn lower(resource: Resource, value: u64) -> rustix::io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    let most = now.maximum.map_or(value, |maximum| maximum.min(value));
    let current = now.current.map_or(most, |current| current.min(most));
    setrlimit(resource, Rlimit { current: Some(current), maximum: Some(most) })
}
