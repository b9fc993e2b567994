// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits between a caller and its workers: how long a caller waits, how often a stream restarts, and
//! the rules that use these limits.
//!
//! | the caller waits for | limit | then |
//! | --- | --- | --- |
//! | a worker to load and enter its sandbox | [`LOADING`] | the start fails |
//! | the service to grant a worker | [`GRANTING`] | the start fails |
//! | a worker to open a stream | [`OPENING`] | the start fails |
//! | a worker that has work | `watchdog=` ([`Watchdog`]) | it is killed and replaced |
//! | a demuxer's worker that computes | `watchdog=` of CPU time ([`DemuxerWait`]) | the stream fails |
//! | a demuxer's worker that opens or seeks | [`SILENCE`] times `watchdog=` of CPU time | the stream fails |
//! | a demuxer's worker with input to read | [`SILENCE`] times `watchdog=` | the stream fails |
//! | a worker's start after a death | [`OPENING_TRIES`] more tries ([`Restarts`]) | the stream fails |
//! | requests of a stage in a worker | [`REQUESTS_PER_CELL`] for each submission, [`MOST_REQUESTS`] at once ([`RequestBudget`]) | it is killed and replaced |
//! | a new frame after deaths | [`FRUITLESS`] deaths ([`Restarts`]) | the stream fails |
//!
//! [`framepath_model::replay`] knows the decoded packets, and decides which packet is skipped as
//! poisoned.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use framepath_codec::MediaFile;
use framepath_os::crossing::{Breach, WatchResult};
use framepath_os::process::cancel::is_readable;
use framepath_os::time::now_ns;

use super::HostError;
use super::process::SharedProcess;

/// Longest time a worker takes to load and lock itself in.
pub const LOADING: Duration = Duration::from_secs(20);
/// Longest time the service takes to grant a worker: it may have to load one.
pub(super) const GRANTING: Duration = LOADING.saturating_add(Duration::from_secs(10));
/// Longest time a worker takes to open a stream.
pub(super) const OPENING: Duration = Duration::from_secs(20);
/// Further tries to start a worker after one that could not open the stream.
const OPENING_TRIES: u32 = 3;
/// Deaths in a row without a new frame, after which the stream fails. If one packet after the
/// other is skipped, these are the deaths of sixteen packets.
const FRUITLESS: u32 = 32;
/// Factor for `watchdog=`: how long a demuxer's worker may send nothing while its file has bytes to
/// read, because a slow disk is not the worker's fault. The worker may also compute this long before
/// the file is open, and until it answers a seek, which may read the file twice.
const SILENCE: u32 = 10;
/// Time between two checks of a demuxer's worker that is waited for.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// Cells of each ring: more packets than any decoder keeps back, so that a decoder
/// with so many packets has given a frame.
pub(super) const CELLS: u32 = 64;
/// Requests to the hops in front that a worker may send for each cell submitted to it: an honest
/// worker sends a keyframe and a bit rate, once for each cell.
const REQUESTS_PER_CELL: u64 = 2;
/// Requests that a worker may send in a row. An honest worker has no more on their way than
/// those of a ring of submissions and of a ring of unread completions.
const MOST_REQUESTS: u64 = (REQUESTS_PER_CELL + 2) * CELLS as u64;

/// Counts the requests of one worker.
#[derive(Debug, Default)]
pub(super) struct RequestBudget {
    /// Requests that it may still send.
    left: u64,
    /// Cells that were submitted to it at the last request.
    submitted: u64,
}

impl RequestBudget {
    /// Counts a request of the worker, to which `submitted` cells were submitted so far.
    ///
    /// # Errors
    /// The worker has no request left.
    pub(super) fn count_request(&mut self, submitted: u64) -> Result<(), Breach> {
        let new = submitted.saturating_sub(self.submitted);
        self.submitted = submitted;
        let left = self.left.saturating_add(new.saturating_mul(REQUESTS_PER_CELL)).min(MOST_REQUESTS);
        self.left = left.checked_sub(1).ok_or(Breach("more requests than it was given inputs"))?;
        Ok(())
    }
}

/// Counts the deaths of one stream's workers.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// Deaths since the last new frame.
    fruitless: u32,
}

impl Restarts {
    /// Notes a new frame.
    pub(super) fn delivered(&mut self) {
        self.fruitless = 0;
    }

    /// Counts a death.
    ///
    /// # Errors
    /// Too many workers died without a new frame.
    pub(super) fn died(&mut self) -> Result<(), HostError> {
        self.fruitless += 1;
        if self.fruitless >= FRUITLESS {
            return Err(HostError::NotOpened { what: "died again and again" });
        }
        Ok(())
    }

