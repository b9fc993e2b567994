// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger as a trace that Perfetto (ui.perfetto.dev) opens. Slices are named by their hop; the frame is an
//! argument.
//!
//! - A track for each thread of the path, each frame thread of a decoder and each worker: a slice for each
//!   stretch of work on a frame.
//! - A group of bars for each queue, and for each hop inside which frames wait: a bar from the frame's arrival
//!   until it goes on, divided by cause if it has several.
//! - A counter for each queue: the number of frames that were handed to it and not yet taken.
//! - Arrows that follow each frame along the slices to each sink.
//!
//! Format: the Trace Event Format's JSON object form, with complete events (`X`), nestable asynchronous events
//! (`b`, `e`), counters (`C`) and flow events (`s`, `t`, `f`); times in microseconds.

mod slices;
mod tracks;
mod waits;

use std::io::{self, Write};

use crate::report::Report;
use slices::Slices;
use tracks::Tracks;

/// Writes the rows and spans of `report` as a trace with one process named `framepath`.
///
/// # Errors
/// Errors of `to`.
///
/// ```
/// use framepath::{Options, Pipeline, export};
///
/// let report = Pipeline::parse("test frames=2 ! queue ! null")?.run(&Options::default())?;
/// let mut trace = Vec::new();
/// export::trace::write(&report, &mut trace)?;
/// assert!(trace.starts_with(b"{"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    write_all(&[("framepath", report)], to)
}

/// Writes several runs into one trace, each as a process with the run's name (the first of each pair).
///
/// # Errors
/// Errors of `to`.
pub fn write_all(runs: &[(&str, &Report)], to: &mut dyn Write) -> io::Result<()> {
    write!(to, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut flows = 0;
    for (at, (name, report)) in runs.iter().enumerate() {
        let tracks = Tracks::new(at + 1, report);
        let mut events = tracks.names(name);
        let slices = Slices::new(report);
        slices.draw(&tracks, &mut events);
        slices.follow(&tracks, &mut flows, &mut events);
        waits::draw(report, &tracks, &mut events);
        waits::count(report, &tracks, &mut events);
        for (number, event) in events.iter().enumerate() {
            let separator = if at + number == 0 { "" } else { ",\n" };
            write!(to, "{separator}{event}")?;
        }
    }
    writeln!(to, "]}}")?;
    to.flush()
}
