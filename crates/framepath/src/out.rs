// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a stage hands its frames: the rest of its thread's chain.

use std::sync::atomic::{AtomicU64, Ordering};

use framepath_model::ledger::flag;
use framepath_os::meter::Level;

use crate::error::StageError;
use crate::item::Item;
use crate::recorder::Recorder;
use crate::stage::{Role, Stage};

/// A stage in its place.
pub(crate) struct Hop {
    pub(crate) stage: Box<dyn Stage>,
    /// Index in the path.
    pub(crate) index: u16,
    pub(crate) role: Role,
}

/// A failure and the hop it happened in.
#[derive(Debug)]
pub struct Failure {
    pub(crate) hop: u16,
    pub(crate) error: StageError,
}

/// The way downstream for one stage, and its entry to the ledger.
pub struct Out<'a> {
    rest: &'a mut [Hop],
    recorder: &'a mut Recorder,
    /// Frames that reached the sink, for whoever watches the run.
    delivered: &'a AtomicU64,
    hop: u16,
}

impl<'a> Out<'a> {
    pub(crate) fn new(
        hop: u16,
        rest: &'a mut [Hop],
        recorder: &'a mut Recorder,
        delivered: &'a AtomicU64,
    ) -> Out<'a> {
        Out { rest, recorder, delivered, hop }
    }

    /// Hands `item` to the next stage and returns when that stage, and all
    /// behind it on this thread, are done with it.
    ///
    /// # Errors
    /// A failure further down; the caller returns it as it is.
    #[inline(always)]
    pub fn push(&mut self, item: Item) -> Result<(), Failure> {
        if self.recorder.level() != Level::Off {
            self.recorder.close(self.hop, &item.meta(), 0);
        }
        self.forward(item)
    }

    /// [`Out::push`] for an item whose last hop is already closed.
    // Inlined always: a frame that is built in place is then handed on by
    // reference, and never moved.
    #[inline(always)]
    pub(crate) fn forward(&mut self, item: Item) -> Result<(), Failure> {
        let Some((next, rest)) = self.rest.split_first_mut() else {
            // The builder ends every chain in a sink or a link.
            return Err(Failure { hop: self.hop, error: StageError::Downstream });
        };
        let ends = next.role == Role::Sink;
        let meta = if ends && self.recorder.level() != Level::Off { Some(item.meta()) } else { None };
        let mut out = Out { rest, recorder: self.recorder, delivered: self.delivered, hop: next.index };
        next.stage.push(item, &mut out)?;
        if ends {
            if let Some(meta) = meta {
                self.recorder.close(next.index, &meta, flag::LAST);
            }
            // One thread counts; the others only look.
            self.delivered.store(self.delivered.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Wraps this stage's own error.
    pub fn fail(&self, error: impl Into<StageError>) -> Failure {
        Failure { hop: self.hop, error: error.into() }
    }

    /// The birth of a frame, now; zero at level `off`. For sources.
    #[inline]
    pub fn birth(&mut self) -> u64 {
        self.recorder.birth()
    }

    /// The birth of a frame whose making began when the one before was done;
    /// zero at level `off`. For sources.
    #[inline]
    pub fn birth_at_last(&self) -> u64 {
        self.recorder.birth_at_last()
    }

    /// Frame `seq` stays inside this stage for now.
    pub fn hold(&mut self, seq: u64) {
        self.recorder.hold(self.hop, seq);
    }

    /// The stage goes on to work on something else than what it last pushed.
    pub fn mark(&mut self) {
        self.recorder.mark();
    }

    /// What the stage has done since the last mark was for frame `seq`, held
    /// until now.
    pub fn resume(&mut self, seq: u64) {
        self.recorder.resume(self.hop, seq);
    }

    /// [`Out::resume`] for a frame that was in a device meanwhile.
    pub(crate) fn resume_from_device(&mut self, seq: u64) {
        self.recorder.resume_from_device(self.hop, seq);
    }

    /// The recorder, for links.
    pub(crate) fn recorder(&mut self) -> &mut Recorder {
        self.recorder
    }
}
