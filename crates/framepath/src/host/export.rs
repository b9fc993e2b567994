// SPDX-License-Identifier: MIT OR Apache-2.0
//! Last stage inside a worker: passes frames to the caller without a copy, and an encoder's packets by one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use framepath_codec::Packet;
use framepath_model::buffer_request::BufferRequest;
use framepath_model::format::Layout;
use framepath_model::stream::StreamInfo;
use framepath_model::wire::{Completion, ENCODED_PACKET, EncodedPart, Message, SAME_FRAME, WorkerTime};
use framepath_os::crossing::{CellWriter, PacketPool, Placed, Socket};
use framepath_os::memory::pool::{Frame, GrantedPool, Pool};

use super::HostError;
use super::frame_inputs::FrameInputs;
use super::message_io::send;
use super::names::Names;
use super::tally::Tally;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

/// Last stage of a worker: passes each frame or packet to an [`Exporter`].
pub(super) struct Export(pub(super) Arc<Mutex<Exporter>>);

/// Writer of a worker's completions, and of the messages that belong to them.
pub(super) struct Exporter {
    completions: CellWriter,
    socket: Arc<Socket>,
    /// Pools and layouts that were announced to the caller.
    names: Names,
    /// Time that the worker was idle before the present input arrived, nanoseconds, at most `u32::MAX`.
    pub(super) idle_ns: u32,
    /// Input frames of a stage that takes frames; `None` for a stage that takes packets.
    pub(super) inputs: Option<FrameInputs>,
    /// Memory for the packets of an encoder; `None` for another stage.
    pub(super) packets: Option<PacketPool>,
    /// Counters for the service; `None` in a worker that no service has started.
    tally: Option<Tally>,
}

