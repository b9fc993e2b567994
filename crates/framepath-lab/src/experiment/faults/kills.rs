// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases `kill-paced` and `kill-flat-out` of `faults`: kills workers at random moments while one stream
//! for each clip runs.

use std::time::{Duration, Instant};

use framepath_os::process::signal;

use super::random::Random;
use super::stream::{FaultClip, FinishedStream, Running, Timed};
use crate::error::LabError;
use crate::progress::ProgressView;

/// Interval between two polls of the streams.
const LOOK: Duration = Duration::from_micros(500);
/// Upper limit of the random delay between the frame at which a kill is due and the kill,
/// nanoseconds. The delay makes kills hit every phase of a worker's work.
const AFTER_NS: u64 = 8_000_000;
/// Time without a frame from any stream after which the case fails, because the streams hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// One kill: index of the stream, number of the killed worker among the stream's workers, from 0,
/// and time (CLOCK_MONOTONIC, nanoseconds).
#[derive(Clone, Copy, Debug)]
pub(super) struct Kill {
    pub(super) stream: usize,
    pub(super) worker: u64,
    pub(super) at_ns: u64,
}

/// Result of a run: the kills, and the finished streams, one for each clip.
pub(super) struct KillRun {
    pub(super) kills: Vec<Kill>,
    pub(super) streams: Vec<FinishedStream>,
}

/// Runs one stream of `passes` passes for each clip, all streams at the same time, and kills
/// workers `kills` times. A kill is due when a random number of frames has reached the stream's sink, and
/// follows after a random delay below 8 ms. The kills are divided evenly among the streams, and become due in
/// the first 90 % of a stream's frames, because the worker may have ended before the last frames. `rate` is
/// packets per second; 0 is full speed. A due kill that finds no worker, or only a worker that was killed
/// before, is tried again; kills still due at the end of all streams do not happen.
///
/// # Errors
/// A stream fails or hangs, or SIGINT or SIGTERM interrupted the run.
pub(super) fn run(
    clips: &[FaultClip],
    passes: u64,
    rate: u32,
    kills: u64,
    random: &mut Random,
    watch: &dyn ProgressView,
) -> Result<KillRun, LabError> {
    let mut due: Vec<Vec<u64>> = clips.iter().map(|_| Vec::new()).collect();
    for kill in 0..kills as usize {
        let stream = kill % clips.len();
        // Excludes the last frames, because the stream's worker may have ended already.
        let most = (passes * clips[stream].expected.frames() * 9 / 10).max(1);
        due[stream].push(random.below(most));
    }
    // Sorted so that the next kill is the last element.
    due.iter_mut().for_each(|frames| frames.sort_unstable_by_key(|frame| std::cmp::Reverse(*frame)));
    let running: Vec<Running> =
        clips.iter().map(|clip| clip.start(passes, rate, "")).collect::<Result<_, _>>()?;
    let kills = kill_when_due(&running, &mut due, random, watch)?;
    let streams = running.into_iter().map(Running::wait).collect::<Result<Vec<_>, _>>()?;
    if signal::interrupted() {
        return Err(LabError::Interrupted);
    }
    Ok(KillRun { kills, streams })
}

