// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first of a thread behind a worker: takes its frames.

use std::sync::{Arc, PoisonError};

use framepath_os::clock::now_ns;
use framepath_os::meter::Level;
use framepath_os::queue::Idle;

use super::session::{Arrival, Reader, Session};
use super::submit::{Handover, Submit};
use crate::error::StageError;
use crate::item::Item;
use crate::recorder::Recorder;

/// The reading end of a worker, as the input of a thread.
pub(crate) struct Collect {
    /// The hop that the worker runs.
    pub(crate) hop: u16,
    session: Arc<Session>,
    handover: Handover,
    reader: Option<Reader>,
    idle: Idle,
}

/// The two ends of a stage in a worker: the last stage of one thread, and the
/// input of the next.
pub(crate) fn ends(hop: u16, session: Arc<Session>) -> (Submit, Collect) {
    let handover = Handover::default();
    let submit = Submit::new(session.clone(), handover.clone());
    (submit, Collect { hop, session, handover, reader: None, idle: Idle::default() })
}

impl Collect {
    /// The level of the run that begins.
    pub(crate) fn set_level(&self, level: Level) {
        self.session.set_level(level);
    }

    /// The next frame, with its row written; `None` behind the last.
    pub(crate) fn next(&mut self, recorder: &mut Recorder) -> Result<Option<Item>, StageError> {
        let handover = &self.handover;
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => {
                let waiting = handover.lock().unwrap_or_else(PoisonError::into_inner).take();
                none.insert(waiting.ok_or(StageError::Downstream)?)
            }
        };
        let timed = recorder.level() != Level::Off;
        let idle = &mut self.idle;
        let mut asleep = false;
        let arrival = reader.next(|| {
            if timed && !asleep {
                idle.since_ns = now_ns();
            } else if timed {
                idle.until_ns = now_ns();
            }
            asleep = !asleep;
        })?;
        let Some(Arrival { frame, stretch, work }) = arrival else { return Ok(None) };
        recorder.arrived(self.hop, &frame.meta(), &stretch, &work, self.session.is_by_device(), self.idle);
        Ok(Some(Item::Frame(frame)))
    }
}
