// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents of one cell of a ring.

// over 600 lines because it describes each field of all records of both rings, and encodes and decodes them.

use super::error::check;
use super::picture::{PICTURE_BITS, picture_bits, picture_of};
use super::{EncodedPart, EncoderRequests, FrameTime, WireError, WorkerTime, layout};
use crate::format::Layout;
use crate::stream::{PictureFlags, Preroll, SeekTo};

/// Number of 64-bit words in a cell.
pub const CELL_WORDS: usize = 8;

/// Size of a cell, bytes.
pub const CELL_BYTES: usize = CELL_WORDS * 8;

/// One cell of a ring, copied out of or into shared memory word by word.
pub type Cell = [u64; CELL_WORDS];

/// Size of the used part of a packet submission, bytes: four words. A fifth word is used only for
/// packets whose frames are skipped.
pub const PACKET_SUBMISSION_BYTES: usize = 4 * 8;

/// Size of the used part of a frame completion, bytes.
pub const FRAME_COMPLETION_BYTES: usize = CELL_BYTES;

/// Size of the used parts of the two cells for one decoded frame, the packet submission and the
/// frame completion, bytes. The packet itself and the return of the slot are not included.
pub const BYTES_PER_FRAME: usize = PACKET_SUBMISSION_BYTES + FRAME_COMPLETION_BYTES;

/// Maximum bit rate that a stage in a worker may request, bits per second.
pub const MAX_BIT_RATE: u64 = 1 << 40;

/// Pool number of a completed frame that is the submitted frame, passed on unchanged. The caller
/// already has this frame with its metadata, so slot and layout are 0, and the caller ignores the
/// picture's properties.
pub const SAME_FRAME: u16 = u16::MAX;

/// Pool number of a completion that stands for an encoded packet, whose bytes the completion before it
/// named ([`Completion::Encoded`]). Slot and layout are 0. The caller has the frame of that number, from
/// which it takes the packet's metadata, and ignores the picture's properties.
pub const ENCODED_PACKET: u16 = u16::MAX - 1;

const PACKET: u8 = 1;
const FRAME_IN: u8 = 2;
const LAYOUT_IN: u8 = 3;
const DRAIN: u8 = 4;
const FLUSH: u8 = 5;
const SEEK: u8 = 6;
const FRAME_OUT: u8 = 129;
const LAYOUT_OUT: u8 = 130;
const POOL: u8 = 131;
const FAILED: u8 = 132;
const END: u8 = 133;
const PASSED: u8 = 134;
const MEMORY_REQUEST: u8 = 135;
const PACKET_OUT: u8 = 136;
const FLUSHED: u8 = 137;
const REQUEST: u8 = 138;
const DAMAGED_FRAME_OUT: u8 = 139;
const UNDECODED: u8 = 140;
const FRAME_TIME: u8 = 141;
const ENCODED: u8 = 142;

const REQUEST_KEYFRAME: u64 = 1;
const REQUEST_BIT_RATE: u64 = 2;

const HAS_PTS: u64 = 1;
const KEY: u64 = 2;
const TRANSIT: u64 = 4;
const DISCARDED: u64 = 8;
const RESTARTS: u64 = 16;
const DAMAGED: u64 = 32;
const EXTRA: u64 = 64;

