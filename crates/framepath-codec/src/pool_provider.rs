// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trait that providers of memory for decoders implement.

use std::fmt;

use framepath_model::buffer_request::{BufferRequest, ProvidedFormat};
use framepath_os::memory::pool::Pool;

/// Provider of a decoder's slots, in place of the decoder's own pool.
pub trait DecodeProvider: Sync {
    /// Returns a pool for `want`, and the plane format of its frames. May block for a long time.
    /// Called on the thread that decodes (the caller's, or any of the library's): for the first
    /// picture, and again when the decoded format or the coded size changes.
    ///
    /// # Errors
    /// There is no such memory. The stream fails with this message.
    fn provide(&self, want: &BufferRequest) -> Result<(Pool, ProvidedFormat), String>;
}

/// Reference to a provider that lives as long as the process.
#[derive(Clone, Copy)]
pub struct ProviderRef(pub &'static dyn DecodeProvider);

impl fmt::Debug for ProviderRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProviderRef")
    }
}

/// Compares by identity: two values are equal if they refer to the same provider.
impl PartialEq for ProviderRef {
    fn eq(&self, other: &ProviderRef) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}

impl Eq for ProviderRef {}
