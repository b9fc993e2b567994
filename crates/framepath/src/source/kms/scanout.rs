// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffers that a screen scans out in turn, each mapped once.

use framepath_os::display::scanout_buffer::ScanoutBuffer;

use super::card::ScannedOut;
use crate::error::StageError;

/// Maximum number of buffers that stay mapped. Desktops use two to four in turn.
const MOST: usize = 8;

/// Mapped buffers, that of the last frame first.
#[derive(Default)]
pub(super) struct Scanout(Vec<ScanoutBuffer>);

impl Scanout {
    /// Returns the mapped buffer of what the screen scans out. The buffer that was not used for the longest time is forgotten if
    /// there are too many.
    ///
    /// # Errors
    /// The driver does not let the CPU map it.
    pub(super) fn buffer(&mut self, found: ScannedOut) -> Result<&ScanoutBuffer, StageError> {
        let failed = |error| StageError::Io { what: "map the screen's buffer".to_owned(), error };
        let mut known = None;
        for (at, buffer) in self.0.iter().enumerate() {
            if buffer.is(&found.dmabuf).map_err(failed)? {
                known = Some(at);
                break;
            }
        }
        let buffer = match known {
            Some(at) => self.0.remove(at),
            None => ScanoutBuffer::map(found.dmabuf).map_err(failed)?,
        };
        self.0.insert(0, buffer);
        self.0.truncate(MOST);
        Ok(&self.0[0])
    }
}
