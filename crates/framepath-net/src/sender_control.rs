// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control of a sender's sessions by the user who shares: the list of viewers, and their end.

use std::sync::Arc;

use crate::lock::lock;
use crate::sender_shared::SenderShared;
use crate::viewer_figures::ViewerFigures;

/// Handle by which the user of a sender sees and ends the sessions, on any thread. Valid after the end of the sender, too, which then
/// has no viewers.
#[derive(Clone)]
pub struct SenderControl(pub(crate) Arc<SenderShared>);

impl SenderControl {
    /// Returns the figures of all viewers that watch, in the order of their numbers.
    pub fn viewers(&self) -> Vec<ViewerFigures> {
        lock(&self.0.figures).clone()
    }

    /// Ends the session of the viewer with this number. Returns false if no such viewer watches.
    pub fn end(&self, number: u64) -> bool {
        let is_there = lock(&self.0.figures).iter().any(|viewer| viewer.number == number);
        if is_there {
            lock(&self.0.to_end).numbers.insert(number);
            self.0.wake.set();
        }
        is_there
    }

    /// Ends the sessions of all viewers, also of those that still connect. Returns the number of those that watch. A viewer that has
    /// the code or the token can come again.
    pub fn end_all(&self) -> usize {
        let count = lock(&self.0.figures).len();
        lock(&self.0.to_end).all = true;
        self.0.wake.set();
        count
    }
}
