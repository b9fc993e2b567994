// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command and counts its calls of FFmpeg's libraries and of GStreamer.
//!
//! ```text
//! cargo run --example count_calls -- ffmpeg -i clip.mp4 -f null -
//! ```

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use framepath_trace::{Phase, Recording, TraceError, TraceLevel};

fn main() -> Result<ExitCode, TraceError> {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("expected a command");
        return Ok(ExitCode::from(2));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let report = Recording::of_command(command, Some(TraceLevel::Preload))?.run(None)?;
    // Calls, and those of them without an error.
    let mut counts = BTreeMap::<_, (u64, u64)>::new();
    for event in report.calls.iter().filter(|event| event.phase == Phase::Leave) {
        let (all, good) = counts.entry(event.call).or_default();
        *all += 1;
        *good += u64::from(event.result >= 0);
    }
    for (call, (all, good)) in counts {
        eprintln!("{call:?}: {all} calls, {good} without an error");
    }
    for stream in &report.streams {
        eprintln!("{} frames: {}", stream.frames, stream.stages.join(", "));
    }
    eprintln!(
        "{} events in {} threads; {} lost",
        report.calls.len(),
        report.threads.len(),
        report.lost_events
    );
    Ok(ExitCode::from(report.usage.exit_code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
