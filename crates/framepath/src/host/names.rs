// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of pools and layouts, so that a frame costs one cell.
//!
//! The sender of frames announces each new number, before the first frame that uses the number. The sender is
//! the caller for the input of a stage, and the worker for the output.

use framepath_model::format::Layout;
use framepath_model::wire::ENCODED_PACKET;
use framepath_os::memory::pool::{Frame, PoolMemory};

use super::HostError;

/// Maximum number of layouts with a number. A further layout takes over the oldest number.
const LAYOUTS: usize = 256;

/// Numbers that the sender of frames has assigned so far. The sender announces a new number before it uses
/// the number.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Ids of the pools ([`Frame::pool_id`]), by number.
    pools: Vec<u64>,
    /// Layouts, by number.
    layouts: Vec<Layout>,
    /// Number that the next new layout takes over once all [`LAYOUTS`] numbers are in use.
    oldest_layout: usize,
}

impl Names {
    /// Returns the number of a layout, and true if this call has assigned the number: then the sender of
    /// frames has to announce it.
    pub(super) fn layout(&mut self, layout: &Layout) -> (u8, bool) {
        if let Some(id) = self.layouts.iter().position(|known| known == layout) {
            return (id as u8, false);
        }
        let id = if self.layouts.len() < LAYOUTS {
            self.layouts.push(*layout);
            self.layouts.len() - 1
        } else {
            let id = self.oldest_layout;
            self.oldest_layout = (id + 1) % LAYOUTS;
            self.layouts[id] = *layout;
            id
        };
        (id as u8, true)
    }

    /// Returns the number of the pool with this [`Frame::pool_id`], and true if this call has assigned the
    /// number: then the sender of frames has to announce it.
    ///
    /// # Errors
    /// All 65,534 numbers are in use.
    pub(super) fn pool(&mut self, id: u64) -> Result<(u16, bool), HostError> {
        if let Some(number) = self.pools.iter().rposition(|known| *known == id) {
            return Ok((number as u16, false));
        }
        let too_many =
            || HostError::Failed { text: "too many pools: a stream can announce 65534".to_owned() };
        let number = u16::try_from(self.pools.len()).ok().filter(|number| *number < ENCODED_PACKET);
        let number = number.ok_or_else(too_many)?;
        self.pools.push(id);
        Ok((number, true))
    }
}

/// Returns the memory of the frame's pool, for the other process to map read-only.
///
/// # Errors
/// This process has no descriptor of the memory that can be shared, or a system call failed.
pub(super) fn shared_memory(frame: &Frame) -> Result<PoolMemory, HostError> {
    frame
        .read_only_memory()
        .map_err(|source| HostError::Socket { operation: "share a pool with the worker", source })
}

#[cfg(test)]
mod tests {
    use framepath_model::format::PixelFormat;

    use super::*;

    #[test]
    fn a_layout_keeps_its_name_until_there_are_too_many() {
        let mut names = Names::default();
        let layout = |n: u32| Layout::packed(PixelFormat::Grey, 1 + n, 1).unwrap();
        for n in 0..256 {
            assert_eq!(names.layout(&layout(n)), (n as u8, true));
        }
        for n in 0..256 {
            assert_eq!(names.layout(&layout(n)), (n as u8, false));
        }
        for n in 0..3 {
            assert_eq!(names.layout(&layout(1000 + n)), (n as u8, true));
        }
        assert_eq!(names.layout(&layout(0)), (3, true));
        assert_eq!(names.layout(&layout(1000)), (0, false));
    }
}
