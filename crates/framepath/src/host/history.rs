// SPDX-License-Identifier: MIT OR Apache-2.0
//! History of a stream: the inputs that another worker may have to decode again. The collect end keeps
//! the history.
//!
//! The history begins at a random access point from which all undelivered frames can be decoded
//! ([`framepath_model::replay`]). In a stream without such points the history would keep every packet, so
//! this module limits the memory of the history.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use framepath_codec::{Packet, TrackInfo};
use framepath_model::access_point::{AccessPoints, RandomAccess};
use framepath_model::parameter_sets::{ParameterSets, SetLog};
use framepath_model::replay::ReplayLog;
use framepath_model::stream::{FrameMeta, Preroll};
use framepath_os::crossing::Breach;

use super::HostError;
use super::answers::{Answers, InputsEnd, OutputCheck};
use super::between::{Logged, SubmitCommand};
use super::input::{LoggedInput, WorkerInput};
use super::submit::Sending;

/// Number of newest submitted packets that the limit on the memory does not remove, whatever their size:
/// those in the ring (whose bytes are limited, too), and more than any decoder's reorder delay.
const KEPT: usize = 96;
/// Memory overhead of a packet, bytes, rounded up: 780 for its `AVPacket` and buffer, and twice 200 for its
/// entry in the replay log, whose capacity doubles when it grows.
const OVERHEAD: u64 = 1200;
/// Bytes of new packets between two checks of the replay log's size.
const CHECK_BYTES: u64 = 2 << 20;
/// Lower bound of the limit on the replay log's size, bytes. The limit is a quarter of the worker's memory.
const LEAST: u64 = 16 << 20;
/// Upper bound of the limit on the replay log's size, bytes.
const MOST: u64 = 256 << 20;

/// Inputs of one stream that may still be needed, across all workers of the stream.
pub(super) struct History {
    log: Receiver<Logged>,
    /// Replay log: the kept inputs, and which of them were submitted and delivered.
    pub(super) book: ReplayLog<LoggedInput>,
    /// Check of the random access points that the packets' flags claim; `None` for frames.
    points: Option<AccessPoints>,
    /// Parameter sets from packets, which decoders need besides those of the track's header; `None` for
    /// frames.
    sets: Option<ParameterSets>,
    /// Parameter sets in force after the last packet that was submitted to the present worker, besides those
    /// of the track's header. `None` before the worker's first packet, while no packet of the stream has
    /// carried any, and for frames.
    worker_sets: Option<Arc<SetLog>>,
    /// Right to submit to the present worker, while the collect end has this right; else `None`.
    pub(super) sending: Option<Box<Sending>>,
    /// Number of the present worker among the workers of the stream, from 0.
    worker: u64,
    /// Number of the next input or flush to read from the log.
    read: u64,
    /// Bytes of packets since the last check of the replay log's size.
    new_bytes: u64,
    /// Limit of a worker's address space, bytes.
    memory_bytes: u64,
    /// True if [`Logged::Ask`] was read from the log and is not answered yet.
    is_asked: bool,
    /// True from the log's entry about an end of the input to the entry about a flush.
    pub(super) ended: bool,
    /// True if the input has ended, and a flush may follow.
    pub(super) is_held: bool,
    flush: Flush,
    /// Drains and flushes that the present worker has to answer, and the flush that is still to be submitted.
    answers: Answers,
}

/// The last flush of a stream.
#[derive(Default)]
struct Flush {
    /// Number of the flush among the seeks and flushes; 0 before the first.
    generation: u64,
    /// Number of the first input after the flush; output of earlier inputs is dropped.
    wanted_from: u64,
    /// Number of inputs without output that flushes have discarded since the last call of
    /// [`History::generation`]. Inputs that would not have given a frame any more are left out
    /// ([`ReplayLog::flush`]).
    discarded: u64,
}

impl History {
    /// Makes the history of a stream whose submit end writes `log`.
    pub(super) fn new(log: Receiver<Logged>, track: Option<&TrackInfo>, memory_bytes: u64) -> History {
        History {
            log,
            book: ReplayLog::new(LoggedInput::strip),
            points: track.map(TrackInfo::access_points),
            sets: track.map(TrackInfo::parameter_sets),
            worker_sets: None,
            sending: None,
            worker: 0,
            read: 0,
            new_bytes: 0,
            memory_bytes,
            is_asked: false,
            ended: false,
            is_held: false,
            flush: Flush::default(),
            answers: Answers::default(),
        }
    }

