// SPDX-License-Identifier: MIT OR Apache-2.0
//! `burn`: a known CPU cost in every frame.

use framepath_model::path::{Arg, DefaultValue, Definition, Hosts, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::process::signal;
use framepath_os::time::{now_ns, thread_cpu_ns};

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

static DEFINITION: Definition = Definition::stage("burn", "injects CPU time into every frame")
    .args(&[Arg::option("time", ValueKind::Duration, DefaultValue::Required, "CPU time per frame")
        .known_as(&["cpu"])])
    .hosts(Hosts::Any)
    .for_tests();

pub(crate) fn element() -> Element {
    // The stage passes frames on, and has no pool to wait for.
    Element::stage(&DEFINITION, |hop, _| Ok(Burn { cpu_ns: hop.duration_ns("time") }))
        .with_least_out(|_, _| u32::MAX)
}

/// Stage that uses CPU time for every frame and passes the frame on unchanged. The thread's CPU clock
/// measures the time, so that preemption does not shorten it.
pub(crate) struct Burn {
    /// CPU time per frame, nanoseconds.
    pub(crate) cpu_ns: u64,
}

impl Stage for Burn {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        burn(self.cpu_ns);
        out.push(item)
    }
}

/// Uses at least `cpu_ns` nanoseconds of this thread's CPU time; less if a signal or a stop request ends the
/// run.
pub(crate) fn burn(cpu_ns: u64) {
    let until = thread_cpu_ns() + cpu_ns;
    while thread_cpu_ns() < until && !signal::interrupted() {
        // Spins 2 µs between two reads of the CPU clock, because reading it is a system call; reading
        // the wall clock is not.
        let pause = now_ns() + 2_000;
        while now_ns() < pause {
            std::hint::spin_loop();
        }
    }
}
