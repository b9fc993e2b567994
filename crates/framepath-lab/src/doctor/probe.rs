// SPDX-License-Identifier: MIT OR Apache-2.0
//! One capability of a machine.

use std::io;

use serde::Serialize;

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeState {
    /// Present and working.
    Ok,
    /// Absent.
    Missing,
    /// Present, but this user may not use it.
    NotPermitted,
}

impl ProbeState {
    /// Returns the word for reports.
    pub fn word(self) -> &'static str {
        match self {
            ProbeState::Ok => "ok",
            ProbeState::Missing => "missing",
            ProbeState::NotPermitted => "not permitted",
        }
    }

    /// Converts a system error: permission denied, or absent.
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
    /// Heading of its group.
    pub group: &'static str,
    /// Name of the capability.
    pub name: &'static str,
    /// Result of the probe.
    pub state: ProbeState,
    /// Details: a version, a device's name, the system's error.
    pub found: String,
    /// Features that need the capability.
    pub unlocks: &'static str,
    /// How to get an absent capability.
    pub remedy: Option<String>,
}

impl Probe {
    /// Creates a probe of a present capability.
    pub(super) fn ok(
        group: &'static str,
        name: &'static str,
        unlocks: &'static str,
        found: impl Into<String>,
    ) -> Probe {
        Probe { group, name, state: ProbeState::Ok, found: found.into(), unlocks, remedy: None }
    }

    /// Creates a probe of an absent capability.
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
