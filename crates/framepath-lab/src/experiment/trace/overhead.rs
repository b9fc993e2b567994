// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cost of the tracer: CPU time of the ffmpeg tool with and without it in interleaved pairs, and the time by which the
//! program begins later.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use framepath_model::stats::median;
use framepath_model::summary::Summary;
use framepath_os::process::children;
use framepath_os::time::now_ns;
use tempfile::TempDir;

use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::{Contender, Measured};
use crate::pairs;
use crate::progress::ProgressView;
use crate::temporary_folder::temporary_folder;
use crate::traced::recording;

/// Decoding of a clip to nothing: name of the case, clip, and how often it is repeated.
const DECODES: [(&str, &str, u32); 2] =
    [("ffmpeg-h264-1080p8", "h264-1080p8.h264", 10), ("ffmpeg-h264-180p8", "h264-180p8-container.mp4", 200)];
/// Case of the time by which a program begins later.
const ATTACH: &str = "ffmpeg-attach";

/// Returns the names of the cases.
pub(super) fn cases() -> impl Iterator<Item = &'static str> {
    DECODES.iter().map(|(name, ..)| *name).chain([ATTACH])
}

/// Runs the wanted cases.
///
/// # Errors
/// As for [`pairs::run`], and [`LabError::Unknown`] if a clip is missing.
pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let rounds = settings.rounds(5, 20);
    for (name, clip, repeats) in DECODES.into_iter().filter(|(name, ..)| settings.wants(name)) {
        let clip = Repeated::of(&settings.clip(clip)?, repeats)?;
        let contenders = contenders(|| decode(&clip.path, clip.loops));
        pairs::run(name, contenders, &[("cpu_ms", "traced", "alone")], rounds, watch, summary)?;
    }
    if settings.wants(ATTACH) {
        let contenders = contenders(|| {
            let mut command = Command::new("ffmpeg");
            command.arg("-version");
            command
        });
        let runs =
            pairs::run(ATTACH, contenders, &[("begin_ms", "traced", "alone")], rounds, watch, summary)?;
        let begin = |measured: &Measured| measured.extra.get("begin_ms").copied().unwrap_or(0.0);
        let later: Vec<f64> = runs[0].iter().zip(&runs[1]).map(|(a, b)| begin(a) - begin(b)).collect();
        let row = summary.rows.iter_mut().find(|row| row.case == ATTACH && row.contender == "traced");
        if let (Some(row), Some(ms)) = (row, median(&later)) {
            row.extra.insert("attach_ms".to_owned(), ms);
        }
    }
    Ok(())
}

/// Clip that lasts longer. Its file is removed when this value is dropped, if it was made.
struct Repeated {
    path: PathBuf,
    /// Folder of its own file, if it has one.
    _made: Option<TempDir>,
    /// Number of times that ffmpeg plays the file again.
    loops: u32,
}

impl Repeated {
    /// Repeats a raw stream by a file of its own: ffmpeg cannot seek to its begin.
    fn of(clip: &Path, repeats: u32) -> Result<Repeated, LabError> {
        if clip.extension().is_none_or(|extension| extension != "h264") {
            return Ok(Repeated { path: clip.to_owned(), _made: None, loops: repeats });
        }
        let bytes = fs::read(clip).map_err(LabError::io("reading a clip"))?;
        let folder = temporary_folder()?;
        let path = folder.path().join("repeated.h264");
        fs::write(&path, bytes.repeat(repeats as usize)).map_err(LabError::io("writing a clip"))?;
        Ok(Repeated { path, _made: Some(folder), loops: 0 })
    }
}

fn decode(clip: &Path, loops: u32) -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-stream_loop", &loops.to_string(), "-i"]).arg(clip);
    command.args(["-f", "null", "-"]);
    command
}

/// Returns the two contenders: the command that `make` creates under the tracer, and alone.
fn contenders<'a>(make: impl Fn() -> Command + Clone + 'a) -> Vec<Contender<'a>> {
    let of_alone = make.clone();
    vec![
        Contender::new("traced", move || {
            let before_ns = now_ns();
            let mut command = make();
            let output = Output::of(&mut command)?;
            let recording = recording(command)?;
            let since_ns = now_ns();
            let report = recording.run(None).map_err(|error| LabError::Unknown(error.to_string()))?;
            let [all, emulated] = report.probes;
            let cpu_ns = report.usage.cpu_ns.unwrap_or(0);
            let mut measured = measured(cpu_ns, report.wall_ns, output.first_ns(), since_ns);
            measured.extra.insert("prepare_ms".to_owned(), (since_ns - before_ns) as f64 / 1e6);
            measured.extra.insert("emulated_percent".to_owned(), 100.0 * emulated as f64 / all.max(1) as f64);
            Ok(measured)
        }),
        Contender::new("alone", move || {
            let mut command = of_alone();
            let output = Output::of(&mut command)?;
            let since_ns = now_ns();
            let missing = |_| LabError::Missing("ffmpeg is not installed; apt install ffmpeg".to_owned());
            let child = command.spawn().map_err(missing)?;
            let usage = children::wait(child).map_err(LabError::io("waiting for ffmpeg"))?;
            let wall_ns = now_ns() - since_ns;
            drop(command);
            Ok(measured(usage.cpu_ns, wall_ns, output.first_ns(), since_ns))
        }),
    ]
}

/// Figures of a run whose first output came at `first_ns`.
fn measured(cpu_ns: u64, wall_ns: u64, first_ns: Option<u64>, since_ns: u64) -> Measured {
    let mut measured = Measured { cpu_ns, wall_ns, ..Measured::default() };
    let begin_ms = first_ns.map(|first_ns| first_ns.saturating_sub(since_ns) as f64 / 1e6);
    measured.extra.extend(begin_ms.map(|ms| ("begin_ms".to_owned(), ms)));
    measured
}

/// Standard output of a command, which a thread reads.
struct Output(JoinHandle<Option<u64>>);

impl Output {
    /// Takes the output of `command`, which is not started yet.
    fn of(command: &mut Command) -> Result<Output, LabError> {
        let (mut reader, writer) = UnixStream::pair().map_err(LabError::io("socketpair"))?;
        command.stdin(Stdio::null()).stdout(OwnedFd::from(writer)).stderr(Stdio::null());
        Ok(Output(thread::spawn(move || {
            let mut bytes = [0; 4096];
            let first_ns = matches!(reader.read(&mut bytes), Ok(1..)).then(now_ns);
            while matches!(reader.read(&mut bytes), Ok(1..)) {}
            first_ns
        })))
    }

    /// Waits for the end of the output, which is that of the process if the command's value has been dropped. Returns the
    /// time of its first byte, CLOCK_MONOTONIC nanoseconds; `None` without one.
    fn first_ns(self) -> Option<u64> {
        self.0.join().unwrap_or_default()
    }
}
