// SPDX-License-Identifier: MIT OR Apache-2.0
//! Foreign video program that `framepath trace` observes, and that measures by itself what the ledger must show:
//! compiles `programs/traced.c` with the system's compiler and FFmpeg's libraries, and runs it under the tracer.

mod clip;
mod own_report;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use framepath::HopInfo;
use framepath_model::ledger::Row;
use framepath_os::measure::meter::Level;
use framepath_os::process::signal;
use framepath_trace::{Recording, StreamLedger, TraceError, TraceLevel, TraceReport};
use tempfile::TempDir;

pub use clip::NumberedClip;
pub use own_report::{Injected, OwnFrame, OwnReport};

use crate::error::LabError;
use crate::measure::Measured;
use crate::process::Program;
use crate::temporary_folder::temporary_folder;

/// Files of the program, by name.
const SOURCES: [(&str, &str); 3] = [
    ("traced.c", include_str!("../programs/traced.c")),
    ("inject.c", include_str!("../programs/inject.c")),
    ("inject.h", include_str!("../programs/inject.h")),
];
const LIBRARIES: [&str; 4] = ["libavformat", "libavcodec", "libavfilter", "libavutil"];

/// Compiled program in a folder of its own.
#[derive(Debug)]
pub struct TracedProgram {
    folder: PathBuf,
    /// Removes the folder when this value is dropped; `None` if the folder stays.
    _temporary: Option<TempDir>,
}

/// One run of the program under the tracer.
#[derive(Clone, Debug)]
pub struct TracedRun {
    /// Report of the tracer.
    pub trace: TraceReport,
    /// Report of the program itself.
    pub own: OwnReport,
}

impl TracedProgram {
    /// Compiles the program in a folder for temporary files, which is removed when the value is dropped.
    ///
    /// # Errors
    /// As for [`TracedProgram::build_in`].
    pub fn build() -> Result<TracedProgram, LabError> {
        let folder = temporary_folder()?;
        let program = TracedProgram { folder: folder.path().to_owned(), _temporary: Some(folder) };
        program.compile()?;
        Ok(program)
    }

    /// Compiles the program in `folder`, which is made if it is missing, and stays.
    ///
    /// # Errors
    /// [`LabError::Missing`] without a compiler or the headers of FFmpeg's libraries; [`LabError::Io`];
    /// [`LabError::Command`] if the program cannot be compiled.
    pub fn build_in(folder: &Path) -> Result<TracedProgram, LabError> {
        let program = TracedProgram { folder: folder.to_owned(), _temporary: None };
        program.compile()?;
        Ok(program)
    }

    fn compile(&self) -> Result<(), LabError> {
        fs::create_dir_all(&self.folder).map_err(LabError::io("creating a folder for the traced program"))?;
        for (name, text) in SOURCES {
            fs::write(self.file(name), text).map_err(LabError::io("writing the traced program"))?;
        }
        let found = Program::new("pkg-config", ["--cflags", "--libs"].into_iter().chain(LIBRARIES)).run(true);
        let Ok(found) = found else {
            return Err(LabError::Missing(
                "no headers of FFmpeg's libraries; apt install pkg-config libavformat-dev libavfilter-dev"
                    .to_owned(),
            ));
        };
        let mut words: Vec<OsString> =
            ["-std=gnu11", "-O2", "-g", "-Wall", "-Wno-deprecated-declarations", "-o"]
                .map(OsString::from)
                .to_vec();
        words.extend(["traced", "traced.c", "inject.c"].map(|name| self.file(name).into_os_string()));
        words.extend(found.stdout.split_whitespace().map(OsString::from));
        words.push("-lpthread".into());
        Program::new("cc", words).run(false)?;
        Ok(())
    }

    /// Returns the path of the file `name` in the program's folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs the program with `options`, as in its first comment, on the file `input` under the tracer. Its output is
    /// dropped.
    ///
    /// # Errors
    /// [`LabError::Missing`] if the kernel denies the level `bpf`; [`LabError::Command`] if the program fails;
    /// [`LabError::Unknown`] if the tracer fails or the program's report cannot be read.
    pub fn trace(&self, options: &[&str], input: &Path) -> Result<TracedRun, LabError> {
        let own = self.file(&format!("report-{:?}", std::thread::current().id()));
        let mut command = Command::new(self.file("traced"));
        command.args(options).args([input, Path::new("/dev/null"), &own]).stdin(Stdio::null());
        let trace = trace_to_end(command, &format!("traced {}", options.join(" ")))?;
        let text = fs::read_to_string(&own).map_err(LabError::io("reading the traced program's report"))?;
        Ok(TracedRun { trace, own: OwnReport::parse(&text)? })
    }
}

