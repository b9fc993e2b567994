// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a stage is.

pub(crate) mod block;
pub(crate) mod burn;
pub(crate) mod convert;
pub(crate) mod copy;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod fill;
pub(crate) mod plugin;
pub(crate) mod threshold;

use framepath_model::stream::StreamInfo;

use crate::error::StageError;
use crate::item::Item;
use crate::out::{Failure, Out};

/// How a hop stands in its thread's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Through,
    Sink,
    Link,
}

/// Takes frames or packets and gives frames or packets. One thread at a time
/// calls it, not always the thread that made it.
pub trait Stage: Send {
    /// Hears what stream will come and says what it will give. Called once,
    /// before the first item.
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError>;

    /// Takes one item. Whatever the stage gives for it goes to `out.push`,
    /// now or in a later call.
    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), Failure>;

    /// Threads it works with; asked after [`Stage::start`].
    fn threads(&self) -> u32 {
        1
    }

    /// Whether what it gives follows from what it was given since the last
    /// random access point, so that it can be had again after a crash.
    fn replayable(&self) -> bool {
        true
    }

    /// The stream has ended: gives what is still inside.
    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), Failure> {
        let _ = out;
        Ok(())
    }
}

/// The frame in `item`, or the error that says what is missing.
pub(crate) fn frame_of(item: Item) -> Result<framepath_os::pool::Frame, StageError> {
    match item {
        Item::Frame(frame) => Ok(frame),
        Item::Packet(_) => {
            Err(StageError::WrongInput { takes: "frames", gets: "packets", advice: "put `decode` before it" })
        }
    }
}

/// The packet in `item`, or the error that says what is wrong.
pub(crate) fn packet_of(item: Item) -> Result<framepath_codec::Packet, StageError> {
    match item {
        Item::Packet(packet) => Ok(packet),
        Item::Frame(_) => Err(StageError::WrongInput {
            takes: "packets",
            gets: "frames",
            advice: "a path decodes once, right behind its `file`",
        }),
    }
}
