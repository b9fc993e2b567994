// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeking to a random access point from which all requested frames can be decoded.
//!
//! Depending on the container, libavformat seeks by decoding time instead of presentation time,
//! stops between two random access points, or fails because there is no index. So the demuxer
//! checks the packets after each seek. Containers also flag packets where decoding cannot start; the
//! demuxer removes the flag if the packet's bytes refute it, and the seek goes further back. In a
//! stream with gradual refresh, the module `gradual` finds the packet.

use std::ffi::c_int;
use std::time::Duration;

use ffmpeg_sys_next as ff;
use framepath_model::access_unit::Coding;
use framepath_model::stream::SeekTo;

use super::context::Context;
use super::gradual::Landing;
use super::{Demuxer, Mark};
use crate::shortage::Shortage;
use crate::{Codec, CodecError, Packet};

/// Maximum number of seeks before the demuxer reads from the beginning of the file. Each seek aims
/// at an earlier time than the previous seek; the distance between the two times doubles.
const TRIES: u32 = 24;

/// State of marking the packets after a seek or [`skip_to_key`](Demuxer::skip_to_key): a packet
/// whose picture is shown before the target is marked, and the decoder discards the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marking {
    /// Presentation time before which pictures are discarded, in ticks: the target of an exact
    /// seek, or the time of the random access point at which decoding starts.
    target: i64,
    /// Presentation time, in ticks, of the first random access point at or after the target, not
    /// counting the packet at which decoding starts; `None` until this point was read. Pictures
    /// that are decoded after the point but shown before the target are still marked. The first
    /// packet that is shown after the point ends the marking, because the stream's times may
    /// restart afterwards.
    next_key: Option<i64>,
    /// True until [`mark`](Marking::mark) has got the first packet, at which decoding starts.
    is_new: bool,
}

impl Marking {
    pub(super) fn starting_before(target: i64) -> Marking {
        Marking { target, next_key: None, is_new: true }
    }

    /// Marks `packet`, the next packet in decoding order, if its picture has to be discarded; never
    /// marks a packet without a presentation time. Returns false if the marking has ended: neither
    /// `packet` nor a later packet has to be marked.
    pub(super) fn mark(&mut self, packet: &mut Packet) -> bool {
        let is_first = std::mem::take(&mut self.is_new);
        let Some(pts) = packet.meta().pts else { return true };
        if self.next_key.is_some_and(|key| pts > key) {
            return false;
        }
        if pts < self.target {
            packet.preroll_mut().discarded = true;
        } else if packet.is_key() && !is_first && self.next_key.is_none() {
            self.next_key = Some(pts);
        }
        true
    }
}

impl Demuxer {
    /// Returns true if [`seek`](Demuxer::seek) and [`rewind`](Demuxer::rewind) can work: the input
    /// is a regular file, not a pipe, a device or a network stream.
    pub fn is_seekable(&self) -> bool {
        self.input.is_seekable()
    }

    /// Seeks to the time `to`, counted from the start of the stream. The next
    /// [`read`](Demuxer::read) returns the random access point, or the begin of a gradual refresh, from
    /// which a flushed decoder can decode the requested frames, or the first packet if there is no such point. Pictures before
    /// the requested frames are [preroll](Packet::preroll). If `to` is after the last frame, an
    /// exact seek leaves no frame.
    ///
    /// In a stream without timestamps, the time of frame n is n divided by the frame rate; the
    /// demuxer then reads the file from the beginning.
    ///
    /// # Errors
    /// [`CodecError::CannotSeek`], the errors of [`read`](Demuxer::read), or those of
    /// [`rewind`](Demuxer::rewind).
    pub fn seek(&mut self, to: Duration, mode: SeekTo) -> Result<(), CodecError> {
        if !self.is_seekable() {
            return Err(self.cannot_seek("it is a pipe, a device or a network stream"));
        }
        (self.marking, self.recovery) = (None, None);
        if self.first.is_none() {
            // Reads the first packet, by which `rewind` identifies the start of the stream.
            self.read_ahead = self.read()?;
        }
        let Some(first) = self.first else { return Ok(()) };
        let start = match self.info.codec {
            // Calculated times (`complete_times`) may begin later than the container says.
            Codec::Other(_) => first.pts,
            _ => self.context.start(self.stream).or(first.pts),
        };
        match (first.pts, start) {
            (Some(_), Some(start)) => self.seek_by_time(start, to, mode)?,
            _ => self.seek_by_count(to, mode)?,
        }
        self.restarts = true;
        Ok(())
    }

