// SPDX-License-Identifier: MIT OR Apache-2.0
//! One thing a machine may or may not offer.

use std::io;

use serde::Serialize;

/// Whether it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// There, and it answered.
    Ok,
    /// Not there.
    Missing,
    /// There, but this user may not use it.
    NotPermitted,
}

impl State {
    /// The word of a report.
    pub fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Missing => "missing",
            State::NotPermitted => "not permitted",
        }
    }

    /// What an error of the system says: a refusal, or that it is not there.
    pub(super) fn of_error(error: &io::Error) -> State {
        match error.kind() {
            io::ErrorKind::PermissionDenied => State::NotPermitted,
            _ => State::Missing,
        }
    }
}

/// What was asked for, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// The heading it stands under.
    pub group: &'static str,
    /// What it is called.
    pub name: &'static str,
    /// Whether it is there.
    pub state: State,
    /// What was found: a version, a device's name, the system's error.
    pub found: String,
    /// What it is good for.
    pub unlocks: &'static str,
    /// How to get it, where it is not there.
    pub remedy: Option<String>,
}

impl Probe {
    /// Something that is there.
    pub(super) fn ok(
        group: &'static str,
        name: &'static str,
        unlocks: &'static str,
        found: impl Into<String>,
    ) -> Probe {
        Probe { group, name, state: State::Ok, found: found.into(), unlocks, remedy: None }
    }

    /// Something that is not.
    pub(super) fn lacking(
        group: &'static str,
        name: &'static str,
        unlocks: &'static str,
        state: State,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Probe {
        Probe { group, name, state, found: found.into(), unlocks, remedy: Some(remedy.into()) }
    }
}
