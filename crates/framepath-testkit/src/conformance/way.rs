// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways a frame can take from a source to a sink: over which link, through
//! which host.

use framepath::Pipeline;

use super::parts::{FailsAt, Pass};

/// Behaviour of a full link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Lets the source wait.
    Waits,
    /// Drops what comes.
    DropsNew,
    /// Drops what it holds longest.
    DropsOldest,
}

/// One link under test.
pub struct Link {
    /// Puts it into a path.
    pub add: Box<dyn Fn(Pipeline) -> Pipeline>,
    /// Frames it holds at most; `None` where the sink runs in the source's own
    /// call.
    pub holds: Option<u64>,
    /// Frames it holds at least when it lets the source wait.
    pub holds_least: u64,
    /// Policy when it is full.
    pub full: Full,
    /// Slots of the frames that come out of it; `None` where those come out
    /// that went in.
    pub own_slots: Option<usize>,
    /// Runs of a check that is repeated to meet many an order of events.
    pub runs: usize,
}

impl Link {
    /// Frames whose source has the slot back when they are in the sink's hands.
    pub fn copied(&self) -> u64 {
        u64::from(self.own_slots.is_some())
    }
}

/// Where a stage runs.
pub struct Host {
    /// Adds a stage of that name that hands every frame on.
    pub pass: fn(Pipeline, &str) -> Pipeline,
    /// Adds one that fails at its frame of that number, counted from 0.
    pub fails_at: fn(Pipeline, &str, u64) -> Pipeline,
}

/// A path's inside: a hosted stage, the link, another hosted stage.
pub struct Way {
    /// The link under test.
    pub link: Link,
    /// Where the stages on both sides run.
    pub host: Host,
}

/// Name of the hosted stage before the link.
pub const BEFORE: &str = "before";
/// Name of the hosted stage behind the link, and so of its thread.
pub const BEHIND: &str = "behind";

impl Way {
    /// The whole inside of a path.
    pub fn through(&self, built: Pipeline) -> Pipeline {
        let built = (self.link.add)((self.host.pass)(built, BEFORE));
        (self.host.pass)(built, BEHIND)
    }

    /// True if every frame arrives.
    pub fn keeps_all(&self) -> bool {
        self.link.full == Full::Waits
    }

    /// Hops of a path with a source and a sink around it.
    pub fn hops(&self) -> usize {
        4 + usize::from(self.link.holds.is_some())
    }
}

/// Stages in the thread of the path.
pub fn inline() -> Host {
    Host {
        pass: |built, name| built.stage(Pass).named(name),
        fails_at: |built, name, frame| built.stage(FailsAt::new(frame)).named(name),
    }
}
