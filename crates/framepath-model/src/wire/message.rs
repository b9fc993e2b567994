// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents of one message on a socket.

use super::cell::check_pool;
use super::error::check;
use super::layout::{colors_number, colors_of, format_number, format_of};
use super::record::{RecordReader, RecordWriter};
use super::{Demux, DemuxNetwork, MAGIC, Open, StreamStatus, Totals, VERSION, WireError};
use crate::buffer_request::{BufferRequest, MOST_BUFFERS, ProvidedFormat};
use crate::stream::StreamInfo;

/// Size of every message, bytes.
pub const MESSAGE_BYTES: usize = 1024;

/// Maximum length of [`Open::stage`], bytes.
pub const STAGE_BYTES: usize = 512;

/// Maximum length of [`Open::faults`], [`Demux::faults`] and [`DemuxNetwork::faults`], bytes.
pub const FAULTS_BYTES: usize = 64;

/// Maximum length of every text of a message that has no limit of its own, bytes.
pub const TEXT_BYTES: usize = 960;

/// Maximum number of cells of a ring.
pub const MAX_CELLS: u32 = 65_536;

/// Highest level of the ledger: 0 `off`, 1 `times`, 2 `full`.
pub const MAX_LEVEL: u8 = 2;

const OPEN: u16 = 1;
const PROVIDE_BUFFERS: u16 = 5;
const BUFFER: u16 = 6;
const INPUT_POOL: u16 = 2;
const PAGE: u16 = 3;
const DEVICE: u16 = 7;
const FILE: u16 = 8;
const DEMUX: u16 = 9;
const MEMORY: u16 = 10;
const DEMUX_NETWORK: u16 = 11;
const READY: u16 = 16;
const OPENED: u16 = 17;
const REFUSED: u16 = 18;
const FAILED: u16 = 19;
const POOL_MEMORY: u16 = 20;
const REQUEST_BUFFERS: u16 = 22;
const DEMUXED: u16 = 23;
const REQUEST_MEMORY: u16 = 24;
const HELLO: u16 = 32;
const GRANT: u16 = 33;
const REPLACE: u16 = 34;
const RELEASE: u16 = 35;
const DENIED: u16 = 36;
const WATCH: u16 = 37;
const STATUS: u16 = 38;
const TOTALS: u16 = 39;
const SPAWN: u16 = 48;

