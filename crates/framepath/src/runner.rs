// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a built path: one thread per segment, the source in the caller's.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;

use framepath_model::ledger::Row;
use framepath_model::path::Path;
use framepath_os::clock::{now_ns, process_cpu_ns};
use framepath_os::meter::Level;
use framepath_os::queue::Receiver;
use framepath_os::{affinity, signal};

use crate::error::RunError;
use crate::host::{Collect, WorkerStats};
use crate::link::Queued;
use crate::options::Options;
use crate::out::{Delivery, Failure, Hop, Out};
use crate::pipeline::{Pipeline, Segment, SegmentInput};
use crate::recorder::Recorder;
use crate::report::{HopInfo, PlayReport, Report, WorkerReport};
use crate::source::Source;

/// Builds and runs `path`. One that ends and has delivered nothing has failed
/// ([`RunError::NoFrame`]); [`Report::losses`] says what it lost.
///
/// [`Options::stop`] ends it early. So does a signal where the program has called
/// [`install_signal_handlers`](crate::install_signal_handlers); the library does not
/// do that by itself.
///
/// # Errors
/// Where the path could not be built. A failure while it ran is in
/// [`Report::error`], beside what was done until then.
pub fn run(path: &Path, options: &Options) -> Result<Report, RunError> {
    Pipeline::from_path(path)?.run(options)
}

/// Result of one thread.
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

impl Pipeline {
    /// Runs the path in this thread and one more for each queue.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(mut self, options: &Options) -> Result<Report, RunError> {
        self.prepare(options)?;
        Ok(self.run_prepared(options))
    }

    /// [`Pipeline::run`] behind [`Pipeline::prepare`].
    pub(crate) fn run_prepared(self, options: &Options) -> Report {
        let Pipeline {
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
            interrupted: signal::interrupted() || options.stop.is_requested(),
            error: None,
        };
        for ended in ended {
            report.add(ended);
        }
        if expects_frames {
            report.fail_without_frames();
        }
        report
    }

    /// Checks the parts and starts the stages, in the order of the path.
    pub(crate) fn prepare(&mut self, options: &Options) -> Result<(), RunError> {
        self.check()?;
        let level = options.level;
        for segment in &self.segments {
            if let Some(SegmentInput::Worker(collect)) = &segment.input {
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
                    None => return,
                    Some(failure) if failure.is_end() => return,
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
    let delivery = &options.delivery();
    let mut failure = None;
    let _interruptible = (signal::interruptible(), options.stop.enter());
    while !signal::interrupted() {
        match source.produce(&mut Out::new(0, chain, &mut recorder, delivery)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(failed) => {
                failure = unless_interrupted(failed);
                break;
            }
        }
    }
    let failure = drain(chain, &mut recorder, delivery, failure);
    end(recorder, failure)
}

/// Runs the chain behind a queue.
fn consume(segment: Segment, number: usize, options: &Options) -> Ended {
    // Before the rest, and so dropped after it: what is dropped may still write.
    let _interruptible = (signal::interruptible(), options.stop.enter());
    let Segment { input, mut chain, .. } = segment;
    let mut recorder = recorder(number, options);
    let delivery = &options.delivery();
    let failure = match input {
        None => return end(recorder, None),
        Some(SegmentInput::Queue(link, receiver)) => {
            from_queue(link, receiver, &mut chain, &mut recorder, delivery)
        }
        Some(SegmentInput::Worker(collect)) => from_worker(collect, &mut chain, &mut recorder, delivery),
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
    delivery: &Delivery,
) -> Option<Failure> {
    receiver.set_timed(recorder.level() != Level::Off);
    let mut failure = None;
    while let Some(queued) = receiver.recv() {
        recorder.dequeued(link, &queued.item.meta(), queued.enqueued_ns, receiver.idle());
        if let Err(failed) = Out::new(link, chain, recorder, delivery).forward(queued.item) {
            failure = unless_interrupted(failed);
            break;
        }
        // What is still inside goes back to its pools, and who waits for one of
        // these frames goes on.
        if signal::overdue() {
            break;
        }
    }
    drain(chain, recorder, delivery, failure)
}

fn from_worker(
    mut collect: Box<Collect>,
    chain: &mut [Hop],
    recorder: &mut Recorder,
    delivery: &Delivery,
) -> Option<Failure> {
    let hop = collect.hop;
    loop {
        let failure = match collect.next(recorder) {
            Ok(Some(item)) => match Out::new(hop, chain, recorder, delivery).forward(item) {
                Ok(()) if signal::overdue() => None,
                Ok(()) => continue,
                Err(failed) => unless_interrupted(failed),
            },
            Ok(None) => None,
            Err(error) => unless_interrupted(Failure { hop, error }),
        };
        return drain(chain, recorder, delivery, failure);
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
    delivery: &Delivery,
    mut failure: Option<Failure>,
) -> Option<Failure> {
    let mut dead = failure.as_ref().map(|f| f.hop);
    for at in 0..chain.len() {
        let (done, rest) = chain.split_at_mut(at + 1);
        let hop = &mut done[at];
        if dead.is_some_and(|dead| hop.index <= dead) {
            continue;
        }
        if let Err(failed) = hop.stage.drain(&mut Out::new(hop.index, rest, recorder, delivery)) {
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
