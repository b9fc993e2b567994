// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits between a caller and its workers: how long a caller waits, how often a stream restarts, and
//! the rules that use these limits.
//!
//! | the caller limits | limit | beyond the limit |
//! | --- | --- | --- |
//! | the wait for a worker to load and enter its sandbox | [`LOADING`] | the start fails; a spare worker is dropped instead |
//! | the wait for the service to grant a worker | [`GRANTING`] | the start fails |
//! | the wait for each message of a stage's worker that opens a stream | [`OPENING`] | the start fails |
//! | the time without progress of a stage's worker that has work and does not wait for the caller | `watchdog=` ([`Watchdog`]) | the worker is killed and replaced |
//! | the CPU time of a demuxer's worker without a packet | `watchdog=` ([`DemuxerWait`]) | the stream fails |
//! | the CPU time of a demuxer's worker to open the input or to seek | [`SILENCE`] times `watchdog=` | the stream fails |
//! | the time without a packet or answer of a demuxer's worker whose file has bytes to read | [`SILENCE`] times `watchdog=` | the stream fails |
//! | the wait for a packet from the network | `timeout=` and half a second; six seconds more to open the stream or to flush | the connection is lost |
//! | the tries to replace a worker after a death | 1 and [`OPENING_TRIES`] more ([`Restarts`]) | the stream fails |
//! | the requests of a stage in a worker, and separately its reports of packets not decoded | [`REQUESTS_PER_CELL`] for each submission, [`MOST_REQUESTS`] at once ([`RequestBudget`]) | the worker is killed and replaced |
//! | the deaths in a row without a new frame or flush | fewer than [`FRUITLESS`] ([`Restarts`]) | the stream fails |
//!
//! A failed start of a replacement counts as one try. Where the rows about a demuxer's worker say that the
//! stream fails, a network source only loses the connection, and connects again as `reconnect=` says.
//!
//! [`framepath_model::replay`] knows the decoded packets. It decides which packet is skipped as poisoned,
//! and it limits the deaths in a row before a worker took a packet.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use framepath_os::crossing::{Breach, WatchResult};
use framepath_os::time::now_ns;

use super::HostError;
use super::demuxed_input::DemuxedInput;
use super::process::SharedProcess;

/// Time limit for a worker to load and enter its sandbox.
pub const LOADING: Duration = Duration::from_secs(20);
/// Time limit for the service to grant a worker. Longer than [`LOADING`], because the service may have to
/// load a new worker.
pub(super) const GRANTING: Duration = LOADING.saturating_add(Duration::from_secs(10));
/// Time limit for a worker's next message while the worker opens a stream.
pub(super) const OPENING: Duration = Duration::from_secs(20);
/// Maximum number of further tries to replace a worker after the first replacement could not be started or
/// could not open the stream. No further try follows a final error ([`HostError::is_final`]).
const OPENING_TRIES: u32 = 3;
/// Number of deaths in a row, without a new frame or flush, at which the stream fails. A packet is given up
/// as poisoned only after two deaths or more, so at most fifteen packets in a row are given up.
const FRUITLESS: u32 = 32;
/// Factor by which `watchdog=` is multiplied for two limits of a demuxer's worker. The first is the time in
/// which the worker may send nothing while its file has bytes to read; it is long because a disk may be slow.
/// The second is the CPU time that the worker needs to open its file or network stream, or to answer a seek
/// or flush; it is long because a seek may read the file twice.
const SILENCE: u32 = 10;
/// Time that a network demuxer's worker may need in addition to `timeout=`, so that libavformat reports the
/// timeout first.
const ANSWERING: Duration = Duration::from_millis(500);
/// Time that a network demuxer's worker may need to examine a new stream, in addition to `timeout=` and
/// [`ANSWERING`]. Also added to the limit for the answer to a flush.
const PROBING: Duration = Duration::from_secs(6);
/// Interval of checks while the caller waits for a demuxer's worker; also the time at the start of a wait in
/// which no limit applies.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Number of cells of each ring. It exceeds the reorder delay of every decoder, so a decoder that has taken
/// a full ring of packets has emitted a frame.
pub(super) const CELLS: u32 = 64;
/// Maximum number of requests to the hops in front that a worker may send for each submitted cell, on
/// average. An honest worker sends at most one keyframe and one bit rate request for each cell. The same
/// number limits the worker's reports of packets that were not decoded.
const REQUESTS_PER_CELL: u64 = 2;
/// Maximum number of requests, and separately of reports, that a worker may send without a new submission. An
/// honest worker can be behind by a full ring of submissions, and its requests for earlier cells may fill the
/// other ring.
const MOST_REQUESTS: u64 = (REQUESTS_PER_CELL + 2) * CELLS as u64;

/// Limit on the requests of one worker to the hops in front, or on its reports of packets that were not
/// decoded. Each of the two has a budget of its own; the texts of this type say "request" for both.
#[derive(Debug, Default)]
pub(super) struct RequestBudget {
    /// Number of requests that the worker could still send right after its last request, before further cells
    /// were submitted.
    left: u64,
    /// Number of cells that were submitted to the worker when this process received the last request.
    submitted: u64,
}

