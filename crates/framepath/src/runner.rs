// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a built path: one thread per segment, the source in the caller's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread;

use framepath_model::ledger::Row;
use framepath_model::path::Path;
use framepath_os::clock::{now_ns, process_cpu_ns};
use framepath_os::meter::Level;
use framepath_os::queue::Receiver;
use framepath_os::{affinity, signal};

use crate::build::{Built, Input, Segment};
use crate::error::{RunError, StageError};
use crate::host::{Collect, WorkerStats};
use crate::link::Queued;
use crate::out::{Failure, Hop, Out};
use crate::recorder::Recorder;
use crate::report::{HopInfo, PlayReport, Report, WorkerReport};
use crate::source::Source;

/// Frames that reached the sink so far; any thread may look while it runs.
pub type Progress = Arc<AtomicU64>;

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much the ledger records.
    pub level: Level,
    /// Ledger rows kept per thread; the oldest are overwritten beyond.
    pub rows: usize,
    /// CPU for each thread in path order; threads beyond are not tied.
    pub cpus: Vec<usize>,
    /// Counts delivered frames while the run goes on.
    pub progress: Progress,
}

impl Default for Options {
    /// Ledger at `full`, 65,536 rows (9 MB) a thread.
    fn default() -> Options {
        Options { level: Level::Full, rows: 1 << 16, cpus: Vec::new(), progress: Progress::default() }
    }
}

/// Builds and runs `path`. One that ends and has delivered nothing has failed
/// ([`RunError::NoFrame`]); [`Report::losses`] says what it lost.
///
/// A signal ends it early where the program has called
/// [`framepath_os::signal::install`]; the library installs no handler.
///
/// # Errors
/// Where the path could not be built. A failure while it ran is in
/// [`Report::error`], beside what was done until then.
pub fn run(path: &Path, options: &Options) -> Result<Report, RunError> {
    Built::from_path(path)?.run(options)
}

/// What a thread brings home.
struct Ended {
    rows: Vec<Row>,
    overwritten: u64,
    copied_bytes: u64,
    failure: Option<Failure>,
}

/// A line for each hop whose workers lack layers of the sandbox.
fn sandbox_notes(workers: &[(u16, Arc<WorkerStats>)], hops: &[HopInfo]) -> Vec<String> {
    let note = |(hop, stats): &(u16, Arc<WorkerStats>)| {
        let note = stats.sandbox_note.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (!note.is_empty()).then(|| format!("{}: {note}", hops[usize::from(*hop)].text))
    };
    workers.iter().filter_map(note).collect()
}

