// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runner of a pipeline: runs the first segment, which has the source, in the calling thread, and starts a
//! thread for each other segment.

mod ended;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread;

use framepath_model::path::Path;
use framepath_os::measure::meter::Level;
use framepath_os::process::priority::HighPriority;
use framepath_os::process::{affinity, signal, stop};
use framepath_os::sync::queue::{Received, Receiver};
use framepath_os::time::{now_ns, process_cpu_ns};

use crate::error::RunError;
use crate::host::{CollectInput, WorkerOutput, WorkerStats};
use crate::options::Options;
use crate::out::{HopFailure, HopStage, Out, ThreadContext};
use crate::pipeline::{Pipeline, SegmentInput, ThreadSegment};
use crate::queue::Queued;
use crate::recorder::{Recorder, RowSink};
use crate::report::{HopInfo, NetworkReport, PlayReport, Report, WorkerReport};
use crate::request::{Answered, Request};
use crate::requests::{Mailbox, Pending, RequestThread, Wake};
use crate::row_tap::{RowTap, TapSettings};
use crate::source::Source;
use ended::{Ended, sink_of, sinks_of};

/// Builds `path` and runs its hops in this thread and one more for each queue and each stage in a worker.
/// Returns when the run has ended. A run that ends by itself, without an error and without a frame, has
/// [`RunError::NoFrame`] in [`Report::error`]; [`Report::losses`] lists lost frames.
///
/// [`Options::stop`] ends the run early. So does a signal, if the program has called
/// [`install_signal_handlers`](crate::install_signal_handlers); the library does not call it.
///
/// # Errors
/// The path could not be built, or a stage could not start. A failure during the run is in
/// [`Report::error`], beside the results until then.
pub fn run(path: &Path, options: &Options) -> Result<Report, RunError> {
    Pipeline::from_path(path)?.run(options)
}

/// Returns a note for each hop of `workers` whose workers lack layers of the sandbox.
fn sandbox_notes(workers: &[(u16, Arc<WorkerStats>)], hops: &[HopInfo]) -> Vec<String> {
    let note = |(hop, stats): &(u16, Arc<WorkerStats>)| {
        let note = stats.sandbox_note.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (!note.is_empty()).then(|| format!("{}: {note}", hops[usize::from(*hop)].text))
    };
    workers.iter().filter_map(note).collect()
}

impl Pipeline {
    /// Runs the hops of the pipeline in this thread and one more for each queue and each stage in a worker.
    /// Returns when the run has ended.
    ///
    /// # Errors
    /// A part is behind a sink, there is no sink, or a stage cannot start. A failure during the run is in
    /// [`Report::error`].
    pub fn run(mut self, options: &Options) -> Result<Report, RunError> {
        self.prepare(options)?;
        Ok(self.run_prepared(options))
    }