impl RequestBudget {
    /// Counts a request of the worker. `submitted` is the number of cells submitted to this worker so far.
    ///
    /// # Errors
    /// The worker has no request left.
    pub(super) fn count_request(&mut self, submitted: u64) -> Result<(), Breach> {
        let new = submitted.saturating_sub(self.submitted);
        self.submitted = submitted;
        let left = self.left.saturating_add(new.saturating_mul(REQUESTS_PER_CELL)).min(MOST_REQUESTS);
        self.left = left.checked_sub(1).ok_or(Breach(
            "too many requests to the hops in front, or reports of packets not decoded; at most 2 for each \
             submitted cell, and 256 at once",
        ))?;
        Ok(())
    }
}

/// Limit on the deaths of one stream's workers.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// Number of deaths since the last new frame or flush.
    fruitless: u32,
}

impl Restarts {
    /// Resets the count of deaths. The collect end calls this function after a new frame and after a flush.
    pub(super) fn delivered(&mut self) {
        self.fruitless = 0;
    }

    /// Counts a death.
    ///
    /// # Errors
    /// This is the 32nd death in a row without a new frame or flush.
    pub(super) fn died(&mut self) -> Result<(), HostError> {
        self.fruitless += 1;
        if self.fruitless >= FRUITLESS {
            return Err(HostError::NotOpened {
                what: "the worker ended too often in a row without a new frame",
            });
        }
        Ok(())
    }

    /// Calls `open`, which starts a worker and opens the stream, until it succeeds or returns a final error,
    /// at most four times.
    ///
    /// # Errors
    /// The error of the last attempt, if that error is final ([`HostError::is_final`]) or all four attempts
    /// failed.
    pub(super) fn open<T>(mut open: impl FnMut() -> Result<T, HostError>) -> Result<T, HostError> {
        let mut tries = 0;
        loop {
            match open() {
                Err(error) if tries < OPENING_TRIES && !error.is_final() => tries += 1,
                opened => return opened,
            }
        }
    }
}

/// Detector of a worker that has work and makes no progress.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// Time without progress after which a worker that has work, and does not wait for the caller, is killed,
    /// nanoseconds.
    limit_ns: u64,
    /// Highest number of cells ([`WorkerProgress::cells`]) at any check. Only the thread that checks, that of
    /// the worker's [`Watcher`](framepath_os::crossing::Watcher), uses this field.
    progress: AtomicU64,
    /// CLOCK_MONOTONIC time of the last check, nanoseconds, that found progress, no work, or a worker that
    /// waits for the caller; at first the time when this value was made. Only the thread that checks uses
    /// this field.
    since_ns: AtomicU64,
}

/// The state of a worker at one check.
pub(super) struct WorkerProgress {
    /// Number of cells that the worker has taken, plus number of cells taken from the worker that count as
    /// progress.
    pub(super) cells: u64,
    /// True if the worker cannot be expected to go on: the caller (the process that runs the path) has not taken
    /// the worker's output, holds the frames whose slots the worker waits for, or is providing buffers.
    pub(super) waits_for_caller: bool,
    /// True if the worker has no work.
    pub(super) has_no_work: bool,
}

impl Watchdog {
    pub(super) fn new(limit: Duration) -> Watchdog {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Watchdog { limit_ns, progress: AtomicU64::new(0), since_ns: AtomicU64::new(now_ns()) }
    }

    /// Evaluates one check. Calls `kill` if the worker has work, does not wait for the caller, and made no
    /// progress for the limit or longer; later checks call it again. Returns `Quiet` if the worker has no
    /// work, made no progress since the last check, and does not wait for the caller; else `Again`.
    pub(super) fn check(&self, now: &WorkerProgress, kill: impl FnOnce()) -> WatchResult {
        let now_ns = now_ns();
        let further = self.progress.fetch_max(now.cells, Ordering::Relaxed) < now.cells;
        if further || now.waits_for_caller || now.has_no_work {
            self.since_ns.store(now_ns, Ordering::Relaxed);
            let quiet = !further && !now.waits_for_caller;
            return if quiet { WatchResult::Quiet } else { WatchResult::Again };
        }
        if now_ns - self.since_ns.load(Ordering::Relaxed) >= self.limit_ns {
            kill();
        }
        WatchResult::Again
    }
}

/// One wait for a demuxer's worker, and its limits.
pub(super) struct DemuxerWait {
    /// Start of the wait.
    since: Instant,
    /// CPU time of the worker at `since`, nanoseconds; 0 if its process id is not visible to this program.
    cpu_ns: u64,
    /// Time since when every check has found that reading the input does not block: the start of the wait,
    /// or the last check that found an empty pipe or an unanswered request for bytes.
    readable_since: Instant,
    /// Limit of the worker's CPU time in this wait. Has no effect if the worker's process id is not visible
    /// to this program, because its CPU time then counts as 0.
    busy: Duration,
    /// Limit of the time without the awaited packet or answer although reading the file does not block. For a
    /// stream from the network: limit of the whole wait.
    silent: Duration,
}

