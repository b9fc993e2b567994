// SPDX-License-Identifier: MIT OR Apache-2.0
//! Injections of lab `trace`: what the program does, and the row where it must appear.

use framepath_model::ledger::Cause;
use framepath_model::stats::median;

use crate::error::LabError;
use crate::traced::{Injected, TracedRun};

/// Injected cause, and the row that must show it.
pub(super) struct ForeignInjection {
    /// Name of the case.
    pub(super) name: &'static str,
    /// Options of the program, separated by blanks.
    options: &'static str,
    /// Option `inject` of the program.
    inject: &'static str,
    /// First word of the stage.
    stage: &'static str,
    cause: Cause,
    /// True if the clip is the one without references between pictures.
    pub(super) intra: bool,
}

const fn injection(
    name: &'static str,
    options: &'static str,
    inject: &'static str,
    stage: &'static str,
    cause: Cause,
) -> ForeignInjection {
    ForeignInjection { name, options, inject, stage, cause, intra: false }
}

/// Injection into the decoding of pictures that do not wait for one another.
const fn intra(name: &'static str, inject: &'static str, cause: Cause) -> ForeignInjection {
    ForeignInjection { name, options: FRAMES, inject, stage: "decode", cause, intra: true }
}

/// Program of one thread with all stages.
const ONE: &str = "scale=160:96 encoder=mpeg4 format=nut";
/// Decoder with frame threads.
const FRAMES: &str = "threads=3 scale=160:96 encoder=mpeg4 format=nut";
/// Decoder whose threads share each frame.
const SLICES: &str = "threads=2 type=slice scale=160:96 encoder=mpeg4 format=nut";
/// Second thread behind a queue; the queue is empty most of the time.
const TWO: &str = "queue=8 pace=3000 scale=160:96 encoder=mpeg4 format=nut";
/// Second thread that has a CPU of its own.
const PINNED: &str = "pin=1 queue=8 pace=8000 scale=160:96 encoder=mpeg4 format=nut";
/// Second thread that is slower than the first one.
const FULL: &str = "queue=8 scale=160:96 encoder=mpeg4 format=nut";

/// All injections.
pub(super) const INJECTIONS: &[ForeignInjection] = &[
    injection("demux-compute", ONE, "inject=spin:read:5000:2", "demux", Cause::Compute),
    injection("demux-paced", ONE, "inject=sleep:read:5000:2", "demux", Cause::Paced),
    injection("demux-blocked", ONE, "inject=read:read:5000:2", "demux", Cause::Blocked),
    injection("decode-compute", ONE, "inject=spin:send:5000:10", "decode", Cause::Compute),
    injection("decode-paced", ONE, "inject=sleep:send:5000:10", "decode", Cause::Paced),
    injection("buffer-compute", ONE, "inject=spin:buffer:5000:10", "decode", Cause::Compute),
    injection("buffer-paced", ONE, "inject=sleep:buffer:5000:10", "decode", Cause::Paced),
    injection("buffer-lock", ONE, "inject=futex:buffer:5000:10", "decode", Cause::Blocked),
    injection("filter-compute", ONE, "inject=spin:filter:5000:10", "filter", Cause::Compute),
    injection("filter-lock", ONE, "inject=futex:filter:5000:10", "filter", Cause::Blocked),
    injection("encode-compute", ONE, "inject=spin:encode:5000:10", "encode", Cause::Compute),
    injection("encode-copy", ONE, "inject=copy:encode:5000:10", "encode", Cause::Copy),
    injection("encode-paced", ONE, "inject=sleep:encode:5000:10", "encode", Cause::Paced),
    injection("encode-lock", ONE, "inject=futex:encode:5000:10", "encode", Cause::Blocked),
    injection("encode-mutex", ONE, "inject=mutex:encode:5000:10", "encode", Cause::Blocked),
    injection("encode-read", ONE, "inject=read:encode:5000:10", "encode", Cause::Blocked),
    injection("encode-fault", ONE, "inject=fault:encode:5000:10", "encode", Cause::Blocked),
    injection("encode-preempted", "pin=1", "inject=preempt:encode:5000:10", "encode", Cause::Preempted),
    injection("write-compute", ONE, "inject=spin:write:5000:10", "mux", Cause::Compute),
    injection("mux-compute", ONE, "inject=spin:output:5000:4", "mux", Cause::Compute),
    injection("mux-paced", ONE, "inject=sleep:output:5000:4", "mux", Cause::Paced),
    injection("worker-compute", FRAMES, "inject=spin:buffer:5000:7", "decode", Cause::Compute),
    injection("worker-paced", FRAMES, "inject=sleep:buffer:5000:7", "decode", Cause::Paced),
    intra("worker-lock", "inject=futex:buffer:5000:7", Cause::Blocked),
    intra("worker-read", "inject=read:buffer:5000:7", Cause::Blocked),
    intra("worker-fault", "inject=fault:buffer:5000:7", Cause::Blocked),
    injection("worker-early-compute", FRAMES, "inject=spin:buffer-early:5000:7", "decode", Cause::Compute),
    injection("worker-early-paced", FRAMES, "inject=sleep:buffer-early:5000:7", "decode", Cause::Paced),
    intra("worker-early-lock", "inject=futex:buffer-early:5000:7", Cause::Blocked),
    injection("slices-compute", SLICES, "inject=spin:buffer:5000:10", "decode", Cause::Compute),
    injection("slices-paced", SLICES, "inject=sleep:buffer:5000:10", "decode", Cause::Paced),
    injection("push-compute", TWO, "inject=spin:push:5000:10", "filter", Cause::Compute),
    injection("push-paced", TWO, "inject=sleep:push:5000:10", "filter", Cause::Paced),
    injection("push-lock", TWO, "inject=futex:push:5000:10", "filter", Cause::Blocked),
    injection("pop-compute", TWO, "inject=spin:filter:5000:10", "filter", Cause::Compute),
    injection("pop-paced", TWO, "inject=sleep:filter:5000:10", "filter", Cause::Paced),
    injection("pop-lock", TWO, "inject=futex:filter:5000:10", "filter", Cause::Blocked),
    injection("pop-read", TWO, "inject=read:filter:5000:10", "filter", Cause::Blocked),
    injection("pop-preempted", PINNED, "inject=preempt:encode:5000:10", "encode", Cause::Preempted),
    injection("late", PINNED, "inject=late:push:5000:10", "filter", Cause::Wakeup),
    injection("queue-busy", FULL, "inject=spin:encode:5000:1", "filter", Cause::Queue),
    injection("queue-paced", FULL, "inject=sleep:after:5000:1", "filter", Cause::Queue),
    injection("queue-read", FULL, "inject=read:after:5000:1", "filter", Cause::Queue),
];

