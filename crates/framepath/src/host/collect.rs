// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collect end of a stream: takes the worker's frames, as the input of the thread behind the worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, sync_channel};
use std::time::Duration;

use framepath_codec::Packet;
use framepath_model::replay::Arrived;
use framepath_model::stream::FrameMeta;
use framepath_model::wire::WorkerTime;
use framepath_os::crossing::Breach;
use framepath_os::measure::meter::Level;
use framepath_os::memory::pool::Frame;
use framepath_os::process::signal;
use framepath_os::sync::queue::Idle;
use framepath_os::time::now_ns;

use super::HostError;
use super::answers::{OUTPUTS, OutputCheck};
use super::between::{Logged, SubmitCommand};
use super::encoded::{EncodedPacket, KeptFrames};
use super::encoder_control::EncoderControl;
use super::history::History;
use super::input::WorkerInput;
use super::policy::Restarts;
use super::receiving::{Receiving, WorkerMessage};
use super::session::Session;
use super::spec::Start;
use super::submit::Submit;
use super::worker_stream::WorkerStream;
use crate::error::StageError;
use crate::item::Item;
use crate::recorder::{Recorder, Stretch};
use crate::requests::Wake;

/// Longest sleep of the collect end while it has inputs to submit for which the worker has no room yet.
const SUBMITTING: Duration = Duration::from_millis(5);

/// Input of a thread: the collect end of a stream. The stage in front ([`Submit`]) sends the collect end when
/// it starts the stream.
pub(crate) struct CollectInput {
    /// Number of the hop that the worker runs.
    pub(crate) hop: u16,
    session: Arc<Session>,
    is_by_device: bool,
    started: Receiver<CollectEnd>,
    end: Option<CollectEnd>,
    idle: Idle,
}

/// Makes the two ends of hop `hop`, which a worker runs: the last stage of one thread, and the input of
/// the next thread. The worker starts when that last stage starts. `encoder` has the requests to an encoder.
pub(crate) fn channel(
    hop: u16,
    session: Arc<Session>,
    encoder: Option<EncoderControl>,
) -> (Submit, CollectInput) {
    let (slot, started) = sync_channel(1);
    let of_stream = session.clone();
    let submit = Submit::new(
        session.clone(),
        Box::new(move |info| {
            let (stream, submit, collect) = of_stream.start(info)?;
            // If the receiver is gone, the collect end is dropped here, and the first input fails.
            let _ = slot.send(collect);
            Ok((stream, submit))
        }),
        encoder,
    );
    let is_by_device = session.is_by_device();
    (submit, CollectInput { hop, session, is_by_device, started, end: None, idle: Idle::default() })
}

/// Collect end of a stream: takes the output of the workers, and replaces workers that die, hang or break the
/// rules.
///
/// Only the collect end knows which inputs have no output yet. After the collect end has replaced a worker,
/// it submits the history to the new worker; if the stage's inputs cannot be submitted again, only the
/// inputs that the old worker had not taken. Then it hands the right to submit to the submit end, when that
/// end asks.
pub struct CollectEnd {
    pub(super) session: Arc<Session>,
    pub(super) start: Start,
    pub(super) link: Arc<WorkerStream>,
    pub(super) receiving: Receiving,
    pub(super) history: History,
    pub(super) commands: Sender<SubmitCommand>,
    pub(super) restarts: Restarts,
    /// True from the death of a worker until the first frame that is delivered after it.
    pub(super) is_recovering: bool,
    /// Number of the last seek or flush that was passed to the next thread; 0 before the first.
    generation: u64,
    /// Number of the packet in the last counted report of a packet that was not decoded, or of skipped
    /// packets; `None` before the first such report.
    undecoded: Option<u64>,
    /// True if the stream has ended, was then held for a seek or flush, and the worker has sent all output.
    at_end: bool,
    /// Frames that an encoder keeps.
    pub(super) kept: KeptFrames,
}

/// Output of a worker for one input.
enum StageOutput {
    /// A new frame.
    Frame(Frame),
    /// The input frame itself.
    Same,
    /// A packet made of the input frame.
    Encoded(EncodedPacket),
}

/// Event from a worker, for the thread that takes the worker's output.
pub(crate) enum WorkerOutput<T> {
    /// A frame or packet for the next stage.
    Item(T),
    /// A seek or flush: its number, and the number of inputs without output that were discarded since the
    /// previous such event. Several seeks in a row may give one event, with the number of the last. Later
    /// items come from after that seek or flush.
    Flush(u64, u64),
    /// The worker has sent all output, and the stream has ended, but a seek or flush may still come.
    Held,
    /// The worker has sent all output, and the stream has ended for good.
    End,
    /// No event of the worker: a request, for example a seek, waits for the thread.
    Request,
}

