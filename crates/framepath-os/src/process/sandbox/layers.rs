// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layers of a worker's sandbox, and reasons for missing layers.

use std::fmt;

use crate::process::spawn::Namespaces;

/// One layer of a worker's sandbox. The order of the variants determines the bits of [`Layers::bits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// User namespace: the process has no capability over anything outside of its user namespace.
    UserNamespace,
    /// Pid namespace: processes outside of it have no id in the worker, so the worker cannot signal or trace
    /// them.
    PidNamespace,
    /// Network namespace of the process's own, which reaches no network.
    NetNamespace,
    /// IPC namespace: no System V IPC objects and POSIX message queues of other processes.
    IpcNamespace,
    /// UTS namespace: a host name of its own, separate from the machine's.
    UtsNamespace,
    /// A program started by the process gains no rights.
    NoNewPrivileges,
    /// Other processes of the same user cannot trace the process or read its memory, unless they have a
    /// capability for it.
    NotDumpable,
    /// Resource limits (setrlimit(2)): address space, size of a written file, number of descriptors, no core
    /// dump and, in an own user namespace, number of threads.
    Limits,
    /// The process has no capabilities.
    Capabilities,
    /// Landlock: no file can be opened, made or removed; while a plug-in is loaded, its file and the
    /// system's libraries can be read.
    LandlockFiles,
    /// Landlock: no TCP port can be bound or connected to, except that a worker that reaches the network may
    /// connect to one port ([`SandboxRole::Network`](super::SandboxRole::Network)).
    LandlockNet,
    /// Landlock: the process can send no signal to other processes, and connect to no abstract unix socket of
    /// theirs.
    LandlockScope,
    /// Seccomp filter: only the system calls of the role's policy are allowed, under the policy's conditions.
    Seccomp,
    /// Separate cgroup: a limit on all memory and on threads.
    Cgroup,
}

impl Layer {
    /// All layers, in the order of their bits in [`Layers::bits`].
    pub const ALL: [Layer; 14] = [
        Layer::UserNamespace,
        Layer::PidNamespace,
        Layer::NetNamespace,
        Layer::IpcNamespace,
        Layer::UtsNamespace,
        Layer::NoNewPrivileges,
        Layer::NotDumpable,
        Layer::Limits,
        Layer::Capabilities,
        Layer::LandlockFiles,
        Layer::LandlockNet,
        Layer::LandlockScope,
        Layer::Seccomp,
        Layer::Cgroup,
    ];

    /// Returns the layer's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Layer::UserNamespace => "user namespace",
            Layer::PidNamespace => "pid namespace",
            Layer::NetNamespace => "network namespace",
            Layer::IpcNamespace => "IPC namespace",
            Layer::UtsNamespace => "UTS namespace",
            Layer::NoNewPrivileges => "no new privileges",
            Layer::NotDumpable => "not dumpable",
            Layer::Limits => "limits",
            Layer::Capabilities => "no capabilities",
            Layer::LandlockFiles => "Landlock files",
            Layer::LandlockNet => "Landlock network",
            Layer::LandlockScope => "Landlock signals and sockets",
            Layer::Seccomp => "seccomp",
            Layer::Cgroup => "cgroup",
        }
    }

    /// Returns true for every layer except [`Layer::Cgroup`], which only limits resource usage, and for which
    /// few users have a part of the cgroup hierarchy delegated.
    pub fn confines(self) -> bool {
        self != Layer::Cgroup
    }

    fn shift(self) -> u32 {
        2 * self as u32
    }
}

/// State of one sandbox layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerState {
    /// No result: the layer was not tried, or not yet, or the other process (parent or worker) tries it.
    Untried,
    /// The layer is in force.
    Given,
    /// The kernel does not support the layer, or has it switched off. For seccomp, also if framepath has no
    /// policy for the processor's architecture, or its filter cannot be made or installed for another reason
    /// than a refusal by seccomp(2).
    NotInKernel,
    /// The kernel supports the layer but denied it to this process. Also for a namespace or cgroup that the
    /// worker does not have for another reason, such as the network namespace of a worker that reaches the
    /// network.
    Refused,
}

/// States of all layers of one sandbox, two bits each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Layers(u32);

impl Layers {
    /// Returns the state of `layer`.
    pub fn state(self, layer: Layer) -> LayerState {
        match (self.0 >> layer.shift()) & 3 {
            0 => LayerState::Untried,
            1 => LayerState::Given,
            2 => LayerState::NotInKernel,
            _ => LayerState::Refused,
        }
    }

    /// Returns true if `layer` is in force.
    pub fn has(self, layer: Layer) -> bool {
        self.state(layer) == LayerState::Given
    }

    /// Returns these layers with the state of `layer` replaced.
    #[must_use]
    pub fn with(self, layer: Layer, state: LayerState) -> Layers {
        let bits = match state {
            LayerState::Untried => 0,
            LayerState::Given => 1,
            LayerState::NotInKernel => 2,
            LayerState::Refused => 3,
        };
        Layers((self.0 & !(3 << layer.shift())) | (bits << layer.shift()))
    }