    /// Skips packets up to the next random access point that is not damaged, where a flushed
    /// decoder can start. (A point that a seek or a rewind has already read is used even if it is
    /// damaged.) The next [`read`](Demuxer::read) returns this point, or `None` if the
    /// file has no further one. Later packets whose pictures are shown before the point are marked
    /// as [preroll](Packet::preroll). If the point begins a gradual refresh, also the packets are
    /// marked whose pictures are shown before a later refresh is complete or an IDR picture.
    ///
    /// # Errors
    /// As [`read`](Demuxer::read).
    pub fn skip_to_key(&mut self) -> Result<(), CodecError> {
        self.skip_to_start()?;
        self.recovery = self.recovery_from_start();
        Ok(())
    }

    /// Skips packets as [`skip_to_key`](Demuxer::skip_to_key) does, without the marking of a gradual
    /// refresh.
    pub(super) fn skip_to_start(&mut self) -> Result<(), CodecError> {
        (self.marking, self.recovery) = (None, None);
        if self.read_ahead.as_ref().is_none_or(|packet| !packet.is_key()) {
            self.read_ahead = self.read_key()?;
        }
        let key = self.read_ahead.as_ref().and_then(|key| key.meta().pts);
        self.marking = key.map(Marking::starting_before);
        self.restarts = true;
        Ok(())
    }

    fn seek_by_time(&mut self, start: i64, to: Duration, mode: SeekTo) -> Result<(), CodecError> {
        let ticks = self.info.stream.time_base.ticks_around(to);
        let (floor, ceil) = ticks.ok_or_else(|| self.cannot_seek("the time is out of range"))?;
        let (latest, target) = (start.saturating_add(floor), start.saturating_add(ceil));
        let landed = self.read_to_target(latest)?;
        self.marking = match (mode, &landed) {
            (SeekTo::Exact, _) => Some(Marking::starting_before(target)),
            // Discards pictures that are decoded after the keyframe and shown before it: they refer
            // to pictures that were not decoded. Also discards those before a refresh is complete.
            (SeekTo::KeyframeBefore, Some(landing)) => landing.right_from.map(Marking::starting_before),
            (SeekTo::KeyframeBefore, None) => None,
        };
        match landed {
            Some(landing) => self.read_ahead = Some(landing.start),
            None => self.rewind_marked()?,
        }
        Ok(())
    }

    /// Rewinds as [`rewind`](Demuxer::rewind) does, but keeps the marking.
    fn rewind_marked(&mut self) -> Result<(), CodecError> {
        let marking = self.marking.take();
        self.rewind()?;
        self.marking = marking;
        Ok(())
    }

    /// Returns the packet at which decoding has to start for a seek to `latest` (in ticks). The next
    /// read returns the packet after this one. Returns `None` if decoding has to start at the first
    /// packet of the file; the caller then rewinds.
    fn read_to_target(&mut self, latest: i64) -> Result<Option<Landing<Packet>>, CodecError> {
        if !self.points.is_gradual() {
            let key = self.read_to_point(latest)?;
            if !self.points.is_gradual() {
                return Ok(key.map(|start| Landing { right_from: start.meta().pts, start }));
            }
        }
        self.land_in_gradual(latest)
    }

