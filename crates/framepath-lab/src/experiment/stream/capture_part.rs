// SPDX-License-Identifier: MIT OR Apache-2.0
//! The capture of a screen alone: framepath's from an X server and from a Wayland compositor, GStreamer's and ffmpeg's from the X
//! server, without encoder and network.
//!
//! Each program captures two numbers of pictures, one after the other. The differences of time and CPU are those of the
//! pictures, without the start of the program.

use std::fs::File;
use std::io::Read;

use framepath_model::ledger::Latency;
use framepath_os::process::running;

use super::barcode::{self, PIXEL};
use super::contender::{XIMAGESRC, check_element, gst, missing_program};
use super::desktop::{RATE, SCROLL, SIZE};
use super::display_part::own_row;
use super::screen_clock::ScreenClock;
use crate::csv_line::cells;
use crate::display::Display;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::Measured;
use crate::process::Program;
use crate::temporary_folder::temporary_folder;

/// Names of the programs that capture. The first two are framepath's stages.
pub(super) const CAPTURERS: [&str; 4] = ["x11", "wayland", "ximagesrc", "x11grab"];
/// Pictures of the short run.
const SHORT: u64 = 2 * RATE as u64;
/// Rate that no program reaches, so that each captures without pauses.
const UNPACED: u32 = 100_000;

/// Cost of one run.
#[derive(Clone, Copy, Debug)]
struct CaptureCost {
    wall_ns: u64,
    cpu_ns: u64,
    /// CPU time of the display server, with that of the drawing.
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

/// Captures `frames` pictures of a screen on which the clock draws: `screen`, or for `wayland` a compositor of its own.
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
        return on_wayland(settings, frames);
    }
    if name == CAPTURERS[2] {
        check_element(XIMAGESRC)?;
    }
    let clock = || ScreenClock::start(screen.x_name()?, RATE, SCROLL);
    measure(name, settings, screen, clock, frames)
}

#[cfg(feature = "wayland")]
fn on_wayland(settings: &ExperimentSettings, frames: u64) -> Result<Measured, LabError> {
    use super::wayland_clock::WaylandClock;

    let screen = Display::sway().map_err(LabError::Missing)?;
    let clock = || Ok(ScreenClock::of(WaylandClock::open(&screen, SCROLL)?, RATE));
    measure(CAPTURERS[1], settings, &screen, clock, frames)
}

#[cfg(not(feature = "wayland"))]
fn on_wayland(_: &ExperimentSettings, _: u64) -> Result<Measured, LabError> {
    Err(LabError::Missing(
        "this framepath was built without `wayland`; build with `--features wayland`".to_owned(),
    ))
}

fn measure(
    name: &str,
    settings: &ExperimentSettings,
    screen: &Display,
    clock: impl Fn() -> Result<ScreenClock, LabError>,
    frames: u64,
) -> Result<Measured, LabError> {
    let running = clock()?;
    let capture = |frames: u64, rate: u32| cost(&program(name, settings, screen, frames, rate)?, screen);
    let paced = capture(SHORT + frames, RATE)?.since(capture(SHORT, RATE)?);
    let per_frame = |ns: u64| ns as f64 / 1e6 / frames as f64;
    let mut extra = vec![
        ("cpu_ms_per_frame", Some(per_frame(paced.cpu_ns))),
        ("server_cpu_ms_per_frame", Some(per_frame(paced.server_cpu_ns))),
    ];
    if CAPTURERS[..2].contains(&name) {
        // framepath captures no more than the screen shows; its ledger has the time of each capture.
        let path = format!("{} ! null", own_stage(name, screen, frames, RATE)?);
        let measured = own(settings, screen, "times", &path).run(true)?;
        let row = own_row(&measured.stdout)?;
        let copied = row.hops.first().and_then(|hop| hop.copied_bytes_per_frame);
        let latency =
            row.latency_us.ok_or_else(|| LabError::Unknown("framepath's run has no latency".to_owned()))?;
        extra.push(("capture_ms", Some(latency.p50 / 1e3)));
        extra.push(("copied_kib_per_frame", copied.map(|bytes| bytes / 1024.0)));
        drop(running);
        let latency = drawn_to_frame(name, settings, screen, clock()?, frames)?;
        extra.push(("drawn_to_frame_p50_ms", Some(latency.p50 as f64 / 1e6)));
        extra.push(("drawn_to_frame_p99_ms", Some(latency.p99 as f64 / 1e6)));
    } else {
        let [short, long] = [capture(SHORT, UNPACED)?, capture(SHORT + frames, UNPACED)?];
        // On a busy machine the short run may take longer than the long one.
        extra.push(("capture_ms", long.wall_ns.checked_sub(short.wall_ns).map(per_frame)));
    }
    Ok(Measured {
        frames,
        wall_ns: paced.wall_ns,
        cpu_ns: paced.cpu_ns,
        extra: extra.into_iter().filter_map(|(name, figure)| Some((name.to_owned(), figure?))).collect(),
        ..Measured::default()
    })
}