fn kill_when_due(
    running: &[Running],
    due: &mut [Vec<u64>],
    random: &mut Random,
    watch: &dyn ProgressView,
) -> Result<Vec<Kill>, LabError> {
    let mut kills: Vec<Kill> = Vec::new();
    let mut last = (0, Instant::now());
    while running.iter().any(|stream| !stream.has_ended()) && !signal::interrupted() {
        std::thread::sleep(LOOK);
        let delivered = running.iter().map(Running::frames).sum::<u64>();
        if delivered != last.0 {
            last = (delivered, Instant::now());
        } else if last.1.elapsed() > PATIENCE {
            let patience = PATIENCE.as_secs();
            return Err(LabError::Unknown(format!(
                "no frame of any stream for {patience} s: the streams hang"
            )));
        }
        for (stream, (one, due)) in running.iter().zip(due.iter_mut()).enumerate() {
            if due.last().is_none_or(|frame| *frame > one.frames()) {
                continue;
            }
            std::thread::sleep(Duration::from_nanos(random.below(AFTER_NS)));
            let killed = one.stats.as_ref().and_then(|stats| stats.recoveries.kill_present());
            let Some((worker, at_ns)) = killed else { continue };
            // Does not count the kill of a worker that was killed before: the caller has not yet
            // noticed that worker's death. The due kill is tried again at the next poll.
            if !kills.iter().rev().any(|kill| kill.stream == stream && kill.worker == worker) {
                due.pop();
                kills.push(Kill { stream, worker, at_ns });
                watch.step(&format!("kill {}", kills.len()));
            }
        }
    }
    Ok(kills)
}

/// Durations of the recoveries from kills, milliseconds, each list in rising order; kills without a
/// recorded recovery are omitted.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Time from the kill until the next worker's first frame, without the time that the worker
    /// spent on decoding that frame.
    ///
    /// This time covers the detection of the death, the start of the next worker, the opening
    /// of the stream, the submission of the history and the transfer of the first frame. The
    /// rest of `gap` is the decoding of the history, at full speed.
    pub(super) recovery: Vec<f64>,
    /// Time from the kill until the first frame that was not delivered before.
    pub(super) gap: Vec<f64>,
}

impl KillRun {
    pub(super) fn times(&self) -> Times {
        let mut times = Times::default();
        for kill in &self.kills {
            let recoveries = &self.streams[kill.stream].recoveries;
            let Some(found) = recoveries.iter().find(|recovery| recovery.worker == kill.worker) else {
                continue;
            };
            let ms = |until: u64| until.saturating_sub(kill.at_ns) as f64 / 1e6;
            times.recovery.push((ms(found.first_ns) - found.first_work_ns as f64 / 1e6).max(0.0));
            times.gap.push(ms(found.new_ns));
        }
        times.recovery.sort_by(f64::total_cmp);
        times.gap.sort_by(f64::total_cmp);
        times
    }

    /// Returns the latencies in nanoseconds, in rising order, of all frames that were inside the path
    /// while another stream was recovering and the frame's own stream was not. A stream is recovering from a
    /// kill until its first frame that was not delivered before; if no recovery is recorded, only at the
    /// moment of the kill.
    pub(super) fn latencies_of_others(&self) -> Vec<u64> {
        let recovering: Vec<(usize, u64, u64)> = self
            .kills
            .iter()
            .map(|kill| {
                let recoveries = &self.streams[kill.stream].recoveries;
                let found = recoveries.iter().find(|recovery| recovery.worker == kill.worker);
                (kill.stream, kill.at_ns, found.map_or(kill.at_ns, |recovery| recovery.new_ns))
            })
            .collect();
        let mut latencies = Vec::new();
        for (stream, ended) in self.streams.iter().enumerate() {
            for Timed { birth_ns, latency_ns } in &ended.timed {
                let alive = *birth_ns..=birth_ns + latency_ns;
                let meets = |(_, from, to): &&(usize, u64, u64)| from <= alive.end() && alive.start() <= to;
                let met: Vec<_> = recovering.iter().filter(meets).collect();
                if !met.is_empty() && met.iter().all(|(other, ..)| *other != stream) {
                    latencies.push(*latency_ns);
                }
            }
        }
        latencies.sort_unstable();
        latencies
    }

    /// Returns the latencies of all frames of all streams in nanoseconds, in rising order.
    pub(super) fn latencies(&self) -> Vec<u64> {
        let timed = self.streams.iter().flat_map(|ended| &ended.timed);
        let mut latencies: Vec<u64> = timed.map(|timed| timed.latency_ns).collect();
        latencies.sort_unstable();
        latencies
    }
}
