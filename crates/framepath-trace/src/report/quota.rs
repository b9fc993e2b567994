// SPDX-License-Identifier: MIT OR Apache-2.0
//! Count of used CPU quotas beside the ledger.

use framepath_os::process::cpu_quota::QuotaUse;
use serde::Serialize;

use super::{count, time};

/// Count of the CPU quotas of the program's cgroups, an independent observer of the cause `throttled`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QuotaCount {
    /// Number of periods in which a quota was used up.
    pub periods: u64,
    /// Time in which threads could not run for that, nanoseconds: the sum over the CPUs.
    pub throttled_ns: u64,
}

impl From<QuotaUse> for QuotaCount {
    fn from(used: QuotaUse) -> QuotaCount {
        QuotaCount { periods: used.periods, throttled_ns: used.throttled_ns }
    }
}

impl QuotaCount {
    /// Returns the sentence about the quota; `None` if it was not used up. The ledgers tell it from preemptions if `is_told` is true.
    pub(super) fn note(self, is_told: bool) -> Option<String> {
        let QuotaCount { periods, throttled_ns } = self;
        let used = format!(
            "the CPU quota of the program's cgroup was used up in {}, for {} by the kernel's count",
            count(periods as usize, "period", "periods"),
            time(throttled_ns)
        );
        match is_told {
            _ if periods == 0 => None,
            true => Some(used),
            false => Some(format!("{used}; `preempted` means preempted or throttled here")),
        }
    }
}
