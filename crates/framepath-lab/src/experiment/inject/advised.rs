// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases of `inject` that take the ledger's advice: the path runs, then the path that the advice proposes.
//! The time that the advice names must fall.

use framepath::export::advice::{Advice, advice};
use framepath::ledger::Cause;
use framepath::{Level, Options, Report, path};
use framepath_model::ledger::Digest;
use framepath_model::summary::SummaryRow;

use super::made_clip::MadeClip;
use crate::error::LabError;
use crate::measure::{Measured, complete};

/// Maximum number of runs of a path while the ledger does not have the expected advice.
const ATTEMPTS: u32 = 5;

/// A path for which the ledger must have advice.
pub(super) struct AdvisedCase {
    /// Name of the case.
    pub(super) name: &'static str,
    /// Cause that the advice must name.
    cause: Cause,
    /// Function that makes the clip with the given number of frames.
    clip: fn(u64) -> Result<MadeClip, LabError>,
    /// Path text, in which `CLIP` stands for the clip.
    text: &'static str,
}

/// A case for each kind of advice.
pub(super) const CASES: &[AdvisedCase] = &[
    AdvisedCase {
        name: "advice-held",
        cause: Cause::Held,
        clip: |frames| MadeClip::encode(frames, 0),
        text: "file CLIP rate=50 ! decode threads=3 threading=frame ! null",
    },
    AdvisedCase {
        name: "advice-queue",
        cause: Cause::Queue,
        clip: |frames| MadeClip::encode(frames, 0),
        text: "file CLIP ! decode threads=1 ! queue depth=12 ! burn time=5ms ! null",
    },
    AdvisedCase {
        name: "advice-copy",
        cause: Cause::Copy,
        clip: |frames| MadeClip::raw(frames),
        text: "file CLIP host=inline ! decode host=inline threads=1 format=nv12 ! null",
    },
];

/// Figures of one run that the advised path must reduce.
struct AdvisedFigures {
    /// The median frame's time for the cause in the hop, nanoseconds; 0 if not known.
    ns: f64,
    /// Number of bytes that the hop copied for each frame.
    copied_bytes: f64,
}

impl AdvisedCase {
    /// Runs the path and then the advised path, with at most 60 frames. Returns a row with the figures of both.
    ///
    /// # Errors
    /// [`LabError::Missing`] without the ffmpeg tool, if the tool cannot make the clip, or if the runs get no
    /// such advice; the error of a path that fails, loses frames or is interrupted.
    pub(super) fn run(&self, frames: u64) -> Result<SummaryRow, LabError> {
        let clip = (self.clip)(frames.min(60))?;
        let text = self.text.replace("CLIP", &clip.quoted());
        let (mut report, digest, Advice { hop, changed, .. }) = self.advised(&text)?;
        let before = self.figures(&digest, hop);
        let mut hops: Vec<&str> = report.hops.iter().map(|hop| hop.text.as_str()).collect();
        hops[usize::from(hop)] = &changed;
        let after = self.figures(&ran(&hops.join(" ! "))?.1, hop);
        let mut measured = Measured::from_report(&mut report);
        let figures = [
            ("before_us", before.ns / 1e3),
            ("after_us", after.ns / 1e3),
            ("before_bytes", before.copied_bytes),
            ("after_bytes", after.copied_bytes),
            ("advised_share", after.ns / before.ns),
        ];
        measured.extra.extend(figures.map(|(key, figure)| (key.to_owned(), figure)));
        Ok(crate::pairs::row(self.name, "ledger", &[measured]))
    }

    /// Runs the path `text` until the ledger has advice for the case's cause, at most [`ATTEMPTS`] times,
    /// because on a busy machine the time of another cause may be longer. Returns the report of that run,
    /// its digest and the advice.
    fn advised(&self, text: &str) -> Result<(Report, Digest, Advice), LabError> {
        for _ in 0..ATTEMPTS {
            let (report, digest) = ran(text)?;
            if let Some(advice) =
                advice(&report, &digest).into_iter().find(|advice| advice.cause == self.cause)
            {
                return Ok((report, digest, advice));
            }
        }
        let cause = self.cause.name();
        Err(LabError::Missing(format!(
            "`{text}` got no advice for {cause} in {ATTEMPTS} runs; run the case on an idle machine"
        )))
    }

    fn figures(&self, digest: &Digest, hop: u16) -> AdvisedFigures {
        let figures = &digest.hops[usize::from(hop)];
        AdvisedFigures { ns: figures.median[self.cause].unwrap_or(0.0), copied_bytes: figures.copied_bytes }
    }
}

/// Runs the path `text` at ledger level `full`. Returns the report and its digest.
fn ran(text: &str) -> Result<(Report, Digest), LabError> {
    let path = path::parse(text)?;
    let mut report = complete(framepath::run(&path, &Options { level: Level::Full, ..Options::default() })?)?;
    let digest = report.digest();
    Ok((report, digest))
}
