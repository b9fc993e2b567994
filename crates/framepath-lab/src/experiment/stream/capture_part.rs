// SPDX-License-Identifier: MIT OR Apache-2.0
//! The capture of a screen alone: framepath's, GStreamer's and ffmpeg's, without encoder and network.
//!
//! Each program captures two numbers of pictures, one after the other. The differences of time and CPU are those of the
//! pictures, without the start of the program.

use framepath_os::process::running;

use super::contender::{XIMAGESRC, check_element, gst, missing_program};
use super::desktop::{RATE, SCROLL, SIZE};
use super::display_part::own_row;
use super::screen_clock::ScreenClock;
use crate::display::Display;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::Measured;
use crate::process::Program;

/// Names of the programs that capture.
pub(super) const CAPTURERS: [&str; 3] = ["x11", "ximagesrc", "x11grab"];
/// Pictures of the short run.
const SHORT: u64 = 2 * RATE as u64;
/// Rate that no program reaches, so that each captures without pauses.
const UNPACED: u32 = 100_000;

/// Cost of one run.
#[derive(Clone, Copy, Debug)]
struct CaptureCost {
    wall_ns: u64,
    cpu_ns: u64,
    /// CPU time of the X server, with that of the drawing.
    server_cpu_ns: u64,
}

impl CaptureCost {
    fn since(self, before: CaptureCost) -> CaptureCost {
        CaptureCost {
            wall_ns: self.wall_ns.saturating_sub(before.wall_ns),
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            server_cpu_ns: self.server_cpu_ns.saturating_sub(before.server_cpu_ns),
        }
    }
}

/// Captures `frames` pictures of `screen`, on which the clock draws.
///
/// # Errors
/// [`LabError::Missing`]: the program is not installed. A program fails.
pub(super) fn run(
    name: &str,
    settings: &ExperimentSettings,
    screen: &Display,
    frames: u64,
) -> Result<Measured, LabError> {
    if name == CAPTURERS[1] {
        check_element(XIMAGESRC)?;
    }
    let _clock = ScreenClock::start(screen.x_name()?, RATE, SCROLL)?;
    let capture = |frames: u64, rate: u32| {
        let program = program(name, settings, screen.x_name()?, frames, rate);
        cost(&program, screen)
    };
    let paced = capture(SHORT + frames, RATE)?.since(capture(SHORT, RATE)?);
    let per_frame = |ns: u64| ns as f64 / 1e6 / frames as f64;
    let capture_ms = if name == CAPTURERS[0] {
        // framepath captures no more than the screen shows; its ledger has the time of each capture.
        let measured = own(settings, screen.x_name()?, frames, RATE, "times").run(true)?;
        Some(own_capture_ms(&measured.stdout)?)
    } else {
        let [short, long] = [capture(SHORT, UNPACED)?, capture(SHORT + frames, UNPACED)?];
        // On a busy machine the short run may take longer than the long one.
        long.wall_ns.checked_sub(short.wall_ns).map(per_frame)
    };
    let extra = [
        ("capture_ms", capture_ms),
        ("cpu_ms_per_frame", Some(per_frame(paced.cpu_ns))),
        ("server_cpu_ms_per_frame", Some(per_frame(paced.server_cpu_ns))),
    ];
    Ok(Measured {
        frames,
        wall_ns: paced.wall_ns,
        cpu_ns: paced.cpu_ns,
        extra: extra.into_iter().filter_map(|(name, figure)| Some((name.to_owned(), figure?))).collect(),
        ..Measured::default()
    })
}

/// Returns the program that captures `frames` pictures at `rate`.
fn program(name: &str, settings: &ExperimentSettings, display: &str, frames: u64, rate: u32) -> Program {
    let words = match name {
        "x11" => return own(settings, display, frames, rate, "off"),
        "ximagesrc" => gst(&format!(
            "ximagesrc display-name={display} use-damage=false show-pointer=false num-buffers={frames} ! \
             video/x-raw,framerate={rate}/1 ! fakesink"
        )),
        _ => format!(
            "ffmpeg -nostdin -v error -f x11grab -draw_mouse 0 -framerate {rate} -video_size {}x{} -i {display} \
             -frames:v {frames} -c:v wrapped_avframe -f null -",
            SIZE.0, SIZE.1
        )
        .split_whitespace()
        .map(str::to_owned)
        .collect(),
    };
    let mut words = words.into_iter();
    Program::new(words.next().unwrap_or_default(), words)
}

/// Returns framepath's capture, with a ledger of this level, which prints its summary.
fn own(settings: &ExperimentSettings, display: &str, frames: u64, rate: u32, ledger: &str) -> Program {
    let path = format!("x11 {display} rate={rate} cursor=no frames={frames} ! null");
    Program::new(&settings.framepath, ["run", "--quiet", "--ledger", ledger, "--json", "-", &path])
}

/// Runs a program.
fn cost(program: &Program, screen: &Display) -> Result<CaptureCost, LabError> {
    let server = || -> Result<u64, LabError> {
        let server = screen.server.ok_or_else(|| LabError::Unknown("no X server".to_owned()))?;
        running::of(server).map(|used| used.cpu_ns).map_err(LabError::io("reading the X server's CPU time"))
    };
    let before = server()?;
    let finished = program.run(false).map_err(|error| match error {
        LabError::Missing(_) => missing_program(&program.program.to_string_lossy()),
        error => error,
    })?;
    let server_cpu_ns = server()?.saturating_sub(before);
    Ok(CaptureCost { wall_ns: finished.wall_ns, cpu_ns: finished.usage.cpu_ns, server_cpu_ns })
}

/// Reads the median time of a capture from the summary of framepath's run.
fn own_capture_ms(output: &str) -> Result<f64, LabError> {
    let latency = own_row(output)?.latency_us;
    latency
        .map(|latency| latency.p50 / 1e3)
        .ok_or_else(|| LabError::Unknown("framepath's run has no latency".to_owned()))
}