/// Record of a submission ring, from the caller to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// Compressed bytes in the packet area.
    Packet {
        /// Number of the packet among the packets and flushes of the stream, from 0.
        seq: u64,
        /// Presentation time in ticks of the track's time base; `None` if not known.
        pts: Option<i64>,
        /// Offset of the packet's first byte from the start of the packet area, bytes.
        offset: u64,
        /// Size of the packet, bytes; `offset + len` fits 64 bits.
        len: u32,
        /// True if the container flags the packet as a random access point.
        key: bool,
        /// True if the demuxer found the packet damaged.
        is_damaged: bool,
        /// Frames that the decoder does not output from this packet on, and whether the decoder
        /// starts anew before this packet. The caller sends 0 for `skipped`, because its replay log
        /// withholds the skipped frames.
        preroll: Preroll,
    },
    /// A frame for a stage that takes frames.
    Frame {
        /// Number of the frame among the frames and flushes of the stream, from 0.
        seq: u64,
        /// Presentation time in ticks of the stream's time base; `None` if not known.
        pts: Option<i64>,
        /// Number of an input pool that [`super::Message::InputPool`] announced.
        pool: u16,
        /// Index of the frame's slot in that pool, from 0.
        slot: u32,
        /// Id of a layout that an earlier [`Submission::Layout`] defined.
        layout: u8,
        /// Damage, field order and orientation of the picture, which the worker puts into the
        /// frame's metadata.
        picture: PictureFlags,
        /// Requests to the encoder that encodes the frame; none for another stage.
        requests: EncoderRequests,
    },
    /// Definition of a layout, sent before the first frame that uses it. A slot with such a frame
    /// has at least `layout.size` bytes.
    Layout {
        /// Id by which later frames refer to the layout.
        id: u8,
        /// Format, size and planes of the frames.
        layout: Layout,
    },
    /// End of the input: the stage outputs the pending frames, then the worker sends
    /// [`Completion::End`].
    Drain,
    /// Command to drop the pending frames, because the next input is from another place of the
    /// stream. The worker answers with [`Completion::Flushed`].
    Flush {
        /// Number of the flush, from the same sequence as the numbers of packets or frames.
        seq: u64,
    },
    /// Command for a demuxer to continue at another place. The worker answers with
    /// [`Completion::Flushed`].
    Seek {
        /// Number of the seek; the answer repeats it.
        number: u64,
        /// Position where the demuxer continues.
        to: DemuxPosition,
    },
}

/// Position where a demuxer continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemuxPosition {
    /// Random access point for a time, nanoseconds from the stream's start. With [`SeekTo::Exact`],
    /// a point from which the first frame at or after this time can be decoded; frames before this
    /// frame are marked as preroll. With [`SeekTo::KeyframeBefore`], the last point at or before
    /// this time. If there is no such point, the start of the stream. With [`SeekTo::Exact`] and no
    /// frame at or after this time, no frame is output until the end of the stream.
    Time(u64, SeekTo),
    /// First packet that the demuxer has not yet sent, that the container flags as a random access
    /// point and that is not damaged; the end of the stream if there is none.
    NextKey,
}

