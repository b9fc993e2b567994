// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of frames that the output of a sink cannot hold, and the note about them.

use framepath_model::orientation::Orientation;
use framepath_model::stream::{FieldOrder, FrameMeta, Rational, StreamInfo};
use framepath_os::memory::pool::Frame;

use crate::notes::Notes;

/// Field orders that an output can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldFields {
    /// That of each frame; also for an output that does not depend on field orders.
    All,
    /// One for the whole output: that of the first frame.
    First,
    /// None: all frames count as progressive.
    Progressive,
}

/// Properties of frames that the output of a sink can hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldProperties {
    /// True if the output holds orientations, or the sink turns the pictures.
    pub(crate) orientation: bool,
    pub(crate) fields: HeldFields,
    /// True if the output holds the time of each frame; false if frames follow each other at one rate.
    pub(crate) times: bool,
    pub(crate) alpha: bool,
}

/// Note about the properties of frames that a sink's output does not hold: one line, added when the sink is
/// dropped, if a frame had such a property.
pub(crate) struct UnheldNote {
    sink: &'static str,
    held: HeldProperties,
    notes: Notes,
    /// Seconds per tick; `None` if not known.
    time_base: Option<f64>,
    /// Seconds per frame; `None` if not known.
    interval: Option<f64>,
    /// Presentation time of the last frame that has one, ticks; `None` before such a frame, and after a seek
    /// or flush.
    last_pts: Option<i64>,
    /// Number of frames so far.
    frames: u64,
    /// Field order of the first frame; `None` before it.
    first_order: Option<FieldOrder>,
    /// First orientation that is not upright; `None` before such a frame.
    orientation: Option<Orientation>,
    /// First field order that is not progressive; `None` before such a frame.
    order: Option<FieldOrder>,
    /// Number of the first frame whose field order is not that of the first frame, from 0; `None` before it.
    other_order: Option<u64>,
    /// Number, from 0, of the first frame that is later than the frame before it, but not by one interval
    /// ([`UnheldNote::is_irregular`]); `None` before such a frame, and for an output that holds times.
    irregular: Option<u64>,
    /// True if a frame so far has an alpha channel.
    alpha: bool,
}

impl UnheldNote {
    /// Makes the note of the sink with the name `sink`, for `notes`.
    pub(crate) fn new(sink: &'static str, held: HeldProperties, notes: Notes) -> UnheldNote {
        UnheldNote {
            sink,
            held,
            notes,
            time_base: None,
            interval: None,
            last_pts: None,
            frames: 0,
            first_order: None,
            orientation: None,
            order: None,
            other_order: None,
            irregular: None,
            alpha: false,
        }
    }

    /// Records the time base and the frame rate of the stream.
    pub(crate) fn start(&mut self, info: &StreamInfo) {
        self.time_base = info.time_base.value();
        self.interval = Rational::new(info.frame_rate.den, info.frame_rate.num).value();
    }

    /// Forgets the time of the last frame, because the stream continues at another place.
    pub(crate) fn flush(&mut self) {
        self.last_pts = None;
    }

    /// Records the properties of the next frame.
    pub(crate) fn look(&mut self, frame: &Frame) {
        self.look_at(&frame.meta(), frame.layout().format.has_alpha());
    }

    fn look_at(&mut self, meta: &FrameMeta, has_alpha: bool) {
        let first = *self.first_order.get_or_insert(meta.field_order);
        if meta.orientation != Orientation::Upright {
            self.orientation.get_or_insert(meta.orientation);
        }
        if meta.field_order != FieldOrder::Progressive {
            self.order.get_or_insert(meta.field_order);
        }
        if meta.field_order != first {
            self.other_order.get_or_insert(self.frames);
        }
        if !self.held.times && self.is_irregular(meta.pts) {
            self.irregular.get_or_insert(self.frames);
        }
        self.last_pts = meta.pts.or(self.last_pts);
        self.alpha |= has_alpha;
        self.frames += 1;
    }

    /// Returns true if a frame with this time is later than the last frame, but not by one interval; false if a
    /// time or the interval is not known. The tolerance is the larger of two ticks, because times are rounded,
    /// and an eighth of the interval, because clocks of cameras are not exact.
    fn is_irregular(&self, pts: Option<i64>) -> bool {
        let (Some(tick), Some(interval), Some(last), Some(pts)) =
            (self.time_base, self.interval, self.last_pts, pts)
        else {
            return false;
        };
        let step = pts.saturating_sub(last) as f64 * tick;
        // Times that do not rise are those of a stream that repeats.
        step > 0.0 && (step - interval).abs() > (2.0 * tick).max(interval / 8.0)
    }