impl Built {
    /// Runs the path in this thread and one more for each queue.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(mut self, options: &Options) -> Result<Report, RunError> {
        self.start(options.level)?;
        let Built {
            mut source,
            segments,
            hops,
            dropped,
            missed,
            workers,
            demuxer,
            notes,
            expects_frames,
            played,
            ..
        } = self;
        options.progress.store(0, Ordering::Relaxed);
        let threads: Vec<String> = segments.iter().map(|s| thread_name(s, &hops)).collect();
        let (start_ns, start_cpu) = (now_ns(), process_cpu_ns());
        let ended = thread::scope(|scope| {
            let mut segments = segments.into_iter().enumerate();
            let first = segments.next().map(|(_, segment)| segment);
            let handles: Vec<_> = segments
                .map(|(number, segment)| {
                    let name = threads[number].clone();
                    let builder = thread::Builder::new().name(name);
                    builder.spawn_scoped(scope, move || consume(segment, number, options))
                })
                .collect();
            let mut ended = vec![Ok(produce(source.as_mut(), first, options))];
            ended.extend(handles.into_iter().enumerate().map(|(n, handle)| {
                let problem = |detail: String| RunError::Thread { hop: threads[n + 1].clone(), detail };
                let handle = handle.map_err(|e| problem(format!("cannot start: {e}")))?;
                handle.join().map_err(|_| problem("ended in a panic, which is a bug".to_owned()))
            }));
            ended
        });
        // Its worker, where it has one, has counted its time then.
        drop(source);
        let hosted = workers.iter().map(|(_, stats)| stats).chain(&demuxer);
        let workers_cpu_ns = hosted.map(|stats| stats.cpu_ns.load(Ordering::Relaxed)).sum::<u64>();
        // A demuxer's worker lacks what its decoder's does.
        let confined = match (&demuxer, &workers[..]) {
            (Some(demuxer), []) => sandbox_notes(&[(0, demuxer.clone())], &hops),
            _ => sandbox_notes(&workers, &hops),
        };
        let notes = notes.take().into_iter().chain(confined).collect();
        let mut report = Report {
            frames: options.progress.load(Ordering::Relaxed),
            dropped: dropped.load(Ordering::Relaxed),
            missed: missed.load(Ordering::Relaxed),
            copied_bytes: 0,
            wall_ns: now_ns() - start_ns,
            cpu_ns: process_cpu_ns() - start_cpu + workers_cpu_ns,
            workers: workers.iter().map(|(hop, stats)| WorkerReport::of(*hop, stats)).collect(),
            played: played.as_deref().map(PlayReport::of),
            level: options.level,
            hops,
            threads,
            rows: Vec::new(),
            overwritten: 0,
            notes,
            interrupted: signal::interrupted(),
            error: None,
        };
        for ended in ended {
            report.add(ended);
        }
        if expects_frames {
            report.fail_without_frames();
        }
        Ok(report)
    }

    fn start(&mut self, level: Level) -> Result<(), RunError> {
        for segment in &self.segments {
            if let Some(Input::Worker(collect)) = &segment.input {
                collect.set_level(level);
            }
        }
        let mut info = self.source.info();
        for hop in self.segments.iter_mut().flat_map(|s| &mut s.chain) {
            info = hop.stage.start(&info).map_err(|error| RunError::Stage {
                hop: self.hops[usize::from(hop.index)].text.clone(),
                error,
            })?;
        }
        Ok(())
    }
}

impl Report {
    /// A run that ended by itself and delivered nothing has failed.
    fn fail_without_frames(&mut self) {
        let by_viewer = self.played.is_some_and(|played| played.ended);
        if self.frames == 0 && self.error.is_none() && !self.interrupted && !by_viewer {
            let first = self.hops[0].text.clone();
            self.error = Some(RunError::NoFrame { first, losses: self.losses() });
        }
    }

    /// Takes in one thread's end; the first real failure in path order is the
    /// run's. (That a neighbour has ended is only its echo.)
    fn add(&mut self, ended: Result<Ended, RunError>) {
        let error = match ended {
            Ok(mut ended) => {
                self.rows.append(&mut ended.rows);
                self.overwritten += ended.overwritten;
                self.copied_bytes += ended.copied_bytes;
                match ended.failure {
                    None | Some(Failure { error: StageError::Downstream, .. }) => return,
                    Some(Failure { hop, error }) => {
                        RunError::Stage { hop: self.hops[usize::from(hop)].text.clone(), error }
                    }
                }
            }
            Err(error) => error,
        };
        self.error.get_or_insert(error);
    }
}

fn thread_name(segment: &Segment, hops: &[HopInfo]) -> String {
    hops[usize::from(segment.first)].text.split(' ').next().unwrap_or_default().to_owned()
}

/// Runs the source and the chain up to the first queue.
fn produce(source: &mut dyn Source, segment: Option<Segment>, options: &Options) -> Ended {
    let Some(mut segment) = segment else {
        return Ended { rows: Vec::new(), overwritten: 0, copied_bytes: 0, failure: None };
    };
    let mut recorder = recorder(0, options);
    let chain = &mut segment.chain;
    let delivered = &options.progress;
    let mut failure = None;
    let _interruptible = signal::interruptible();
    while !signal::interrupted() {
        match source.give(&mut Out::new(0, chain, &mut recorder, delivered)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(failed) => {
                failure = unless_interrupted(failed);
                break;
            }
        }
    }
    let failure = drain(chain, &mut recorder, delivered, failure);
    end(recorder, failure)
}

