// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decision, by the option `sandbox=`, about a worker whose sandbox lacks layers.

use framepath_os::process::sandbox::{Layer, Layers};

use super::HostError;

/// Value of the option `sandbox=` of a hop that runs in a worker: the reaction to missing layers of the
/// worker's sandbox. The cgroup is no confining layer, so its lack has no effect. A note is for the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SandboxChoice {
    /// The default: the start fails without seccomp. Any other missing confining layer is reported in a note.
    #[default]
    Seccomp,
    /// The start fails if any confining layer is missing. A worker that reaches the network needs no network
    /// namespace.
    Require,
    /// The worker runs with the available layers. Missing confining layers are reported in a note.
    Allow,
}

impl SandboxChoice {
    pub(crate) fn of(word: &str) -> SandboxChoice {
        match word {
            "require" => SandboxChoice::Require,
            "allow" => SandboxChoice::Allow,
            _ => SandboxChoice::Seccomp,
        }
    }

    /// Checks that a worker whose sandbox has `layers` may run the stream.
    ///
    /// # Errors
    /// A required layer is missing.
    pub(super) fn check(self, layers: Layers) -> Result<(), HostError> {
        let refused: Vec<&str> = layers
            .missing()
            .filter(|layer| match self {
                SandboxChoice::Seccomp => *layer == Layer::Seccomp,
                SandboxChoice::Require => true,
                SandboxChoice::Allow => false,
            })
            .map(Layer::name)
            .collect();
        match refused.is_empty() {
            true => Ok(()),
            false => Err(HostError::Unconfined { missing: refused.join(", ") }),
        }
    }
}

/// Returns a note for the user about the confining layers that `layers` lacks, the layers of a worker's
/// sandbox; `None` if none is missing.
pub(crate) fn note(layers: Layers) -> Option<String> {
    let missing: Vec<&str> = layers.missing().map(Layer::name).collect();
    (!missing.is_empty()).then(|| {
        let missing = missing.join(", ");
        format!(
            "the worker's sandbox lacks {missing}; run `framepath doctor` for a remedy, or set sandbox=require \
             to fail instead"
        )
    })
}

#[cfg(test)]
mod tests {
    use framepath_os::process::sandbox::LayerState;

    use super::*;

    #[test]
    fn each_choice_refuses_the_missing_layers_it_names() {
        let all =
            Layer::ALL.into_iter().fold(Layers::default(), |all, layer| all.with(layer, LayerState::Given));
        let without = |layer| all.with(layer, LayerState::Refused);
        let passes = |layers| {
            ["default", "require", "allow"].map(|word| SandboxChoice::of(word).check(layers).is_ok())
        };
        assert_eq!(passes(all), [true, true, true]);
        assert_eq!(passes(without(Layer::UserNamespace)), [true, false, true]);
        assert_eq!(passes(without(Layer::LandlockFiles)), [true, false, true]);
        assert_eq!(passes(without(Layer::Seccomp)), [false, false, true]);
        assert_eq!(passes(without(Layer::Cgroup)), [true, true, true]);
        assert_eq!((note(all), note(without(Layer::Cgroup))), (None, None));
        assert!(note(without(Layer::NetNamespace)).is_some_and(|note| note.contains("network namespace")));
    }
}