/// Locks `exporter`, even if it is poisoned: a panic leaves the exporter consistent, and ends the worker.
pub(super) fn locked(exporter: &Mutex<Exporter>) -> MutexGuard<'_, Exporter> {
    exporter.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exporter {
    pub(super) fn new(completions: CellWriter, socket: Arc<Socket>, tally: Option<Tally>) -> Exporter {
        let names = Names::default();
        Exporter { completions, socket, names, idle_ns: 0, inputs: None, packets: None, tally }
    }

    /// Counts packet or frame `seq`, with the time `pts`, as taken by the stage.
    pub(super) fn count_input(&mut self, seq: u64, pts: Option<i64>) {
        if let Some(tally) = &mut self.tally {
            tally.count_input(seq);
        }
        if let Some(inputs) = &mut self.inputs {
            inputs.input(seq, pts);
        }
    }

    /// Writes a completion; waits while the ring has no room. Fails if the caller broke the rules.
    pub(super) fn complete(&mut self, completion: &Completion) -> Result<(), HostError> {
        Ok(self.completions.push_waiting(&completion.encode())?)
    }

    fn send_frame(&mut self, frame: Frame, work: WorkerTime) -> Result<(), HostError> {
        let meta = frame.meta();
        let (seq, picture) = (meta.seq, meta.picture());
        let answer = self.inputs.as_mut().map(|inputs| inputs.output(&meta));
        if let Some(tally) = &mut self.tally {
            tally.count_output(seq, &work, Some(frame.layout()));
        }
        if frame.is_foreign() {
            // The stage passes its input on, and the caller has this frame already.
            let (pool, slot, layout) = (SAME_FRAME, 0, 0);
            return self.complete(&Completion::Frame { seq, pool, slot, layout, picture, work });
        }
        let layout = self.layout(frame.layout())?;
        let pool = self.pool(&frame)?;
        let Ok(exported) = frame.export() else {
            return Err(HostError::Failed {
                text: "the stage emitted a frame of a pool that is not shared; make pools by HopPlace::pool"
                    .to_owned(),
            });
        };
        let (seq, time) = answer.unwrap_or((seq, None));
        if let Some(time) = time {
            self.complete(&Completion::FrameTime(time))?;
        }
        self.complete(&Completion::Frame { seq, pool, slot: exported.slot, layout, picture, work })
    }

    /// Copies a packet into the shared memory, and sends it, behind the description of its track if it has one. Waits
    /// while the caller holds too many packets.
    ///
    /// # Errors
    /// The packet is too large, or the caller broke the rules.
    fn send_packet(&mut self, packet: &Packet, work: WorkerTime) -> Result<(), HostError> {
        let meta = packet.meta();
        let (seq, picture) = (meta.seq, meta.picture());
        if let Some(inputs) = &mut self.inputs {
            inputs.output(&meta);
        }
        if let Some(tally) = &mut self.tally {
            tally.count_output(seq, &work, None);
        }
        if let Some(track) = packet.track() {
            self.send_part(EncodedPart::Track, &track.to_bytes())?;
        }
        let part = if packet.is_key() { EncodedPart::KeyPacket } else { EncodedPart::Packet };
        // Always `Some`, because the encoder makes its packets in this process.
        self.send_part(part, packet.bytes().unwrap_or_default())?;
        let (pool, slot, layout) = (ENCODED_PACKET, 0, 0);
        self.complete(&Completion::Frame { seq, pool, slot, layout, picture, work })
    }

    fn send_part(&mut self, part: EncodedPart, bytes: &[u8]) -> Result<(), HostError> {
        let Some(packets) = &mut self.packets else { return Ok(()) };
        if bytes.len() > packets.largest() {
            return Err(HostError::PacketSize { bytes: bytes.len(), most: packets.largest() });
        }
        let Placed { offset, id, .. } = packets.push_waiting(bytes)?;
        self.complete(&Completion::Encoded { part, offset, len: bytes.len() as u32, id })
    }

    /// Returns the number of a layout. Announces a new layout to the caller by a completion.
    fn layout(&mut self, layout: &Layout) -> Result<u8, HostError> {
        let (id, is_new) = self.names.layout(layout);
        if is_new {
            self.complete(&Completion::Layout { id, layout: *layout })?;
        }
        Ok(id)
    }

    /// Requests buffers of the caller's provider. The answer arrives on the socket.
    pub(super) fn request_buffers(&mut self, request: &BufferRequest) -> Result<(), HostError> {
        send(&self.socket, &Message::RequestBuffers(*request), None)?;
        self.complete(&Completion::MemoryRequest)
    }

    /// Requests memory of `bytes` bytes for a pool. The answer arrives on the socket. If the stream is
    /// `opened`, the caller reads the socket only after a cell, so this function also writes one.
    pub(super) fn want_memory(&mut self, bytes: u64, opened: bool) -> Result<(), HostError> {
        send(&self.socket, &Message::RequestMemory { bytes }, None)?;
        if opened { self.complete(&Completion::MemoryRequest) } else { Ok(()) }
    }

    /// Announces the pool of the provider's buffers, which this worker has mapped.
    pub(super) fn announce_pool(&mut self, pool: &Pool) -> Result<(), HostError> {
        let (number, _) = self.names.pool(pool.id())?;
        self.complete(&Completion::Pool {
            pool: number,
            slots: pool.slots(),
            slot_bytes: pool.slot_bytes() as u64,
            first_slot: pool.first_slot(),
        })
    }

    /// Returns the number of the frame's pool. Announces a new pool to the caller by a message and a
    /// completion.
    ///
    /// # Errors
    /// The pool does not lie in memory that the caller granted, or there are too many pools.
    fn pool(&mut self, frame: &Frame) -> Result<u16, HostError> {
        let (pool, is_new) = self.names.pool(frame.pool_id())?;
        if is_new {
            let Some(GrantedPool { memory, slots, slot_bytes, first_slot }) = frame.granted_memory() else {
                return Err(HostError::Failed { text: "the stage emitted a frame in memory that was not granted; make pools by HopPlace::pool".to_owned() });
            };
            send(&self.socket, &Message::PoolMemory { pool, memory }, None)?;
            let slot_bytes = slot_bytes as u64;
            self.complete(&Completion::Pool { pool, slots, slot_bytes, first_slot })?;
        }
        Ok(pool)
    }
}

impl Stage for Export {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let work = out.recorder().last_row().map_or_else(WorkerTime::default, WorkerTime::from);
        let mut exporter = locked(&self.0);
        let work = WorkerTime { idle_ns: exporter.idle_ns, ..work };
        let sent = match item {
            Item::Frame(frame) => exporter.send_frame(frame, work),
            Item::Packet(packet) if exporter.packets.is_some() => exporter.send_packet(&packet, work),
            Item::Packet(_) => {
                let (takes, gets) = ("frames", "packets");
                let advice = "a stage in a worker must emit frames";
                return Err(out.fail(StageError::WrongInput { takes, gets, advice }));
            }
        };
        sent.map_err(|error| out.fail(error))
    }
}