    /// [`Pipeline::run`] after [`Pipeline::prepare`].
    pub(crate) fn run_prepared(self, options: &Options) -> Report {
        let Pipeline {
            mut source, segments, hops, dropped, workers, outcomes, expects_frames, requests, ..
        } = self;
        options.progress.store(0, Ordering::Relaxed);
        let threads: Vec<String> = segments.iter().map(|s| thread_name(s, &hops)).collect();
        log::info!("pipeline of {} hops in {} threads starts", hops.len(), threads.len());
        for (hop, info) in hops.iter().enumerate() {
            log::debug!("hop {hop}: {}", info.text);
        }
        let sinks: Vec<Option<u16>> = segments.iter().map(sink_of).collect();
        let request_threads: Vec<_> =
            segments.iter().map(|segment| request_thread(segment, options)).collect();
        let (level, rows, is_watched) = (options.level, options.rows, options.live.is_some());
        let settings = TapSettings { level, rows, is_watched };
        let tap = RowTap::begin(outcomes.remote.get(), settings, &hops, &threads);
        if let (Some(live), Some(tap)) = (&options.live, &tap) {
            live.begin(tap);
        }
        let delivery = |thread: &RequestThread| {
            let mut context = options.delivery(requests.clone(), thread.mailbox.clone());
            context.tap = tap.clone().map(|tap| tap as Arc<dyn RowSink>);
            context
        };
        let deliveries: Vec<_> = request_threads.iter().map(delivery).collect();
        requests.begin(request_threads, options.stop.clone());
        let (start_ns, start_cpu) = (now_ns(), process_cpu_ns());
        let ended =
            run_threads(source.as_mut(), segments.into_iter().zip(deliveries), &threads, &sinks, options);
        requests.end();
        // Dropped before the statistics are read, because the source's worker then adds its CPU time.
        drop(source);
        let demuxer = outcomes.demuxer.get().cloned();
        let hosted = workers.iter().map(|(_, stats)| stats).chain(&demuxer);
        let workers_cpu_ns = hosted.map(|stats| stats.cpu_ns.load(Ordering::Relaxed)).sum::<u64>();
        // A demuxer's worker lacks the same layers as its decoder's worker: one note is enough.
        let sandbox_notes = match (&demuxer, &workers[..]) {
            (Some(demuxer), []) => sandbox_notes(&[(0, demuxer.clone())], &hops),
            _ => sandbox_notes(&workers, &hops),
        };
        let notes = outcomes.notes.take().into_iter().chain(sandbox_notes).collect();
        let mut report = Report {
            frames: 0,
            sinks: sinks_of(&sinks, &ended),
            dropped: dropped.load(Ordering::Relaxed),
            flushed: requests.flushed(),
            missed: outcomes.missed.load(Ordering::Relaxed),
            congested: outcomes.congested.load(Ordering::Relaxed),
            network: NetworkReport::of(&outcomes.network),
            damage: outcomes.damage.damage(),
            is_sequence: outcomes.is_sequence.load(Ordering::Relaxed),
            copied_bytes: 0,
            wall_ns: now_ns() - start_ns,
            cpu_ns: process_cpu_ns() - start_cpu + workers_cpu_ns,
            workers: workers.iter().map(|(hop, stats)| WorkerReport::of(*hop, stats)).collect(),
            played: outcomes.played.get().map(|played| PlayReport::of(played)),
            level: options.level,
            hops,
            threads,
            rows: Vec::new(),
            spans: Vec::new(),
            helpers: Vec::new(),
            overwritten: 0,
            notes,
            remotes: Vec::new(),
            own: None,
            interrupted: signal::interrupted() || options.stop.is_requested(),
            error: None,
        };
        report.frames = report.sinks.iter().map(|sink| sink.frames).max().unwrap_or_default();
        options.progress.store(report.frames, Ordering::Relaxed);
        for (_, stats) in &workers {
            report.damage.add(stats.damage.damage());
        }
        if options.level == Level::Full {
            for (hop, stats) in
                workers.iter().map(|(hop, stats)| (*hop, stats)).chain(demuxer.iter().map(|s| (0, s)))
            {
                let [all, in_rows] =
                    [&stats.cpu_ns, &stats.reported_cpu_ns].map(|ns| ns.load(Ordering::Relaxed));
                report.hops[usize::from(hop)].cpu_without_frame_ns += all.saturating_sub(in_rows);
            }
        }
        for ended in ended {
            report.add(ended);
        }
        if expects_frames {
            report.fail_without_frames();
        }
        if let Some(tap) = tap {
            tap.add_remote(&mut report);
        }
        log::info!("pipeline ended: {} frames, {} dropped", report.frames, report.dropped);
        if let Some(error) = &report.error {
            log::error!("{error}");
        }
        report
    }

    /// Checks the parts, passes the ledger's level to the workers' stages, and starts the stages, each after
    /// the hops in front of it.
    ///
    /// # Errors
    /// As [`check`](Pipeline::check), or a stage cannot start.
    pub(crate) fn prepare(&mut self, options: &Options) -> Result<(), RunError> {
        self.check()?;
        let level = options.level;
        for segment in &self.segments {
            if let Some(SegmentInput::Worker(collect)) = &segment.input {
                collect.set_level(level);
            }
        }
        // Description of the stream behind each hop.
        let mut streams = vec![self.source.info(); self.hops.len()];
        for segment in &mut self.segments {
            let mut info = streams[usize::from(segment.behind)];
            for hop in &mut segment.chain {
                let index = usize::from(hop.index);
                info = hop
                    .stage
                    .start(&info)
                    .map_err(|error| RunError::Stage { hop: self.hops[index].text.clone(), error })?;
                streams[index] = info;
            }
        }
        Ok(())
    }
}