/// One message on a socket. Texts without a stated limit are at most [`TEXT_BYTES`] bytes long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Caller to worker, with the shared area attached: open a stream. The answer is
    /// [`Message::Opened`] or [`Message::Refused`]; the worker may send [`Message::RequestMemory`]
    /// before.
    Open(Open),
    /// Caller to worker, with the pool's memory attached: a new pool of input frames.
    InputPool {
        /// Number of the pool, which later frame submissions repeat.
        pool: u16,
        /// Number of slots, at least one.
        slots: u32,
        /// Distance from one slot to the next, bytes, at least one.
        slot_bytes: u64,
    },
    /// Caller to worker, answer to [`Message::RequestBuffers`]: the caller provides buffers. One
    /// [`Message::Buffer`] follows for each.
    ProvideBuffers {
        /// Plane format in which the worker writes frames into the buffers.
        lent: ProvidedFormat,
        /// Number of buffers, 1 to [`MOST_BUFFERS`].
        buffers: u32,
    },
    /// Caller to worker, with the buffer's descriptor attached: one buffer. The caller sends one
    /// such message for each buffer after [`Message::ProvideBuffers`], in ascending order of
    /// `index`.
    Buffer {
        /// Index of the buffer, from 0, below [`MOST_BUFFERS`].
        index: u32,
    },
    /// Caller to worker, answer to [`Message::RequestMemory`], with a memfd of the requested size
    /// attached, sealed against resizing.
    Memory {
        /// Number of the memory, from 0: the count of memories that the caller sent to this worker
        /// before.
        number: u32,
    },
    /// Service to worker, before the service grants the worker, with the page for the worker's
    /// counters attached.
    Page,
    /// Caller to worker, before [`Message::Open`], with the open decoder device attached.
    Device {
        /// Path of the device node, used in error messages.
        node: String,
    },
    /// Caller to worker, before [`Message::Demux`], with the open file attached, or with a socket
    /// on which the worker requests the file's bytes.
    File {
        /// Path or address of the file as the user gave it, used in error messages and to guess the
        /// container.
        name: String,
    },
    /// Caller to worker, instead of [`Message::Open`], with the shared area attached: demux the
    /// file. The answer is [`Message::Demuxed`] or [`Message::Refused`].
    Demux(Demux),
    /// Caller to worker, instead of [`Message::Open`], with the shared area attached: demux a stream from
    /// the network. The answer is [`Message::Demuxed`] or [`Message::Refused`].
    DemuxNetwork(DemuxNetwork),
    /// Worker to caller, or to the service that started the worker, first message: the worker has
    /// started and has entered the sandbox. The field says which layers of the sandbox are in
    /// force.
    Ready {
        /// States of the sandbox's layers, as the worker knows them (`Layers::bits` of
        /// framepath-os).
        layers: u32,
    },
    /// Worker to caller, answer to [`Message::Open`]: the stream is open.
    Opened {
        /// Number of threads that do the stage's work, as the stage reports it.
        threads: u32,
        /// Description of the stream that leaves the stage.
        stream: StreamInfo,
        /// True if the output depends only on the input since the last random access point, so that
        /// another worker can repeat it after a crash.
        replayable: bool,
        /// True if the stage takes packets, false if it takes frames.
        takes_packets: bool,
    },
    /// Worker to caller, answer to [`Message::Demux`] or [`Message::DemuxNetwork`]: the file or
    /// network stream is open; its packets follow in the ring.
    Demuxed {
        /// Size of the track's description at the start of the packet area, bytes; at least one.
        track_bytes: u32,
        /// Description of the stream of packets.
        stream: StreamInfo,
        /// Time from the stream's start to its end, as the container declares it, nanoseconds; 0 if it declares none.
        duration_ns: u64,
    },
    /// Worker to caller, or to the service that started the worker: instead of [`Message::Ready`],
    /// the worker cannot enter the sandbox or load its plug-in or libavfilter; or as the answer to
    /// [`Message::Open`], [`Message::Demux`] or [`Message::DemuxNetwork`], the worker cannot open
    /// the stream, file or network stream.
    Refused {
        /// Reason of the refusal, an error text.
        text: String,
    },
    /// Worker to caller: the open stage or demuxer failed. [`super::Completion::Failed`] follows in
    /// the ring.
    Failed {
        /// Error text of the failure.
        text: String,
        /// Number of the packet or frame at which the stage failed; `None` if not known. The
        /// workers of this version always send `None`.
        seq: Option<u64>,
    },
    /// Worker to caller: names the memory of a new pool. [`super::Completion::Pool`] follows in the
    /// ring with the pool's other numbers.
    PoolMemory {
        /// Number of the pool.
        pool: u16,
        /// Number of the [`Message::Memory`] that contains the pool.
        memory: u32,
    },
    /// Worker to caller: requests memory for a pool. If the stream is open already,
    /// [`super::Completion::MemoryRequest`] follows in the ring. The answer is [`Message::Memory`]
    /// or [`Message::Denied`].
    RequestMemory {
        /// Requested size in bytes, at least one.
        bytes: u64,
    },
    /// Worker to caller: requests buffers to decode into. [`super::Completion::MemoryRequest`]
    /// follows in the ring. The answer is [`Message::ProvideBuffers`] or [`Message::Denied`].
    RequestBuffers(BufferRequest),
    /// Client to service: requests a stream. The answer is [`Message::Grant`] or
    /// [`Message::Denied`].
    Hello {
        /// Version of the wire format that the client uses; the service denies every version except
        /// its own.
        version: u16,
    },
    /// Service to client, with the socket of a worker attached: the client's stream has this
    /// worker. Zygote to caller: the same message twice, first with the socket of the new worker
    /// attached, then with its pidfd.
    Grant {
        /// Number of the stream in the service; 0 from the zygote.
        stream: u32,
        /// Process id of the worker. From the service: 0 if the client is in a pid namespace that
        /// the service does not see.
        pid: u32,
        /// States of the sandbox's layers (`Layers::bits` of framepath-os). From the service: of
        /// all layers of the worker. From the zygote: only of the layers that the worker does not
        /// enter by itself.
        layers: u32,
    },
    /// Client to service: the stream needs another worker. The answer is [`Message::Grant`] or
    /// [`Message::Denied`].
    Replace {
        /// Number of the stream in the service.
        stream: u32,
        /// True if the old worker may still run. The service ends the old worker in either case.
        kill: bool,
    },
    /// Client to service: the stream is over, and the service ends its worker. There is no answer,
    /// except [`Message::Denied`] if the connection has no such stream, or has sent too many
    /// messages.
    Release {
        /// Number of the stream in the service.
        stream: u32,
    },
    /// Service to client, zygote to caller, caller to worker: the request was denied; from the
    /// service also: the connection was denied, or a message was not valid.
    Denied {
        /// Reason of the denial, an error text.
        text: String,
    },
    /// Client to service: requests the status of the stream with the lowest number that is at least
    /// `from`. The answer is [`Message::Status`], or [`Message::Totals`] if there is no such
    /// stream.
    Watch {
        /// Lowest number of interest.
        from: u32,
    },
    /// Service to client, answer to [`Message::Watch`]: status of one stream.
    Status(Box<StreamStatus>),
    /// Service to client, answer to [`Message::Watch`] if no stream has the requested number or a higher
    /// one: totals of the whole service.
    Totals(Totals),
    /// Caller to zygote: fork a worker. The answer is two [`Message::Grant`]s, one with the
    /// worker's socket and one with its pidfd, or [`Message::Denied`].
    Spawn {
        /// Kind of the worker, in the form of the worker program's argument.
        kind: String,
    },
}

