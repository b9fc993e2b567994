// SPDX-License-Identifier: MIT OR Apache-2.0
//! Last stage inside a worker: passes frames to the caller without a copy.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use framepath_model::buffer_request::BufferRequest;
use framepath_model::format::Layout;
use framepath_model::stream::StreamInfo;
use framepath_model::wire::{Completion, Message, SAME_FRAME, WorkerTime};
use framepath_os::crossing::{CellWriter, Socket};
use framepath_os::memory::pool::{Frame, GrantedPool, Pool};

use super::HostError;
use super::message_io::send;
use super::names::Names;
use super::tally::Tally;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

/// The stage's end of an [`Exporter`].
pub(super) struct Export(pub(super) Arc<Mutex<Exporter>>);

/// Writes completions.
pub(super) struct Exporter {
    completions: CellWriter,
    socket: Arc<Socket>,
    /// Pools and layouts that the caller knows.
    names: Names,
    /// How long the worker had been idle when its present input came.
    pub(super) idle_ns: u32,
    /// Frames given since the last call of [`Exporter::take_given`].
    given: u64,
    /// Counters for the service.
    tally: Option<Tally>,
}

/// Locks `exporter`, also a poisoned one: a panic leaves it consistent, and ends the worker anyway.
pub(super) fn locked(exporter: &Mutex<Exporter>) -> MutexGuard<'_, Exporter> {
    exporter.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exporter {
    pub(super) fn new(completions: CellWriter, socket: Arc<Socket>, tally: Option<Tally>) -> Exporter {
        Exporter { completions, socket, names: Names::default(), idle_ns: 0, given: 0, tally }
    }

    /// Counts packet or frame `seq` as taken by the stage.
    pub(super) fn took(&mut self, seq: u64) {
        if let Some(tally) = &mut self.tally {
            tally.took(seq);
        }
    }

    /// Frames given since the last call.
    pub(super) fn take_given(&mut self) -> u64 {
        std::mem::take(&mut self.given)
    }

    /// Writes a completion; waits while the ring has no room.
    pub(super) fn complete(&mut self, completion: &Completion) -> Result<(), HostError> {
        Ok(self.completions.push_waiting(&completion.encode())?)
    }

    fn send_frame(&mut self, frame: Frame, work: WorkerTime) -> Result<(), HostError> {
        self.given += 1;
        let seq = frame.meta().seq;
        if let Some(tally) = &mut self.tally {
            tally.count_output(seq, &work, frame.layout());
        }
        if frame.is_foreign() {
            // The stage passes its input on: the caller has this frame already.
            let (pool, slot, layout) = (SAME_FRAME, 0, 0);
            return self.complete(&Completion::Frame { seq, pool, slot, layout, work });
        }
        let layout = self.layout(frame.layout())?;
        let pool = self.pool(&frame)?;
        let Ok(exported) = frame.export() else {
            return Err(HostError::Failed { text: "a frame of a pool that is not shared".to_owned() });
        };
        self.complete(&Completion::Frame { seq, pool, slot: exported.slot, layout, work })
    }

    /// Returns the name of a layout; announces it to the caller when it is new.
    fn layout(&mut self, layout: &Layout) -> Result<u8, HostError> {
        let (id, is_new) = self.names.layout(layout);
        if is_new {
            self.complete(&Completion::Layout { id, layout: *layout })?;
        }
        Ok(id)
    }

    /// Asks for memory as `want` describes; the answer comes on the socket.
    pub(super) fn request_buffers(&mut self, want: &BufferRequest) -> Result<(), HostError> {
        send(&self.socket, &Message::Want(*want), None)?;
        self.complete(&Completion::Want)
    }

    /// Asks for memory for a pool; the answer comes on the socket. Once the
    /// stream is `opened`, a cell tells the caller to read the socket.
    pub(super) fn want_memory(&mut self, bytes: u64, opened: bool) -> Result<(), HostError> {
        send(&self.socket, &Message::WantMemory { bytes }, None)?;
        if opened { self.complete(&Completion::Want) } else { Ok(()) }
    }

    /// Announces a pool of memory that the caller has lent.
    pub(super) fn has_mapped(&mut self, pool: &Pool) -> Result<(), HostError> {
        let (number, _) = self.names.pool(pool.id())?;
        self.complete(&Completion::Pool {
            pool: number,
            slots: pool.slots(),
            slot_bytes: pool.slot_bytes() as u64,
            first_slot: pool.first_slot(),
        })
    }

    /// Returns the number of the frame's pool; announces it to the caller when it is new.
    fn pool(&mut self, frame: &Frame) -> Result<u16, HostError> {
        let (pool, is_new) = self.names.pool(frame.pool_id())?;
        if is_new {
            let Some(GrantedPool { memory, slots, slot_bytes, first_slot }) = frame.granted_memory() else {
                return Err(HostError::Failed { text: "a frame of memory that was not granted".to_owned() });
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
        let Item::Frame(frame) = item else {
            let (takes, gets) = ("frames", "packets");
            return Err(out.fail(StageError::WrongInput { takes, gets, advice: "a worker gives frames" }));
        };
        let work = out.recorder().last_row().map_or_else(WorkerTime::default, WorkerTime::from);
        let mut exporter = locked(&self.0);
        let work = WorkerTime { idle_ns: exporter.idle_ns, ..work };
        exporter.send_frame(frame, work).map_err(|e| out.fail(e))
    }
}