    /// Returns one text for each property that a frame has had and that the output does not hold.
    fn unheld(&self) -> Vec<String> {
        let HeldProperties { orientation, fields, alpha, .. } = self.held;
        let mut unheld = Vec::new();
        if let Some(turn) = self.orientation.filter(|_| !orientation) {
            let put = "put `rotate angle=auto` in front";
            unheld.push(format!("the orientation ({turn} makes the pictures upright; {put})"));
        }
        let put = "put `filter yadif` in front for progressive pictures";
        match (fields, self.order, self.other_order) {
            (HeldFields::First, _, Some(frame)) => {
                unheld.push(format!("the change of the field order at frame {frame}"));
            }
            (HeldFields::Progressive, Some(order), _) => {
                let first = if order == FieldOrder::TopFirst { "top" } else { "bottom" };
                unheld.push(format!("the interlacing ({first} field first; {put})"));
            }
            _ => {}
        }
        if let Some(frame) = self.irregular {
            unheld.push(format!("the times (the frame rate varies, first at frame {frame})"));
        }
        if self.alpha && !alpha {
            unheld.push("the alpha channel".to_owned());
        }
        unheld
    }
}

impl Drop for UnheldNote {
    fn drop(&mut self) {
        let unheld = self.unheld();
        if !unheld.is_empty() {
            self.notes.add(format!("{}: the output does not hold {}", self.sink, unheld.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use framepath_model::format::{Layout, PixelFormat};

    use super::*;

    const NOTHING: HeldProperties =
        HeldProperties { orientation: false, fields: HeldFields::Progressive, times: false, alpha: false };

    /// Returns the notes of a sink that gets frames with `metas`, 25 in a second, with times in milliseconds.
    fn notes_of(held: HeldProperties, metas: &[FrameMeta], has_alpha: bool) -> Vec<String> {
        let notes = Notes::default();
        let mut note = UnheldNote::new("sink", held, notes.clone());
        let layout = Layout::packed(PixelFormat::Grey, 16, 16).unwrap();
        let info = StreamInfo::from_layout(&layout, Rational::new(25, 1));
        note.start(&StreamInfo { time_base: Rational::new(1, 1000), ..info });
        metas.iter().for_each(|meta| note.look_at(meta, has_alpha));
        drop(note);
        notes.take()
    }

    fn at(ms: i64) -> FrameMeta {
        FrameMeta { pts: Some(ms), ..FrameMeta::default() }
    }

    #[test]
    fn a_note_is_one_line_with_every_property() {
        let meta =
            FrameMeta { orientation: Orientation::Rotated90, field_order: FieldOrder::BottomFirst, ..at(0) };
        let notes = notes_of(NOTHING, &[meta, at(40), at(120), at(160)], true);
        let expected = "sink: the output does not hold the orientation (a clockwise turn by 90 degrees makes the \
                        pictures upright; put `rotate angle=auto` in front), the interlacing (bottom field first; \
                        put `filter yadif` in front for progressive pictures), the times (the frame rate varies, \
                        first at frame 2), the alpha channel";
        assert_eq!(notes, [expected]);
        let all = HeldProperties { orientation: true, fields: HeldFields::All, times: true, alpha: true };
        assert_eq!(notes_of(all, &[meta, at(40), at(120)], true), [""; 0]);
        let first = HeldProperties { fields: HeldFields::First, orientation: true, ..all };
        assert_eq!(
            notes_of(first, &[meta, meta, at(80)], true),
            ["sink: the output does not hold the change of the field order at frame 2"]
        );
        assert_eq!(notes_of(first, &[meta, meta], true), [""; 0]);
    }

    #[test]
    fn rounded_times_and_repeats_are_a_constant_rate() {
        let times = |times: &[i64]| times.iter().map(|ms| at(*ms)).collect::<Vec<_>>();
        assert_eq!(notes_of(NOTHING, &times(&[0, 41, 79, 120, 0, 40, 80]), false), [""; 0]);
        assert_eq!(notes_of(NOTHING, &[at(0), FrameMeta::default(), at(80)], false).len(), 1);
        assert_eq!(notes_of(NOTHING, &times(&[0, 50]), false).len(), 1);
        assert_eq!(notes_of(NOTHING, &[], true), [""; 0]);
    }
}
