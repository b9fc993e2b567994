// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report: one HTML file that works offline, pictures first.
//!
//! Pictures are inline SVG. The page loads nothing and runs no script. Its light or dark
//! theme follows the browser's setting; on paper the theme is light. Several runs, from one or several
//! machines, are shown side by side on a wide screen.

mod chart_causes;
mod chart_decode;
mod chart_latency;
mod chart_m2m;
mod chart_queue;
mod chart_timeline;
mod page;
mod players;
mod scale;
mod style;
mod svg;
mod table;

use framepath_model::summary::Summary;
use serde::{Deserialize, Serialize};

/// One run of the lab: the contents of a run folder, or the summaries of one file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LabRun {
    /// Name of the run in the report: that of its folder or file.
    pub label: String,
    /// The summaries of the experiments.
    pub summaries: Vec<Summary>,
    /// The slowest frames of one or more paths, in any order; may be empty.
    #[serde(default)]
    pub slow_frames: Vec<FrameTimeline>,
}

/// Latency of one frame along its path, divided by hop and cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrameTimeline {
    /// Name of the path: experiment, case and contender, such as `decode vp9-1080p8 inline`.
    pub path: String,
    /// The frame's sequence number.
    pub seq: u64,
    /// Segments of the frame's latency, one cause each: hop by hop, in order of the hops' start. Segments
    /// overlap if two hops have the frame at the same time (branches of a `tee`), or if the measured causes of a
    /// hop are longer than the hop's time. Within one hop the order of the causes is not known, and arbitrary
    /// here. A gap between two segments is time outside all hops, which is unexplained too.
    pub segments: Vec<CauseSegment>,
}

/// A part of a frame's latency that one cause took within one hop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CauseSegment {
    /// Text of the hop (source, stage, link or sink) in which the time passed.
    pub hop: String,
    /// The cause, by its name in
    /// [`CausesUs`](framepath_model::summary::CausesUs).
    pub cause: String,
    /// Start, in microseconds from the frame's creation.
    pub start_us: f64,
    /// End, in microseconds from the frame's creation.
    pub end_us: f64,
}

impl FrameTimeline {
    /// Returns the time from the frame's creation to the end of its last segment, in
    /// microseconds; 0 without segments.
    pub fn latency_us(&self) -> f64 {
        self.segments.iter().map(|segment| segment.end_us).fold(0.0, f64::max)
    }
}

/// Creates the report of one or more runs as a complete HTML page.
pub fn html(runs: &[LabRun]) -> String {
    page::page(runs)
}

/// A picture with its texts.
struct Picture {
    /// Heading that states the main finding; text in back quotes becomes code.
    title: String,
    /// The `svg` element.
    svg: String,
    /// Explanation of the picture's scales and marks; text in back quotes becomes code.
    caption: String,
}
