// SPDX-License-Identifier: MIT OR Apache-2.0
//! Middle of a path between source and sink: the link under test, and the host of the stages
//! around it.

use framepath::Pipeline;

use super::parts::{FailsAt, Pass};

/// Behaviour of a full link when another frame arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The hop before the link, and so the source, waits until the link has room.
    Waits,
    /// The link drops the arriving frame.
    DropsNew,
    /// The link drops its oldest frame.
    DropsOldest,
}

/// Link under test (a direct call, a queue, or a stage in a worker), with the facts that the checks
/// need.
pub struct LinkUnderTest {
    /// Function that adds the link to a path.
    pub add: Box<dyn Fn(Pipeline) -> Pipeline>,
    /// Maximum number of frames in the link; `None` for a direct call, in which the sink runs in
    /// the source's thread and the link holds no frame.
    pub holds: Option<u64>,
    /// Minimum number of frames in the link while the source waits.
    pub holds_least: u64,
    /// Behaviour of the link when it is full.
    pub full: WhenFull,
    /// Number of slots for the link's output frames, if the link copies its input frames into slots
    /// of its own; `None` if the link passes on its input frames.
    pub own_slots: Option<usize>,
    /// Number of runs of the check whose sink fails while the source waits: its result depends on
    /// the order of events.
    pub runs: usize,
}

impl LinkUnderTest {
    /// Returns the number of frames that the sink holds while their source slots are free already:
    /// 1 for a link with its own slots, else 0.
    pub fn copied(&self) -> u64 {
        u64::from(self.own_slots.is_some())
    }
}

/// Host of stages: functions that add a stage which runs there.
pub struct Host {
    /// Adds a stage with the given name that passes every frame on.
    pub pass: fn(Pipeline, &str) -> Pipeline,
    /// Adds a stage with the given name that fails at its frame with the given number, counted from
    /// 0.
    pub fails_at: fn(Pipeline, &str, u64) -> Pipeline,
}

/// Inside of a path between source and sink: a hosted stage, the link, another hosted stage.
pub struct PathUnderTest {
    /// The link under test.
    pub link: LinkUnderTest,
    /// Host of the stages on both sides.
    pub host: Host,
}

/// Name of the hosted stage before the link.
pub const BEFORE: &str = "before";
/// Name of the hosted stage after the link, and of its thread.
pub const BEHIND: &str = "behind";

impl PathUnderTest {
    /// Adds the whole inside to `built`: a stage, the link, another stage.
    pub fn through(&self, built: Pipeline) -> Pipeline {
        let built = (self.link.add)((self.host.pass)(built, BEFORE));
        (self.host.pass)(built, BEHIND)
    }

    /// Returns true if the link drops no frame, so that every frame arrives.
    pub fn keeps_all(&self) -> bool {
        self.link.full == WhenFull::Waits
    }

    /// Returns the number of hops of the path, with a source and a sink around the inside. The link
    /// counts only if it holds frames.
    pub fn hops(&self) -> usize {
        4 + usize::from(self.link.holds.is_some())
    }
}

/// Creates the host that runs each stage in the test's own process, in the thread of the hop before
/// it.
pub fn inline() -> Host {
    Host {
        pass: |built, name| built.stage(Pass).named(name),
        fails_at: |built, name, frame| built.stage(FailsAt::new(frame)).named(name),
    }
}
