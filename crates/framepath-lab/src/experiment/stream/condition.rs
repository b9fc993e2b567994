// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conditions under which the contenders stream: the cases of the experiment.

use super::desktop::{JUMP, SCROLL};
use crate::relay::Impairment;
use crate::test_link::LinkLimits;

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StreamCondition {
    /// Name of the case, which is stable.
    pub(super) name: &'static str,
    /// The network; `None` for the loopback interface.
    pub(super) link: Option<LinkLimits>,
    /// True if other threads use all processors.
    pub(super) is_loaded: bool,
    /// True if the screen stands still while it is measured.
    pub(super) is_idle: bool,
    /// Rows by which the screen's moving area scrolls for each picture.
    pub(super) scroll: u32,
}

/// Condition without any of these.
pub(super) const CLEAN: StreamCondition =
    StreamCondition { name: "clean", link: None, is_loaded: false, is_idle: false, scroll: SCROLL };

/// Condition with many losses, and condition with the slowest link.
pub(super) const LOSS_3: StreamCondition = lossy("loss-3", 3.0);
pub(super) const RATE_10M: StreamCondition = limited("rate-10m", 10);

/// All conditions. The first is that of the quick set.
pub(super) static CONDITIONS: [StreamCondition; 7] = [
    CLEAN,
    lossy("loss-1", 1.0),
    LOSS_3,
    limited("rate-20m", 20),
    RATE_10M,
    StreamCondition { name: "loaded", is_loaded: true, ..CLEAN },
    StreamCondition { name: "idle", is_idle: true, ..CLEAN },
];

const fn lossy(name: &'static str, loss_percent: f64) -> StreamCondition {
    let impairment = Impairment { loss_percent, jitter_ms: 5.0, seed: 1 };
    StreamCondition { name, link: Some(LinkLimits { impairment, megabits: None }), ..CLEAN }
}

const fn limited(name: &'static str, megabits: u32) -> StreamCondition {
    let impairment = Impairment { loss_percent: 0.0, jitter_ms: 0.0, seed: 1 };
    let link = LinkLimits { impairment, megabits: Some(megabits) };
    StreamCondition { name, link: Some(link), scroll: JUMP, ..CLEAN }
}
