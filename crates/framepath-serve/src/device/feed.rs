// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream of the device: passes its packets to a session, and the session's frames to the
//! client.
//!
//! Three threads: one takes packets from the kernel and submits them to the worker, one takes the
//! worker's frames and gives them to the client, one watches the client's buffers. After the client
//! has replaced its buffers, a temporary fourth thread or the first submits earlier packets again. A
//! session lasts for at most one sequence of one epoch, and begins at a packet where decoding can
//! begin. When packets are decoded again, a new session begins within the sequence.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use framepath_codec::{Packet, TrackInfo};
use framepath_model::access_unit::Sequences;
use framepath_model::stream::FrameMeta;
use framepath_os::measure::meter::Level;
use framepath_os::v4l2::Fourcc;
use framepath_os::v4l2::attach::{
    DELIVERED, FrameInfo, NextPacket, Offered, PacketInfo, PacketMark, Refusal, Stream,
};

use super::captures::{CaptureEffect, Captures, Delivery, SessionBuffers};
use super::stash::{Stash, StashEntry};
use super::{DeviceSettings, coding_of, print_note};
use framepath::Item;
use framepath::host::for_serve::Stretch;
use framepath::host::for_serve::{
    CollectEnd, HostError, InjectedFaults, SandboxChoice, Session, Spec, SubmitEnd, SubmitError, WorkerInput,
    WorkerKind, WorkerOptions,
};

/// Maximum number of packet marks kept for frames in the decoder: the number of latest packets for which the
/// kernel module remembers whether their frames were delivered.
const MARKS: usize = 8192;

/// A stream of the device, shared by its threads.
pub(super) struct Serving {
    /// Number of the stream in the kernel module.
    id: u64,
    stream: Arc<Stream>,
    track: TrackInfo,
    settings: DeviceSettings,
    captures: Arc<Captures>,
    /// Held by the thread that submits packets, starts a session, or drains or flushes one. A session can
    /// also end without this lock: abandoned by the thread that watches the buffers, or after an error.
    feeder: Mutex<Feeder>,
    state: Mutex<FeedState>,
    /// Notified when the thread that delivers frames is done with a session, and when `stale` becomes true.
    changed: Condvar,
    /// Channel to the thread that delivers frames; `None` once no more sessions start.
    jobs: Mutex<Option<Sender<Job>>>,
}

struct Feeder {
    /// Submit end of the newest session; `None` before the first session.
    submit: Option<SubmitEnd>,
    sequences: Sequences,
    stash: Stash,
    /// Present epoch: the number of the client's flushes that the thread for packets has handled.
    epoch: u32,
    /// Lowest number that the next packet can have; packets with lower numbers were taken already.
    next_seq: u64,
}

#[derive(Default)]
struct FeedState {
    /// Epoch and newest session; `None` before the first session, and once the thread that delivers frames is
    /// done with the newest session.
    session: Option<(u32, Arc<Session>)>,
    /// True from the start of a session until the thread that delivers frames reads no more frames of the
    /// session: all were read, the session has failed or was abandoned, or the client cannot take a frame.
    reading: bool,
    /// True after the client has replaced the memory of so many buffers that the worker has too few,
    /// until a thread begins to submit the packets again.
    stale: bool,
    /// Marks of the latest [`MARKS`] submitted packets, by the packet's number.
    marks: BTreeMap<u64, PacketMark>,
    /// Numbers of the packets whose frames the client already had when the latest replay began, from the
    /// replay's first packet on. Their frames are not delivered again.
    delivered_before: BTreeSet<u64>,
    /// Highest packet number of a frame that was delivered, or was decoded again and skipped because the
    /// client already had the frame; `None` before the first.
    delivered: Option<u64>,
}

impl FeedState {
    /// Records that the client has the frame of packet `seq`. Call it only after the delivery, because the
    /// stash then drops packets that are needed to decode the frame again.
    fn record_delivered(&mut self, seq: u64) {
        self.delivered = self.delivered.max(Some(seq));
    }
}

/// A session whose frames are to be delivered.
struct Job {
    collect: CollectEnd,
    session: Arc<Session>,
    epoch: u32,
}

