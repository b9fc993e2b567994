// SPDX-License-Identifier: MIT OR Apache-2.0
//! `mux`: packets into a container.
//!
//! The file is created, or emptied, when the first packet arrives, so a run that fails before leaves an existing file as
//! it is. The end of the container is written in the drain, also after a signal or the failure of a hop in front.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use framepath_codec::{MuxError, MuxFormat, Muxer, Packet, SeekWrite, TrackInfo};
use framepath_model::orientation::Orientation;
use framepath_model::path::{Arg, DefaultValue, Definition, Hop, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::process::cancel::{self, StoppableWriter};
use framepath_os::process::standard_output;

use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::sink::output::FILE;
use crate::stage::Stage;

static DEFINITION: Definition =
    Definition::sink("mux", "writes packets of `encode` or `file` into MKV, WebM, MP4, MOV or MPEG-TS")
        .args(&[
            FILE,
            Arg::option(
                "format",
                ValueKind::choice(&["mkv", "webm", "mp4", "mov", "ts"]),
                DefaultValue::Unset("by the ending of the file's name"),
                "container; mp4 and mov need a file, not a pipe",
            ),
        ])
        .known_as(&["matroskamux", "mp4mux", "qtmux", "mpegtsmux", "webmmux"]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, make)
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<Mux, StageError> {
    let target = hop.text("file").to_owned();
    let format = match hop.is_set("format") {
        true => MuxFormat::named(hop.choice("format")),
        false => MuxFormat::of_file(&target),
    };
    let Some(format) = format else {
        let names = MuxFormat::ALL.map(|format| format!(".{format}")).join(", ");
        let advice =
            format!("the name has no known ending; use a name that ends in one of {names}, or format=");
        return Err(StageError::Option(format!("{target}: {advice}")));
    };
    let track = place.track.clone().ok_or(StageError::WrongInput {
        takes: "packets",
        gets: "frames",
        advice: "put `encode h264` in front",
    })?;
    let notes = place.outcomes.notes.clone();
    Ok(Mux { target, format, track, notes, info: None, muxer: None, has_warned: false })
}

struct Mux {
    target: String,
    format: MuxFormat,
    /// Description of the packets, unless the first packet has one.
    track: TrackInfo,
    notes: Notes,
    /// Description of the stream; `None` before the start.
    info: Option<StreamInfo>,
    /// Muxer of the open file; `None` before the first packet, and once the file has its end.
    muxer: Option<Muxer>,
    /// True once a note says that the file does not hold the orientation.
    has_warned: bool,
}

/// Opens the file `target`, or standard output for `-`. Returns the bytes, and true if they can go back.
fn open(target: &str) -> io::Result<(Box<dyn SeekWrite>, bool)> {
    let (file, can_seek) = if target == "-" {
        standard_output::check()?;
        // A shell may have opened it for appending, where a position has no effect.
        (File::from(io::stdout().as_fd().try_clone_to_owned()?), false)
    } else {
        let file = cancel::create(target.as_ref())?;
        let kind = file.metadata()?.file_type();
        (file, kind.is_file() || kind.is_block_device())
    };
    Ok((Box::new(StoppableWriter::new(file)), can_seek))
}

/// Returns the error of a muxer as that of the sink. A reader that has closed its end of a pipe has what it wants:
/// that ends the run, and is no failure.
fn failure(error: MuxError) -> StageError {
    match error {
        MuxError::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => StageError::Enough,
        error => error.into(),
    }
}

impl Mux {
    /// Creates the file for packets of which `first` is the first. A new file that cannot get its head is removed.
    fn create(&self, first: &Packet, info: &StreamInfo) -> Result<Muxer, StageError> {
        let target = self.target.as_str();
        let name = if target == "-" { "standard output" } else { target };
        let is_new = !Path::new(target).exists();
        let track = first.track().unwrap_or(&self.track);
        let created = Muxer::create(name, || open(target), self.format, (track, info), first);
        if created.is_err() && is_new && target != "-" {
            // The error of the muxer has the reason; the file may also not exist.
            let _ = fs::remove_file(target);
        }
        created.map_err(failure)
    }

    fn write(&mut self, packet: &Packet) -> Result<(), StageError> {
        let Some(info) = self.info else { return Err(StageError::Downstream) };
        if packet.is_empty() {
            return Ok(());
        }
        if packet.meta().orientation != Orientation::Upright && !self.has_warned {
            self.has_warned = true;
            self.notes.add(
                "mux: the orientation of the pictures is not written; they are as they are coded".to_owned(),
            );
        }
        if self.muxer.is_none() {
            self.muxer = Some(self.create(packet, &info)?);
        }
        self.muxer.as_mut().map_or(Ok(()), |muxer| muxer.write(packet)).map_err(failure)
    }
}

impl Stage for Mux {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.info = Some(*info);
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let packet = item.into_packet().map_err(|error| out.fail(error))?;
        self.write(&packet).map_err(|error| out.fail(error))
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if out.holds() {
            // A seek may follow, whose packets go into the same file.
            return Ok(());
        }
        let ended = self.muxer.as_mut().map_or(Ok(()), Muxer::finish);
        ended.map_err(|error| out.fail(failure(error)))
    }
}

impl Drop for Mux {
    /// Writes the end of the file if no drain has done so, for example because a write failed or the run was held open.
    fn drop(&mut self) {
        if let Some(muxer) = &mut self.muxer {
            // The run has ended with the error of the write, or a later one has no place.
            let _ = muxer.finish();
        }
    }
}