/// Frame or packet from a worker, with its times for the ledger.
pub struct Arrival {
    /// The frame or packet.
    pub item: Item,
    pub(super) stretch: Stretch,
    /// Times and resources that the worker reports for the frame; zero if the ledger is off, except the time
    /// that the worker was idle before the input arrived.
    pub work: WorkerTime,
}

impl CollectInput {
    /// Sets the ledger's level in the workers, for the run that begins. Call it before the stream starts; a
    /// later call has no effect.
    pub(crate) fn set_level(&self, level: Level) {
        self.session.set_level(level);
    }

    /// Returns a function that wakes [`next`](CollectInput::next) to check for requests. Any thread may call
    /// the returned function; a call has no effect before the stream has started and after its end.
    pub(crate) fn waker(&self) -> Wake {
        let session = self.session.clone();
        Box::new(move || session.request_attention())
    }

    /// Returns the next event; writes the ledger row of a frame. Sleeps until there is an event or
    /// `has_request` is true.
    ///
    /// # Errors
    /// As [`CollectEnd::next_frame`]; [`StageError::Downstream`] if the stream has not started.
    pub(crate) fn next(
        &mut self,
        recorder: &mut Recorder,
        has_request: impl Fn() -> bool,
    ) -> Result<WorkerOutput<Item>, StageError> {
        let end = match &mut self.end {
            Some(end) => end,
            none => none.insert(self.started.try_recv().map_err(|_| StageError::Downstream)?),
        };
        let timed = recorder.level() != Level::Off;
        let idle = &mut self.idle;
        let mut asleep = false;
        let collected = end.next_or(has_request, || {
            if timed && !asleep {
                idle.since_ns = now_ns();
            } else if timed {
                idle.until_ns = now_ns();
            }
            asleep = !asleep;
        })?;
        Ok(match collected {
            WorkerOutput::Item(Arrival { item, stretch, work }) => {
                let reported_ns = u64::from(work.compute_ns) + u64::from(work.copy_ns);
                end.session.stats.reported_cpu_ns.fetch_add(reported_ns, Ordering::Relaxed);
                let work = (end.link.pid(), &work);
                recorder.arrived(self.hop, &item.meta(), &stretch, work, self.is_by_device, self.idle);
                WorkerOutput::Item(item)
            }
            WorkerOutput::Flush(generation, discarded) => WorkerOutput::Flush(generation, discarded),
            WorkerOutput::Held => WorkerOutput::Held,
            WorkerOutput::End => WorkerOutput::End,
            WorkerOutput::Request => WorkerOutput::Request,
        })
    }
}

impl CollectEnd {
    pub(super) fn new(
        session: Arc<Session>,
        start: Start,
        (link, receiving): (Arc<WorkerStream>, Receiving),
        logged: Receiver<Logged>,
        commands: Sender<SubmitCommand>,
    ) -> CollectEnd {
        if let Some(track) = &session.spec.track {
            session.stats.damage.set_time_base(track.stream.time_base);
        }
        let history =
            History::new(logged, session.spec.track.as_ref(), session.spec.options.kind.memory_bytes);
        let restarts = Restarts::default();
        CollectEnd {
            session,
            start,
            link,
            receiving,
            history,
            commands,
            restarts,
            is_recovering: false,
            generation: 0,
            undecoded: None,
            at_end: false,
            kept: KeptFrames::default(),
        }
    }

    /// Returns the next frame; `None` at the end of the stream, also if the end is held for a flush. Sleeps
    /// until a frame arrives or the stream ends. Passes over seeks and flushes. Call this function from one
    /// thread.
    ///
    /// # Errors
    /// The stage failed, the stream was abandoned, the grace period of a signal ended, this process lacks a
    /// resource, or no worker can continue the stream.
    pub fn next_frame(&mut self) -> Result<Option<Arrival>, HostError> {
        loop {
            match self.next_or(|| false, || {})? {
                WorkerOutput::Item(arrival) => return Ok(Some(arrival)),
                WorkerOutput::End | WorkerOutput::Held => return Ok(None),
                WorkerOutput::Flush(..) | WorkerOutput::Request => {}
            }
        }
    }