impl Report {
    /// Sets [`RunError::NoFrame`] if the run delivered no frame, has no other error, and was ended neither
    /// by a signal or stop request nor by the viewer of `play`.
    fn fail_without_frames(&mut self) {
        let by_viewer = self.played.is_some_and(|played| played.ended);
        let is_explained = self.interrupted || by_viewer || self.may_have_dropped_all();
        if self.frames == 0 && self.error.is_none() && !is_explained {
            self.error = Some(RunError::NoFrame {
                first: self.hops[0].text.clone(),
                losses: self.losses(),
                damage: Box::new(self.damage.clone()),
            });
        }
    }

    /// Adds one thread's result. The error of the run is that of the first failed thread in path order. A
    /// failure that only reports that a hop takes no more items does not count.
    fn add(&mut self, ended: Result<Ended, RunError>) {
        let error = match ended {
            Ok(ended) => {
                self.add_recorded(ended.recorded);
                for (hop, cpu_ns) in ended.cpu_without_frame {
                    self.hops[usize::from(hop)].cpu_without_frame_ns += cpu_ns;
                }
                match ended.failure {
                    None => return,
                    Some(failure) if failure.is_end() => return,
                    Some(HopFailure { hop, error }) => {
                        RunError::Stage { hop: self.hops[usize::from(hop)].text.clone(), error }
                    }
                }
            }
            Err(error) => error,
        };
        self.error.get_or_insert(error);
    }
}

/// Runs the first segment in this thread, and each other segment in a thread of its own. `sinks` has the index of
/// each segment's sink. Returns the results in the order of the segments when all threads have ended.
fn run_threads(
    source: &mut dyn Source,
    segments: impl Iterator<Item = (ThreadSegment, ThreadContext)>,
    threads: &[String],
    sinks: &[Option<u16>],
    options: &Options,
) -> Vec<Result<Ended, RunError>> {
    // So that a frame does not wait for other programs in each of its threads. Those that are started below have the same.
    let _priority = source.is_live().then(HighPriority::begin);
    let open_sinks = &AtomicUsize::new(sinks.iter().flatten().count());
    thread::scope(|scope| {
        let mut segments = segments.enumerate();
        let first = segments.next().map(|(_, first)| first);
        let handles: Vec<_> = segments
            .map(|(number, (segment, delivery))| {
                let name = threads[number].clone();
                let builder = thread::Builder::new().name(name);
                let has_sink = sinks[number].is_some();
                builder.spawn_scoped(scope, move || {
                    let ended = consume(segment, number, options, &delivery);
                    // A sink in the source's own thread never counts as ended here: each push reports its end.
                    if has_sink && open_sinks.fetch_sub(1, Ordering::AcqRel) == 1 {
                        delivery.requests.end_sinks(&options.stop);
                    }
                    ended
                })
            })
            .collect();
        let mut ended = vec![Ok(produce(source, first, options))];
        ended.extend(handles.into_iter().enumerate().map(|(n, handle)| {
            let problem = |detail: String| RunError::Thread { hop: threads[n + 1].clone(), detail };
            let handle = handle.map_err(|e| problem(format!("cannot start: {e}")))?;
            handle.join().map_err(|_| problem("ended in a panic, which is a bug".to_owned()))
        }));
        ended
    })
}

fn thread_name(segment: &ThreadSegment, hops: &[HopInfo]) -> String {
    hops[usize::from(segment.first)].text.split(' ').next().unwrap_or_default().to_owned()
}

/// Makes the entry for requests, with a new mailbox, of the thread that will run `segment`.
fn request_thread(segment: &ThreadSegment, options: &Options) -> RequestThread {
    let wake: Wake = match &segment.input {
        None => {
            let stop = options.stop.clone();
            Box::new(move || stop.wake())
        }
        Some(SegmentInput::Queue(_, receiver)) => {
            let waker = receiver.waker();
            Box::new(move || waker.wake())
        }
        Some(SegmentInput::Worker(collect)) => collect.waker(),
    };
    RequestThread { mailbox: Arc::new(Mailbox::new(wake)), before: segment.before, first: segment.first }
}

