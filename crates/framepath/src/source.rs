// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a source is.

pub(crate) mod file;
pub(crate) mod pattern;
pub(crate) mod test;

use framepath_model::stream::StreamInfo;

use crate::error::StageError;
use crate::item::Item;
use crate::recorder::Recorder;

/// Gives frames or packets; the thread that runs it asks for the next when the
/// one before has passed the whole chain.
pub trait Source: Send {
    /// The stream it gives.
    fn info(&self) -> StreamInfo;

    /// The next item, numbered and with its birth stamp from `recorder`;
    /// `None` at the end.
    fn next(&mut self, recorder: &mut Recorder) -> Result<Option<Item>, StageError>;
}