    /// Returns the next event; replaces workers that end. Sleeps until there is an event or `has_request`
    /// is true. Calls `idle` before and after each sleep for the worker's output.
    fn next_or(
        &mut self,
        has_request: impl Fn() -> bool,
        mut idle: impl FnMut(),
    ) -> Result<WorkerOutput<Arrival>, HostError> {
        loop {
            if self.at_end {
                if let Some(collected) = self.held(&has_request) {
                    return Ok(collected);
                }
                continue;
            }
            if let Some(flush) = self.flush() {
                return Ok(flush);
            }
            if has_request() {
                return Ok(WorkerOutput::Request);
            }
            // Read before the ring, so that the last cells of a dead worker are taken before its end
            // is handled.
            let is_gone = self.link.health.is_gone();
            let history = &mut self.history;
            match self.receiving.take(|seq| history.meta(seq)) {
                Ok(Some(message)) => match self.on_message(message) {
                    Ok(None) => {}
                    Ok(Some(collected)) => return Ok(collected),
                    Err(error @ HostError::Failed { .. }) => return Err(error),
                    Err(error) => self.replace(error)?,
                },
                Ok(None) if is_gone => self.replace(HostError::Gone)?,
                Ok(None) if signal::overdue() => return Err(HostError::Abandoned),
                Ok(None) => {
                    let limit = self.submit_rest()?.then_some(SUBMITTING);
                    idle();
                    self.receiving.sleep(&has_request, limit);
                    idle();
                }
                Err(error) => self.replace(error)?,
            }
        }
    }

    /// Takes the last seek or flush if it was not passed to the next thread yet, and restarts the count of
    /// worker deaths; `None` if there is none.
    fn flush(&mut self) -> Option<WorkerOutput<Arrival>> {
        let (generation, discarded) = self.history.generation();
        if generation == self.generation {
            return None;
        }
        self.generation = generation;
        // Earlier deaths do not count for the packets behind the flush.
        self.restarts.delivered();
        self.kept = KeptFrames::default();
        Some(WorkerOutput::Flush(generation, discarded))
    }

    /// Checks a held stream at its end. Returns `End` if the stream is no longer held, and `Request` if a
    /// request waits. Returns `None` if the stream continues after a flush; also, after a sleep, if the
    /// caller has to check again. A death of the worker during this sleep is handled when the stream
    /// continues.
    fn held(&mut self, has_request: impl Fn() -> bool) -> Option<WorkerOutput<Arrival>> {
        self.link.health.clear_attention();
        self.history.read_log();
        // The submit end may have logged the end again behind a flush.
        self.at_end = self.history.ended && !self.history.was_flushed_since(self.generation);
        if !self.at_end {
            return None;
        }
        if !self.history.is_held {
            return Some(WorkerOutput::End);
        }
        if has_request() {
            return Some(WorkerOutput::Request);
        }
        self.receiving.sleep_until_called(has_request);
        None
    }

    /// Handles the worker's answer to a drain. Returns `Held` or `End`; `None` if a flush came after the
    /// drain.
    ///
    /// # Errors
    /// As [`History::on_end`].
    fn on_end(&mut self) -> Result<Option<WorkerOutput<Arrival>>, Breach> {
        let is_last = self.history.on_end()?;
        self.link.health.set_answer_due(self.history.awaits_answer());
        self.at_end = is_last && self.history.is_held;
        let ended = if self.at_end { WorkerOutput::Held } else { WorkerOutput::End };
        Ok(is_last.then_some(ended))
    }