/// Runs the chain behind a queue.
fn consume(segment: Segment, number: usize, options: &Options) -> Ended {
    // Before the rest, and so dropped after it: what is dropped may still write.
    let _interruptible = signal::interruptible();
    let Segment { input, mut chain, .. } = segment;
    let mut recorder = recorder(number, options);
    let delivered = &options.progress;
    let failure = match input {
        None => return end(recorder, None),
        Some(Input::Queue(link, receiver)) => {
            from_queue(link, receiver, &mut chain, &mut recorder, delivered)
        }
        Some(Input::Worker(collect)) => from_worker(collect, &mut chain, &mut recorder, delivered),
    };
    // Dropping the input tells the thread before; dropping the chain, with its
    // queue's end, tells the one behind.
    end(recorder, failure)
}

fn from_queue(
    link: u16,
    mut receiver: Receiver<Queued>,
    chain: &mut [Hop],
    recorder: &mut Recorder,
    delivered: &AtomicU64,
) -> Option<Failure> {
    receiver.set_timed(recorder.level() != Level::Off);
    let mut failure = None;
    while let Some(queued) = receiver.recv() {
        recorder.dequeued(link, &queued.item.meta(), queued.enqueued_ns, receiver.idle());
        if let Err(failed) = Out::new(link, chain, recorder, delivered).forward(queued.item) {
            failure = unless_interrupted(failed);
            break;
        }
        // What is still inside goes back to its pools, and who waits for one of
        // these frames goes on.
        if signal::overdue() {
            break;
        }
    }
    drain(chain, recorder, delivered, failure)
}

fn from_worker(
    mut collect: Box<Collect>,
    chain: &mut [Hop],
    recorder: &mut Recorder,
    delivered: &AtomicU64,
) -> Option<Failure> {
    let hop = collect.hop;
    loop {
        let failure = match collect.next(recorder) {
            Ok(Some(item)) => match Out::new(hop, chain, recorder, delivered).forward(item) {
                Ok(()) if signal::overdue() => None,
                Ok(()) => continue,
                Err(failed) => unless_interrupted(failed),
            },
            Ok(None) => None,
            Err(error) => unless_interrupted(Failure { hop, error }),
        };
        return drain(chain, recorder, delivered, failure);
    }
}

/// The failure, unless it comes after a signal that ends the run: a wait that was
/// given up is no failure, nor is that the program in front of a pipe, which the
/// same Ctrl-C has ended, left its file unfinished.
fn unless_interrupted(failure: Failure) -> Option<Failure> {
    (!signal::interrupted()).then_some(failure)
}

/// Ends the stream for all stages behind `failure`, for every stage where there
/// is none: what was handed on before a failure is still delivered. The first
/// failure counts.
pub(crate) fn drain(
    chain: &mut [Hop],
    recorder: &mut Recorder,
    delivered: &AtomicU64,
    mut failure: Option<Failure>,
) -> Option<Failure> {
    let mut dead = failure.as_ref().map(|f| f.hop);
    for at in 0..chain.len() {
        let (done, rest) = chain.split_at_mut(at + 1);
        let hop = &mut done[at];
        if dead.is_some_and(|dead| hop.index <= dead) {
            continue;
        }
        if let Err(failed) = hop.stage.drain(&mut Out::new(hop.index, rest, recorder, delivered)) {
            dead = Some(failed.hop);
            failure = failure.or_else(|| unless_interrupted(failed));
        }
    }
    failure
}

fn recorder(number: usize, options: &Options) -> Recorder {
    if let Some(cpu) = options.cpus.get(number) {
        // A machine may have fewer CPUs than the caller thought; the run is
        // still right, only not tied.
        let _ = affinity::pin_to(*cpu);
    }
    Recorder::new(options.level, number as u16, options.rows)
}

fn end(recorder: Recorder, failure: Option<Failure>) -> Ended {
    let (rows, overwritten, copied_bytes) = recorder.finish();
    Ended { rows, overwritten, copied_bytes, failure }
}