    /// Reads all entries that the submit end has logged; does not wait for more.
    pub(super) fn read_log(&mut self) {
        while let Ok(logged) = self.log.try_recv() {
            match logged {
                Logged::Input { worker, sent } => self.append(worker, sent),
                Logged::Ask => self.is_asked = true,
                Logged::Flush { generation, sending } => {
                    self.flush_inputs(generation);
                    self.take_back_sending(sending);
                }
                Logged::End { is_held, sending } => {
                    (self.ended, self.is_held) = (true, is_held);
                    self.take_back_sending(sending);
                }
            }
        }
    }

    /// Handles the log's entry about a flush: removes the earlier inputs, and reopens an ended stream.
    fn flush_inputs(&mut self, generation: u64) {
        self.answers.flush(self.read, self.book.kept() as u64);
        self.flush = Flush {
            generation,
            wanted_from: self.read + 1,
            discarded: self.flush.discarded + self.book.flush(),
        };
        self.read += 1;
        (self.ended, self.is_held) = (false, false);
    }

    /// Returns the number of the last seek or flush that was read from the log (0 before the first), and the
    /// number of inputs without output that flushes have discarded since the last call.
    pub(super) fn generation(&mut self) -> (u64, u64) {
        (self.flush.generation, std::mem::take(&mut self.flush.discarded))
    }

    /// True if the last seek or flush has another number than `generation`.
    pub(super) fn was_flushed_since(&self, generation: u64) -> bool {
        self.flush.generation != generation
    }

    /// Classifies an output of input `seq`, as [`Answers::check_output`] does; reads the log first if
    /// necessary.
    pub(super) fn check_output(&mut self, seq: u64) -> OutputCheck {
        self.read_log_for(seq);
        self.answers.check_output(seq, self.flush.wanted_from)
    }

    /// Accepts the worker's answer to a drain. Returns true if the stream ends there, false if a flush came
    /// after the drain.
    ///
    /// # Errors
    /// The worker was not asked to drain, has to answer a flush first, or has not taken all inputs and the
    /// drain.
    pub(super) fn on_end(&mut self) -> Result<bool, Breach> {
        match self.answers.take_end()? {
            InputsEnd::Flushed => Ok(false),
            InputsEnd::Last if self.is_drained() => Ok(true),
            InputsEnd::Last => Err(Breach("end of stream before the drain completed")),
        }
    }

    /// Accepts the worker's answer to the flush with the number `seq` among the inputs.
    ///
    /// # Errors
    /// The worker was not sent this flush, or has to answer another drain or flush first.
    pub(super) fn flushed(&mut self, seq: u64) -> Result<(), Breach> {
        self.answers.flushed(seq)
    }

    /// True while the worker has to answer a drain or flush.
    pub(super) fn awaits_answer(&self) -> bool {
        self.answers.is_owed()
    }

    fn append(&mut self, worker: Option<u64>, mut sent: LoggedInput) {
        let access = match (&sent.input, &mut self.points, &mut self.sets) {
            (Some(WorkerInput::Packet(packet)), Some(points), Some(sets)) => {
                sent.sets_before = sets.in_force().cloned();
                record_sets(sets, packet);
                sent.sets_behind = sets.in_force().cloned();
                match access(points, packet) {
                    RandomAccess::Point if sets.is_lost() => RandomAccess::Claimed { recovery: 0 },
                    access => access,
                }
            }
            // Every frame is a random access point: stages that take frames process them one by one.
            _ => RandomAccess::Point,
        };
        self.new_bytes += bytes_of(&sent);
        // The history counts the inputs itself, because the numbers of frames behind a decoder are not in
        // order.
        let preroll = match &sent.input {
            Some(WorkerInput::Packet(packet)) => packet.preroll(),
            _ => Preroll::default(),
        };
        self.book.append_preroll(self.read, sent.meta.pts, access, preroll, sent);
        self.read += 1;
        if worker == Some(self.worker) {
            self.worker_sets = self.sets.as_ref().and_then(ParameterSets::in_force).cloned();
            self.book.sent();
        }
        if self.new_bytes > CHECK_BYTES {
            self.new_bytes = 0;
            limit(&mut self.book, self.memory_bytes);
        }
    }

    /// Stores `sending`, the right to submit that the submit end has handed over. Drops the right to submit
    /// to a worker that was replaced.
    fn take_back_sending(&mut self, sending: Option<Box<Sending>>) {
        // The right to write to an older worker is of no use.
        if let Some(sending) = sending.filter(|sending| sending.link.number == self.worker) {
            self.sending = Some(sending);
        }
    }

