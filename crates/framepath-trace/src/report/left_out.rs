// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that are in no ledger, counted by reason and stage.

use serde::Serialize;

/// Reason why frames are in no ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LeftOutReason {
    /// The output of the stage belongs to no known frame, or to several.
    Ambiguous,
    /// The frame did not pass the stage, the last one of its stream: it was dropped inside, is hidden, or was still in the
    /// program at the end of the recording.
    Incomplete,
}

/// Number of frames that are in no ledger for one reason in one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The reason.
    pub reason: LeftOutReason,
    /// Name of the stage, such as `decode h264`; `None` if it is not known.
    pub stage: Option<String>,
    /// Number of the frames, or of the stage's outputs.
    pub frames: u64,
}

impl LeftOut {
    /// Returns the number and the reason, such as `3 ambiguous in decode h264`.
    fn text(&self) -> String {
        let LeftOut { reason, stage, frames } = self;
        match (reason, stage) {
            (LeftOutReason::Ambiguous, Some(stage)) => format!("{frames} ambiguous in {stage}"),
            (LeftOutReason::Ambiguous, None) => format!("{frames} ambiguous"),
            (LeftOutReason::Incomplete, Some(stage)) => format!("{frames} that did not pass {stage}"),
            (LeftOutReason::Incomplete, None) => format!("{frames} incomplete"),
        }
    }
}

/// Adds `frames` to the entry of `all` with this reason and stage.
pub(super) fn add(all: &mut Vec<LeftOut>, reason: LeftOutReason, stage: Option<&str>, frames: u64) {
    if frames == 0 {
        return;
    }
    match all.iter_mut().find(|known| known.reason == reason && known.stage.as_deref() == stage) {
        Some(known) => known.frames += frames,
        None => all.push(LeftOut { reason, stage: stage.map(str::to_owned), frames }),
    }
}

/// Returns the sentence of the report; `None` if no frame is left out.
pub(super) fn note(all: &[LeftOut]) -> Option<String> {
    let parts: Vec<String> = all.iter().map(LeftOut::text).collect();
    (!parts.is_empty()).then(|| format!("left out: {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_by_reason_and_stage() {
        let mut all = Vec::new();
        assert_eq!(note(&all), None);
        for (reason, stage, frames) in [
            (LeftOutReason::Ambiguous, Some("decode h264"), 2),
            (LeftOutReason::Incomplete, Some("mux mp4"), 4),
            (LeftOutReason::Ambiguous, Some("decode h264"), 1),
            (LeftOutReason::Ambiguous, None, 5),
            (LeftOutReason::Incomplete, Some("mux mov"), 0),
        ] {
            add(&mut all, reason, stage, frames);
        }
        assert_eq!(
            note(&all).unwrap(),
            "left out: 3 ambiguous in decode h264, 4 that did not pass mux mp4, 5 ambiguous"
        );
    }
}