impl ForeignInjection {
    /// Returns the program's options.
    pub(super) fn options(&self) -> Vec<&'static str> {
        let mut options: Vec<&str> = self.options.split(' ').collect();
        options.push(self.inject);
        options
    }

    /// Returns the injected and the attributed time of each frame with an injection, nanoseconds; for copies, only the sums.
    ///
    /// # Errors
    /// [`LabError::Unknown`] if the ledger lacks the stage, or has no row for a frame with an injection.
    pub(super) fn costs(&self, traced: &TracedRun) -> Result<Vec<(f64, f64)>, LabError> {
        let stage = traced.stage(self.stage)?;
        let attributed = |pts: i64| {
            let rows = traced.rows(pts);
            let row = rows.get(stage).ok_or_else(|| LabError::Unknown(format!("no row of frame {pts}")))?;
            Ok(row.causes()[self.cause].unwrap_or(0.0))
        };
        // Samples tell only the sum.
        if self.cause == Cause::Copy {
            let injected: u64 = traced.own.injected.iter().map(|cost| cost.ns).sum();
            let all = traced.own.frames.iter().map(|frame| attributed(frame.pts));
            return Ok(vec![(injected as f64, all.sum::<Result<f64, LabError>>()?)]);
        }
        // A frame waits in the queue for other frames' costs.
        if self.cause == Cause::Queue {
            let waited = traced.own.frames.iter().filter(|frame| frame.queued_ns > 0);
            return waited.map(|frame| Ok((frame.queued_ns as f64, attributed(frame.pts)?))).collect();
        }
        let injected = &traced.own.injected;
        let is_injected = |pts: i64| injected.iter().any(|cost| cost.pts == pts);
        let others = traced.own.frames.iter().map(|frame| frame.pts).filter(|pts| !is_injected(*pts));
        let others: Vec<f64> = others.map(attributed).collect::<Result<_, LabError>>()?;
        let usual = median(&others).unwrap_or(0.0);
        // Other threads may keep the consumer from its CPU, too.
        let queued =
            |pts: i64| traced.own.frames.iter().find(|frame| frame.pts == pts).map(|frame| frame.queued_ns);
        let cost_ns = |cost: &Injected| match self.cause {
            Cause::Wakeup => queued(cost.pts).unwrap_or(cost.ns),
            _ => cost.ns,
        };
        // Costs behind the last frame have no time.
        let injected = injected.iter().filter(|cost| cost.pts != i64::MIN);
        injected.map(|cost| Ok((cost_ns(cost) as f64, attributed(cost.pts)? - usual))).collect()
    }
}