    /// Returns input `seq`; `None` if the replay log does not have this input, or no longer has it.
    pub(super) fn get(&mut self, seq: u64) -> Option<&mut LoggedInput> {
        self.read_log_for(seq);
        self.book.get_mut(seq)
    }

    /// Reads the log if input `seq` was not read yet. A flush may follow that input in the log.
    fn read_log_for(&mut self, seq: u64) {
        // The submit end logs an input before the worker can see it.
        if seq >= self.read {
            self.read_log();
        }
    }

    /// Returns the metadata for a frame of input `seq`; `None` if the input was never logged, or the replay
    /// log has dropped it. For a flushed input, and for an input that the replay log has forgotten so long
    /// ago that it no longer has the metadata, returns default metadata, because the caller drops the frame.
    pub(super) fn meta(&mut self, seq: u64) -> Option<FrameMeta> {
        self.read_log_for(seq);
        if seq < self.flush.wanted_from {
            // The metadata does not matter, because the caller drops this frame.
            return Some(FrameMeta::default());
        }
        let known = self.get(seq).map(|sent| sent.meta);
        // The caller accepts the frame, so that its slot is released, and then drops it.
        known.or_else(|| self.book.is_unknown(seq).then(FrameMeta::default))
    }

    /// Returns the number of the last input in the replay log whose cell is among the first `taken` cells
    /// that were submitted to the present worker; `None` if there is no such input.
    pub(super) fn last_taken(&self, taken: u64) -> Option<u64> {
        self.book.last_submitted(|sent| sent.cell < taken)
    }

    /// Resets the per-worker state for a new worker. `sending` is the right to submit to this worker.
    pub(super) fn begin(&mut self, sending: Box<Sending>) {
        self.worker = sending.link.number;
        self.sending = Some(sending);
        self.worker_sets = None;
        self.answers.begin();
    }

    /// Submits the unsent flush, then the inputs that are not submitted yet, and then the drain if the stream
    /// has ended; wakes the worker. Returns `true` if the worker has no room for all of them; `false` also if
    /// this end has no right to submit, or the worker is gone.
    ///
    /// # Errors
    /// The worker broke the rules, the connection to the worker failed, this process lacks a resource, or a
    /// packet, with the parameter sets that the worker lacks, is too large.
    pub(super) fn submit(&mut self) -> Result<bool, HostError> {
        let Some(sending) = &mut self.sending else { return Ok(false) };
        if sending.link.health.is_gone() {
            // The remaining inputs wait for the next worker.
            return Ok(false);
        }
        if let Some(seq) = self.answers.first_unreported() {
            if sending.flush(seq)?.is_err() {
                return Ok(true);
            }
            self.answers.flush_submitted();
        }
        let mut is_full = false;
        while let Some(entry) = self.book.next_unsent() {
            let (seq, sent) = (entry.seq(), entry.packet());
            let mut cell = u64::MAX;
            if let Some(input) = &sent.input {
                // A new worker, or a worker to which packets were not submitted, may lack parameter
                // sets from earlier packets.
                let lacks = sent.sets_before.as_ref().filter(|sets| self.worker_sets.as_ref() != Some(sets));
                let completed = lacks.map(|sets| with_sets(sets, input)).transpose()?.flatten();
                match sending.prepare(
                    seq,
                    sent.meta.pts,
                    completed.as_ref().unwrap_or(input),
                    entry.is_after_loss(),
                )? {
                    Ok(submission) => cell = sending.submit(&submission)?,
                    Err(_) => is_full = true,
                }
            }
            if is_full {
                break;
            }
            self.worker_sets = sent.sets_behind.clone();
            self.book.sent();
            if let Some(sent) = self.book.get_mut(seq) {
                sent.cell = cell;
            }
        }
        if self.ended && !is_full && !sending.drained {
            is_full = sending.drain()?.is_err();
            if !is_full {
                self.answers.drain_submitted();
            }
        }
        sending.wake_worker();
        Ok(is_full)
    }

    /// Returns the answer that the submit end waits for, and counts it as given. The answer takes the right
    /// to submit from this end, unless the replay log may drop inputs: then the answer is
    /// [`SubmitCommand::Relay`]. `None` unless the submit end waits for an answer, this end has the right to
    /// submit, and the last flush and all logged inputs are submitted.
    pub(super) fn answer(&mut self) -> Option<SubmitCommand> {
        let is_behind = self.answers.first_unreported().is_some() || self.book.next_unsent().is_some();
        if !self.is_asked || self.sending.is_none() || is_behind {
            return None;
        }
        self.is_asked = false;
        // While the replay log may drop inputs, the collect end submits, because the log must see each input
        // before the worker does.
        let sending = if self.book.takes_all() { self.sending.take() } else { None };
        Some(sending.map_or(SubmitCommand::Relay, SubmitCommand::Direct))
    }

