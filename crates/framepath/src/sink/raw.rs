// SPDX-License-Identifier: MIT OR Apache-2.0
//! `raw`: the pixels of all frames, without a header: the planes one after the other, without padding.

use framepath_model::format::Layout;
use framepath_model::path::Definition;
use framepath_model::stream::StreamInfo;
use framepath_os::memory::pool::Frame;

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::sink::output::{FILE, SinkOutput};
use crate::sink::unheld::{HeldFields, HeldProperties, UnheldNote};
use crate::stage::Stage;

static DEFINITION: Definition = Definition::sink("raw", "writes the pixels of every frame, without a header")
    .args(&[FILE])
    .known_as(&["rawvideo"]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, |hop, place| {
        let note = UnheldNote::new("raw", HELD, place.outcomes.notes.clone());
        Ok(Raw { target: hop.text("file").to_owned(), output: None, first: None, note })
    })
}

struct Raw {
    target: String,
    output: Option<SinkOutput>,
    /// Layout of the first frame; `None` before it.
    first: Option<Layout>,
    note: UnheldNote,
}

/// Properties of frames that the pixels have.
const HELD: HeldProperties =
    HeldProperties { orientation: false, fields: HeldFields::Progressive, times: false, alpha: true };

impl Raw {
    fn write(&mut self, frame: &Frame) -> Result<(), StageError> {
        let Some(output) = &mut self.output else { return Ok(()) };
        let first = self.first.get_or_insert(*frame.layout());
        output.check_same(first, frame.layout(), "raw")?;
        self.note.look(frame);
        output.picture(frame)
    }
}

impl Stage for Raw {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.output = Some(SinkOutput::create(&self.target)?);
        self.note.start(info);
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        self.write(&frame).map_err(|error| out.fail(error))
    }

    fn flush(&mut self, _: &mut Out<'_>) -> Result<(), HopFailure> {
        self.note.flush();
        Ok(())
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.output.as_mut().map_or(Ok(()), SinkOutput::flush).map_err(|error| out.fail(error))
    }
}
