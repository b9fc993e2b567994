// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a source is.

pub(crate) mod file;
pub(crate) mod fixture;
mod pace;
pub(crate) mod pattern;
pub(crate) mod test;
pub(crate) mod v4l2;

use framepath_model::stream::StreamInfo;

pub(crate) use pace::Pace;

use crate::out::{Failure, Out};

/// Gives frames or packets; the thread that runs it asks for the next when the
/// one before has passed the whole chain.
pub trait Source: Send {
    /// The stream it gives.
    fn info(&self) -> StreamInfo;

    /// Pushes the next item to `out`, numbered and with its birth stamp from
    /// [`Out::birth`]. `false`, and nothing pushed, at the end.
    ///
    /// # Errors
    /// Its own by [`Out::fail`], or what a push returned, as it is.
    fn give(&mut self, out: &mut Out<'_>) -> Result<bool, Failure>;
}