/// Record of a completion ring, from the worker to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A frame that the stage output.
    Frame {
        /// Number of the packet or frame from which the frame was made; of the newest input for an
        /// [extra](FrameTime::is_extra) frame.
        seq: u64,
        /// Number of a pool that the worker announced earlier, [`SAME_FRAME`] or [`ENCODED_PACKET`].
        pool: u16,
        /// Number of the slot among the slots of all pools of the worker, from the pool's
        /// `first_slot` on; 0 for [`SAME_FRAME`] and [`ENCODED_PACKET`].
        slot: u32,
        /// Id of a layout that an earlier [`Completion::Layout`] defined; 0 for [`SAME_FRAME`] and
        /// [`ENCODED_PACKET`].
        layout: u8,
        /// Damage, field order and orientation of the picture, which the caller puts into the
        /// frame's metadata; ignored for [`SAME_FRAME`].
        picture: PictureFlags,
        /// Time and resources that the worker spent on the frame.
        work: WorkerTime,
    },
    /// Time of the next completion's frame, which is not [`SAME_FRAME`].
    FrameTime(FrameTime),
    /// Bytes of the encoder, in the packet area. Those of a packet belong to the next completion, which is a
    /// frame of [`ENCODED_PACKET`]; those of a track to the packet that follows.
    Encoded {
        /// Meaning of the bytes.
        part: EncodedPart,
        /// Offset of the first byte from the start of the packet area, bytes.
        offset: u64,
        /// Number of bytes; `offset + len` fits 64 bits.
        len: u32,
        /// Number by which the caller gives the memory back to the worker.
        id: u32,
    },
    /// Definition of a layout, sent before the first frame that uses it. A slot with such a frame
    /// has at least `layout.size` bytes.
    Layout {
        /// Id by which later frames refer to the layout.
        id: u8,
        /// Format, size and planes of the frames.
        layout: Layout,
    },
    /// A new pool. Its memory is the one that [`super::Message::PoolMemory`] named just before, or
    /// the buffers that the caller provided.
    Pool {
        /// Number of the pool.
        pool: u16,
        /// Number of slots of the pool, at least one.
        slots: u32,
        /// Distance from one slot to the next, bytes, at least one. All slots together fit the
        /// address space.
        slot_bytes: u64,
        /// Number of the pool's first slot: the slots of all pools of a worker are numbered
        /// consecutively. `first_slot + slots` fits 32 bits.
        first_slot: u32,
    },
    /// The stage or demuxer failed; the worker has sent the error text on the socket before.
    Failed,
    /// All frames of the input before [`Submission::Drain`] have been output; from a demuxer: all
    /// packets of the file, in all its loops, or of the network stream have been sent.
    End,
    /// The worker waits for memory or buffers; the request itself is on the socket.
    MemoryRequest,
    /// The stage took an input frame and output no frame of it while it worked on the input. Not sent
    /// for packets.
    Passed {
        /// Number of the input frame.
        seq: u64,
    },
    /// A packet of the demuxed file or network stream, in the packet area.
    Packet {
        /// Presentation time in ticks of the track's time base; `None` if not known.
        pts: Option<i64>,
        /// Duration in ticks of the track's time base; 0 if not known.
        duration: i64,
        /// Offset of the packet's first byte from the start of the packet area, bytes.
        offset: u64,
        /// Size of the packet, bytes; `offset + len` fits 64 bits.
        len: u32,
        /// Number by which the caller gives the packet's memory back to the worker.
        id: u32,
        /// True if the container flags the packet as a random access point.
        key: bool,
        /// True if the demuxer found the packet damaged.
        is_damaged: bool,
        /// True if the caller has to copy the packet and give its memory back immediately.
        transit: bool,
        /// Frames that the decoder does not output from this packet on, and whether the decoder
        /// starts anew before this packet.
        preroll: Preroll,
        /// Number of packets of the network (RTP) that were lost since the worker's previous
        /// [`Completion::Packet`]; 0 from a file.
        lost: u32,
    },
    /// Marker after a flush or seek: later completions belong to the new input.
    Flushed {
        /// Number of the [`Submission::Flush`] or [`Submission::Seek`].
        number: u64,
    },
    /// Request of the stage to the hops before it.
    Request(UpstreamRequest),
    /// The decoder continues without the picture of a packet, or of several packets.
    Undecoded {
        /// Number of the packet; the number of a later one if the decoder does not report which packet
        /// it could not decode.
        seq: u64,
        /// Number of packets, this one the last, that the decoder skipped because of damage before
        /// them; 0 if this packet itself cannot be decoded.
        skipped: u64,
    },
}

/// Request of a stage in a worker to the hops before the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamRequest {
    /// Make the next packet a random access point.
    Keyframe,
    /// Encode with this bit rate, bits per second: 1 to [`MAX_BIT_RATE`].
    BitRate(u64),
}

