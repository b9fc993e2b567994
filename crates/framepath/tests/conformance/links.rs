// SPDX-License-Identifier: MIT OR Apache-2.0
//! The links within one process.

use framepath::{Leaky, Pipeline};

use framepath_testkit::conformance::way::{LinkUnderTest, WhenFull};

const RUNS: usize = 40;

pub fn direct() -> LinkUnderTest {
    LinkUnderTest {
        add: Box::new(|built| built),
        holds: None,
        holds_least: 0,
        full: WhenFull::Waits,
        own_slots: None,
        runs: RUNS,
    }
}

pub fn queue(depth: usize, leaky: Leaky) -> LinkUnderTest {
    let full = match leaky {
        Leaky::No => WhenFull::Waits,
        Leaky::Upstream => WhenFull::DropsNew,
        Leaky::Downstream => WhenFull::DropsOldest,
    };
    let (add, holds) =
        (Box::new(move |built: Pipeline| built.queue(depth, leaky).named("link")), depth as u64);
    LinkUnderTest { add, holds: Some(holds), holds_least: holds, full, own_slots: None, runs: RUNS }
}