/// Returns the time from the moment before a picture is drawn until framepath has its frame.
fn drawn_to_frame(
    name: &str,
    settings: &ExperimentSettings,
    screen: &Display,
    clock: ScreenClock,
    frames: u64,
) -> Result<Latency, LabError> {
    let folder = temporary_folder()?;
    let [pictures, rows] = ["pictures", "rows"].map(|name| folder.path().join(name));
    let (width, height) = (barcode::WIDTH, barcode::HEIGHT);
    let stage = own_stage(name, screen, frames, RATE)?;
    let path = format!("{stage} ! crop roi=0,0,{width},{height} ! raw {}", pictures.display());
    let mut program = own(settings, screen, "times", &path);
    program.args.extend(["--csv".into(), rows.clone().into()]);
    program.run(false)?;
    let drawn = clock.stop()?;
    let ends = first_hop_ends(&std::fs::read_to_string(&rows).map_err(LabError::io("the run's rows"))?);
    let mut file = File::open(&pictures).map_err(LabError::io("the captured pictures"))?;
    let mut picture = vec![0; width * height * PIXEL];
    let mut latencies = Vec::new();
    for end_ns in ends {
        file.read_exact(&mut picture).map_err(LabError::io("the captured pictures"))?;
        // The first picture may be that of the screen before the clock.
        let number = barcode::read(&picture[height / 2 * width * PIXEL..]);
        let drawn_ns = number.and_then(|number| drawn.get(number as usize));
        latencies.extend(drawn_ns.map(|drawn_ns| end_ns.saturating_sub(*drawn_ns)));
    }
    latencies.sort_unstable();
    Latency::from_sorted(&latencies)
        .ok_or_else(|| LabError::Unknown("no captured picture has a barcode".to_owned()))
}

/// Returns the ends of the first hop of all frames, CLOCK_MONOTONIC nanoseconds, from a run's rows.
fn first_hop_ends(csv: &str) -> Vec<u64> {
    let mut lines = csv.lines().map(cells);
    let names = lines.next().unwrap_or_default();
    let column = |wanted: &str| names.iter().position(|name| name == wanted);
    let Some((hop, end)) = column("hop").zip(column("leave_ns")) else { return Vec::new() };
    let of_first = lines.filter(|row| row.get(hop).is_some_and(|hop| hop == "0"));
    of_first.filter_map(|row| row.get(end)?.parse().ok()).collect()
}

/// Returns the program that captures `frames` pictures at `rate`.
fn program(
    name: &str,
    settings: &ExperimentSettings,
    screen: &Display,
    frames: u64,
    rate: u32,
) -> Result<Program, LabError> {
    let words = match name {
        "x11" | "wayland" => {
            let path = format!("{} ! null", own_stage(name, screen, frames, rate)?);
            return Ok(own(settings, screen, "off", &path));
        }
        "ximagesrc" => gst(&format!(
            "ximagesrc display-name={} use-damage=false show-pointer=false num-buffers={frames} ! \
             video/x-raw,framerate={rate}/1 ! fakesink",
            screen.x_name()?
        )),
        _ => format!(
            "ffmpeg -nostdin -v error -f x11grab -draw_mouse 0 -framerate {rate} -video_size {}x{} -i {} \
             -frames:v {frames} -c:v wrapped_avframe -f null -",
            SIZE.0,
            SIZE.1,
            screen.x_name()?
        )
        .split_whitespace()
        .map(str::to_owned)
        .collect(),
    };
    let mut words = words.into_iter();
    Ok(Program::new(words.next().unwrap_or_default(), words))
}

/// Returns framepath's stage that captures `frames` pictures of `screen`.
fn own_stage(name: &str, screen: &Display, frames: u64, rate: u32) -> Result<String, LabError> {
    let display = if name == CAPTURERS[0] { format!(" {}", screen.x_name()?) } else { String::new() };
    Ok(format!("{name}{display} rate={rate} cursor=no frames={frames}"))
}

/// Returns framepath's run of a path on `screen`, with a ledger of this level, which prints its summary.
fn own(settings: &ExperimentSettings, screen: &Display, ledger: &str, path: &str) -> Program {
    let environment = screen.environment.iter().map(|(key, value)| format!("{key}={value}").into());
    let mut words: Vec<std::ffi::OsString> = environment.collect();
    words.push(settings.framepath.clone().into());
    words.extend(["run", "--quiet", "--ledger", ledger, "--json", "-", path].map(Into::into));
    Program::new("env", words)
}

/// Runs a program.
fn cost(program: &Program, screen: &Display) -> Result<CaptureCost, LabError> {
    let server = || -> Result<u64, LabError> {
        let server = screen.server.ok_or_else(|| LabError::Unknown("no display server".to_owned()))?;
        running::of(server)
            .map(|used| used.cpu_ns)
            .map_err(LabError::io("reading the display server's CPU time"))
    };
    let before = server()?;
    let finished = program.run(false).map_err(|error| match error {
        LabError::Missing(_) => missing_program(&program.program.to_string_lossy()),
        error => error,
    })?;
    let server_cpu_ns = server()?.saturating_sub(before);
    Ok(CaptureCost { wall_ns: finished.wall_ns, cpu_ns: finished.usage.cpu_ns, server_cpu_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_first_hop_are_read() {
        let csv = "path,seq,hop,leave_ns\n\"a,b\",0,0,7\na,0,1,8\na,1,0,9\n";
        assert_eq!(first_hop_ends(csv), [7, 9]);
        assert!(first_hop_ends("").is_empty());
    }
}