impl Serving {
    /// Serves a stream in this thread, until its client closes the stream or the stream fails. A failure
    /// after the start is reported on standard error, and not returned.
    ///
    /// # Errors
    /// The stream cannot be started.
    pub(super) fn run(offered: Offered, settings: DeviceSettings) -> Result<(), HostError> {
        let id = offered.id;
        let stream = Arc::new(offered.stream);
        let stash = Stash::open(offered.stash, offered.epoch).map_err(|source| HostError::Socket {
            operation: "open the stash of the device's stream",
            source,
        });
        let size = (offered.width, offered.height);
        let started = stash.and_then(|(stash, entries)| {
            let serving = Serving::start(id, offered.codec, size, offered.epoch, &stream, stash, settings)?;
            Ok((serving, entries))
        });
        // Reports the failure of a stream that cannot start to the kernel, because the kernel would
        // offer it again without end.
        let (serving, entries) = started.inspect_err(|_| drop(stream.fail()))?;
        if let Err(error) = serving.resume(&entries).and_then(|()| serving.feed()) {
            if Refusal::of(&error) != Refusal::Closed {
                print_note(&format!("stream {id}: {error}"));
                let _ = stream.fail();
            }
        }
        serving.captures.close();
        let _ = stream.stop();
        serving.abandon();
        serving.jobs().take();
        Ok(())
    }

    /// Makes the stream's shared state, and starts the stream's other threads.
    ///
    /// # Errors
    /// The codec is not supported, there is no memory for the track's description, or a thread cannot be
    /// started.
    fn start(
        id: u64,
        codec: u32,
        (width, height): (u32, u32),
        epoch: u32,
        stream: &Arc<Stream>,
        stash: Stash,
        settings: DeviceSettings,
    ) -> Result<Arc<Serving>, HostError> {
        let unknown = || HostError::Failed { text: format!("codec {} is not supported", Fourcc(codec)) };
        let (codec, coding) = coding_of(Fourcc(codec)).ok_or_else(unknown)?;
        let track = super::track_of(codec, width, height)?;
        let feeder = Feeder { submit: None, sequences: Sequences::new(coding), stash, epoch, next_seq: 0 };
        let (jobs, received) = channel();
        let serving = Arc::new(Serving {
            id,
            captures: Arc::new(Captures::new(stream.clone(), epoch)),
            stream: stream.clone(),
            track,
            settings,
            feeder: Mutex::new(feeder),
            state: Mutex::default(),
            changed: Condvar::new(),
            jobs: Mutex::new(Some(jobs)),
        });
        let thread = |name: &str| thread::Builder::new().name(name.to_owned());
        let failed =
            |source| HostError::Socket { operation: "start a thread for the device's stream", source };
        let (watching, delivering) = (serving.clone(), serving.clone());
        thread("fp-captures").spawn(move || watching.watch()).map_err(failed)?;
        thread("fp-deliver").spawn(move || delivering.deliver_all(&received)).map_err(failed)?;
        Ok(serving)
    }

    fn feeder(&self) -> MutexGuard<'_, Feeder> {
        self.feeder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn jobs(&self) -> MutexGuard<'_, Option<Sender<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- packets

    fn feed(&self) -> io::Result<()> {
        loop {
            match self.stream.next_packet()? {
                NextPacket::Packet(info) => {
                    let taken = self.stream.payload(&info);
                    let failed = taken.is_err();
                    if let Ok(bytes) = taken {
                        self.take(&mut self.feeder(), &info, bytes)?;
                    }
                    ignore_flushed(self.stream.packet_done(&info, failed))?;
                }
                NextPacket::Drain { epoch } => {
                    let mut feeder = self.feeder();
                    self.finish(&mut feeder)?;
                    feeder.stash.begin(epoch)?;
                    ignore_flushed(self.captures.drained_at_end(epoch))?;
                }
                NextPacket::Flush { epoch } => {
                    let mut feeder = self.feeder();
                    self.captures.flush(epoch);
                    self.abandon();
                    feeder.epoch = epoch;
                    feeder.stash.begin(epoch)?;
                }
            }
        }
    }

    fn take(&self, feeder: &mut Feeder, info: &PacketInfo, bytes: Vec<u8>) -> io::Result<()> {
        if info.seq < feeder.next_seq {
            // The previous decoder took this packet, and ended before it reported that.
            return Ok(());
        }
        feeder.next_seq = info.seq + 1;
        let unit = feeder.sequences.inspect(&bytes);
        if unit.begins {
            self.finish(feeder)?;
        }
        let begins = self.state().session.is_none();
        if begins {
            if !unit.key {
                return Ok(());
            }
            feeder.stash.begin(feeder.epoch)?;
        }
        let bytes = match unit.before.is_empty() {
            true => bytes,
            false => [unit.before, bytes].concat(),
        };
        let entry = StashEntry { seq: info.seq, key: unit.key, mark: info.mark, bytes };
        let delivered = self.state().delivered;
        if let Some(seq) = delivered {
            feeder.stash.delivered(seq)?;
        }
        feeder.stash.append(&entry)?;
        self.submit(feeder, &entry)?;
        if begins {
            self.captures.wait_for_setup(feeder.epoch, || !self.state().reading);
        }
        self.replay_if_stale(feeder)
    }