    /// Returns these layers with the states of the five namespace layers replaced: in force where `own` is
    /// true, refused otherwise. Called by the worker's parent, which knows the worker's namespaces.
    #[must_use]
    pub fn with_namespaces(self, own: Namespaces) -> Layers {
        [
            (Layer::UserNamespace, own.user),
            (Layer::PidNamespace, own.pid),
            (Layer::NetNamespace, own.net),
            (Layer::IpcNamespace, own.ipc),
            (Layer::UtsNamespace, own.uts),
        ]
        .into_iter()
        .fold(self, |layers, (layer, own)| {
            layers.with(layer, if own { LayerState::Given } else { LayerState::Refused })
        })
    }

    /// Returns these layers; layers that are untried here have the state of `other`.
    #[must_use]
    pub fn and(self, other: Layers) -> Layers {
        Layer::ALL.into_iter().fold(self, |layers, layer| match layers.state(layer) {
            LayerState::Untried => layers.with(layer, other.state(layer)),
            _ => layers,
        })
    }

    /// Returns the layers that are in force both here and in `other`: a layer that is not in the kernel or
    /// refused in one of the two has this state in the result (if in both, the state here). A layer that is
    /// untried in one of the two has the state of the other.
    #[must_use]
    pub fn weaker(self, other: Layers) -> Layers {
        Layer::ALL.into_iter().fold(self, |layers, layer| match (layers.state(layer), other.state(layer)) {
            (_, LayerState::Untried) => layers,
            (LayerState::Given | LayerState::Untried, state) => layers.with(layer, state),
            _ => layers,
        })
    }

    /// Returns the layers that [confine](Layer::confines) and are not in force, untried layers included.
    pub fn missing(self) -> impl Iterator<Item = Layer> {
        Layer::ALL.into_iter().filter(move |layer| layer.confines() && !self.has(*layer))
    }

    /// Returns the wire form: two bits per layer, [`Layer::UserNamespace`] lowest; the bits above
    /// are zero.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Converts the wire form ([`Layers::bits`]); `None` if a bit above those of the last layer is set. The
    /// caller trusts a worker's report of its own layers only if the worker sent the report before it read the
    /// first untrusted byte.
    pub fn from_bits(bits: u32) -> Option<Layers> {
        (bits >> (2 * Layer::ALL.len()) == 0).then_some(Layers(bits))
    }
}

/// Writes the layers as `user namespace, seccomp; not in this kernel: Landlock files; refused: ...`;
/// leaves out untried layers, and writes `none` if all are untried.
impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut written = false;
        for (state, heading) in [
            (LayerState::Given, ""),
            (LayerState::NotInKernel, "not in this kernel: "),
            (LayerState::Refused, "refused: "),
        ] {
            let mut separator = if written { "; " } else { "" };
            let mut heading = heading;
            for layer in Layer::ALL.into_iter().filter(|l| self.state(*l) == state) {
                write!(f, "{separator}{heading}{}", layer.name())?;
                (separator, heading, written) = (", ", "", true);
            }
        }
        if written { Ok(()) } else { f.write_str("none") }
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layers({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_one_of_two_lacks_is_missing_in_the_weaker() {
        use LayerState::{Given, NotInKernel, Refused, Untried};
        for (one, other, weaker) in [
            (Given, Given, Given),
            (Given, Refused, Refused),
            (Refused, Given, Refused),
            (NotInKernel, Untried, NotInKernel),
            (Untried, Given, Given),
            (Given, Untried, Given),
        ] {
            let with = |state| Layers::default().with(Layer::LandlockFiles, state);
            assert_eq!(
                with(one).weaker(with(other)).state(Layer::LandlockFiles),
                weaker,
                "{one:?} {other:?}"
            );
        }
    }

    #[test]
    fn every_layer_keeps_its_standing_through_the_wire_form() {
        let states = [LayerState::Given, LayerState::NotInKernel, LayerState::Refused, LayerState::Untried];
        let expected = |i: usize| states[i % states.len()];
        let layers = Layer::ALL
            .into_iter()
            .enumerate()
            .fold(Layers::default(), |layers, (i, layer)| layers.with(layer, expected(i)));
        let back = Layers::from_bits(layers.bits()).unwrap();
        for (i, layer) in Layer::ALL.into_iter().enumerate() {
            assert_eq!(back.state(layer), expected(i), "{layer:?}");
        }
        assert_eq!(Layers::from_bits(1 << 28), None);
        assert_eq!(Layers::from_bits(u32::MAX), None);
    }

    #[test]
    fn the_text_names_what_is_there_and_why_the_rest_is_not() {
        let layers = Layers::default()
            .with(Layer::Seccomp, LayerState::Given)
            .with(Layer::Limits, LayerState::Given)
            .with(Layer::LandlockNet, LayerState::NotInKernel)
            .with(Layer::UserNamespace, LayerState::Refused);
        assert_eq!(
            layers.to_string(),
            "limits, seccomp; not in this kernel: Landlock network; refused: user namespace"
        );
        assert_eq!(Layers::default().to_string(), "none");
    }
}
