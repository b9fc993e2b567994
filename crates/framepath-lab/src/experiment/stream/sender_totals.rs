// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of a running sender, as `framepath top --sender` prints them.

use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::process::Program;

/// Counts of a sender, over all viewers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SenderTotals {
    /// Number of viewers that watch.
    pub(super) viewers: u64,
    /// Number of frames dropped for slow viewers.
    pub(super) dropped: u64,
    /// Number of keyframes that were asked of the encoder.
    pub(super) keyframes_requested: u64,
}

impl SenderTotals {
    /// Reads the counts of the sender at `address`, by a program that begins with `words`. Takes a second.
    ///
    /// # Errors
    /// There is no sender, or `framepath top` prints something else.
    pub(super) fn read(
        words: Vec<String>,
        settings: &ExperimentSettings,
        address: &str,
    ) -> Result<SenderTotals, LabError> {
        let framepath = settings.framepath.to_string_lossy().into_owned();
        let top = [&framepath, "top", "--sender", address, "--once"].map(str::to_owned);
        let mut words = words.into_iter().chain(top);
        let program = words.next().unwrap_or(framepath);
        let finished = Program::new(program, words).run(true)?;
        SenderTotals::of(&finished.stdout).ok_or_else(|| {
            LabError::Unknown(format!("framepath top --sender {address}: no counts in `{}`", finished.stdout))
        })
    }

    /// Reads the first line of the table.
    fn of(table: &str) -> Option<SenderTotals> {
        let line = table.lines().next()?;
        let count =
            |name: &str| line.split(", ").find_map(|part| part.strip_suffix(name)?.trim().parse().ok());
        Some(SenderTotals {
            viewers: count("viewers").or_else(|| count("viewer"))?,
            dropped: count("dropped")?,
            keyframes_requested: count("keyframes requested")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_their_names() {
        let table = "9 viewers, 2 connected so far, 17 frames sent, 3 dropped, 4 keyframes requested\n\nviewer address\n";
        let totals = SenderTotals { viewers: 9, dropped: 3, keyframes_requested: 4 };
        assert_eq!(SenderTotals::of(table), Some(totals));
        let one = table.replace("9 viewers", "1 viewer");
        assert_eq!(SenderTotals::of(&one), Some(SenderTotals { viewers: 1, ..totals }));
        assert_eq!(SenderTotals::of("no sender\n"), None);
    }
}