/// Runs the source and the hops of the first segment until the stream ends, a hop fails or takes no more
/// items, or a signal or a stop request ends the run. Then drains the hops, unless they were drained at the
/// end of a stream that is held open.
fn produce(
    source: &mut dyn Source,
    segment: Option<(ThreadSegment, ThreadContext)>,
    options: &Options,
) -> Ended {
    let Some((mut segment, delivery)) = segment else {
        return Ended::default();
    };
    let mut recorder = recorder(0, options, &delivery);
    let chain = &mut segment.chain;
    let delivery = &delivery;
    let mut failure = None;
    // True if the source has no more items; a seek resets it.
    let mut at_end = false;
    // True if the chain was drained at the end of a stream that is held open.
    let mut is_held = false;
    let _interruptible = (signal::interruptible(), options.stop.enter());
    while !signal::interrupted() && !delivery.requests.sinks_ended() {
        let step = if delivery.has_request() {
            let before = delivery.generation();
            let served = serve_requests(Some(&mut *source), 0, chain, &mut recorder, delivery);
            is_held &= delivery.generation() == before;
            served.map(|seeks| at_end &= !seeks)
        } else if !at_end {
            let produced = source.produce(&mut Out::new(0, chain, &mut recorder, delivery));
            produced.map(|goes_on| at_end = !goes_on)
        } else if !delivery.requests.holds_open() {
            if delivery.requests.end_source(delivery.mailbox.as_deref()) {
                break;
            }
            Ok(())
        } else if !is_held {
            failure = hold(chain, &mut recorder, delivery);
            if failure.is_some() {
                delivery.requests.end_source(None);
                return Ended::new(segment.chain, recorder, delivery, failure);
            }
            is_held = true;
            Ok(())
        } else {
            stop::sleep_unless(u64::MAX, || delivery.has_request() || delivery.requests.sinks_ended());
            Ok(())
        };
        if let Err(failed) = step {
            failure = unless_interrupted(failed);
            break;
        }
    }
    // Also after a failure, because a seek would discard the items passed on before the failure.
    delivery.requests.end_source(None);
    let failure = if is_held { failure } else { drain(chain, &mut recorder, delivery, failure) };
    Ended::new(segment.chain, recorder, delivery, failure)
}

/// Runs the hops of `segment`, which are behind a queue or a worker, in thread number `number`.
fn consume(segment: ThreadSegment, number: usize, options: &Options, delivery: &ThreadContext) -> Ended {
    // Made first and so dropped last, because other values may write when they are dropped.
    let _interruptible = (signal::interruptible(), options.stop.enter());
    let ThreadSegment { input, mut chain, .. } = segment;
    let mut recorder = recorder(number, options, delivery);
    let failure = match input {
        None => return Ended::new(chain, recorder, delivery, None),
        Some(SegmentInput::Queue(link, receiver)) => {
            from_queue(link, receiver, number, &mut chain, &mut recorder, delivery)
        }
        Some(SegmentInput::Worker(collect)) => {
            from_worker(collect, number, &mut chain, &mut recorder, delivery)
        }
    };
    // The drop of the input has informed the thread before. The drop of the chain closes its queue and so
    // informs the thread behind.
    Ended::new(chain, recorder, delivery, failure)
}

