// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wire format between a caller and its sandboxed worker, between a caller and the zygote that forks
//! workers, and between a client and the service. This page is its reference; `docs/workers.md`
//! describes the order of the messages and cells.
//!
//! Both sides run on one machine. All numbers are little-endian. A *cell* of a ring carries what
//! has an order among the packets and frames: these themselves, layouts, pools, drains, flushes,
//! seeks and requests. A *message* on the socket carries an event of a connection or stream, and a
//! file descriptor if there is one. Both have one fixed size, and every value has exactly one
//! encoding: bits that are not named below are zero, and a record with other bits is refused.
//! Decoding never panics. It checks everything that can be checked without knowledge of the stream.
//! The receiver checks the rest: that a slot, pool, layout or packet of that number exists, and
//! that a layout fits its slots.
//!
//! The other side may be hostile. The receiver copies a cell out of shared memory once,
//! word by word, and decodes the copy. Texts are valid UTF-8 and may contain control characters:
//! a program that prints them has to escape them.
//!
//! # Cells: 8 words of 64 bits
//!
//! `a:n` is a field of n bits; fields of a word begin at its low end.
//!
//! | submission | word 0 | 1 | 2 | 3 | 4..7 |
//! | --- | --- | --- | --- | --- | --- |
//! | packet | `1:8`, flags`:8`, `0:16`, len`:32` | seq | pts | offset | word 4 frames to skip; 0 |
//! | frame | `2:8`, layout`:8`, pool`:16`, slot`:32` | seq | pts | flags`:8`, picture`:5` | word 4 bit rate; word 5 bandwidth; 0 |
//! | layout | see below, kind 3 | | | | |
//! | drain | `4:8` | 0 | 0 | 0 | 0 |
//! | flush | `5:8` | seq | 0 | 0 | 0 |
//! | seek | `6:8`, mode`:8` | number | nanoseconds | 0 | 0 |
//!
//! `flags` of a packet and of a frame have these bits:
//!
//! | bit | meaning | in |
//! | --- | --- | --- |
//! | 0 | the pts is known; if it is not, its word is 0 | packets, frames |
//! | 1 | the container flags the packet as a random access point; the encoder makes one of the frame | packets, frames |
//! | 2 | the caller must copy the packet and give its memory back immediately | packets of a demuxer |
//! | 3 | the packet's picture is decoded and not output | packets |
//! | 4 | the decoder outputs the frames inside and starts anew with this packet | packets |
//! | 5 | the packet or frame is damaged | packets, frames |
//!
//! The frames to skip, counted from this packet on, are not output either. Modes of a seek: 0 the
//! exact time, 1 the last random access point at or before it, 2 the next random access point (the
//! nanoseconds are 0). `offset` and `len` are in bytes of the packet area. A submission's `slot` is
//! counted from 0 in its pool. A completion's `slot` is a number among the slots of all pools of
//! the worker: a pool has the numbers from its first slot on.
//!
//! | completion | word 0 | 1 | 2 | 3 | 4..7 |
//! | --- | --- | --- | --- | --- | --- |
//! | frame | `129:8`, layout`:8`, pool`:16`, slot`:32` | seq | enter | leave | work |
//! | layout | see below, kind 130 | | | | |
//! | pool | `131:8`, `0:8`, pool`:16`, slots`:32` | slot bytes | first slot`:32` | 0 | 0 |
//! | failed | `132:8` | 0 | 0 | 0 | 0 |
//! | end | `133:8` | 0 | 0 | 0 | 0 |
//! | passed | `134:8` | seq | 0 | 0 | 0 |
//! | want | `135:8` | 0 | 0 | 0 | 0 |
//! | packet | `136:8`, flags`:8`, `0:16`, len`:32` | pts | duration | offset | word 4 id`:32`; word 5 frames to skip; word 6 lost packets of the network`:32`; 0 |
//! | flushed | `137:8` | number | 0 | 0 | 0 |
//! | request | `138:8`, request`:8` | bits a second | 0 | 0 | 0 |
//! | damaged frame | `139:8`, as a frame | seq | enter | leave | work |
//! | undecoded | `140:8` | seq | packets skipped up to this one | 0 | 0 |
//! | frame time | `141:8`, flags`:8` (bit 0: has a time; bit 6: extra) | seq | pts | 0 | 0 |
//! | encoded bytes | `142:8`, part`:8` (0 track, 1 packet, 2 packet that is a random access point), `0:16`, len`:32` | 0 | 0 | offset | word 4 id`:32`; 0 |
//!
//! A demuxer's worker sends packets as completions. The caller gives a packet's memory back by the packet's
//! id, in the same words as a frame's slot.
//!
//! An encoder's worker writes each packet into the packet area, as a demuxer's worker does. The completion
//! behind `encoded bytes` of a packet is a frame of pool 65,534, which has the number of the frame and the
//! work. The track (codec parameters, as at the start of a demuxer's area) comes before the first packet of each
//! encoder. The caller gives all this memory back immediately. Bit rate and bandwidth of a submitted frame are bits a second for the encoder
//! from this frame on; 0: none was requested. They are 0 for other stages.
//!
//! Requests of a stage to the hops before it: 1 keyframe (bits a second 0); 2 bit rate, 1 to
//! 2^40.
//!
//! A frame time belongs to the frame of the next completion. The `seq` of an extra frame's completion is the
//! number of the newest input; that of another frame is the frame time's.
//!
//! A frame of pool 65,535 is the submitted frame, passed on unchanged. Work of a frame: word 4
//! inside`:24`, idle`:24`; word 5 blocked`:24`, compute`:24`; word 6 preempted`:24`, copy`:24`; the upper
//! 16 bits of these three words, from the lowest on, wakeup`:24`, held for depth`:24`; word 7 copied
//! bytes`:32`, voluntary switches`:16`, involuntary switches`:10`, picture`:5`, pool`:1` (the time
//! inside was spent in a decoder's thread pool). `enter` and `leave` are nanoseconds on CLOCK_MONOTONIC, with enter <= leave.
//! A time of 24 bits is nanoseconds, rounded down to its first 20 bits (`:20`) and a number of zero bits
//! behind them (`:4`). A number too large for its field is written as the field's largest value.
//!
//! A picture is its field order`:2` (0 progressive, 1 top field first, 2 bottom field first) and its
//! orientation`:3` (EXIF's number minus one).
//!
//! A layout never changes. It is sent once, before the first frame that uses it. Later cells
//! refer to its id.
//!
//! | word | layout |
//! | --- | --- |
//! | 0 | kind`:8`, id`:8`, format`:8`, colours`:32` |
//! | 1 | width`:32`, height`:32`, in pixels |
//! | 2 to 5 | offsets of the planes 1 to 4, in bytes; 0 for planes that the format does not have |
//! | 6 | strides of the planes 1 and 2, in bytes: `:32`, `:32` |
//! | 7 | strides of the planes 3 and 4 |
//!
//! Widths and rows of the planes follow from the format and the size. Opaque bytes are one row of
//! GREY without padding; such a row may be wider than a picture. Formats have numbers
//! from 1, in the order of `PixelFormat::ALL`.
//!
//! Colours are primaries`:8`, transfer`:8` and matrix`:8` as H.273 numbers them
//! (2: unspecified), and range`:8`: 0 unspecified, 1 limited, 2 full.
//!
//! # Messages: 1024 bytes
//!
//! Bytes 0..4 are the magic `FPWM`, 4..6 the version, 6..8 the kind. Another
//! version is refused with [`WireError::Version`]; the bytes after it are not read.
//! `text(n)` is a 16-bit length and n bytes, the unused ones
//! zero. The writer cuts longer texts between two characters.
//!
//! | message | kind | from byte 8 on |
//! | --- | --- | --- |
//! | caller to worker | | |
//! | open, with the shared area | 1 | level`:8`, flags`:8` (bit 0: the stage decodes into the caller's buffers), `0:16`, track bytes`:32`, cells`:32`, frames behind`:32`, packet bytes`:64`, stream, stage text(512), faults text(64) |
//! | input pool, with its fd | 2 | pool`:16`, `0:16`, slots`:32`, slot bytes`:64` |
//! | page, with its fd, from the service before the grant | 3 | |
//! | lend, or denied | 5 | flags`:32` (bit 0: packed), buffers`:32` |
//! | buffer, with its fd | 6 | index`:32` |
//! | device, with its fd, before open | 7 | name text(960) |
//! | file, with its fd, before demux | 8 | name text(960) |
//! | demux, with the shared area, in place of open | 9 | flags`:32` (bit 0: seekable, bit 1: the file's descriptor is a socket for byte requests, bit 2: it has the files of an image sequence, in chunks), cells`:32`, loops`:64`, packet bytes`:64`, track`:32` plus one or 0 for the best, `0:32`, start`:64` in nanoseconds, size`:64` plus one or 0 if unknown (0 without bit 1), faults text(64) |
//! | memory, with its fd | 10 | number`:32` |
//! | demux network, with the shared area, in place of open | 11 | transport`:32` (0 RTSP over TCP, 1 RTSP with datagrams, 2 SDP), cells`:32`, packet bytes`:64`, text bytes`:32`, track`:32` plus one or 0 for the best, latency`:64` and timeout`:64` in nanoseconds, faults text(64); the text is at the start of the packet area |
//! | worker to caller | | |
//! | ready | 16 | layers`:32` |
//! | opened | 17 | threads`:32`, flags`:32` (bit 0: replayable, bit 1: takes packets), stream |
//! | refused | 18 | text(960) |
//! | failed | 19 | flags`:64` (bit 0: seq is known), seq`:64`, text(960) |
//! | pool memory | 20 | pool`:16`, `0:16`, memory number`:32` |
//! | want | 22 | format`:8`, `0:24`, width`:32`, height`:32`, stride`:32`, rows`:32`, native bytes`:32`, packed bytes`:32`, buffers`:32`, colours`:32` |
//! | demuxed | 23 | track bytes`:32`, stream |
//! | want memory | 24 | bytes`:64` |
//! | client and service | | |
//! | hello | 32 | version`:16` |
//! | grant, with a worker's socket | 33 | stream`:32`, worker pid`:32`, layers`:32` |
//! | replace | 34 | stream`:32`, flags`:32` (bit 0: the old worker may still run) |
//! | release | 35 | stream`:32` |
//! | denied | 36 | text(960) |
//! | watch | 37 | first stream of interest`:32` |
//! | status | 38 | stream`:32`, client pid`:32`, uid`:32`, worker pid`:32`, crashes`:64`, CPU`:64`, figures |
//! | totals | 39 | streams`:32`, connections`:32`, spares`:32`, `0:32`, granted`:64`, denied`:64`, crashes`:64`, frames`:64`, CPU`:64` |
//! | caller to zygote | | |
//! | spawn | 48 | kind text(960), the same text as the argument of a worker program |
//!
//! A stream is 36 bytes: format`:8` (0 where not known), orientation`:8`, `0:16`, width`:32`,
//! height`:32`, then time base, frame rate and sample aspect as numerator`:32`
//! and denominator`:32`, signed.
//!
//! A worker sends no descriptor. It requests memory: `want memory` on the socket, then, once its stream is
//! open, `want` in the ring, because the caller then reads the ring first. The caller answers `memory` or `denied`. The
//! worker makes a pool in the memory, sends the memory's number (`pool memory`) on the socket, and then
//! `pool` in the ring.
//!
//! A worker that decodes into the caller's buffers sends its request (`want`) before its
//! first frame. The caller answers `lend` and then the buffers in their order, or `denied`. The worker announces a pool
//! of the buffers, one slot each. A slot belongs to the caller until the caller gives it to the worker.
//!
//! The zygote answers `spawn` with `grant` twice, first with the worker's socket and then with its pidfd, or
//! once with `denied`.
//!
//! A client sends `hello` for each stream. The service answers `grant` or `denied`, in the order of
//! the requests. The client sends `replace` if a stream's worker is gone or useless, and gets the
//! same answers. `release` has no answer, except `denied` if the connection has no such stream. The
//! end of the connection releases all its streams. The answer to `watch` is the `status` of the
//! first stream whose number is not below the given one, or, if there is none, the `totals`. A
//! watch needs no hello.
//!
//! Figures are frames`:64`, inputs`:64`, sum of latencies`:64`, then the times by cause: compute,
//! copy, held, preempted, blocked and pool, each `:64`; then width`:32`, height`:32`, stage
//! text(64), and 80 buckets`:64` of latency; times in nanoseconds. A worker writes them to its
//! page, a sealed memfd of 4096 bytes: the same words in the machine's byte order, the text as 64
//! bytes without its length.
//!
//! # Requests for bytes
//!
//! A demuxer whose input the caller reads (bit 1 of `demux`) has a second socket. Records on it have no magic
//! and no version, because `demux` has them. The worker sends a request of 16 bytes: offset`:64`, at most
//! 2^63 - 1, length`:32`, 1 to 65,536, `0:32`. The caller answers each request once, with a record of
//! status`:32`, length`:32` and the bytes. Status 0: the bytes from the offset on, at most as many as
//! requested, none at the end of the input. Status 1: the input cannot be read; the length is 0. The
//! worker sends no request before it has received the last answer. If the input is not seekable, each
//! request begins where the last answer ended.