/// Runs `command` under the tracer at level `bpf`.
///
/// # Errors
/// [`LabError::Missing`] if the kernel denies the level; [`LabError::Unknown`] if the tracer fails.
pub fn trace(command: Command) -> Result<TraceReport, LabError> {
    recording(command)?.run(None).map_err(failed)
}

/// Runs `command`, which `what` names, under the tracer at level `bpf`.
///
/// # Errors
/// As for [`trace`]; [`LabError::Command`] if the command fails; [`LabError::Interrupted`].
pub fn trace_to_end(command: Command, what: &str) -> Result<TraceReport, LabError> {
    let traced = trace(command)?;
    if signal::interrupted() {
        return Err(LabError::Interrupted);
    }
    match traced.usage.exit_code {
        Some(0) => Ok(traced),
        exit_code => Err(LabError::Command {
            command: what.to_owned(),
            outcome: "failed under the tracer".to_owned(),
            exit_code,
            stderr: String::new(),
        }),
    }
}

/// Prepares the recording of `command` at level `bpf`.
///
/// # Errors
/// As for [`trace`].
pub fn recording(command: Command) -> Result<Recording, LabError> {
    Recording::of_command(command, Some(TraceLevel::Bpf)).map_err(failed)
}

fn failed(error: TraceError) -> LabError {
    match error {
        TraceError::NoProbes { .. } | TraceError::Denied { .. } => LabError::Missing(error.to_string()),
        error => LabError::Unknown(error.to_string()),
    }
}

impl TracedRun {
    /// Returns the ledger of the program's frames.
    ///
    /// # Errors
    /// [`LabError::Unknown`] if the tracer saw none.
    pub fn stream(&self) -> Result<&StreamLedger, LabError> {
        self.trace.streams.first().ok_or_else(|| LabError::Unknown("the tracer saw no frame".to_owned()))
    }

    /// Returns the rows of the frame with the time `pts`, in the order of the stages; empty if the ledger has none.
    pub fn rows(&self, pts: i64) -> Vec<&Row> {
        let seq = self.own.packets.iter().position(|packet| *packet == pts);
        let rows = self.trace.streams.first().map_or(&[][..], |stream| &stream.rows);
        rows.iter().filter(|row| Some(row.seq) == seq.map(|seq| seq as u64)).collect()
    }

    /// Returns the index of the stage whose name begins with `word`, such as `decode`.
    ///
    /// # Errors
    /// [`LabError::Unknown`] if the ledger has no such stage.
    pub fn stage(&self, word: &str) -> Result<usize, LabError> {
        let stages = &self.stream()?.stages;
        let found = stages.iter().position(|stage| stage.split(' ').next() == Some(word));
        found.ok_or_else(|| LabError::Unknown(format!("the ledger has no stage {word}, but {stages:?}")))
    }
}

/// Returns the figures of one stream of `traced`, as those of a path: its stages are the hops.
pub(crate) fn measured(traced: &TraceReport, stream: &StreamLedger) -> Measured {
    let mut report = framepath::Report::default();
    (report.frames, report.wall_ns) = (stream.frames, traced.wall_ns);
    report.cpu_ns = traced.usage.cpu_ns.unwrap_or_else(|| traced.running_ns());
    report.level = Level::Full;
    report.hops = stream.stages.iter().map(HopInfo::new).collect();
    report.rows = stream.rows.clone();
    Measured::from_report(&mut report)
}

/// Returns the numbers of the packets in the order in which their frames left the last stage.
pub fn order_of_output(stream: &StreamLedger) -> Vec<u64> {
    let last = stream.stages.len().saturating_sub(1);
    let mut rows: Vec<&Row> = stream.rows.iter().filter(|row| usize::from(row.hop) == last).collect();
    rows.sort_by_key(|row| row.leave_ns);
    rows.iter().map(|row| row.seq).collect()
}