impl Submission {
    /// Encodes the record as a cell.
    pub fn encode(&self) -> Cell {
        match *self {
            Submission::Packet { seq, pts, offset, len, key, is_damaged, preroll } => {
                let flags = has_pts(pts) | packet_flags(key, is_damaged) | preroll_flags(preroll);
                let word = u64::from(PACKET) | flags << 8 | u64::from(len) << 32;
                [word, seq, pts.unwrap_or(0) as u64, offset, preroll.skipped, 0, 0, 0]
            }
            Submission::Frame { seq, pts, pool, slot, layout, picture, requests } => {
                let word = slot_word(FRAME_IN, layout, pool, slot);
                let damaged = if picture.is_damaged { DAMAGED } else { 0 };
                let EncoderRequests { key, bit_rate, bandwidth } = requests;
                let flags = has_pts(pts) | packet_flags(key, false) | damaged | picture_bits(&picture) << 8;
                let pts = pts.unwrap_or(0) as u64;
                [word, seq, pts, flags, bit_rate.unwrap_or(0), bandwidth.unwrap_or(0), 0, 0]
            }
            Submission::Layout { id, ref layout } => layout::encode(LAYOUT_IN, id, layout),
            Submission::Drain => alone(DRAIN, 0),
            Submission::Flush { seq } => alone(FLUSH, seq),
            Submission::Seek { number, to } => {
                let (mode, ns) = match to {
                    DemuxPosition::Time(ns, SeekTo::Exact) => (0, ns),
                    DemuxPosition::Time(ns, SeekTo::KeyframeBefore) => (1, ns),
                    DemuxPosition::NextKey => (2, 0),
                };
                [u64::from(SEEK) | mode << 8, number, ns, 0, 0, 0, 0, 0]
            }
        }
    }

    /// Decodes a cell of a submission ring.
    ///
    /// # Errors
    ///
    /// The cell is not a valid submission; see [`WireError`].
    pub fn decode(cell: &Cell) -> Result<Submission, WireError> {
        let [word, seq, pts, third, ..] = *cell;
        match word as u8 {
            PACKET => {
                const RECORD: &str = "packet submission";
                zero(cell, 5, RECORD)?;
                let flags = word >> 8 & 0xff;
                if flags & !(HAS_PTS | KEY | DISCARDED | RESTARTS | DAMAGED) != 0 || word >> 16 & 0xffff != 0
                {
                    return Err(WireError::Reserved { record: RECORD });
                }
                let (offset, len) = (third, (word >> 32) as u32);
                check(offset.checked_add(len.into()).is_some(), RECORD, "offset", offset)?;
                let pts = pts_of(flags, pts, RECORD)?;
                let preroll = preroll_of(flags, cell[4]);
                let (key, is_damaged) = (flags & KEY != 0, flags & DAMAGED != 0);
                Ok(Submission::Packet { seq, pts, offset, len, key, is_damaged, preroll })
            }
            FRAME_IN => {
                const RECORD: &str = "frame submission";
                zero(cell, 6, RECORD)?;
                const PICTURE: u64 = ((1 << PICTURE_BITS) - 1) << 8;
                if third & !(HAS_PTS | KEY | DAMAGED | PICTURE) != 0 {
                    return Err(WireError::Reserved { record: RECORD });
                }
                let (layout, pool, slot) = slot_of(word);
                let picture = picture_of(third >> 8, third & DAMAGED != 0, RECORD)?;
                let [bit_rate, bandwidth] = [cell[4], cell[5]].map(|bits| (bits > 0).then_some(bits));
                let requests = EncoderRequests { key: third & KEY != 0, bit_rate, bandwidth };
                let pts = pts_of(third, pts, RECORD)?;
                Ok(Submission::Frame { seq, pts, pool, slot, layout, picture, requests })
            }
            LAYOUT_IN => layout::decode(cell).map(|(id, layout)| Submission::Layout { id, layout }),
            DRAIN => {
                only_kind(cell, "drain")?;
                zero(cell, 1, "drain")?;
                Ok(Submission::Drain)
            }
            FLUSH => {
                only_kind(cell, "flush")?;
                zero(cell, 2, "flush")?;
                Ok(Submission::Flush { seq })
            }
            SEEK => {
                const RECORD: &str = "seek";
                zero(cell, 3, RECORD)?;
                let [_, number, ns, ..] = *cell;
                let to = match word >> 8 {
                    0 => DemuxPosition::Time(ns, SeekTo::Exact),
                    1 => DemuxPosition::Time(ns, SeekTo::KeyframeBefore),
                    2 if ns == 0 => DemuxPosition::NextKey,
                    mode => return Err(WireError::Field { record: RECORD, field: "mode", value: mode }),
                };
                Ok(Submission::Seek { number, to })
            }
            kind => Err(WireError::Kind { family: "submission", kind: kind.into() }),
        }
    }
}

