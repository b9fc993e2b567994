// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fields of interlaced streams in the terms of GStreamer.

use framepath::FieldOrder;
use gst_video::{VideoBufferFlags, VideoFieldOrder, VideoFrameFlags, VideoInterlaceMode};

/// Fields of a stream's frames, as the frames so far show them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StreamFields {
    /// There was no frame yet.
    #[default]
    Unknown,
    /// All frames had this order.
    Always(FieldOrder),
    /// Some frames were interlaced in another order than others, or not at all.
    Mixed,
}

impl StreamFields {
    /// Adds a frame, and returns the fields of the stream with it.
    pub(crate) fn add(&mut self, order: FieldOrder) -> StreamFields {
        *self = match *self {
            StreamFields::Unknown => StreamFields::Always(order),
            StreamFields::Always(before) if before == order => *self,
            StreamFields::Always(_) | StreamFields::Mixed => StreamFields::Mixed,
        };
        *self
    }

    pub(crate) fn mode(self) -> VideoInterlaceMode {
        match self {
            StreamFields::Unknown | StreamFields::Always(FieldOrder::Progressive) => {
                VideoInterlaceMode::Progressive
            }
            StreamFields::Always(_) => VideoInterlaceMode::Interleaved,
            StreamFields::Mixed => VideoInterlaceMode::Mixed,
        }
    }

    /// Returns the order for the caps, which say it only if it is that of all frames.
    pub(crate) fn order(self) -> VideoFieldOrder {
        match self {
            StreamFields::Always(FieldOrder::TopFirst) => VideoFieldOrder::TopFieldFirst,
            StreamFields::Always(FieldOrder::BottomFirst) => VideoFieldOrder::BottomFieldFirst,
            StreamFields::Unknown | StreamFields::Always(FieldOrder::Progressive) | StreamFields::Mixed => {
                VideoFieldOrder::Unknown
            }
        }
    }
}

/// Returns the flags of a buffer with such a frame.
pub(crate) fn buffer_flags(order: FieldOrder) -> VideoBufferFlags {
    match order {
        FieldOrder::Progressive => VideoBufferFlags::empty(),
        FieldOrder::TopFirst => VideoBufferFlags::INTERLACED | VideoBufferFlags::TFF,
        FieldOrder::BottomFirst => VideoBufferFlags::INTERLACED,
    }
}

/// Returns the order of a frame with these flags.
pub(crate) fn field_order(flags: VideoFrameFlags) -> FieldOrder {
    match (flags.contains(VideoFrameFlags::INTERLACED), flags.contains(VideoFrameFlags::TFF)) {
        (false, _) => FieldOrder::Progressive,
        (true, true) => FieldOrder::TopFirst,
        (true, false) => FieldOrder::BottomFirst,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_say_the_order_of_all_frames_or_that_they_are_mixed() {
        use FieldOrder::{BottomFirst, Progressive, TopFirst};
        let cases = [
            (&[][..], VideoInterlaceMode::Progressive, VideoFieldOrder::Unknown),
            (&[Progressive, Progressive], VideoInterlaceMode::Progressive, VideoFieldOrder::Unknown),
            (&[TopFirst, TopFirst], VideoInterlaceMode::Interleaved, VideoFieldOrder::TopFieldFirst),
            (&[BottomFirst], VideoInterlaceMode::Interleaved, VideoFieldOrder::BottomFieldFirst),
            (&[TopFirst, BottomFirst], VideoInterlaceMode::Mixed, VideoFieldOrder::Unknown),
            (&[Progressive, TopFirst, TopFirst], VideoInterlaceMode::Mixed, VideoFieldOrder::Unknown),
        ];
        for (orders, mode, order) in cases {
            let mut fields = StreamFields::default();
            for order in orders {
                fields.add(*order);
            }
            assert_eq!((fields.mode(), fields.order()), (mode, order), "{orders:?}");
        }
    }
}
