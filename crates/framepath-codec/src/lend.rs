// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoding into memory that is not ours: what a decoder wants, and who lends.

use std::fmt;

use framepath_model::lend::{Lent, Want};
use framepath_os::pool::Pool;

/// Where a decoder has its slots from when they are not its own.
pub trait Lender: Sync {
    /// A pool for what is wanted, and which of the two orders of planes its
    /// frames are to have. May wait for long. Called on any of the decoder's
    /// threads, for the first picture, and again for one that needs other
    /// memory.
    ///
    /// # Errors
    /// There is none: the stream fails with that.
    fn lend(&self, want: &Want) -> Result<(Pool, Lent), String>;
}

/// A lender for as long as the process lives.
#[derive(Clone, Copy)]
pub struct Lenders(pub &'static dyn Lender);

impl fmt::Debug for Lenders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lenders")
    }
}

/// The same one is the equal one.
impl PartialEq for Lenders {
    fn eq(&self, other: &Lenders) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}

impl Eq for Lenders {}
