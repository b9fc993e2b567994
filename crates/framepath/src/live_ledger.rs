// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ledger of a run while it runs: the frames of the last seconds.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use crate::report::Report;
use crate::row_tap::RowTap;

/// Handle by which any thread reads the ledger of a run while it runs. Clones are of the same run. Without rows before the run,
/// after it, and at level `off`.
///
/// ```
/// use framepath::{LiveLedger, Options, Pipeline};
///
/// let live = LiveLedger::default();
/// let options = Options { live: Some(live.clone()), ..Options::default() };
/// let path = Pipeline::parse("test frames=3 size=64x48")?.sink_fn(move |_| {
///     // The frames that have passed the sink before.
///     assert!(live.report().is_some_and(|report| report.frames < 3));
/// });
/// assert_eq!(path.run(&options)?.frames, 3);
/// # Ok::<(), framepath::RunError>(())
/// ```
#[derive(Clone, Default)]
pub struct LiveLedger(Arc<OnceLock<Weak<RowTap>>>);

impl LiveLedger {
    /// Returns a report of the frames that passed the last sink, or `send`, in the last five seconds, with the rows of the other ends
    /// of a network stream; `None` without a ledger. Other figures than those of the ledger are 0.
    pub fn report(&self) -> Option<Report> {
        Some(self.0.get()?.upgrade()?.report())
    }

    /// Begins the run whose rows `tap` gets.
    pub(crate) fn begin(&self, tap: &Arc<RowTap>) {
        // Only the first run of a handle has a live ledger.
        let _ = self.0.set(Arc::downgrade(tap));
    }
}

impl fmt::Debug for LiveLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveLedger").finish_non_exhaustive()
    }
}
