// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of a stream between two stages, and metadata of a frame.

use std::time::Duration;

use crate::format::{Layout, PixelFormat};
use crate::orientation::Orientation;

/// Fraction, as containers write time bases and rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rational {
    /// Numerator.
    pub num: i32,
    /// Denominator. The fraction is not known if numerator or denominator is not positive.
    pub den: i32,
}

impl Rational {
    /// Creates `num / den`, not reduced.
    pub const fn new(num: i32, den: i32) -> Rational {
        Rational { num, den }
    }

    /// Returns the fraction's value, or `None` if numerator or denominator is not positive.
    pub fn value(self) -> Option<f64> {
        (self.num > 0 && self.den > 0).then(|| f64::from(self.num) / f64::from(self.den))
    }

    /// Converts `ticks` of this time base to ticks of time base `to`, rounded to nearest, halves
    /// away from zero. Returns `None` if one of the two time bases is not positive or the result
    /// does not fit.
    ///
    /// ```
    /// use framepath_model::stream::Rational;
    ///
    /// // 90,000 ticks of MPEG's clock are 1,000 milliseconds.
    /// assert_eq!(Rational::new(1, 90_000).rescale(90_000, Rational::new(1, 1000)), Some(1000));
    /// ```
    pub fn rescale(self, ticks: i64, to: Rational) -> Option<i64> {
        if self.value().is_none() || to.value().is_none() {
            return None;
        }
        let num = i128::from(ticks) * i128::from(self.num) * i128::from(to.den);
        let den = i128::from(self.den) * i128::from(to.num);
        let half = if num < 0 { -den / 2 } else { den / 2 };
        i64::try_from((num + half) / den).ok()
    }

    /// Returns the last tick of this time base that is not after `time`, and the first tick that
    /// is not before `time`. Returns `None` if the time base is not known or a tick does not fit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use framepath_model::stream::Rational;
    ///
    /// let frames = Rational::new(1, 30);
    /// assert_eq!(frames.ticks_around(Duration::from_millis(50)), Some((1, 2)));
    /// assert_eq!(frames.ticks_around(Duration::from_millis(100)), Some((3, 3)));
    /// ```
    pub fn ticks_around(self, time: Duration) -> Option<(i64, i64)> {
        self.value()?;
        let num = i128::try_from(time.as_nanos()).ok()?.checked_mul(self.den.into())?;
        let den = i128::from(self.num) * 1_000_000_000;
        let floor = num.div_euclid(den);
        let ceil = floor + i128::from(num.rem_euclid(den) != 0);
        Some((i64::try_from(floor).ok()?, i64::try_from(ceil).ok()?))
    }
}

/// Mode of a seek: the frame at which a stream continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SeekTo {
    /// The first frame whose presentation time is not before the given time.
    Exact,
    /// The last random access point at or before the given time, according to the container's
    /// index; the start of the stream if there is none.
    KeyframeBefore,
}

/// Description of the stream between two hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Pixel format of the frames; `None` for packets, or if the format is known only from the
    /// first frame on.
    pub format: Option<PixelFormat>,
    /// Width in pixels; 0 if not known. A frame may have another width.
    pub width: u32,
    /// Height in pixels; 0 if not known. A frame may have another height.
    pub height: u32,
    /// Seconds per tick of `pts` and `duration`.
    pub time_base: Rational,
    /// Frames per second; [`Rational::value`] is `None` if not known.
    pub frame_rate: Rational,
    /// Width of a pixel over its height; 0/1 if not known.
    pub sample_aspect: Rational,
    /// Movement that makes the pictures upright, as the container declares it. A frame has its own:
    /// [`FrameMeta::orientation`].
    pub orientation: Orientation,
}

impl StreamInfo {
    /// Describes frames of `layout` with square pixels and `frame_rate` frames per second; their
    /// `pts` counts frames.
    pub fn from_layout(layout: &Layout, frame_rate: Rational) -> StreamInfo {
        StreamInfo {
            format: Some(layout.format),
            width: layout.width,
            height: layout.height,
            time_base: Rational::new(frame_rate.den, frame_rate.num),
            frame_rate,
            sample_aspect: Rational::new(1, 1),
            orientation: Orientation::Upright,
        }
    }
}

/// Metadata of a frame or packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameMeta {
    /// Number assigned by the source, from 0, in the order of creation. A number is missing if a
    /// device dropped that frame. A decoded frame has the number of its packet.
    pub seq: u64,
    /// Time at which the source began to make or read the frame or packet, or at which a device
    /// captured the frame or packet, CLOCK_MONOTONIC nanoseconds; 0 if the ledger is off, and
    /// inside a worker.
    pub birth_ns: u64,
    /// Presentation time in ticks of the stream's time base; `None` if not known.
    pub pts: Option<i64>,
    /// Duration in ticks of the stream's time base; 0 if not known.
    pub duration: i64,
    /// True for a frame that is not right because the stream is damaged: the decoder concealed parts of
    /// it, or its packet is marked as damaged. False for packets.
    pub is_damaged: bool,
    /// Order in time of the picture's two fields; [`FieldOrder::Progressive`] if all rows have one
    /// time, or the order is not known.
    pub field_order: FieldOrder,
    /// Movement that makes the picture upright, as the bitstream or else the container declares it.
    pub orientation: Orientation,
}

impl FrameMeta {
    /// Returns the properties of the picture.
    pub fn picture(&self) -> PictureFlags {
        let FrameMeta { is_damaged, field_order, orientation, .. } = *self;
        PictureFlags { is_damaged, field_order, orientation }
    }

    /// Returns the same metadata with the properties `picture`.
    #[must_use]
    pub fn with_picture(self, picture: PictureFlags) -> FrameMeta {
        let PictureFlags { is_damaged, field_order, orientation } = picture;
        FrameMeta { is_damaged, field_order, orientation, ..self }
    }
}

/// Part of [`FrameMeta`] that a stage may change: the properties of the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PictureFlags {
    /// True if the picture is not right because the stream is damaged; as
    /// [`FrameMeta::is_damaged`].
    pub is_damaged: bool,
    /// Order in time of the picture's fields; as [`FrameMeta::field_order`].
    pub field_order: FieldOrder,
    /// Movement that makes the picture upright; as [`FrameMeta::orientation`].
    pub orientation: Orientation,
}

/// Order in time of a picture's two fields: the even rows, counted from 0, are the top field, the
/// odd rows the bottom field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FieldOrder {
    /// One time for all rows, or not known.
    #[default]
    Progressive,
    /// The picture is interlaced; the top field is earlier.
    TopFirst,
    /// The picture is interlaced; the bottom field is earlier.
    BottomFirst,
}

/// Frames that a decoder does not output from a packet on, such as pictures before the position of a
/// seek, which are decoded as references only; and the restart of the decoder at the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preroll {
    /// True if the stream continues at another place from this packet on: the decoder outputs its
    /// pending frames and restarts before it decodes the packet.
    pub restarts: bool,
    /// True if the picture of this packet is decoded and not output.
    pub discarded: bool,
    /// Number of frames that are not output: the first ones in presentation order, from this
    /// packet on.
    pub skipped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rescale_rounds_to_nearest() {
        let ms = Rational::new(1, 1000);
        let frames = Rational::new(1, 30);
        assert_eq!(ms.rescale(33, frames), Some(1));
        assert_eq!(ms.rescale(67, frames), Some(2));
        assert_eq!(ms.rescale(-33, frames), Some(-1));
        assert_eq!(ms.rescale(i64::MAX, Rational::new(1, 1_000_000)), None);
        assert_eq!(Rational::new(1, 0).rescale(1, ms), None);
    }
}
