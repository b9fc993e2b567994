// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kind of a worker: everything that distinguishes one worker's start from another's.
//!
//! One text carries the kind. The zygote gets this text in the spawn message; a worker that is started as a
//! program gets it as its second argument. FILE is the path of the device or plug-in, and PORT a TCP port:
//!
//! ```text
//! TASK memory=BYTES [with-every-layer|without-seccomp] [FILE|PORT]
//! stage memory=4294967296
//! filter memory=4294967296
//! device memory=4294967296 /dev/video0
//! plugin memory=4294967296 without-seccomp /usr/lib/frei0r-1/glow.so
//! network memory=4294967296 554
//! network memory=4294967296
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use framepath_codec::filter::FilterGraph;
use framepath_codec::frei0r;
use framepath_os::process::sandbox::{
    Layer, LayerState, Layers, ResourceLimits, SandboxError, SandboxRole, enter, mapped_bytes,
};
use framepath_os::process::spawn::Bounds;

use super::{HostError, SandboxChoice};

/// Purpose of a worker, which determines the policy of its sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    /// Runs a stage, or demuxes a file: the caller sends the open file, or answers the worker's requests for
    /// its bytes.
    Stage,
    /// Decodes with the V4L2 device at this path. The caller sends the open device.
    Device(PathBuf),
    /// Runs the plug-in at this canonical path.
    Plugin(PathBuf),
    /// Runs a graph of libavfilter.
    Filter,
    /// Demuxes a stream from the network. The number is the TCP port of the server; `None` if the worker
    /// needs no TCP.
    Network(Option<u16>),
}

/// A worker's kind. Workers of one kind are interchangeable until they have a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerKind {
    pub(crate) task: Task,
    /// Limit of the worker's address space, bytes, beyond the part that is mapped when the worker enters
    /// its sandbox. Also the limit of the memory of the worker's cgroup, if it has one.
    pub(crate) memory_bytes: u64,
    /// The option `sandbox=`. With `allow`, the worker runs even if no seccomp filter can be installed. With
    /// `require`, the worker of a plug-in checks its own layers before it loads the plug-in; the caller
    /// checks the layers of every worker before it opens a stream.
    sandbox: SandboxChoice,
}

impl WorkerKind {
    /// Makes the kind of a worker for `task`, in a stream with the option `sandbox`.
    pub(crate) fn new(task: Task, memory_bytes: u64, sandbox: SandboxChoice) -> WorkerKind {
        WorkerKind { task, memory_bytes, sandbox }
    }

    /// Makes the kind of a worker for plain stages, without a device or plug-in, that requires seccomp.
    pub fn stage(memory_bytes: u64) -> WorkerKind {
        WorkerKind::new(Task::Stage, memory_bytes, SandboxChoice::default())
    }

    /// Returns the path of the device that the worker decodes with; `None` for the other tasks.
    pub(super) fn device(&self) -> Option<&Path> {
        match &self.task {
            Task::Device(node) => Some(node),
            Task::Stage | Task::Plugin(_) | Task::Filter | Task::Network(_) => None,
        }
    }

    /// True if the worker reaches the network, so that it has no network namespace of its own.
    pub(super) fn has_network(&self) -> bool {
        matches!(self.task, Task::Network(_))
    }

    /// Returns the layers of a worker's sandbox for a judgement about missing ones: a worker that reaches the
    /// network needs no network namespace.
    pub(super) fn judged(&self, layers: Layers) -> Layers {
        if self.has_network() { layers.with(Layer::NetNamespace, LayerState::Given) } else { layers }
    }

    /// Returns the limits of the worker's cgroup.
    pub(super) fn bounds(&self) -> Bounds {
        Bounds { memory_bytes: self.memory_bytes, threads: ResourceLimits::default().threads }
    }

    /// Locks this process into the sandbox of its kind; returns the sandbox's layers.
    ///
    /// A plug-in is loaded between two steps: its constructors are foreign code and need a sandbox, but
    /// the plug-in and its libraries have to be readable. libavfilter is loaded before the sandbox.
    ///
    /// # Errors
    /// The sandbox cannot be entered; the plug-in or libavfilter cannot be loaded; no seccomp filter can be
    /// installed, unless the kind's `sandbox` is `allow`; or the worker of a plug-in lacks a layer that it
    /// makes itself, if the kind's `sandbox` is `require`.
    pub(super) fn lock_in(&self) -> Result<Layers, HostError> {
        match self.enter() {
            Err(HostError::Sandbox(SandboxError::NoSeccomp { layers, .. }))
                if self.sandbox == SandboxChoice::Allow =>
            {
                Ok(layers)
            }
            entered => entered,
        }
    }