impl Completion {
    /// Encodes the record as a cell.
    pub fn encode(&self) -> Cell {
        match *self {
            Completion::Frame { seq, pool, slot, layout, picture, work } => {
                let [enter, leave, a, b, c, d] = work.encode(&picture);
                let kind = if picture.is_damaged { DAMAGED_FRAME_OUT } else { FRAME_OUT };
                [slot_word(kind, layout, pool, slot), seq, enter, leave, a, b, c, d]
            }
            Completion::Layout { id, ref layout } => layout::encode(LAYOUT_OUT, id, layout),
            Completion::Pool { pool, slots, slot_bytes, first_slot } => {
                [slot_word(POOL, 0, pool, slots), slot_bytes, first_slot.into(), 0, 0, 0, 0, 0]
            }
            Completion::Failed => alone(FAILED, 0),
            Completion::End => alone(END, 0),
            Completion::MemoryRequest => alone(MEMORY_REQUEST, 0),
            Completion::Passed { seq } => alone(PASSED, seq),
            Completion::Packet {
                pts,
                duration,
                offset,
                len,
                id,
                key,
                is_damaged,
                transit,
                preroll,
                lost,
            } => {
                let transit = if transit { TRANSIT } else { 0 };
                let flags = has_pts(pts) | packet_flags(key, is_damaged) | transit;
                let word =
                    u64::from(PACKET_OUT) | (flags | preroll_flags(preroll)) << 8 | u64::from(len) << 32;
                let (pts, skipped) = (pts.unwrap_or(0) as u64, preroll.skipped);
                [word, pts, duration as u64, offset, id.into(), skipped, lost.into(), 0]
            }
            Completion::Flushed { number } => alone(FLUSHED, number),
            Completion::Request(UpstreamRequest::Keyframe) => {
                alone_word(u64::from(REQUEST) | REQUEST_KEYFRAME << 8, 0)
            }
            Completion::Request(UpstreamRequest::BitRate(bits)) => {
                alone_word(u64::from(REQUEST) | REQUEST_BIT_RATE << 8, bits)
            }
            Completion::Undecoded { seq, skipped } => [UNDECODED.into(), seq, skipped, 0, 0, 0, 0, 0],
            Completion::FrameTime(FrameTime { seq, pts, is_extra }) => {
                let flags = has_pts(pts) | if is_extra { EXTRA } else { 0 };
                [u64::from(FRAME_TIME) | flags << 8, seq, pts.unwrap_or(0) as u64, 0, 0, 0, 0, 0]
            }
            Completion::Encoded { part, offset, len, id } => {
                let word = u64::from(ENCODED) | part.number() << 8 | u64::from(len) << 32;
                [word, 0, 0, offset, id.into(), 0, 0, 0]
            }
        }
    }

