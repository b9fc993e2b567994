// SPDX-License-Identifier: MIT OR Apache-2.0
//! The links within one process.

use framepath::{Leaky, Pipeline};

use framepath_testkit::conformance::way::{Full, Link};

const RUNS: usize = 40;

pub fn direct() -> Link {
    Link {
        add: Box::new(|built| built),
        holds: None,
        holds_least: 0,
        full: Full::Waits,
        own_slots: None,
        runs: RUNS,
    }
}

pub fn queue(depth: usize, leaky: Leaky) -> Link {
    let full = match leaky {
        Leaky::No => Full::Waits,
        Leaky::Upstream => Full::DropsNew,
        Leaky::Downstream => Full::DropsOldest,
    };
    let (add, holds) =
        (Box::new(move |built: Pipeline| built.queue(depth, leaky).named("link")), depth as u64);
    Link { add, holds: Some(holds), holds_least: holds, full, own_slots: None, runs: RUNS }
}