    fn enter(&self) -> Result<Layers, HostError> {
        if let Task::Filter = self.task {
            // The system's own library, loaded before the sandbox denies files.
            FilterGraph::load().map_err(|error| HostError::Failed { text: error.to_string() })?;
        }
        // Measured before the sandbox denies /proc.
        let mapped = mapped_bytes().map_err(|source| SandboxError::Refused {
            layer: Layer::Limits,
            call: "read /proc/self/statm",
            source,
        })?;
        let address_space_bytes = self.memory_bytes.saturating_add(mapped);
        let limits = &ResourceLimits { address_space_bytes, ..ResourceLimits::default() };
        // Each buffer of a device and each library of a plug-in is an open file.
        let more_files = &ResourceLimits { open_files: 64, ..*limits };
        Ok(match &self.task {
            Task::Stage | Task::Filter => enter(SandboxRole::Decode, limits)?,
            Task::Device(_) => enter(SandboxRole::DecodeByDevice, more_files)?,
            Task::Network(tcp_port) => enter(SandboxRole::Network { tcp_port: *tcp_port }, limits)?,
            Task::Plugin(file) => {
                let loading = enter(SandboxRole::PluginLoading { file }, more_files)?;
                if self.sandbox == SandboxChoice::Require {
                    // The caller checks the layers only after the plug-in's constructors have run.
                    check_own(loading)?;
                }
                frei0r::Plugin::load(file)?;
                loading.weaker(enter(SandboxRole::Plugin, limits)?)
            }
        })
    }
}

/// Checks that none of the confining layers is missing that a worker makes itself. The layers that its parent
/// makes are not checked: they are [`LayerState::Untried`] in `layers`.
///
/// # Errors
/// The kernel lacks or refused such a layer.
fn check_own(layers: Layers) -> Result<(), HostError> {
    let missing: Vec<&str> = layers
        .missing()
        .filter(|layer| layers.state(*layer) != LayerState::Untried)
        .map(Layer::name)
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(HostError::Unconfined { missing: missing.join(", ") }) }
}

impl fmt::Display for WorkerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (task, rest) = match &self.task {
            Task::Stage => ("stage", None),
            Task::Filter => ("filter", None),
            Task::Device(node) => ("device", Some(node.display().to_string())),
            Task::Plugin(file) => ("plugin", Some(file.display().to_string())),
            Task::Network(port) => ("network", port.map(|port| port.to_string())),
        };
        write!(f, "{task} memory={}", self.memory_bytes)?;
        match self.sandbox {
            SandboxChoice::Seccomp => {}
            SandboxChoice::Require => f.write_str(" with-every-layer")?,
            SandboxChoice::Allow => f.write_str(" without-seccomp")?,
        }
        rest.map_or(Ok(()), |rest| write!(f, " {rest}"))
    }
}

/// Error of a text that does not describe a kind of worker.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a kind of worker; expected stage|filter|device|plugin|network memory=BYTES [with-every-layer|without-seccomp], then a FILE for device, an absolute FILE for plugin, and optionally a TCP port for network"
)]
pub struct UnknownKind(String);

impl FromStr for WorkerKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<WorkerKind, UnknownKind> {
        let parse = || {
            let (task, rest) = text.split_once(" memory=")?;
            let (memory, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
            let (sandbox, file) = match word {
                "with-every-layer" => (SandboxChoice::Require, behind),
                "without-seccomp" => (SandboxChoice::Allow, behind),
                _ => (SandboxChoice::Seccomp, rest),
            };
            let task = match (task, file) {
                ("stage", "") => Task::Stage,
                ("filter", "") => Task::Filter,
                ("device", file) if !file.is_empty() => Task::Device(file.into()),
                ("network", "") => Task::Network(None),
                ("network", port) => Task::Network(Some(port.parse().ok()?)),
                ("plugin", file) if file.starts_with('/') => Task::Plugin(file.into()),
                _ => return None,
            };
            Some(WorkerKind { task, memory_bytes: memory.parse().ok()?, sandbox })
        };
        // Each kind has exactly one text; another text for the same kind is refused.
        let kind = parse().filter(|kind| kind.to_string() == text);
        kind.ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_survives_its_text() {
        let file = || PathBuf::from("/a b/without-seccomp memory=1.so");
        let network = [None, Some(554)].map(Task::Network);
        for task in
            [Task::Stage, Task::Filter, Task::Device(file()), Task::Plugin(file())].into_iter().chain(network)
        {
            for sandbox in [SandboxChoice::Seccomp, SandboxChoice::Require, SandboxChoice::Allow] {
                let kind = WorkerKind::new(task.clone(), u64::MAX, sandbox);
                assert_eq!(kind.to_string().parse(), Ok(kind));
            }
        }
        assert_eq!(WorkerKind::stage(7).to_string(), "stage memory=7");
    }

    #[test]
    fn no_other_text_is_a_kind() {
        for wrong in [
            "",
            "stage",
            "stage memory=",
            "stage memory=-1",
            "stage memory=1 ",
            "stage memory=+1",
            "stage memory=1 /dev/video0",
            "stage memory=1 without-seccomp-x",
            "device memory=1",
            "plugin memory=1 x.so",
            "network memory=1 0554",
            "network memory=1 65536",
            "shell memory=1 /bin/sh",
        ] {
            assert_eq!(wrong.parse::<WorkerKind>(), Err(UnknownKind(wrong.to_owned())));
        }
    }
}
