// SPDX-License-Identifier: MIT OR Apache-2.0
//! Case `client` of `faults`: kills clients, the processes that run paths. The workers of a client must
//! end with the client.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use framepath_os::process::signal;

use super::random::Random;
use super::stream::FaultClip;
use crate::descendants::{Descendant, descendants};
use crate::error::LabError;
use crate::own_child::OwnChild;
use crate::progress::ProgressView;

/// Longest wait for a client to get a worker, and longest wait for the processes of a killed client to
/// end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Counts and times of all kills of clients.
#[derive(Debug, Default)]
pub(super) struct ClientKills {
    pub(super) kills: u64,
    /// Number of processes that the killed clients had started and that ran at the kill, spare
    /// workers included.
    pub(super) workers: u64,
    /// Number of those processes that still ran five seconds after the end of their client.
    pub(super) left: u64,
    /// Longest time, over all kills, from the end of the killed client until the last of its processes had
    /// ended, or until the time limit of five seconds; milliseconds.
    pub(super) longest_ms: f64,
}

/// Starts one client for each clip, then goes through the clients in order: waits until the client has a
/// worker (at most five seconds), sleeps for a random time below 0.1 s, kills the client with SIGKILL, and
/// waits until the client's processes have ended (at most five seconds). Does all this `rounds` times.
///
/// # Errors
/// A client cannot be started or killed, or SIGINT or SIGTERM interrupted the case.
pub(super) fn run(
    framepath: &Path,
    clips: &[FaultClip],
    rounds: u64,
    random: &mut Random,
    watch: &dyn ProgressView,
) -> Result<ClientKills, LabError> {
    let mut outcome = ClientKills::default();
    for round in 0..rounds {
        watch.step(&format!("clients, round {}", round + 1));
        let mut clients: Vec<OwnChild> = Vec::new();
        for clip in clips {
            clients.push(start(framepath, clip)?);
        }
        for client in clients {
            wait_for_a_worker(&client);
            std::thread::sleep(Duration::from_micros(random.below(100_000)));
            let below = descendants(client.id());
            client.kill()?;
            outcome.kills += 1;
            outcome.workers += below.len() as u64;
            let (left, took) = wait_for(&below);
            outcome.left += left;
            outcome.longest_ms = outcome.longest_ms.max(took.as_secs_f64() * 1e3);
        }
        if signal::interrupted() {
            return Err(LabError::Interrupted);
        }
    }
    Ok(outcome)
}

fn start(framepath: &Path, clip: &FaultClip) -> Result<OwnChild, LabError> {
    let path = format!("file {} loop=inf rate=100 ! decode host=process ! null", clip.file);
    let mut command = Command::new(framepath);
    command.args(["run", "--quiet", &path]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(OwnChild::new).map_err(LabError::io("starting a client"))
}

/// Waits until the client has started its first process, a worker, but at most [`PATIENCE`]. The kill of a
/// client without a worker would test nothing.
fn wait_for_a_worker(client: &OwnChild) {
    let since = Instant::now();
    while descendants(client.id()).is_empty() && since.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until all `processes` have ended, but at most [`PATIENCE`]. Returns the number of those that still
/// run, and the time waited.
fn wait_for(processes: &[Descendant]) -> (u64, Duration) {
    let since = Instant::now();
    loop {
        let left = processes.iter().filter(|process| process.runs()).count() as u64;
        if left == 0 || since.elapsed() > PATIENCE {
            return (left, since.elapsed());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