    /// Continues a stream where the previous decoder program ended, from the stash's `entries`.
    fn resume(&self, entries: &[StashEntry]) -> io::Result<()> {
        let mut feeder = self.feeder();
        self.replay(&mut feeder, entries)
    }

    fn replay(&self, feeder: &mut Feeder, entries: &[StashEntry]) -> io::Result<()> {
        let Some(first) = entries.first() else { return Ok(()) };
        let mut delivered = BTreeSet::new();
        for from in (first.seq..=entries[entries.len() - 1].seq).step_by(DELIVERED as usize) {
            let words = self.stream.delivered(from)?;
            let bits = (0..DELIVERED).filter(|bit| words[*bit as usize / 64] >> (bit % 64) & 1 != 0);
            delivered.extend(bits.map(|bit| from + bit));
        }
        self.state().delivered_before = delivered;
        for entry in entries {
            feeder.sequences.inspect(&entry.bytes);
            feeder.next_seq = feeder.next_seq.max(entry.seq + 1);
            self.submit(feeder, entry)?;
        }
        Ok(())
    }

    /// If the client has replaced its buffers in the middle of a sequence, decodes the packets of the
    /// stash again, into the new buffers; repeats that if the client replaces the buffers meanwhile.
    fn replay_if_stale(&self, feeder: &mut Feeder) -> io::Result<()> {
        while std::mem::take(&mut self.state().stale) {
            self.abandon();
            let entries = feeder.stash.entries()?;
            self.replay(feeder, &entries)?;
        }
        Ok(())
    }

    /// Submits a packet to the present session, or to a new session if there is none.
    ///
    /// # Errors
    /// A new session cannot be started, or there is no memory for the packet.
    fn submit(&self, feeder: &mut Feeder, entry: &StashEntry) -> io::Result<()> {
        let is_running = self.state().session.is_some();
        let submit = match &mut feeder.submit {
            Some(submit) if is_running => submit,
            none => none.insert(self.open_stream(feeder.epoch)?),
        };
        let mut state = self.state();
        state.marks.insert(entry.seq, entry.mark);
        if state.marks.len() > MARKS {
            state.marks.pop_first();
        }
        drop(state);
        let pts = i64::try_from(entry.mark.timestamp).ok();
        let meta = FrameMeta { seq: entry.seq, pts, ..FrameMeta::default() };
        let packet = Packet::copied(&entry.bytes, meta, entry.key).ok_or(io::ErrorKind::OutOfMemory)?;
        let packet = WorkerInput::Packet(packet);
        match submit.submit(meta, packet, Stretch::default(), Stretch::default) {
            // Where the session is over, the code that ended it decides how to continue.
            Ok(()) | Err(SubmitError::Closed) => {}
            // The packet is too large, or this process lacks a resource.
            Err(SubmitError::Host(error)) => log::error!("packet {} is skipped: {error}", entry.seq),
        }
        Ok(())
    }

    // ---- sessions