    fn on_message(&mut self, message: WorkerMessage) -> Result<Option<WorkerOutput<Arrival>>, HostError> {
        if let WorkerMessage::Frame { seq, .. }
        | WorkerMessage::Same { seq, .. }
        | WorkerMessage::Encoded { seq, .. }
        | WorkerMessage::Extra { newest: seq, .. }
        | WorkerMessage::Nothing { seq } = message
        {
            match self.history.check_output(seq) {
                OutputCheck::Wanted => {}
                OutputCheck::Flushed { is_timely } => {
                    if !is_timely {
                        self.link.health.exclude_from_progress();
                    }
                    return Ok(None);
                }
                OutputCheck::Impossible => return Err(Breach(
                    "unexpected output after a flush: its input was flushed, the flush is not answered, or there \
                     are too many outputs of flushed inputs",
                )
                .into()),
            }
        }
        let (seq, output, work) = match message {
            WorkerMessage::Frame { seq, frame, work } => (seq, StageOutput::Frame(frame), work),
            WorkerMessage::Same { seq, work } => (seq, StageOutput::Same, work),
            WorkerMessage::Encoded { seq, packet, work } => (seq, StageOutput::Encoded(packet), work),
            WorkerMessage::Extra { newest, frame, work } => {
                return self.on_extra(newest, frame, work).map(Some);
            }
            WorkerMessage::Nothing { seq } => return self.on_no_output(seq).map(|()| None),
            WorkerMessage::Constant => return Ok(None),
            WorkerMessage::Undecoded { seq, skipped } => {
                self.on_undecoded(seq, skipped)?;
                return Ok(None);
            }
            WorkerMessage::Request(request) => {
                self.session.request(request);
                return Ok(None);
            }
            WorkerMessage::Flushed { seq } => {
                self.history.flushed(seq)?;
                self.link.health.set_answer_due(self.history.awaits_answer());
                return Ok(None);
            }
            WorkerMessage::Failed(text) => return Err(HostError::failed_in_worker(&text)),
            WorkerMessage::End => return Ok(self.on_end()?),
        };
        let Some(sent) = self.history.get(seq) else {
            return self.lose(seq).map(|()| None);
        };
        sent.outputs += 1;
        if sent.outputs > OUTPUTS {
            return Err(Breach("too many frames from one input").into());
        }
        let stretch = sent.stretch;
        if let StageOutput::Encoded(packet) = output {
            let packet = self.packet(seq, packet)?;
            return self.on_item(seq, Item::Packet(packet), stretch, work);
        }
        // The stage drops its input frame before it emits the output, so the input can be returned now.
        let input = match &sent.input {
            Some(WorkerInput::Frame(..)) => sent.input.take(),
            _ => None,
        };
        let item = match (output, input) {
            (StageOutput::Frame(frame), _) => Item::Frame(frame),
            (StageOutput::Same, Some(WorkerInput::Frame(frame, _))) => Item::Frame(frame),
            _ => return Err(Breach("an input frame was returned twice").into()),
        };
        self.on_item(seq, item, stretch, work)
    }

    /// Returns the output of input `seq` for the next thread, unless the next thread has it or must not get it.
    ///
    /// # Errors
    /// The input was not submitted to this worker; or as [`CollectEnd::submit_rest`].
    fn on_item(
        &mut self,
        seq: u64,
        item: Item,
        stretch: Stretch,
        work: WorkerTime,
    ) -> Result<Option<WorkerOutput<Arrival>>, HostError> {
        let arrived = self.history.book.arrived(seq);
        if self.history.sending.is_some() {
            self.submit_rest()?;
        }
        self.recover(&work, arrived == Arrived::Deliver);
        match arrived {
            Arrived::Deliver => {
                self.session.stats.damage.frame(&item.meta());
                Ok(Some(WorkerOutput::Item(Arrival { item, stretch, work })))
            }
            Arrived::AlreadyDelivered | Arrived::Withheld => Ok(None),
            Arrived::Unknown => {
                Err(Breach("output of an input that was never submitted to this worker").into())
            }
        }
    }

    /// Records a frame that arrived during a recovery; `is_new` is true if it is delivered, which ends the
    /// recovery.
    fn recover(&mut self, work: &WorkerTime, is_new: bool) {
        if self.is_recovering {
            self.session.stats.recoveries.arrived(work, is_new);
            self.is_recovering = !is_new;
            if is_new {
                self.restarts.delivered();
            }
        }
    }

    /// Returns a frame that answers no input, for the next thread. The worker has no later input than `newest`.
    ///
    /// # Errors
    /// Input `newest` was not submitted to this worker; another worker would repeat the frame; or as
    /// [`CollectEnd::submit_rest`].
    fn on_extra(
        &mut self,
        newest: u64,
        frame: Frame,
        work: WorkerTime,
    ) -> Result<WorkerOutput<Arrival>, HostError> {
        if self.link.replayable || self.link.health.taken() == 0 {
            return Err(
                Breach("an extra frame of a stage that is replayable, or before the first input").into()
            );
        }
        let sent = self.history.get(newest).map(|sent| sent.stretch);
        let stretch = sent.filter(|_| self.history.book.is_submitted(newest));
        let stretch = stretch.ok_or(Breach("an extra frame after an input that the worker does not have"))?;
        // The costs of the submission are in the row of the frame that answers the input.
        let stretch = stretch.later(work.enter_ns);
        if self.history.sending.is_some() {
            self.submit_rest()?;
        }
        if std::mem::take(&mut self.is_recovering) {
            // Does not restart the count of deaths, because a worker can send such frames for every input.
            self.session.stats.recoveries.arrived(&work, true);
        }
        self.session.stats.damage.frame(&frame.meta());
        let item = Item::Frame(frame);
        Ok(WorkerOutput::Item(Arrival { item, stretch, work }))
    }

