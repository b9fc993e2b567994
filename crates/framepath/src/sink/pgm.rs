// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pgm`: luma of each frame as a picture file `frame-N.pgm`; N has six digits or more and counts from 0.
//!
//! Format: pgm(5), binary (P5). Luma of more than 8 bits has samples of two bytes, high byte first, and the
//! maximum of its depth: 1023 for 10 bits. The sink takes only formats whose first plane is luma.

use std::fs;
use std::path::PathBuf;

use framepath_model::format::PixelFormat;
use framepath_model::path::{Arg, Definition, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::memory::pool::Frame;

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::sink::output::SinkOutput;
use crate::sink::unheld::{HeldFields, HeldProperties, UnheldNote};
use crate::stage::Stage;

static DEFINITION: Definition = Definition::sink("pgm", "writes the luma of every frame as a PGM picture")
    .args(&[Arg::word(
        "dir",
        ValueKind::Text("the path of a folder"),
        "folder for the pictures; created if it is missing",
    )]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, |hop, place| Ok(Pgm::new(hop.text("dir"), place.outcomes.notes.clone())))
}

pub(crate) struct Pgm {
    folder: PathBuf,
    next: u64,
    note: UnheldNote,
}

/// Properties of frames that the pictures hold.
const HELD: HeldProperties =
    HeldProperties { orientation: false, fields: HeldFields::Progressive, times: false, alpha: false };

impl Pgm {
    fn new(folder: &str, notes: Notes) -> Pgm {
        Pgm { folder: folder.into(), next: 0, note: UnheldNote::new("pgm", HELD, notes) }
    }

    fn write(&mut self, frame: &Frame) -> Result<(), StageError> {
        let layout = frame.layout();
        if !layout.format.has_luma_plane() {
            let takes = "the formats with a plane of luma, such as GREY, YUV422P10 and NV12";
            return Err(StageError::Format { format: layout.format, takes });
        }
        self.note.look(frame);
        let name = self.folder.join(format!("frame-{:06}.pgm", self.next));
        self.next += 1;
        let mut output = SinkOutput::create(&name.to_string_lossy())?;
        let wide = layout.format.luma_bytes() == 2;
        let max = (1u32 << layout.format.depth()) - 1;
        output.text(&format!("P5\n{} {}\n{max}\n", layout.width, layout.height))?;
        let shift = if layout.format == PixelFormat::P010 { 6 } else { 0 };
        for y in 0..layout.height as usize {
            let row = frame.row(0, y);
            if wide {
                let mut swapped = Vec::with_capacity(row.len());
                row.visit(|bytes| {
                    let samples = bytes.chunks_exact(2).map(|p| u16::from_le_bytes([p[0], p[1]]));
                    swapped.extend(samples.flat_map(|sample| (sample >> shift).to_be_bytes()));
                });
                output.pixels(&swapped)?;
            } else {
                output.plane(row)?;
            }
        }
        output.flush()
    }
}

impl Stage for Pgm {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        let name = self.folder.to_string_lossy().into_owned();
        fs::create_dir_all(&self.folder).map_err(StageError::io(name))?;
        self.note.start(info);
        Ok(*info)
    }

    fn flush(&mut self, _: &mut Out<'_>) -> Result<(), HopFailure> {
        self.note.flush();
        Ok(())
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|e| out.fail(e))?;
        self.write(&frame).map_err(|e| out.fail(e))
    }
}