mod bytes;
mod cell;
mod encoding;
mod error;
pub mod figures;
mod frame_time;
mod layout;
mod message;
mod opening;
mod picture;
mod record;
mod work;

pub use bytes::{BYTE_ANSWER_BYTES, BYTE_REQUEST_BYTES, ByteAnswer, ByteRequest, MOST_REQUESTED_BYTES};
pub use cell::{
    BYTES_PER_FRAME, CELL_BYTES, CELL_WORDS, Cell, Completion, DemuxPosition, ENCODED_PACKET,
    FRAME_COMPLETION_BYTES, MAX_BIT_RATE, PACKET_SUBMISSION_BYTES, SAME_FRAME, Submission, UpstreamRequest,
};
pub use encoding::{EncodedPart, EncoderRequests};
pub use error::WireError;
pub use figures::{Figures, Histogram, StreamStatus, Totals};
pub use frame_time::FrameTime;
pub use message::{FAULTS_BYTES, MAX_CELLS, MAX_LEVEL, MESSAGE_BYTES, Message, STAGE_BYTES, TEXT_BYTES};
pub use opening::{Demux, DemuxNetwork, InputBytes, NETWORK_TEXT_BYTES, NetworkTransport, Open};
pub use work::{MOST_INVOLUNTARY, WorkerTime};

/// Version of this format. It changes with every table above and with the positions of words in
/// the shared area (`framepath_os::crossing`).
pub const VERSION: u16 = 14;

/// First bytes of every message.
pub const MAGIC: [u8; 4] = *b"FPWM";