    /// Returns one second in ticks, at least 1.
    pub(super) fn second(&self) -> i64 {
        let ticks = self.info.stream.time_base.ticks_around(Duration::from_secs(1));
        ticks.unwrap_or_default().0.max(1)
    }

    /// Returns the last random access point that is shown at or before `latest` (in ticks), as far
    /// as the container's index and the packets' times show. The next read returns the packet after
    /// this point. Returns `None` if decoding has to start at the first packet of the file, or if the
    /// stream turns out to have gradual refresh.
    fn read_to_point(&mut self, latest: i64) -> Result<Option<Packet>, CodecError> {
        let mut step = self.second();
        let mut aim = latest;
        for attempt in 0..TRIES {
            if !self.go_before(aim) {
                break;
            }
            let key = self.read_key_before(latest)?;
            if self.points.is_gradual() {
                return Ok(None);
            }
            match key {
                Some(key) if key.meta().pts.is_some_and(|pts| pts <= latest) => {
                    let is_last = attempt == 0 && !self.context.has_key_between(self.stream, &key, latest);
                    return if is_last { Ok(Some(key)) } else { self.advance(&key, aim, latest) };
                }
                _ => {}
            }
            aim = aim.saturating_sub(step);
            step = step.saturating_mul(2);
        }
        self.land_by_reading(latest)
    }

    /// Drops the packet that was read ahead, and seeks to a packet at or before `ticks`. Returns
    /// false if libavformat cannot seek, or memory was short.
    pub(super) fn go_before(&mut self, ticks: i64) -> bool {
        self.read_ahead = None;
        let shortage = Shortage::watch();
        self.context.seek_before(self.stream, ticks) && !shortage.occurred()
    }

    /// Returns the last random access point that is known to be at or before `latest`, after the caller has sought
    /// to `aim` and has read `first`, the first random access point from there. Reads the further points up to
    /// `latest`, seeks to `aim` again, and reads up to the last such point. This seek may lead to another
    /// packet than the one before, because libavformat adds packets to its index while it reads.
    fn advance(&mut self, first: &Packet, aim: i64, latest: i64) -> Result<Option<Packet>, CodecError> {
        let mut last = Mark::of(first);
        while let Some(key) = self.read_key_before(latest)? {
            match key.meta().pts {
                Some(pts) if pts > latest => break,
                Some(_) => last = Mark::of(&key),
                // A point without a time may be after `latest`.
                None => {}
            }
        }
        if self.go_before(aim) {
            while let Some(key) = self.read_key_before(latest)? {
                if Mark::of(&key) == last {
                    return Ok(Some(key));
                }
                if key.meta().pts.is_some_and(|pts| pts > latest) {
                    break;
                }
            }
        }
        self.land_by_reading(latest)
    }

    /// Does the work of [`read_to_point`](Demuxer::read_to_point) if libavformat cannot seek, or
    /// if its seeks have not led to the point: reads the file from the start to find the point, and
    /// again up to the point.
    fn land_by_reading(&mut self, latest: i64) -> Result<Option<Packet>, CodecError> {
        self.rewind()?;
        let mut found = None;
        let mut number: u64 = 0;
        while let Some(packet) = self.read()? {
            match packet.meta().pts {
                Some(pts) if packet.is_key() && pts > latest => break,
                Some(_) if packet.is_key() => found = Some(number),
                // As in `read_key_before`.
                Some(pts) if self.is_refuted && pts > latest => break,
                _ => {}
            }
            number += 1;
        }
        let Some(found) = found else { return Ok(None) };
        self.rewind()?;
        for _ in 0..found {
            self.read()?;
        }
        self.read()
    }

    /// Returns the next random access point that is not damaged; `None` at the end of the file.
    /// Skips damaged points, because the first packet after a seek into a transport stream may be
    /// incomplete.
    fn read_key(&mut self) -> Result<Option<Packet>, CodecError> {
        self.read_key_before(i64::MAX)
    }

