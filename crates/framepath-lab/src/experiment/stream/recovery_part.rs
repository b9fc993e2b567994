// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recovery from lost packets: pictures shown of those encoded, freezes, and requests for keyframes.

use std::thread;
use std::time::Duration;

use super::SETTLING;
use super::condition::StreamCondition;
use super::contender::OURS;
use super::end_ledger::{EndLedger, LedgerFiles, encoded};
use super::glass_figures::GlassFigures;
use super::native_run::NativeRun;
use crate::display::Display;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::Measured;

/// Most rows of a thread of the sender.
const ROWS: u64 = 65_536;

/// Streams for `duration` over the network of `condition`.
///
/// # Errors
/// As those of a [`NativeRun`]; no picture was seen.
pub(super) fn run(
    settings: &ExperimentSettings,
    screens: &[Display; 2],
    condition: &StreamCondition,
    duration: Duration,
) -> Result<Measured, LabError> {
    // The receiver has no ledger, so that the network carries nothing but the stream.
    let files = LedgerFiles::new(["times", "off"], ROWS)?;
    let mut native = NativeRun::start(OURS, settings, screens, condition, files)?;
    thread::sleep(SETTLING);
    let before = native.sender_totals()?;
    let (watched, cpu_ns) = native.watch(duration)?;
    let after = native.sender_totals()?;
    let (drawn, sender) = native.finish(0)?;
    let no_picture = || LabError::Unknown(format!("{OURS}: the picture stood still"));
    let figures = GlassFigures::of(&watched, &drawn).ok_or_else(no_picture)?;
    let mut measured = figures.measured(cpu_ns, duration);
    measured.extra.extend(of_encoded(&figures, &drawn, &sender));
    let requested = after.keyframes_requested.saturating_sub(before.keyframes_requested);
    measured.extra.insert("keyframes_requested".to_owned(), requested as f64);
    Ok(measured)
}

/// Returns the number of frames that the sender has encoded from the first picture seen to the last, and the share of them that
/// was shown.
pub(super) fn of_encoded(
    figures: &GlassFigures,
    drawn: &[u64],
    sender: &EndLedger,
) -> impl Iterator<Item = (String, f64)> {
    let [first, last] = figures.numbers.map(|number| drawn.get(number as usize).copied().unwrap_or_default());
    // The frame of the last picture is born behind its drawing.
    let encoded = encoded(sender, first, last) as f64;
    let shown = (figures.shown - 1) as f64;
    let percent = (encoded > 0.0).then(|| 100.0 * shown / encoded);
    let figures = [("encoded", Some(encoded)), ("shown_of_encoded_percent", percent)];
    figures.into_iter().filter_map(|(name, figure)| Some((name.to_owned(), figure?)))
}