    /// True if the stream has ended, and the worker has taken all cells submitted to it, the drain included.
    fn is_drained(&mut self) -> bool {
        self.ended && self.sending.as_ref().is_some_and(|sending| sending.drained && sending.is_taken())
    }
}

/// Returns the memory of a packet, in bytes, with that of the parameter sets after it if the packet changed
/// them. Returns 0 for a packet that was dropped by [`LoggedInput::strip`], and for a frame, because the
/// frame lies in a pool and leaves the history when its output arrives.
fn bytes_of(sent: &LoggedInput) -> u64 {
    let Some(WorkerInput::Packet(packet)) = &sent.input else { return 0 };
    let new_sets = sent.sets_behind.as_ref().filter(|sets| sent.sets_before.as_ref() != Some(sets));
    packet.content_bytes() as u64 + new_sets.map_or(0, |sets| sets.bytes() as u64) + OVERHEAD
}

/// Number of bytes at the start of a packet that show the packet's framing: start codes or lengths.
const FRAMING_BYTES: usize = 16;

/// Returns a copy of the packet with `sets` in front; `None` for a frame. The ledger counts the copy.
///
/// # Errors
/// There is no memory for the copy.
fn with_sets(sets: &SetLog, input: &WorkerInput) -> Result<Option<WorkerInput>, HostError> {
    let WorkerInput::Packet(packet) = input else { return Ok(None) };
    let completed = packet.prefixed(&sets.in_front_of(&packet.peek(FRAMING_BYTES)));
    let completed =
        completed.ok_or_else(|| HostError::Failed { text: "no memory for a packet".to_owned() })?;
    Ok(Some(WorkerInput::Packet(completed)))
}

/// Number of bytes at the start of a packet that are inspected first. The picture of most random access
/// points begins there, so the rest need not be read.
const FIRST_INSPECTED: usize = 4 << 10;

/// Number of bytes at the start of a packet that are searched first for parameter sets, if the packet is
/// not flagged as a random access point.
const FIRST_INSPECTED_FOR_SETS: usize = 128;

/// Adds the parameter sets in front of the packet's picture to `sets`.
fn record_sets(sets: &mut ParameterSets, packet: &Packet) {
    for most in [if packet.is_key() { FIRST_INSPECTED } else { FIRST_INSPECTED_FOR_SETS }, FIRST_INSPECTED] {
        if sets.inspect(&packet.peek(most), packet.len() <= most) {
            return;
        }
    }
    sets.inspect(&packet.peek(usize::MAX), true);
}

/// Returns how decoding can start at `packet`, if it can, by the container's flag and the packet's bytes.
fn access(points: &mut AccessPoints, packet: &Packet) -> RandomAccess {
    let flagged = packet.is_key();
    if !points.needs(flagged, packet.meta().pts.is_some()) {
        return RandomAccess::PICTURE;
    }
    let whole = packet.len() <= FIRST_INSPECTED;
    let first = points.inspect(&packet.peek(FIRST_INSPECTED), flagged, whole);
    let inspect_whole = || points.inspect(&packet.peek(usize::MAX), flagged, true);
    // An inspection of the whole packet always has a result; the fallback is the careful one.
    first.or_else(inspect_whole).unwrap_or(RandomAccess::Claimed { recovery: 0 })
}

/// Removes the oldest submitted packets from `book` if all packets together exceed the limit: a quarter of
/// `memory_bytes` (the memory of a worker), between [`LEAST`] and [`MOST`]. Keeps all packets that are not
/// submitted yet, and of the submitted ones as many as there are packets in the newest three quarters of the
/// limit, but at least [`KEPT`].
fn limit(book: &mut ReplayLog<LoggedInput>, memory_bytes: u64) {
    let most = (memory_bytes / 4).clamp(LEAST, MOST);
    let sizes: Vec<u64> = book.packets().map(bytes_of).collect();
    if sizes.iter().sum::<u64>() <= most {
        return;
    }
    let newest = sizes.iter().rev().scan(0, |sum, bytes| {
        *sum += bytes;
        Some(*sum)
    });
    let keep = newest.take_while(|sum| *sum <= most / 4 * 3).count();
    book.forget(keep.max(KEPT));
}
