// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of sinks: a file, or standard output for `-`.

use std::io::{self, BufWriter, Write};

use framepath_model::format::Layout;
use framepath_model::path::{Arg, ValueKind};
use framepath_os::measure::meter;
use framepath_os::memory::pool::{Frame, Plane};
use framepath_os::process::cancel::{self, StoppableWriter};
use framepath_os::process::standard_output;

use crate::error::StageError;

/// Argument of a sink with the path of its output file, or `-` for standard output.
pub(crate) const FILE: Arg = Arg::word(
    "file",
    ValueKind::Text("the path of a file, or `-`"),
    "the file to write; `-` is standard output",
);

/// A file or standard output, with its name for errors.
pub(crate) struct SinkOutput {
    name: String,
    writer: BufWriter<Box<dyn Write + Send>>,
}

impl SinkOutput {
    /// Creates or empties the file `target`, or opens standard output for `-`. Waits until a fifo has a
    /// reader.
    ///
    /// # Errors
    /// The file cannot be opened for writing, standard output is closed, or the wait for a reader lasts longer than 0.4 s after a
    /// signal. A stop request does not end the wait.
    pub(crate) fn create(target: &str) -> Result<SinkOutput, StageError> {
        let (name, writer): (_, Box<dyn Write + Send>) = if target == "-" {
            standard_output::check().map_err(StageError::io("standard output"))?;
            ("standard output".to_owned(), Box::new(StoppableWriter::new(io::stdout())))
        } else {
            standard_output::check_path(target.as_ref()).map_err(StageError::io("standard output"))?;
            let file = cancel::create(target.as_ref()).map_err(StageError::io(target))?;
            (target.to_owned(), Box::new(StoppableWriter::new(file)))
        };
        Ok(SinkOutput { name, writer: BufWriter::with_capacity(64 << 10, writer) })
    }

    /// Writes text. The ledger does not count the bytes as copied.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), StageError> {
        self.writer.write_all(text.as_bytes()).map_err(|error| self.failed(error))
    }

    /// Writes pixels of a frame. The ledger counts the bytes as copied, because the kernel copies them.
    pub(crate) fn plane(&mut self, pixels: Plane<'_>) -> Result<(), StageError> {
        meter::copy(pixels.len(), || pixels.try_visit(|bytes| self.writer.write_all(bytes)))
            .map_err(|error| self.failed(error))
    }

    /// Writes all planes of `frame`, one after the other, without padding, and lets a reader of a pipe have them.
    pub(crate) fn picture(&mut self, frame: &Frame) -> Result<(), StageError> {
        for (index, plane) in frame.layout().planes().iter().enumerate() {
            for y in 0..plane.rows {
                self.plane(frame.row(index, y))?;
            }
        }
        self.flush()
    }

    /// Returns an error if a frame with `layout` has another size or format than those of the layout `first`,
    /// because a file of `kind` has one size and format.
    pub(crate) fn check_same(
        &self,
        first: &Layout,
        layout: &Layout,
        kind: &'static str,
    ) -> Result<(), StageError> {
        if (first.width, first.height, first.format) == (layout.width, layout.height, layout.format) {
            return Ok(());
        }
        let described = |l: &Layout| format!("{}x{} {}", l.width, l.height, l.format);
        Err(StageError::SizeChange {
            what: self.name.clone(),
            from: described(first),
            to: described(layout),
            kind,
        })
    }

    /// Writes pixels that a sink has rearranged. The ledger counts the bytes as copied.
    pub(crate) fn pixels(&mut self, bytes: &[u8]) -> Result<(), StageError> {
        meter::copy(bytes.len(), || self.writer.write_all(bytes)).map_err(|error| self.failed(error))
    }

    pub(crate) fn flush(&mut self) -> Result<(), StageError> {
        self.writer.flush().map_err(|error| self.failed(error))
    }

    /// Returns the error of a failed write. A reader that has closed its end of a pipe, such as `head`, has what
    /// it wants: that ends the run, and is no failure.
    fn failed(&self, error: io::Error) -> StageError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => StageError::Enough,
            _ => StageError::io(&self.name)(error),
        }
    }
}