fn from_queue(
    link: u16,
    mut receiver: Receiver<Queued>,
    thread: usize,
    chain: &mut [HopStage],
    recorder: &mut Recorder,
    delivery: &ThreadContext,
) -> Option<HopFailure> {
    receiver.set_timed(recorder.level() != Level::Off);
    let mut is_held = false;
    // True once the grace period after a signal or stop request is over. The frames in the queue then return
    // to their pools, so that a thread that waits for a slot can end, too.
    let mut is_overdue = false;
    let failure = loop {
        if is_overdue {
            break None;
        }
        let done = match receiver.recv_unless(|| delivery.has_request()) {
            Received::News => serve_requests(None, thread, chain, recorder, delivery).map(|_| ()),
            Received::Closed => break None,
            Received::Value(queued) => {
                let served = match delivery.has_request() {
                    true => serve_requests(None, thread, chain, recorder, delivery).map(|_| ()),
                    false => Ok(()),
                };
                let taken = served.and_then(|()| match queued {
                    Queued::Item { item, enqueued_ns, generation } => {
                        is_held = false;
                        let meta = item.meta();
                        if delivery.requests.is_stale(generation) {
                            recorder.dropped(link, &meta, enqueued_ns);
                            delivery.requests.count_flushed(1);
                            return Ok(());
                        }
                        catch_up(generation, link, chain, recorder, delivery)?;
                        recorder.dequeued(link, &meta, enqueued_ns, receiver.idle());
                        Out::new(link, chain, recorder, delivery).forward(item)
                    }
                    Queued::Flush(generation) => catch_up(generation, link, chain, recorder, delivery),
                    Queued::End => {
                        is_held = true;
                        hold(chain, recorder, delivery).map_or(Ok(()), Err)
                    }
                });
                is_overdue = signal::overdue();
                taken
            }
        };
        if let Err(failed) = done {
            break unless_interrupted(failed);
        }
    };
    if is_held { failure } else { drain(chain, recorder, delivery, failure) }
}

fn from_worker(
    mut collect: Box<CollectInput>,
    thread: usize,
    chain: &mut [HopStage],
    recorder: &mut Recorder,
    delivery: &ThreadContext,
) -> Option<HopFailure> {
    let hop = collect.hop;
    let mut is_held = false;
    let failure = loop {
        let done = match collect.next(recorder, || delivery.has_request()) {
            Ok(WorkerOutput::Request) => serve_requests(None, thread, chain, recorder, delivery).map(|_| ()),
            Ok(WorkerOutput::End) => break None,
            Ok(WorkerOutput::Item(_)) if delivery.requests.is_stale(delivery.generation()) => {
                delivery.requests.count_flushed(1);
                Ok(())
            }
            Ok(WorkerOutput::Item(item)) => {
                let forwarded = Out::new(hop, chain, recorder, delivery).forward(item);
                if forwarded.is_ok() && signal::overdue() {
                    break None;
                }
                forwarded
            }
            Ok(WorkerOutput::Flush(generation, discarded)) => {
                is_held = false;
                delivery.requests.count_flushed(discarded);
                catch_up(generation, hop, chain, recorder, delivery)
            }
            Ok(WorkerOutput::Held) => {
                is_held = true;
                hold(chain, recorder, delivery).map_or(Ok(()), Err)
            }
            Err(error) => Err(HopFailure { hop, error }),
        };
        if let Err(failed) = done {
            break unless_interrupted(failed);
        }
    };
    if is_held { failure } else { drain(chain, recorder, delivery, failure) }
}

/// Handles the requests in the mailbox of `thread`: offers each to the thread's hops in front of its sender,
/// last hop first, until a hop answers it. Passes a request that no hop has answered to the `source` (in the
/// first thread) or to the thread before. A seek or flush goes to the source whatever the hops answer, and the
/// first thread then also flushes its hops. Returns `true` if the source has performed a seek. Fails if the
/// source cannot perform the request, or a hop fails to flush.
fn serve_requests(
    mut source: Option<&mut dyn Source>,
    thread: usize,
    chain: &mut [HopStage],
    recorder: &mut Recorder,
    delivery: &ThreadContext,
) -> Result<bool, HopFailure> {
    let mut seeks = false;
    while let Some(pending) = delivery.take_request() {
        let Pending { request, number, origin } = pending;
        // A request from outside arrives through every branch, but each hop gets it only once.
        let mut asked = chain
            .iter_mut()
            .rev()
            .filter(|hop| hop.index < origin && hop.asked != number && !delivery.has_ended(hop.index));
        let answered = asked.any(|hop| {
            hop.asked = number;
            let answered = hop.stage.request(&request) == Answered::Done;
            // A seek or flush always reaches the source: otherwise all later items would be stale.
            answered && !request.flushes()
        });
        match &mut source {
            _ if answered => {}
            None => delivery.requests.pass_on(thread, pending),
            Some(_) if delivery.source_asked.replace(number) == number => {}
            Some(source) => {
                let answered = source.request(&request).map_err(|error| HopFailure { hop: 0, error })?;
                seeks |= matches!(request, Request::Seek { .. }) && answered == Answered::Done;
                if request.flushes() {
                    catch_up(number, 0, chain, recorder, delivery)?;
                }
            }
        }
    }
    Ok(seeks)
}

