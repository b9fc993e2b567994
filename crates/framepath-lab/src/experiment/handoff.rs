// SPDX-License-Identifier: MIT OR Apache-2.0
//! `handoff`: transfer of one frame between two processes, small and of 1080p NV12,
//! paced at 60 Hz and at full speed.
//!
//! A contender is a pair of processes, a producer and a consumer, that follows the convention of
//! `peers/handoff/handoff.h`: the producer writes only a sequence number and a
//! timestamp, into the frame's first 16 bytes; the consumer reads only
//! those; and the clocks of both processes start when both are warm. The figures are
//! of the measured frames only, without the start-up.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::error::LabError;
use crate::experiment::{ExperimentResult, ExperimentSettings, Size};
use crate::handoff::run_figures;
use crate::measure::{Contender, Measured};
use crate::pairs::{self, Comparison};
use crate::process::Program;
use crate::progress::ProgressView;

/// Bytes of a large frame: a picture of 1920x1080 in NV12.
const LARGE: u64 = 1920 * 1080 * 3 / 2;
/// Bytes of a small frame, about a compressed packet or a message.
const SMALL: u64 = 4096;
/// Frames per second of paced cases.
const RATE: u64 = 60;

/// Name of framepath's contender.
const PROCESS: &str = "process";

/// A foreign contender: its stable name, its program in the folder of peers, the program's first
/// argument if it needs one, and the remedy if the program is absent.
struct Peer {
    name: &'static str,
    program: &'static str,
    mode: Option<&'static str>,
    remedy: &'static str,
}

const GST_REMEDY: &str = "apt install libgstreamer1.0-dev gstreamer1.0-plugins-bad, then make build";

/// Foreign contenders. The contender that polls comes last, because most users choose one that sleeps while
/// it waits.
const PEERS: [Peer; 5] = [
    Peer { name: "iceoryx2-wait", program: "iceoryx2-handoff", mode: Some("wait"), remedy: "make peers" },
    Peer { name: "gst-unixfd", program: "gst-handoff", mode: Some("unixfd"), remedy: GST_REMEDY },
    Peer { name: "gst-shm", program: "gst-handoff", mode: Some("shm"), remedy: GST_REMEDY },
    Peer { name: "unix-socket", program: "unix-handoff", mode: None, remedy: "make build" },
    Peer { name: "iceoryx2-poll", program: "iceoryx2-handoff", mode: Some("poll"), remedy: "make peers" },
];

/// A case: size, rate and number of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    name: &'static str,
    bytes: u64,
    /// Frames per second; 0 is full speed.
    rate: u64,
    frames_quick: u64,
    frames_full: u64,
}

const CASES: [Case; 4] = [
    Case { name: "paced-60", bytes: LARGE, rate: RATE, frames_quick: 30, frames_full: 240 },
    Case { name: "paced-60-4KiB", bytes: SMALL, rate: RATE, frames_quick: 30, frames_full: 240 },
    Case { name: "flat-out", bytes: LARGE, rate: 0, frames_quick: 500, frames_full: 2000 },
    Case { name: "flat-out-4KiB", bytes: SMALL, rate: 0, frames_quick: 5000, frames_full: 50_000 },
];

impl Case {
    fn frames(&self, size: Size) -> u64 {
        if size == Size::Quick { self.frames_quick } else { self.frames_full }
    }
}

/// Returns the names of all cases, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    CASES.iter().map(|case| case.name.to_owned()).collect()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    let cases: Vec<Case> = CASES.into_iter().filter(|c| settings.wants(c.name)).collect();
    let rounds = settings.rounds(3, 10);
    watch.begin("handoff", (cases.len() * (1 + PEERS.len()) * rounds) as u64);
    let software = RefCell::new(BTreeSet::new());
    for case in cases {
        let software = &software;
        let ours =
            Program::new(&settings.framepath, args(Some("handoff"), &case, case.frames(settings.size)));
        let mut contenders = vec![Contender::new(PROCESS, move || hand_over(&ours, software))];
        contenders.extend(
            PEERS.iter().map(|peer| Contender::new(peer.name, move || peer.run(settings, &case, software))),
        );
        pairs::run(case.name, contenders, &comparisons(&case), rounds, watch, summary)?;
    }
    let software: Vec<String> = software.into_inner().into_iter().collect();
    if !software.is_empty() {
        summary.notes.push(format!("versions: {}", software.join(", ")));
    }
    summary.notes.push(format!(
        "latency: from the timestamp of the finished frame, just before the send, to its arrival at the consumer; \
         CPU: both processes, from the first frame to the last, without start-up; large frames have \
         {LARGE} bytes; at most 8 frames are in flight, in `unix-socket` as many as fit the socket's buffer"
    ));
    Ok(())
}