impl Message {
    /// Encodes the message into all of `bytes`. Cuts a text that is too long between two
    /// characters, so a caller must check a text that must be whole.
    pub fn encode(&self, bytes: &mut [u8; MESSAGE_BYTES]) {
        let mut w = RecordWriter::new(bytes);
        w.write(&MAGIC);
        w.u16(VERSION);
        w.u16(self.kind());
        match self {
            Message::Open(open) => open.encode(&mut w),
            Message::InputPool { pool, slots, slot_bytes } => {
                w.u32((*pool).into());
                w.u32(*slots);
                w.u64(*slot_bytes);
            }
            Message::ProvideBuffers { lent, buffers } => {
                w.u32(u32::from(*lent == ProvidedFormat::Packed));
                w.u32(*buffers);
            }
            Message::Buffer { index } => w.u32(*index),
            Message::RequestBuffers(want) => {
                w.u32(format_number(want.decoded).into());
                w.u32(want.width);
                w.u32(want.height);
                w.u32(want.stride);
                w.u32(want.rows);
                w.u32(want.native_bytes);
                w.u32(want.packed_bytes);
                w.u32(want.buffers);
                w.u32(colors_number(want.colors));
            }
            Message::Ready { layers } => w.u32(*layers),
            Message::Opened { threads, stream, replayable, takes_packets } => {
                w.u32(*threads);
                w.u32(u32::from(*replayable) | u32::from(*takes_packets) << 1);
                w.stream(stream);
            }
            Message::Refused { text } | Message::Denied { text } => w.text(text, TEXT_BYTES),
            Message::Failed { text, seq } => {
                w.u64(seq.is_some().into());
                w.u64(seq.unwrap_or(0));
                w.text(text, TEXT_BYTES);
            }
            Message::PoolMemory { pool, memory } => {
                w.u32((*pool).into());
                w.u32(*memory);
            }
            Message::Memory { number } => w.u32(*number),
            Message::RequestMemory { bytes } => w.u64(*bytes),
            Message::Hello { version } => w.u16(*version),
            Message::Page => {}
            Message::Device { node: name } | Message::File { name } => w.text(name, TEXT_BYTES),
            Message::Demux(demux) => demux.encode(&mut w),
            Message::DemuxNetwork(demux) => demux.encode(&mut w),
            Message::Demuxed { track_bytes, stream, duration_ns } => {
                w.u32(*track_bytes);
                w.stream(stream);
                w.u64(*duration_ns);
            }
            Message::Release { stream } | Message::Watch { from: stream } => w.u32(*stream),
            Message::Grant { stream, pid, layers } => {
                w.u32(*stream);
                w.u32(*pid);
                w.u32(*layers);
            }
            Message::Status(status) => status.encode(&mut w),
            Message::Totals(totals) => totals.encode(&mut w),
            Message::Spawn { kind } => w.text(kind, TEXT_BYTES),
            Message::Replace { stream, kill } => {
                w.u32(*stream);
                w.u32((*kill).into());
            }
        }
    }