    /// Counts packet `seq` as not decoded if `skipped` is 0. Otherwise counts `skipped` packets as skipped,
    /// the last of which is `seq`. Ignores a report that came before, because a replacement reports the packets
    /// of a replay again; and of a packet that the history no longer has, a report behind that of a later packet,
    /// because a worker could repeat it without end.
    ///
    /// # Errors
    /// The worker claims to have skipped more packets than there are up to `seq`.
    fn on_undecoded(&mut self, seq: u64, skipped: u64) -> Result<(), Breach> {
        if skipped > seq.saturating_add(1) {
            return Err(Breach("more skipped packets than the stream has"));
        }
        let is_later = self.undecoded.is_none_or(|last| seq > last);
        self.undecoded = self.undecoded.max(Some(seq));
        let is_repeated = match self.history.get(seq) {
            Some(sent) => {
                let reported = if skipped == 0 { &mut sent.is_undecoded } else { &mut sent.ends_skip };
                std::mem::replace(reported, true)
            }
            None => !is_later,
        };
        if is_repeated {
            return Ok(());
        }
        let known = self.history.meta(seq);
        let packet = known.unwrap_or(FrameMeta { seq, ..FrameMeta::default() });
        let damage = &self.session.stats.damage;
        match skipped {
            0 => damage.undecodable(&packet, None),
            count => damage.skipped(&packet, count),
        }
        Ok(())
    }

    /// Returns the packet that the encoder made of frame `seq`, and releases the frame.
    ///
    /// # Errors
    /// The encoder has output the frame's packet before, or the packet of a later frame that it had kept; or the
    /// description of the track is not that of the frame.
    fn packet(&mut self, seq: u64, packet: EncodedPacket) -> Result<Packet, HostError> {
        let kept = self.kept.take(seq);
        let unexpected = Breach("two packets of one frame, or not in the order of the frames");
        let sent = self.history.get(seq).ok_or(unexpected)?;
        let layout = match &sent.input {
            Some(WorkerInput::Frame(frame, _)) => *frame.layout(),
            _ => kept.ok_or(unexpected)?,
        };
        let packet = packet.into_packet(sent.meta, &layout)?;
        // Only now: another worker encodes the frame if this one has broken a rule.
        sent.input = None;
        Ok(packet)
    }

    /// Releases input frame `seq`, for which the worker reports that there is no output now. An encoder may keep the frame, and
    /// output its packet later.
    ///
    /// # Errors
    /// The input is no frame that the worker has, or the worker has completed the frame before.
    fn on_no_output(&mut self, seq: u64) -> Result<(), HostError> {
        let sent = self.history.get(seq);
        let input = sent.and_then(|sent| sent.input.take_if(|input| matches!(input, WorkerInput::Frame(..))));
        // Accepted once for each input: otherwise a worker could send such a completion without end.
        let unexpected = Breach("a completion of an input that the worker does not have");
        let Some(WorkerInput::Frame(frame, _)) = input else { return Err(unexpected.into()) };
        if self.session.spec.encodes.is_some() {
            self.kept.keep(seq, *frame.layout());
        }
        Ok(())
    }

    /// Counts input `seq` as skipped, unless a seek skips its frame anyway. The frame has arrived, but is
    /// lost, because the history has forgotten the input.
    ///
    /// # Errors
    /// The input was never submitted, or such frames arrived more often than is possible.
    fn lose(&mut self, seq: u64) -> Result<(), HostError> {
        if !self.history.book.lose_unknown(seq) {
            return Err(Breach("output of an input that was never submitted").into());
        }
        self.count_skipped();
        Ok(())
    }

    /// Reads the log, submits the inputs that the submit end left to this end, and answers a waiting submit
    /// end once all of them are submitted. Returns `true` if the worker has no room for all of these inputs.
    ///
    /// # Errors
    /// This process caused the error ([`HostError::is_of_caller`]), for example because it lacks a resource.
    /// After any other error, such as a broken rule, the worker is killed instead, and `next_or` then
    /// replaces it.
    pub(super) fn submit_rest(&mut self) -> Result<bool, HostError> {
        self.link.health.clear_attention();
        self.history.read_log();
        match self.history.submit() {
            Ok(true) => Ok(true),
            Ok(false) => {
                if let Some(answer) = self.history.answer() {
                    // The receiver exists: the submit end waits for the answer.
                    let _ = self.commands.send(answer);
                }
                Ok(false)
            }
            Err(error) if error.is_of_caller() => Err(error),
            Err(_) => {
                self.link.break_off();
                Ok(false)
            }
        }
    }
}