    /// Decodes a cell of a completion ring.
    ///
    /// # Errors
    ///
    /// The cell is not a valid completion; see [`WireError`].
    pub fn decode(cell: &Cell) -> Result<Completion, WireError> {
        let [word, seq, ..] = *cell;
        match word as u8 {
            kind @ (FRAME_OUT | DAMAGED_FRAME_OUT) => {
                let [_, _, enter, leave, a, b, c, d] = *cell;
                let (layout, pool, slot) = slot_of(word);
                let is_damaged = kind == DAMAGED_FRAME_OUT;
                let (work, picture) = WorkerTime::decode([enter, leave, a, b, c, d], is_damaged)?;
                Ok(Completion::Frame { seq, pool, slot, layout, picture, work })
            }
            LAYOUT_OUT => layout::decode(cell).map(|(id, layout)| Completion::Layout { id, layout }),
            POOL => {
                const RECORD: &str = "pool";
                zero(cell, 3, RECORD)?;
                let (reserved, pool, slots) = slot_of(word);
                if reserved != 0 || cell[2] >> 32 != 0 {
                    return Err(WireError::Reserved { record: RECORD });
                }
                let (slot_bytes, first_slot) = (cell[1], cell[2] as u32);
                check_pool(slots, slot_bytes, RECORD)?;
                check(first_slot.checked_add(slots).is_some(), RECORD, "first slot", first_slot.into())?;
                Ok(Completion::Pool { pool, slots, slot_bytes, first_slot })
            }
            FAILED => {
                only_kind(cell, "failed")?;
                zero(cell, 1, "failed")?;
                Ok(Completion::Failed)
            }
            END => {
                only_kind(cell, "end")?;
                zero(cell, 1, "end")?;
                Ok(Completion::End)
            }
            MEMORY_REQUEST => {
                only_kind(cell, "want")?;
                zero(cell, 1, "want")?;
                Ok(Completion::MemoryRequest)
            }
            PASSED => {
                only_kind(cell, "passed")?;
                zero(cell, 2, "passed")?;
                Ok(Completion::Passed { seq })
            }
            PACKET_OUT => {
                const RECORD: &str = "packet";
                zero(cell, 7, RECORD)?;
                let [_, pts, duration, offset, id, skipped, lost, _] = *cell;
                let flags = word >> 8 & 0xff;
                if flags & !(HAS_PTS | KEY | TRANSIT | DISCARDED | RESTARTS | DAMAGED) != 0
                    || word >> 16 & 0xffff != 0
                    || id >> 32 != 0
                    || lost >> 32 != 0
                {
                    return Err(WireError::Reserved { record: RECORD });
                }
                let len = (word >> 32) as u32;
                check(offset.checked_add(len.into()).is_some(), RECORD, "offset", offset)?;
                Ok(Completion::Packet {
                    pts: pts_of(flags, pts, RECORD)?,
                    duration: duration as i64,
                    offset,
                    len,
                    id: id as u32,
                    key: flags & KEY != 0,
                    is_damaged: flags & DAMAGED != 0,
                    transit: flags & TRANSIT != 0,
                    preroll: preroll_of(flags, skipped),
                    lost: lost as u32,
                })
            }
            FLUSHED => {
                only_kind(cell, "flushed")?;
                zero(cell, 2, "flushed")?;
                Ok(Completion::Flushed { number: seq })
            }
            REQUEST => {
                const RECORD: &str = "request";
                zero(cell, 2, RECORD)?;
                let bits = cell[1];
                match word >> 8 {
                    REQUEST_KEYFRAME => {
                        zero(cell, 1, RECORD)?;
                        Ok(Completion::Request(UpstreamRequest::Keyframe))
                    }
                    REQUEST_BIT_RATE => {
                        check((1..=MAX_BIT_RATE).contains(&bits), RECORD, "bit rate", bits)?;
                        Ok(Completion::Request(UpstreamRequest::BitRate(bits)))
                    }
                    what => Err(WireError::Field { record: RECORD, field: "request", value: what }),
                }
            }
            UNDECODED => {
                only_kind(cell, "undecoded packet")?;
                zero(cell, 3, "undecoded packet")?;
                Ok(Completion::Undecoded { seq, skipped: cell[2] })
            }
            FRAME_TIME => {
                const RECORD: &str = "frame time";
                zero(cell, 3, RECORD)?;
                let flags = word >> 8;
                if flags & !(HAS_PTS | EXTRA) != 0 {
                    return Err(WireError::Reserved { record: RECORD });
                }
                let pts = pts_of(flags, cell[2], RECORD)?;
                Ok(Completion::FrameTime(FrameTime { seq, pts, is_extra: flags & EXTRA != 0 }))
            }
            ENCODED => {
                const RECORD: &str = "encoded bytes";
                zero(cell, 5, RECORD)?;
                let [_, first, second, offset, id, ..] = *cell;
                if first != 0 || second != 0 || id >> 32 != 0 {
                    return Err(WireError::Reserved { record: RECORD });
                }
                let number = word >> 8 & 0xff_ffff;
                let unknown = WireError::Field { record: RECORD, field: "part", value: number };
                let part = EncodedPart::from_number(number).ok_or(unknown)?;
                let len = (word >> 32) as u32;
                check(offset.checked_add(len.into()).is_some(), RECORD, "offset", offset)?;
                Ok(Completion::Encoded { part, offset, len, id: id as u32 })
            }
            kind => Err(WireError::Kind { family: "completion", kind: kind.into() }),
        }
    }
}