    /// Decodes a whole message of [`MESSAGE_BYTES`] bytes.
    ///
    /// # Errors
    ///
    /// [`WireError::Version`] if the other side was built with another wire format. Every other
    /// error means that the other side is broken, hostile or not framepath.
    pub fn decode(bytes: &[u8]) -> Result<Message, WireError> {
        if bytes.len() != MESSAGE_BYTES {
            return Err(WireError::Length(bytes.len()));
        }
        let mut r = RecordReader::new(bytes);
        let magic = r.array()?;
        if magic != MAGIC {
            return Err(WireError::Magic(magic));
        }
        let theirs = r.u16()?;
        if theirs != VERSION {
            return Err(WireError::Version { ours: VERSION, theirs });
        }
        let message = Message::body(&mut r)?;
        r.end()?;
        Ok(message)
    }

    fn body(r: &mut RecordReader<'_>) -> Result<Message, WireError> {
        let kind = r.u16()?;
        r.record = Message::name(kind).ok_or(WireError::Kind { family: "message", kind })?;
        Ok(match kind {
            OPEN => Message::Open(Open::decode(r)?),
            INPUT_POOL => {
                let pool = r.u16()?;
                r.zeros(2)?;
                let (slots, slot_bytes) = (r.u32()?, r.u64()?);
                check_pool(slots, slot_bytes, r.record)?;
                Message::InputPool { pool, slots, slot_bytes }
            }
            PROVIDE_BUFFERS => {
                let flags = r.u32()?;
                let lent = if r.flags(flags.into(), 1)? != 0 {
                    ProvidedFormat::Packed
                } else {
                    ProvidedFormat::Native
                };
                let buffers = r.u32()?;
                check((1..=MOST_BUFFERS).contains(&buffers), r.record, "buffers", buffers.into())?;
                Message::ProvideBuffers { lent, buffers }
            }
            BUFFER => {
                let index = r.u32()?;
                check(index < MOST_BUFFERS, r.record, "index", index.into())?;
                Message::Buffer { index }
            }
            REQUEST_BUFFERS => {
                let decoded = format_of(r.u8()?, r.record)?;
                r.zeros(3)?;
                let want = BufferRequest {
                    decoded,
                    width: r.u32()?,
                    height: r.u32()?,
                    stride: r.u32()?,
                    rows: r.u32()?,
                    native_bytes: r.u32()?,
                    packed_bytes: r.u32()?,
                    buffers: r.u32()?,
                    colors: colors_of(r.u32()?, r.record)?,
                };
                check(want.is_sound(), r.record, "numbers", want.buffers.into())?;
                Message::RequestBuffers(want)
            }
            READY => Message::Ready { layers: r.u32()? },
            OPENED => {
                let threads = r.u32()?;
                let flags = r.u32()?;
                let flags = r.flags(flags.into(), 3)?;
                let stream = r.stream()?;
                Message::Opened { threads, stream, replayable: flags & 1 != 0, takes_packets: flags & 2 != 0 }
            }
            REFUSED => Message::Refused { text: r.text(TEXT_BYTES, "text")? },
            FAILED => {
                let flags = r.u64()?;
                let known = r.flags(flags, 1)? != 0;
                let seq = if known {
                    Some(r.u64()?)
                } else {
                    r.zeros(8)?;
                    None
                };
                Message::Failed { text: r.text(TEXT_BYTES, "text")?, seq }
            }
            POOL_MEMORY => {
                let pool = r.u16()?;
                r.zeros(2)?;
                Message::PoolMemory { pool, memory: r.u32()? }
            }
            MEMORY => Message::Memory { number: r.u32()? },
            REQUEST_MEMORY => {
                let bytes = r.u64()?;
                check_pool(1, bytes, r.record)?;
                Message::RequestMemory { bytes }
            }
            HELLO => Message::Hello { version: r.u16()? },
            GRANT => Message::Grant { stream: r.u32()?, pid: r.u32()?, layers: r.u32()? },
            REPLACE => {
                let stream = r.u32()?;
                let flags = r.u32()?;
                Message::Replace { stream, kill: r.flags(flags.into(), 1)? != 0 }
            }
            RELEASE => Message::Release { stream: r.u32()? },
            SPAWN => Message::Spawn { kind: r.text(TEXT_BYTES, "kind")? },
            DEVICE => Message::Device { node: r.text(TEXT_BYTES, "device")? },
            FILE => Message::File { name: r.text(TEXT_BYTES, "file")? },
            DEMUX => Message::Demux(Demux::decode(r)?),
            DEMUX_NETWORK => Message::DemuxNetwork(DemuxNetwork::decode(r)?),
            DEMUXED => {
                let track_bytes = r.u32()?;
                check(track_bytes > 0, r.record, "track", 0)?;
                Message::Demuxed { track_bytes, stream: r.stream()?, duration_ns: r.u64()? }
            }
            DENIED => Message::Denied { text: r.text(TEXT_BYTES, "text")? },
            WATCH => Message::Watch { from: r.u32()? },
            STATUS => Message::Status(Box::new(StreamStatus::decode(r)?)),
            TOTALS => Message::Totals(Totals::decode(r)?),
            // `PAGE`, the only kind left: an unknown kind has no name.
            _ => Message::Page,
        })
    }

