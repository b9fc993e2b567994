// SPDX-License-Identifier: MIT OR Apache-2.0
//! One probed capability of a machine.

use std::io;

use serde::Serialize;

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeState {
    /// The capability is present and works.
    Ok,
    /// The capability is absent or fails.
    Missing,
    /// The capability is present, but this user may not use it.
    NotPermitted,
}

impl ProbeState {
    /// Returns the state's name in reports: `ok`, `missing` or `not permitted`.
    pub fn word(self) -> &'static str {
        match self {
            ProbeState::Ok => "ok",
            ProbeState::Missing => "missing",
            ProbeState::NotPermitted => "not permitted",
        }
    }

    /// Converts a system error: EACCES and EPERM become [`ProbeState::NotPermitted`], all others
    /// [`ProbeState::Missing`].
    pub(super) fn from_error(error: &io::Error) -> ProbeState {
        match error.kind() {
            io::ErrorKind::PermissionDenied => ProbeState::NotPermitted,
            _ => ProbeState::Missing,
        }
    }
}

/// A capability that was probed, and the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Heading under which reports list the capability, such as `devices`.
    pub group: &'static str,
    /// Name of the capability.
    pub name: &'static str,
    /// Result of the probe.
    pub state: ProbeState,
    /// Details of the result: a version, a device's name, or the system's error.
    pub found: String,
    /// Features that need the capability.
    pub unlocks: &'static str,
    /// Instruction that makes the capability available; `None` if the capability is available already.
    pub remedy: Option<String>,
}

impl Probe {
    /// Creates the result of a probe that found the capability.
    pub(super) fn ok(
        group: &'static str,
        name: &'static str,
        unlocks: &'static str,
        found: impl Into<String>,
    ) -> Probe {
        Probe { group, name, state: ProbeState::Ok, found: found.into(), unlocks, remedy: None }
    }

    /// Creates the result of a probe that did not find a usable capability; `state` is
    /// [`ProbeState::Missing`] or [`ProbeState::NotPermitted`].
    pub(super) fn lacking(
        group: &'static str,
        name: &'static str,
        unlocks: &'static str,
        state: ProbeState,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Probe {
        Probe { group, name, state, found: found.into(), unlocks, remedy: Some(remedy.into()) }
    }
}