    /// Calls `open` until a worker has the stream open.
    ///
    /// # Errors
    /// The error of the last try, if no further try helps or too many failed.
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

/// Watches the progress of a worker that has work.
#[derive(Debug)]
pub(super) struct Watchdog {
    limit_ns: u64,
    /// Highest progress observed, and when it last advanced. Only the watcher's thread
    /// uses these two.
    progress: AtomicU64,
    since_ns: AtomicU64,
}

/// The state of a worker at one check.
pub(super) struct WorkerProgress {
    /// Cells that the worker has taken, plus cells taken from the worker.
    pub(super) cells: u64,
    /// The worker waits for the caller.
    pub(super) waits_for_us: bool,
    /// The worker has no work.
    pub(super) has_no_work: bool,
}

impl Watchdog {
    pub(super) fn new(limit: Duration) -> Watchdog {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Watchdog { limit_ns, progress: AtomicU64::new(0), since_ns: AtomicU64::new(now_ns()) }
    }

    /// Judges one check; calls `kill` for a worker that has stood still for too long.
    pub(super) fn check(&self, now: &WorkerProgress, kill: impl FnOnce()) -> WatchResult {
        let now_ns = now_ns();
        let further = self.progress.fetch_max(now.cells, Ordering::Relaxed) < now.cells;
        if further || now.waits_for_us || now.has_no_work {
            self.since_ns.store(now_ns, Ordering::Relaxed);
            let quiet = !further && !now.waits_for_us;
            return if quiet { WatchResult::Quiet } else { WatchResult::Again };
        }
        if now_ns - self.since_ns.load(Ordering::Relaxed) >= self.limit_ns {
            kill();
        }
        WatchResult::Again
    }
}

/// One wait for a demuxer's worker.
pub(super) struct DemuxerWait {
    since: Instant,
    /// CPU time of the worker at `since`, nanoseconds.
    cpu_ns: u64,
    /// Time since when every check found bytes to read, or the end of a pipe.
    readable_since: Instant,
    busy: Duration,
    silent: Duration,
}

impl DemuxerWait {
    /// Starts a wait for the file to be open, or for the answer to a seek.
    pub(super) fn to_open(process: &SharedProcess, watchdog: Duration) -> DemuxerWait {
        DemuxerWait { busy: watchdog * SILENCE, ..DemuxerWait::for_packet(process, watchdog) }
    }

    /// Starts a wait for the next packet.
    pub(super) fn for_packet(process: &SharedProcess, watchdog: Duration) -> DemuxerWait {
        let since = Instant::now();
        let (busy, silent) = (watchdog, watchdog * SILENCE);
        DemuxerWait { since, cpu_ns: process.cpu_ns(), readable_since: since, busy, silent }
    }

    /// Fails if the worker has computed for too long, or sent nothing for too long while there were
    /// bytes to read. With an empty pipe the worker may be silent.
    /// `packets` is the number of packets so far, for the error.
    pub(super) fn check(
        &mut self,
        process: &SharedProcess,
        file: &MediaFile,
        packets: u64,
    ) -> Result<(), HostError> {
        if self.since.elapsed() < LOOK {
            return Ok(());
        }
        if !is_readable(file) {
            self.readable_since = Instant::now();
        }
        let computed = Duration::from_nanos(process.cpu_ns().saturating_sub(self.cpu_ns));
        let silence = self.readable_since.elapsed();
        if computed > self.busy {
            return Err(HostError::DemuxerStuck { packets, what: "computed", after: computed });
        }
        if silence > self.silent {
            return Err(HostError::DemuxerStuck { packets, what: "gave nothing", after: silence });
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
    fn a_worker_is_tried_four_times_and_once_where_that_is_final() {
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
    fn requests_are_bounded_by_what_was_submitted() {
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
        // A worker that was quiet for long has saved up no more than the limit.
        let mut budget = RequestBudget::default();
        let accepted = (0..).take_while(|_| budget.count_request(1 << 40).is_ok()).count() as u64;
        assert_eq!(accepted, MOST_REQUESTS);
        assert!(budget.count_request((1 << 40) + 1).is_ok());
    }

    #[test]
    fn a_worker_is_killed_only_where_it_has_work_and_stands_still() {
        let watchdog = Watchdog::new(Duration::ZERO);
        let kills = |cells, waits_for_us, has_no_work| {
            let mut killed = false;
            let look = watchdog.check(&WorkerProgress { cells, waits_for_us, has_no_work }, || killed = true);
            (killed, look == WatchResult::Quiet)
        };
        assert_eq!(kills(1, false, false), (false, false), "progress");
        assert_eq!(kills(1, false, false), (true, false));
        assert_eq!(kills(0, false, false), (true, false), "less is no progress");
        assert_eq!(kills(1, true, false), (false, false));
        assert_eq!(kills(1, false, true), (false, true));
        assert_eq!(kills(2, false, true), (false, false));
    }
}