/// Flushes the hops of this thread, which are behind hop `behind`, and records `generation`, if `generation`
/// is newer than the one that this thread recorded last.
fn catch_up(
    generation: u64,
    behind: u16,
    chain: &mut [HopStage],
    recorder: &mut Recorder,
    delivery: &ThreadContext,
) -> Result<(), HopFailure> {
    if generation <= delivery.generation() {
        return Ok(());
    }
    delivery.set_generation(generation);
    flush(behind + 1, chain, recorder, delivery)
}

/// Discards the items inside the hops of `chain`, whose indices are at least `first`. Stops in front of the
/// first hop that has ended, and at the first hop that fails to flush; returns this failure.
pub(crate) fn flush(
    first: u16,
    chain: &mut [HopStage],
    recorder: &mut Recorder,
    delivery: &ThreadContext,
) -> Result<(), HopFailure> {
    recorder.flush();
    for at in 0..chain.len() {
        let (done, rest) = chain.split_at_mut(at + 1);
        let hop = &mut done[at];
        debug_assert!(hop.index >= first, "hops of one thread follow its input");
        if delivery.has_ended(hop.index) {
            break;
        }
        hop.stage.flush(&mut Out::new(hop.index, rest, recorder, delivery))?;
    }
    Ok(())
}

/// Drains the chain at the end of a stream that is held open for a seek. Returns the first failure of a drain,
/// unless a signal or stop request came before it; `None` without a failure.
fn hold(chain: &mut [HopStage], recorder: &mut Recorder, delivery: &ThreadContext) -> Option<HopFailure> {
    delivery.set_holds(true);
    let failure = drain(chain, recorder, delivery, None);
    delivery.set_holds(false);
    failure
}

/// Returns the failure, or `None` after a signal or stop request. These cause failures that are no errors:
/// waits end early, and the same Ctrl-C ends the program at the other end of a pipe.
fn unless_interrupted(failure: HopFailure) -> Option<HopFailure> {
    (!signal::interrupted()).then_some(failure)
}

/// Drains all stages behind the hop of `failure`, or all stages if there is no failure, so that items passed
/// on before the failure are still delivered. If a drain fails, goes on behind the hop of this failure.
/// Returns `failure`, else the first failure of a drain, unless a signal or stop request came before it.
pub(crate) fn drain(
    chain: &mut [HopStage],
    recorder: &mut Recorder,
    delivery: &ThreadContext,
    mut failure: Option<HopFailure>,
) -> Option<HopFailure> {
    let mut dead = failure.as_ref().map(|f| f.hop);
    delivery.note(failure.as_ref());
    for at in 0..chain.len() {
        let (done, rest) = chain.split_at_mut(at + 1);
        let hop = &mut done[at];
        if dead.is_some_and(|dead| hop.index <= dead) {
            continue;
        }
        if let Err(failed) = hop.stage.drain(&mut Out::new(hop.index, rest, recorder, delivery)) {
            dead = Some(failed.hop);
            // After a failure the run does not go on.
            delivery.set_holds(false);
            failure = failure.or_else(|| unless_interrupted(failed));
            delivery.note(failure.as_ref());
        }
    }
    failure
}

fn recorder(number: usize, options: &Options, delivery: &ThreadContext) -> Recorder {
    if let Some(cpu) = options.cpus.get(number) {
        // An error is ignored: the machine may have fewer CPUs than the caller assumed, and the run works
        // without pinning.
        let _ = affinity::pin_to(*cpu);
    }
    let mut recorder = Recorder::new(options.level, number as u16, options.rows);
    recorder.set_tap(delivery.tap.clone());
    recorder
}