impl DemuxerWait {
    /// Starts a wait for the file or network stream to be open, or for the answer to a seek or flush.
    pub(super) fn to_open(process: &SharedProcess, input: &DemuxedInput, watchdog: Duration) -> DemuxerWait {
        let mut wait = DemuxerWait::for_packet(process, input, watchdog);
        wait.busy = watchdog * SILENCE;
        if let DemuxedInput::Network(_) = input {
            wait.silent += PROBING;
        }
        wait
    }

    /// Starts a wait for the next packet.
    pub(super) fn for_packet(
        process: &SharedProcess,
        input: &DemuxedInput,
        watchdog: Duration,
    ) -> DemuxerWait {
        let since = Instant::now();
        let silent = match input {
            DemuxedInput::Network(source) => source.timeout.saturating_add(ANSWERING),
            _ => watchdog * SILENCE,
        };
        let busy = watchdog;
        DemuxerWait { since, cpu_ns: process.cpu_ns(), readable_since: since, busy, silent }
    }

    /// Checks the limits. A worker that waits at an empty pipe, or for an answer to a request for bytes, may
    /// be silent without limit. `packets` is the number of packets received so far, for the error. Always
    /// succeeds in the first [`CHECK_INTERVAL`] of the wait.
    ///
    /// # Errors
    /// The worker has used too much CPU time in this wait, or sent nothing for too long while its file had
    /// bytes to read: [`HostError::DemuxerStuck`]. For a stream from the network, the whole wait was too
    /// long: [`HostError::NetworkSilent`].
    pub(super) fn check(
        &mut self,
        process: &SharedProcess,
        input: &DemuxedInput,
        packets: u64,
    ) -> Result<(), HostError> {
        if self.since.elapsed() < CHECK_INTERVAL {
            return Ok(());
        }
        if !input.is_readable() {
            self.readable_since = Instant::now();
        }
        let computed = Duration::from_nanos(process.cpu_ns().saturating_sub(self.cpu_ns));
        let silence = self.readable_since.elapsed();
        if computed > self.busy {
            return Err(HostError::DemuxerStuck {
                packets,
                what: "computed without sending a packet",
                after: computed,
            });
        }
        if let (DemuxedInput::Network(_), true) = (input, silence > self.silent) {
            return Err(HostError::NetworkSilent { packets, after: silence });
        }
        if silence > self.silent {
            return Err(HostError::DemuxerStuck { packets, what: "sent no packet", after: silence });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_ends_with_its_thirty_second_death_in_a_row() {
        let mut restarts = Restarts::default();
        assert!((1..FRUITLESS).all(|_| restarts.died().is_ok()));
        restarts.delivered();
        assert!((1..FRUITLESS).all(|_| restarts.died().is_ok()));
        assert!(restarts.died().is_err());
    }

    #[test]
    fn a_worker_is_tried_four_times_or_once_if_the_error_is_final() {
        for (error, expected) in [(HostError::Gone, 4), (HostError::Abandoned, 1)] {
            let (mut tries, mut error) = (0, Some(error));
            let opened = Restarts::open(|| {
                tries += 1;
                let last = tries == expected;
                Err::<(), _>(if last { error.take().unwrap_or(HostError::Gone) } else { HostError::Gone })
            });
            assert!(opened.is_err());
            assert_eq!(tries, expected);
        }
    }

    #[test]
    fn requests_are_bounded_by_the_submitted_cells() {
        let mut budget = RequestBudget::default();
        assert!(budget.count_request(0).is_err(), "nothing was submitted");
        // An honest worker that is behind by two full rings.
        let mut budget = RequestBudget::default();
        let cells = u64::from(CELLS);
        for cell in 1..10_000_u64 {
            let submitted = cell + cells;
            (0..REQUESTS_PER_CELL).for_each(|_| budget.count_request(submitted).unwrap());
        }
        (0..REQUESTS_PER_CELL * cells).for_each(|_| budget.count_request(9_999 + cells).unwrap());
        // A worker that was quiet for long may send no more than the limit.
        let mut budget = RequestBudget::default();
        let accepted = (0..).take_while(|_| budget.count_request(1 << 40).is_ok()).count() as u64;
        assert_eq!(accepted, MOST_REQUESTS);
        assert!(budget.count_request((1 << 40) + 1).is_ok());
    }

    #[test]
    fn a_worker_is_killed_only_if_it_has_work_and_makes_no_progress() {
        let watchdog = Watchdog::new(Duration::ZERO);
        let kills = |cells, waits_for_caller, has_no_work| {
            let mut killed = false;
            let result =
                watchdog.check(&WorkerProgress { cells, waits_for_caller, has_no_work }, || killed = true);
            (killed, result == WatchResult::Quiet)
        };
        assert_eq!(kills(1, false, false), (false, false), "progress");
        assert_eq!(kills(1, false, false), (true, false));
        assert_eq!(kills(0, false, false), (true, false), "less is no progress");
        assert_eq!(kills(1, true, false), (false, false));
        assert_eq!(kills(1, false, true), (false, true));
        assert_eq!(kills(2, false, true), (false, false));
    }
}
