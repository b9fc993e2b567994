// SPDX-License-Identifier: MIT OR Apache-2.0
//! The caller's stage in front of a worker: gives it what arrives.

use std::sync::{Arc, Mutex, PoisonError};

use framepath_model::stream::StreamInfo;

use super::input::WorkerInput;
use super::session::{GiveError, Reader, Session};
use crate::error::StageError;
use crate::item::Item;
use crate::out::{Failure, Out};
use crate::stage::Stage;

/// Where the reading end waits for its thread.
pub(super) type Handover = Arc<Mutex<Option<Reader>>>;

/// The last stage of its thread; what the worker gives goes to the next.
pub(crate) struct Submit {
    session: Arc<Session>,
    reader: Handover,
}

impl Submit {
    pub(super) fn new(session: Arc<Session>, reader: Handover) -> Submit {
        Submit { session, reader }
    }
}

impl Stage for Submit {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        let (stream, reader) = self.session.start(*info)?;
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(reader);
        Ok(stream)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), Failure> {
        let meta = item.meta();
        let input = match item {
            Item::Packet(packet) => WorkerInput::Packet(packet),
            Item::Frame(frame) => WorkerInput::Frame(frame),
        };
        let begun = out.recorder().here();
        let given = self.session.give(meta, input, begun, || out.recorder().cut());
        given.map_err(|error| match error {
            GiveError::Closed => out.fail(StageError::Downstream),
            GiveError::Host(error) => out.fail(error),
        })
    }

    fn drain(&mut self, _: &mut Out<'_>) -> Result<(), Failure> {
        self.session.end();
        Ok(())
    }
}
