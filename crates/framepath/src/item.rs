// SPDX-License-Identifier: MIT OR Apache-2.0
//! Item that passes from hop to hop: a frame or a packet.

use framepath_codec::Packet;
use framepath_model::stream::FrameMeta;
use framepath_os::memory::pool::Frame;

use crate::error::StageError;

/// A frame or a packet.
///
/// ```
/// use framepath::{HopFailure, Item, Out};
///
/// fn push(item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
///     let packet = item.into_packet().map_err(|error| out.fail(error))?;
///     println!("{} bytes", packet.len());
///     out.push(Item::Packet(packet))
/// }
/// ```
#[derive(Debug)]
pub enum Item {
    /// Pixels in pool memory.
    Frame(Frame),
    /// Compressed bytes.
    Packet(Packet),
}

impl Item {
    /// Returns the frame.
    ///
    /// # Errors
    /// [`StageError::WrongInput`] for a packet.
    pub fn into_frame(self) -> Result<Frame, StageError> {
        match self {
            Item::Frame(frame) => Ok(frame),
            Item::Packet(_) => {
                let (takes, gets) = ("frames", "packets");
                Err(StageError::WrongInput { takes, gets, advice: "put `decode` before it" })
            }
        }
    }

    /// Returns the packet.
    ///
    /// # Errors
    /// [`StageError::WrongInput`] for a frame.
    pub fn into_packet(self) -> Result<Packet, StageError> {
        match self {
            Item::Packet(packet) => Ok(packet),
            Item::Frame(_) => Err(StageError::WrongInput {
                takes: "packets",
                gets: "frames",
                advice: "put it behind `file`, in front of the first stage that emits frames",
            }),
        }
    }

    /// Returns another handle to the same pixels or bytes, which are not copied.
    ///
    /// # Errors
    /// Memory for the handle is short, which can only happen for a packet.
    pub fn share(&self) -> Result<Item, StageError> {
        match self {
            Item::Frame(frame) => Ok(Item::Frame(frame.share())),
            Item::Packet(packet) => {
                let shared = packet.share().ok_or_else(|| StageError::Io {
                    what: "another handle to a packet".to_owned(),
                    error: std::io::ErrorKind::OutOfMemory.into(),
                })?;
                Ok(Item::Packet(shared))
            }
        }
    }

    /// Returns the metadata of the item: its number, birth and times, and the properties of its picture.
    #[inline]
    pub fn meta(&self) -> FrameMeta {
        match self {
            Item::Frame(frame) => frame.meta(),
            Item::Packet(packet) => packet.meta(),
        }
    }
}