    /// Returns the next random access point as [`read_key`](Demuxer::read_key) does; also `None`
    /// behind a packet whose flag is refuted and that is shown after `latest` (in ticks). A random
    /// access point is shown after all pictures that are decoded before it, so the next one is after
    /// `latest`, too. Without this rule, each try of a seek would read a file with few points up to
    /// its end.
    fn read_key_before(&mut self, latest: i64) -> Result<Option<Packet>, CodecError> {
        while let Some(packet) = self.read_next()? {
            if packet.is_key() && !packet.is_damaged() {
                return Ok(Some(packet));
            }
            if self.is_refuted && packet.meta().pts.is_some_and(|pts| pts > latest) {
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn seek_by_count(&mut self, to: Duration, mode: SeekTo) -> Result<(), CodecError> {
        let rate = self.info.stream.frame_rate;
        let frames = framepath_model::stream::Rational::new(rate.den, rate.num).ticks_around(to);
        let unknown = "it has neither timestamps nor a frame rate";
        let (floor, ceil) = frames.ok_or_else(|| self.cannot_seek(unknown))?;
        let target = u64::try_from(if mode == SeekTo::Exact { ceil } else { floor }).unwrap_or(0);
        self.rewind()?;
        // Decoding can begin at an IDR picture: all pictures that precede it in decoding order are
        // also shown before it. The number of packets is the number of frames only if no packet is a
        // field, and if the first packet can be decoded alone; otherwise decoding begins at packet 0.
        let counts = !self.context.has_fields(self.stream);
        let mut begin: u64 = 0;
        let mut number: u64 = 0;
        while number <= target {
            let packet = match (self.read()?, mode) {
                (Some(packet), _) => packet,
                // No frame is left. The earlier packets would be decoded only to be discarded.
                (None, SeekTo::Exact) => return Ok(()),
                (None, SeekTo::KeyframeBefore) => break,
            };
            let is_idr = counts && packet.is_key() && is_idr(self.info.codec, &packet);
            if number == 0 && !is_idr {
                break;
            }
            if is_idr {
                begin = number;
            }
            number += 1;
        }
        self.rewind()?;
        for _ in 0..begin {
            self.read()?;
        }
        self.read_ahead = self.read()?;
        if let (SeekTo::Exact, Some(packet)) = (mode, &mut self.read_ahead) {
            packet.preroll_mut().skipped = target - begin;
        }
        Ok(())
    }

    fn cannot_seek(&self, reason: &'static str) -> CodecError {
        CodecError::CannotSeek { file: self.name.clone(), reason }
    }
}

impl Context {
    /// Seeks to the start time of the stream, or to time 0 if the start is not known. Returns true
    /// on success, false also if the container has no timestamps.
    pub(super) fn seek_to_start(&mut self, stream: c_int) -> bool {
        self.seek_before(stream, self.start(stream).unwrap_or(0))
    }

    /// Seeks to a packet at or before `ticks` that libavformat considers a random access point, by
    /// its index or by a search. Returns true on success, false also if the container has no
    /// timestamps. Only the next read shows which packet was found.
    fn seek_before(&mut self, stream: c_int, ticks: i64) -> bool {
        // SAFETY: the context is valid and has this stream; `iformat` is set
        // by the successful open.
        unsafe {
            let raw = self.0.as_ptr();
            if (*(*raw).iformat).flags & ff::AVFMT_NOTIMESTAMPS as c_int != 0 {
                return false;
            }
            ff::av_seek_frame(raw, stream, ticks, ff::AVSEEK_FLAG_BACKWARD as c_int) >= 0
        }
    }

    /// Returns true if the container's index has a random access point later than the packet `from`
    /// and not later than `until`, in ticks. Index times are decoding times in some containers.
    fn has_key_between(&self, stream: c_int, from: &Packet, until: i64) -> bool {
        // SAFETY: the context is valid and has this stream, and `from` is a valid packet. Entries
        // are valid until the next call into the demuxer; the end is null.
        unsafe {
            let stream: *mut ff::AVStream = *(*self.0.as_ptr()).streams.add(stream as usize);
            let (dts, pts) = ((*from.as_ptr()).dts, (*from.as_ptr()).pts);
            let any = ff::AVSEEK_FLAG_ANY as c_int;
            let from = ff::av_index_search_timestamp(stream, dts.max(pts).saturating_add(1), any);
            if from < 0 {
                return false;
            }
            let entries = (from..).map(|index| ff::avformat_index_get_entry(stream, index));
            let entries = entries.take_while(|entry| !entry.is_null() && (**entry).timestamp <= until);
            let mut entries = entries.skip_while(|entry| (**entry).timestamp <= dts.max(pts));
            entries.any(|entry| (*entry).flags() & ff::AVINDEX_KEYFRAME as c_int != 0)
        }
    }
}

/// Returns true if `packet`, a random access point, contains an IDR picture. H.264 and HEVC packets
/// must have start codes (Annex B). The random access points of VP8, VP9 and AV1 always count as
/// IDR pictures; those of [`Codec::Other`] only if each packet of the codec is decoded alone.
/// Returns false for an H.264 or HEVC packet whose bytes another process can write.
fn is_idr(codec: Codec, packet: &Packet) -> bool {
    let bytes = packet.bytes().unwrap_or_default();
    let units = bytes.windows(4).filter(|window| window[..3] == [0, 0, 1]).map(|window| window[3]);
    let mut units = units;
    match codec {
        Codec::H264 => units.any(|head| head & 0x1f == 5),
        // The NAL unit types IDR_W_RADL and IDR_N_LP.
        Codec::Hevc => units.any(|head| matches!(head >> 1 & 0x3f, 19 | 20)),
        // The random access points of these codecs are keyframes, which act as IDR pictures.
        Codec::Vp8 | Codec::Vp9 | Codec::Av1 => true,
        Codec::Other(_) => matches!(codec.coding(), Coding::Intra | Coding::Mjpeg),
    }
}

#[cfg(test)]
mod tests {
    use framepath_model::stream::FrameMeta;

    use super::*;

    fn packet(pts: i64, key: bool) -> Packet {
        Packet::copied(b"x", FrameMeta { pts: Some(pts), ..FrameMeta::default() }, key).unwrap()
    }

    #[test]
    fn marking_ends_behind_the_next_random_access_point() {
        let mut marking = Marking::starting_before(50);
        let mut seen = Vec::new();
        // A random access point, one of its leading pictures, the target, the next random access
        // point with a leading picture, and a stream that restarts.
        for (pts, key) in [
            (40, true),
            (30, false),
            (50, false),
            (45, false),
            (80, true),
            (49, false),
            (90, false),
            (0, true),
        ] {
            let mut packet = packet(pts, key);
            let goes_on = marking.mark(&mut packet);
            seen.push((pts, packet.preroll().discarded));
            if !goes_on {
                break;
            }
        }
        assert_eq!(
            seen,
            [(40, true), (30, true), (50, false), (45, true), (80, false), (49, true), (90, false)]
        );
    }

    #[test]
    fn an_idr_picture_is_known_by_its_unit() {
        let with = |bytes: &[u8]| Packet::copied(bytes, FrameMeta::default(), true).unwrap();
        assert!(is_idr(Codec::H264, &with(&[0, 0, 0, 1, 0x67, 0xaa, 0, 0, 1, 0x65, 3])));
        assert!(!is_idr(Codec::H264, &with(&[0, 0, 0, 1, 0x67, 0xaa, 0, 0, 1, 0x41, 5])));
        assert!(is_idr(Codec::Hevc, &with(&[0, 0, 1, 20 << 1, 1, 0])));
        // CRA: pictures before it in presentation order may follow it in decoding order.
        assert!(!is_idr(Codec::Hevc, &with(&[0, 0, 1, 21 << 1, 1, 0])));
    }
}
