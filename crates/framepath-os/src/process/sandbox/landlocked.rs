// SPDX-License-Identifier: MIT OR Apache-2.0
//! Landlock: restricts files, TCP ports, and signals and abstract unix sockets of other processes.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, NetPort, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use super::{Layer, LayerState, Layers, SandboxRole};
use crate::machine::landlock_abi;

/// Newest Landlock version whose rights are requested; older kernels apply the rights that they support.
const NEWEST: ABI = ABI::V6;

/// The three Landlock layers, each with the Landlock version that introduced it.
const SINCE: [(Layer, u32); 3] =
    [(Layer::LandlockFiles, 1), (Layer::LandlockNet, 4), (Layer::LandlockScope, 6)];

/// Files and folders that the dynamic loader reads.
const LIBRARIES: [&str; 6] =
    ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"];

/// Restricts the calling thread and threads that it starts afterwards, as `role` requires. A second call
/// can only add restrictions. Returns `layers` with the states of the three Landlock layers: a failure is not
/// an error, but such a state.
pub(super) fn enter(role: SandboxRole<'_>, layers: Layers) -> Layers {
    let abi = landlock_abi().unwrap_or(0);
    let enforced = matches!(
        restrict(role).map(|status| status.ruleset),
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced)
    );
    SINCE.into_iter().fold(layers, |layers, (layer, since)| {
        let standing = match (abi >= since, enforced) {
            (false, _) => LayerState::NotInKernel,
            (true, true) => LayerState::Given,
            (true, false) => LayerState::Refused,
        };
        layers.with(layer, standing)
    })
}

fn restrict(role: SandboxRole<'_>) -> Result<RestrictionStatus, RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let read = AccessFs::ReadFile | AccessFs::Execute;
    let ruleset = match role {
        SandboxRole::Decode | SandboxRole::DecodeByDevice | SandboxRole::Plugin => ruleset,
        SandboxRole::PluginLoading { file } => {
            // Missing paths are ignored.
            let paths = LIBRARIES.into_iter().map(Path::new).chain([file]);
            ruleset.add_rules(path_beneath_rules(paths, read))?
        }
        SandboxRole::Network { tcp_port: None } => ruleset,
        SandboxRole::Network { tcp_port: Some(port) } => {
            ruleset.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?
        }
    };
    ruleset.restrict_self()
}