    fn kind(&self) -> u16 {
        match self {
            Message::Open(_) => OPEN,
            Message::InputPool { .. } => INPUT_POOL,
            Message::ProvideBuffers { .. } => PROVIDE_BUFFERS,
            Message::Buffer { .. } => BUFFER,
            Message::RequestBuffers(_) => REQUEST_BUFFERS,
            Message::Ready { .. } => READY,
            Message::Opened { .. } => OPENED,
            Message::Refused { .. } => REFUSED,
            Message::Failed { .. } => FAILED,
            Message::PoolMemory { .. } => POOL_MEMORY,
            Message::Memory { .. } => MEMORY,
            Message::RequestMemory { .. } => REQUEST_MEMORY,
            Message::Hello { .. } => HELLO,
            Message::Grant { .. } => GRANT,
            Message::Replace { .. } => REPLACE,
            Message::Release { .. } => RELEASE,
            Message::Denied { .. } => DENIED,
            Message::Page => PAGE,
            Message::Device { .. } => DEVICE,
            Message::File { .. } => FILE,
            Message::Demux(_) => DEMUX,
            Message::DemuxNetwork(_) => DEMUX_NETWORK,
            Message::Demuxed { .. } => DEMUXED,
            Message::Watch { .. } => WATCH,
            Message::Status(_) => STATUS,
            Message::Totals(_) => TOTALS,
            Message::Spawn { .. } => SPAWN,
        }
    }

    fn name(kind: u16) -> Option<&'static str> {
        Some(match kind {
            OPEN => "open",
            INPUT_POOL => "input pool",
            PROVIDE_BUFFERS => "lend",
            BUFFER => "buffer",
            REQUEST_BUFFERS => "want",
            READY => "ready",
            OPENED => "opened",
            REFUSED => "refused",
            FAILED => "failed",
            POOL_MEMORY => "pool memory",
            MEMORY => "memory",
            REQUEST_MEMORY => "want memory",
            HELLO => "hello",
            GRANT => "grant",
            REPLACE => "replace",
            RELEASE => "release",
            DENIED => "denied",
            PAGE => "page",
            DEVICE => "device",
            FILE => "file",
            DEMUX => "demux",
            DEMUX_NETWORK => "demux network",
            DEMUXED => "demuxed",
            WATCH => "watch",
            STATUS => "status",
            TOTALS => "totals",
            SPAWN => "spawn",
            _ => return None,
        })
    }
}