/// Checks that a pool has slots, that the slots have bytes, and that all slots together fit the
/// address space. Fails with [`WireError::Field`] otherwise.
pub(super) fn check_pool(slots: u32, slot_bytes: u64, record: &'static str) -> Result<(), WireError> {
    check(slots > 0, record, "slots", slots.into())?;
    let all = slot_bytes.checked_mul(slots.into()).and_then(|all| isize::try_from(all).ok());
    check(slot_bytes > 0 && all.is_some(), record, "slot bytes", slot_bytes)
}

fn alone(kind: u8, seq: u64) -> Cell {
    alone_word(kind.into(), seq)
}

fn alone_word(word: u64, seq: u64) -> Cell {
    [word, seq, 0, 0, 0, 0, 0, 0]
}

fn slot_word(kind: u8, layout: u8, pool: u16, slot: u32) -> u64 {
    u64::from(kind) | u64::from(layout) << 8 | u64::from(pool) << 16 | u64::from(slot) << 32
}

fn slot_of(word: u64) -> (u8, u16, u32) {
    ((word >> 8) as u8, (word >> 16) as u16, (word >> 32) as u32)
}

fn packet_flags(key: bool, is_damaged: bool) -> u64 {
    (if key { KEY } else { 0 }) | if is_damaged { DAMAGED } else { 0 }
}

/// Returns the packet flags for `preroll`; its number of skipped frames has a word of its own.
fn preroll_flags(preroll: Preroll) -> u64 {
    (if preroll.discarded { DISCARDED } else { 0 }) | if preroll.restarts { RESTARTS } else { 0 }
}

fn preroll_of(flags: u64, skipped: u64) -> Preroll {
    Preroll { restarts: flags & RESTARTS != 0, discarded: flags & DISCARDED != 0, skipped }
}

fn has_pts(pts: Option<i64>) -> u64 {
    if pts.is_some() { HAS_PTS } else { 0 }
}

fn pts_of(flags: u64, word: u64, record: &'static str) -> Result<Option<i64>, WireError> {
    if flags & HAS_PTS != 0 {
        return Ok(Some(word as i64));
    }
    if word == 0 { Ok(None) } else { Err(WireError::Reserved { record }) }
}

/// Checks that the words of `cell` from index `first` on are zero. Fails with
/// [`WireError::Reserved`] otherwise.
fn zero(cell: &Cell, first: usize, record: &'static str) -> Result<(), WireError> {
    if cell[first..].iter().all(|word| *word == 0) { Ok(()) } else { Err(WireError::Reserved { record }) }
}

/// Checks that word 0 of `cell` is zero above its low byte, the kind. Fails with
/// [`WireError::Reserved`] otherwise.
fn only_kind(cell: &Cell, record: &'static str) -> Result<(), WireError> {
    if cell[0] >> 8 == 0 { Ok(()) } else { Err(WireError::Reserved { record }) }
}
