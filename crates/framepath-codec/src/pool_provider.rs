// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoding into the memory of a provider: the provider's interface.

use std::fmt;

use framepath_model::buffer_request::{BufferRequest, LentFormat};
use framepath_os::memory::pool::Pool;

/// Provider of a decoder's slots when they are not its own.
pub trait DecodeProvider: Sync {
    /// Returns a pool for `want`, and which of the two orders of planes its frames are to
    /// have. May wait for long. Called on any of the decoder's threads, for the first
    /// picture, and again for one that needs other memory.
    ///
    /// # Errors
    /// There is no such memory; the stream fails with this message.
    fn provide(&self, want: &BufferRequest) -> Result<(Pool, LentFormat), String>;
}

/// A provider that lives as long as the process.
#[derive(Clone, Copy)]
pub struct ProviderRef(pub &'static dyn DecodeProvider);

impl fmt::Debug for ProviderRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lenders")
    }
}

/// Two values are equal if they are the same provider.
impl PartialEq for ProviderRef {
    fn eq(&self, other: &ProviderRef) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}

impl Eq for ProviderRef {}
