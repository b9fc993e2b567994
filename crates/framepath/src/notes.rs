// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notes of hops for the user, such as a fallback to software. A note is no error.

use std::sync::{Arc, Mutex, PoisonError};

/// Notes for the user, a line each; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// Adds a line, and logs it as a warning.
    pub(crate) fn add(&self, note: String) {
        log::warn!("{note}");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
