// SPDX-License-Identifier: MIT OR Apache-2.0
//! Case `idle` of `rpc`: counts the context switches of an idle stream, in which neither the caller nor
//! the worker should run.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use framepath_model::summary::SummaryRow;

use crate::descendants::{Activity, activity, descendants};
use crate::error::LabError;
use crate::own_child::OwnChild;

/// Time from the start of the stream to the measurement: the first packet is decoded, and then all
/// threads sleep.
const SETTLING: Duration = Duration::from_secs(3);

/// Starts a process `framepath run` with a stream whose second packet is not due during the measurement.
/// Returns the row with the number of context switches of all threads of that process and of its
/// descendants (workers and spare workers) within `duration`. Each thread that is awake at the start, and
/// each that is awake at the end, adds one.
///
/// # Errors
/// The process cannot be started, or has ended or has no worker when the measurement ends: then nothing was measured.
pub(super) fn run(
    framepath: &Path,
    clip: &Path,
    case: &str,
    duration: Duration,
) -> Result<SummaryRow, LabError> {
    let clip = framepath_model::path::quote(&clip.to_string_lossy());
    let path = format!("file {clip} rate=0.01 ! decode host=process ! null");
    let mut command = Command::new(framepath);
    command.args(["run", "--quiet", "--ledger", "off", &path]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = OwnChild::new(command.spawn().map_err(LabError::io("starting an idle stream"))?);
    std::thread::sleep(SETTLING);
    let before = tree_activity(child.id());
    std::thread::sleep(duration);
    let after = tree_activity(child.id());
    let has_worker = !descendants(child.id()).is_empty();
    child.kill()?;
    if !has_worker {
        return Err(LabError::Unknown("the idle stream has no worker".to_owned()));
    }
    let ran = after.switches.saturating_sub(before.switches) + before.awake + after.awake;
    let seconds = duration.as_secs_f64();
    let extra = [
        ("threads", after.threads as f64),
        ("looked_s", seconds),
        ("wakeups", ran as f64),
        ("wakeups_per_s", ran as f64 / seconds),
    ];
    Ok(SummaryRow {
        case: case.to_owned(),
        contender: "process".to_owned(),
        runs: 1,
        // Unknown for a thread that ran; a thread that slept all the time made no system call.
        syscalls_per_frame: None,
        extra: extra
            .into_iter()
            .chain((ran == 0).then_some(("syscalls", 0.0)))
            .map(|(key, figure)| (key.to_owned(), figure))
            .collect(),
        ..SummaryRow::default()
    })
}

fn tree_activity(pid: u32) -> Activity {
    let mut all = activity(pid);
    for process in descendants(pid) {
        all += activity(process.pid());
    }
    all
}