/// Returns the comparisons of framepath with each peer. At full speed the latency includes the wait
/// for earlier frames, so the time per frame comes first.
fn comparisons(case: &Case) -> Vec<Comparison<'static>> {
    let metrics: &[&str] = if case.rate > 0 {
        &["latency_p50_us", "latency_p99_us", "cpu_us_per_frame"]
    } else {
        &["wall_us_per_frame", "cpu_us_per_frame", "latency_p50_us", "latency_p99_us"]
    };
    let of =
        |metric: &&'static str| PEERS.iter().map(|peer| (*metric, PROCESS, peer.name)).collect::<Vec<_>>();
    metrics.iter().flat_map(of).collect()
}

impl Peer {
    fn run(
        &self,
        settings: &ExperimentSettings,
        case: &Case,
        software: &RefCell<BTreeSet<String>>,
    ) -> Result<Measured, LabError> {
        let program = settings.peers.join(self.program);
        if !program.exists() {
            return Err(LabError::Missing(format!("`{}` is not built; {}", self.program, self.remedy)));
        }
        hand_over(&Program::new(program, args(self.mode, case, case.frames(settings.size))), software)
    }
}

/// Runs `program` and returns the figures of the line that it prints. Adds the name and version of the
/// measured software to `software`.
fn hand_over(program: &Program, software: &RefCell<BTreeSet<String>>) -> Result<Measured, LabError> {
    let finished = program.run(true)?;
    let figures = run_figures::parse(program, &finished.stdout)?;
    let measured = figures.measured(program)?;
    software.borrow_mut().insert(figures.software);
    Ok(measured)
}

/// Returns the arguments of a contender's program: `first`, if any, then the options that all
/// contenders share.
fn args(first: Option<&str>, case: &Case, frames: u64) -> Vec<String> {
    let numbers = [("--bytes", case.bytes), ("--frames", frames), ("--rate", case.rate)];
    let options = numbers.into_iter().flat_map(|(name, n)| [name.to_owned(), n.to_string()]);
    first.into_iter().map(str::to_owned).chain(options).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_that_sleep_come_first() {
        assert_eq!(PEERS.last().unwrap().name, "iceoryx2-poll");
        let paced = comparisons(&CASES[0]);
        assert_eq!(paced.len(), 3 * PEERS.len());
        assert_eq!(paced[0], ("latency_p50_us", "process", "iceoryx2-wait"));
        assert!(comparisons(&CASES[2]).contains(&("wall_us_per_frame", "process", "unix-socket")));
    }

    #[test]
    fn arguments_follow_the_convention_of_the_peers() {
        let words = |peer: &Peer, case: &Case| args(peer.mode, case, 30).join(" ");
        assert_eq!(words(&PEERS[0], &CASES[0]), "wait --bytes 3110400 --frames 30 --rate 60");
        assert_eq!(words(&PEERS[3], &CASES[3]), "--bytes 4096 --frames 30 --rate 0");
    }

    #[test]
    fn a_peer_that_is_not_built_is_skipped_with_a_remedy() {
        let settings = ExperimentSettings {
            size: Size::Quick,
            pairs: None,
            cases: Vec::new(),
            files: Vec::new(),
            framepath: "framepath".into(),
            clips: "clips".into(),
            peers: "/nowhere".into(),
        };
        for peer in &PEERS {
            let error = peer.run(&settings, &CASES[0], &RefCell::default()).unwrap_err();
            assert!(matches!(error, LabError::Missing(_)), "{error}");
            assert!(error.to_string().contains("make "), "{error}");
        }
    }
}