    fn open_stream(&self, epoch: u32) -> io::Result<SubmitEnd> {
        let options = WorkerOptions {
            watchdog: self.settings.watchdog,
            kind: WorkerKind::stage(self.settings.memory_bytes),
            sandbox: SandboxChoice::default(),
            faults: InjectedFaults::default(),
        };
        let hop = framepath::path::parse_stage(&format!("decode threads={}", self.settings.threads));
        let hop = hop.map_err(io::Error::other)?;
        let provider = Arc::new(SessionBuffers { captures: self.captures.clone(), epoch });
        let spec = Spec {
            hop,
            track: Some(self.track.clone()),
            encodes: None,
            frames_behind: 0,
            // With 1, the watchdog spares a worker that waits for a buffer while the client holds a frame.
            least_out: 1,
            options,
            service: None,
            provider: Some(provider),
        };
        let session = Session::new(spec);
        // Workers report copied bytes only from this level on.
        session.set_level(Level::Times);
        let (_, submit, collect) = session.start(self.track.stream).map_err(io::Error::other)?;
        let mut state = self.state();
        state.session = Some((epoch, session.clone()));
        state.reading = true;
        drop(state);
        let job = Job { collect, session, epoch };
        let sent = self.jobs().as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if sent { Ok(submit) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    /// Drains the session, if there is one, and waits until all its frames are delivered to the
    /// client, the session has failed or was abandoned, or the client can take no more frames of it.
    /// If the client replaces its buffers meanwhile, submits the packets again, and then drains again.
    fn finish(&self, feeder: &mut Feeder) -> io::Result<()> {
        loop {
            if let Some(submit) = &mut feeder.submit {
                submit.end(false);
            }
            let waits = |state: &mut FeedState| state.reading && !state.stale;
            let state = self.changed.wait_while(self.state(), waits);
            let stale = state.unwrap_or_else(PoisonError::into_inner).stale;
            if !stale {
                return Ok(());
            }
            self.replay_if_stale(feeder)?;
        }
    }

    /// Abandons the session, if there is one, and waits until no thread reads its frames.
    fn abandon(&self) {
        let mut state = self.state();
        while state.reading {
            if let Some((_, session)) = &state.session {
                session.abandon();
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    // ---- frames

    /// Delivers the frames of one session after the other, until no more sessions start. Reports a failure of
    /// a session on standard error.
    fn deliver_all(&self, jobs: &Receiver<Job>) {
        while let Ok(Job { mut collect, session, epoch }) = jobs.recv() {
            let ended = self.deliver(&mut collect, epoch);
            drop(collect);
            if let Err(error) = ended {
                print_note(&format!("stream {}: {error}", self.id));
            }
            let mut state = self.state();
            state.session.take_if(|(_, running)| Arc::ptr_eq(running, &session));
            state.reading = false;
            drop(state);
            self.changed.notify_all();
            self.captures.recheck();
        }
    }

    /// Delivers a session's frames, without those that the client has already, until the session ends or
    /// the client can no longer take one of the session's frames.
    ///
    /// # Errors
    /// The session failed, or the kernel refuses a frame, other than for an old epoch or replaced memory. The
    /// next packet where decoding can begin then starts another session.
    fn deliver(&self, collect: &mut CollectEnd, epoch: u32) -> Result<(), HostError> {
        loop {
            let arrival = match collect.next_frame() {
                Ok(Some(arrival)) => arrival,
                Ok(None) | Err(HostError::Abandoned) => return Ok(()),
                Err(error) => return Err(error),
            };
            let Item::Frame(frame) = arrival.item else { continue };
            let seq = frame.meta().seq;
            let state = self.state();
            let (is_repeated, mark) = (state.delivered_before.contains(&seq), state.marks.get(&seq).copied());
            drop(state);
            if is_repeated {
                self.state().record_delivered(seq);
                continue;
            }
            let (mark, copied) = (mark.unwrap_or_default(), arrival.work.copied_bytes);
            let info = FrameInfo { seq, epoch, mark, copied, ..FrameInfo::default() };
            let delivery = self.captures.deliver(frame, &info);
            match delivery {
                Ok(Delivery::Done) => self.state().record_delivered(seq),
                Ok(Delivery::Over) => return Ok(()),
                Err(source) => {
                    return Err(HostError::Socket { operation: "deliver a frame to the device", source });
                }
            }
        }
    }

    // ---- buffers

    fn watch(self: &Arc<Serving>) {
        while let Ok(effect) = self.captures.next() {
            match effect {
                CaptureEffect::Nothing => {}
                CaptureEffect::Flushed(epoch) => {
                    let state = self.state();
                    if let Some((_, session)) = state.session.as_ref().filter(|(of, _)| *of < epoch) {
                        session.abandon();
                    }
                }
                CaptureEffect::Stale => {
                    let mut state = self.state();
                    state.stale = true;
                    if let Some((_, session)) = &state.session {
                        session.abandon();
                    }
                    drop(state);
                    self.changed.notify_all();
                    // In a thread of its own, because the feeding thread may sleep until the next packet.
                    let serving = self.clone();
                    let replay = move || serving.replay_if_stale(&mut serving.feeder());
                    // If the thread cannot be started, the next packet or drain triggers the replay.
                    let _ = thread::Builder::new().name("fp-replay".to_owned()).spawn(replay);
                }
            }
        }
        // The stream is over (closed by the client, failed or stopped), so all waiting threads have
        // to end.
        self.captures.close();
        if let Some((_, session)) = &self.state().session {
            session.abandon();
        }
    }
}

/// Ignores the errors of an answer for an old epoch, because a flush event follows, and of an
/// answer that the client or the kernel module no longer expects. Returns every other error.
fn ignore_flushed(answer: io::Result<()>) -> io::Result<()> {
    let known = |error: &io::Error| {
        matches!(Refusal::of(error), Refusal::Stale | Refusal::CalledOff | Refusal::Unknown)
    };
    answer.or_else(|error| if known(&error) { Ok(()) } else { Err(error) })
}
