// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath trace`: shows when the threads of any program ran, were preempted and waited.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process;
use std::time::Duration;

use anyhow::Context;
use framepath::{Report, export};
use framepath_os::process::signal;
use framepath_os::process::signal_relay::{KeptSignals, end_by};
use framepath_trace::{FRAME_HEADER, Recording, StageLimits, TraceLevel, TraceReport, Usage};

use crate::analysis_watch::AnalysisWatch;
use crate::exit_status::{self, ExitStatus, UsageError};
use crate::output_file::OutputFile;
use crate::terminal::{self, TextTarget};
use crate::traced;

const EXAMPLES: &str = "\
Examples:
  framepath trace -- ffmpeg -i clip.mp4 -vf scale=640:-2 -f null -
  framepath trace -- gst-launch-1.0 filesrc location=clip.mp4 ! decodebin ! fakesink
  framepath trace -p $(pidof mpv) --seconds 10 --from decode
  framepath trace --from decode --to present -- ffplay clip.mp4
  framepath trace --header > framepath_frame.h
  framepath trace --json trace.json --report trace.html -- ffmpeg -i clip.mp4 out.mp4

Shows where the time of each video frame went in a program that uses FFmpeg's shared libraries,
GStreamer or a V4L2 device, and in all that it starts: by stage and by cause, for the median frame
and the slowest one; in a player at level bpf, until the frame is in its window (the stage present).
A C or C++ program can name its frames and stages itself, with two functions (--header). Then,
for each thread, the time on a CPU, the time in which another thread had its CPU, and the time in
which it waited. The program is not changed.

Levels, the highest one that you have the rights for unless --level names another:
  bpf      root, or CAP_BPF and CAP_PERFMON (sudo setcap cap_bpf,cap_perfmon+ep FRAMEPATH)
  preload  anyone, for commands: a library in the program; no reasons of waits, no decoder threads
  threads  anyone, and static or stripped programs: no frames
`framepath doctor` says which one you have. docs/trace.md explains each figure.

The table for a command goes to standard error, because standard output is the command's.

Exit code:
  that of the command; if a signal ended it, the same signal ends framepath (a shell's 128 and its number)
  0    a running process (-p) was recorded
  1    the command cannot be started, the kernel denies the observation, or an output cannot be written
       after the command has ended with 0; the other outputs are written
  2    an argument is invalid
  130  SIGINT (Ctrl-C) or SIGTERM with -p, and a second signal to framepath itself with a command; the
       times until then are shown

Ctrl-C and Ctrl-Z of the terminal are the command's, as if it ran alone; framepath goes on until it ends.
SIGINT, SIGTERM and SIGHUP that a program sends to framepath are passed on to it.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceArgs {
    /// Number of a running process, instead of a command; the process goes on when the recording ends
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i32::MAX as i64))]
    pid: Option<u32>,

    /// Record for N seconds at most; a command that has not ended then gets SIGTERM
    /// [default: until the command or process ends]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,

    /// Level of the recording [default: the highest level that this user has the rights for]
    #[arg(long, value_name = "LEVEL")]
    level: Option<LevelName>,

    /// First stage to show, with the time from its begin on: `decode`, `encode`, or an element
    /// [default: the first one]
    #[arg(long, value_name = "STAGE")]
    from: Option<String>,

    /// Last stage to show: `decode`, `filter`, `present`, or an element [default: the last one]
    #[arg(long, value_name = "STAGE")]
    to: Option<String>,

    /// Write the ledger of the frames as CSV, a line per frame and stage; `-` is standard output
    /// [default: write none]
    #[arg(long, value_name = "FILE")]
    csv: Option<String>,

    /// Write a trace for Perfetto (ui.perfetto.dev): a track for each thread that had frames; `-` is
    /// standard output [default: write none]
    #[arg(long, value_name = "FILE")]
    perfetto: Option<String>,

    /// Write a report that says where the time of the longest stream went: one HTML file with pictures, which needs no
    /// network; `-` is standard output [default: write none]
    #[arg(long, value_name = "FILE")]
    report: Option<String>,

    /// Write the figures as JSON, for `gate` and other programs; `-` is standard output
    /// [default: write none]
    #[arg(long, value_name = "FILE")]
    json: Option<String>,

    /// Print framepath_frame.h, with which a C or C++ program says where its frames are, and end
    #[arg(long, exclusive = true)]
    header: bool,

    /// Print no table
    #[arg(long)]
    quiet: bool,

    /// Program to start, and its arguments, after `--`; it runs without a shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LevelName {
    /// Times of threads, without a privilege
    Threads,
    /// Frames and stages of a command, by a library that is loaded into it: without a privilege
    Preload,
    /// Frames, stages and causes: root, or CAP_BPF and CAP_PERFMON
    Bpf,
}

impl From<LevelName> for TraceLevel {
    fn from(name: LevelName) -> TraceLevel {
        match name {
            LevelName::Threads => TraceLevel::Threads,
            LevelName::Preload => TraceLevel::Preload,
            LevelName::Bpf => TraceLevel::Bpf,
        }
    }
}

/// Outputs of the options `--csv`, `--perfetto`, `--report` and `--json`; `None`: the option is absent.
struct TraceOutputs {
    csv: Option<OutputFile>,
    perfetto: Option<OutputFile>,
    page: Option<OutputFile>,
    json: Option<OutputFile>,
}

impl TraceOutputs {
    /// Creates the outputs that `arguments` name.
    ///
    /// # Errors
    /// From [`OutputFile::create`]; a [`UsageError`] if more than one of them is standard output.
    fn create(arguments: &TraceArgs) -> anyhow::Result<TraceOutputs> {
        let file = |name: &Option<String>| OutputFile::option(name.as_deref());
        let outputs = TraceOutputs {
            csv: file(&arguments.csv)?,
            perfetto: file(&arguments.perfetto)?,
            page: file(&arguments.report)?,
            json: file(&arguments.json)?,
        };
        match outputs.on_stdout() {
            0 | 1 => Ok(outputs),
            several => {
                Err(usage(&format!("{several} outputs use standard output; write all but one to files")))
            }
        }
    }

    /// Returns the number of outputs that are standard output.
    fn on_stdout(&self) -> usize {
        let outputs = [&self.csv, &self.perfetto, &self.page, &self.json];
        outputs.into_iter().flatten().filter(|output| output.is_stdout()).count()
    }

    /// Writes all outputs. Returns the errors of those that cannot be written; the others are written all the same. A report
    /// without frames has no page, which is no error.
    fn write(self, report: &TraceReport, runs: &mut [(String, Report)]) -> Vec<anyhow::Error> {
        let named: Vec<(&str, &Report)> = runs.iter().map(|(name, run)| (name.as_str(), run)).collect();
        let csv = self.csv.map(|csv| csv.write(|to| export::csv::write_all(&named, to)));
        let perfetto =
            self.perfetto.map(|perfetto| perfetto.write(|to| export::trace::write_all(&named, to)));
        let page = self.page.and_then(|page| match runs.first_mut() {
            Some((_, longest)) => Some(page.write(|to| export::page::write(longest, to))),
            None => {
                terminal::note(&format!("framepath: trace: {}", nothing_to_report(report)));
                None
            }
        });
        let json = self.json.map(|json| json.json(traced::json(report, runs)));
        [csv, perfetto, page, json].into_iter().flatten().filter_map(Result::err).collect()
    }
}

impl TraceArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        if self.header {
            terminal::print(FRAME_HEADER.as_bytes())?;
            return Ok(ExitStatus::Done);
        }
        match (self.pid, self.command.is_empty()) {
            (Some(_), false) => return Err(usage("-p PID and a command exclude each other")),
            (None, true) => {
                return Err(usage("what to trace: `-- COMMAND`, or `-p PID` for a running process"));
            }
            _ => {}
        }
        // Before the signals are kept and the probes are attached: this can wait, or fail.
        let outputs = TraceOutputs::create(&self)?;
        let has_data = self.pid.is_none() || outputs.on_stdout() > 0;
        let mut kept = None;
        let recording = match self.pid {
            Some(pid) => {
                // Before the probes: a signal that kills while they are attached could leave some.
                signal::install().context("installing the handler of Ctrl-C")?;
                Recording::of_process(pid, self.level.map(Into::into))?
            }
            None => {
                let mut command = process::Command::new(&self.command[0]);
                command.args(&self.command[1..]);
                kept = Some(KeptSignals::open().context("passing signals on to the command")?);
                kept.iter().for_each(|kept| kept.prepare(&mut command));
                Recording::of_command(command, self.level.map(Into::into))?
            }
        };
        let recording = recording.within(StageLimits { from: self.from, to: self.to });
        let limit = self.seconds.map(|seconds| Duration::from_secs(seconds.into()));
        let recorded = recording.record(limit, kept.as_ref())?;
        // From here on, Ctrl-C ends this program.
        drop(kept);
        let watch = AnalysisWatch::start(give_up(*recorded.usage(), self.pid.is_none()));
        let report = recorded.report();
        let text = report.text();
        let mut runs = traced::reports(&report);
        let mut failures = Vec::new();
        if !self.quiet {
            failures.extend(TextTarget::beside_data(has_data).print(&text).err());
        }
        failures.extend(outputs.write(&report, &mut runs));
        // The outputs are as large as the recorded program has made them.
        drop(watch);
        let status = exit_status(&report.usage, self.pid.is_none());
        // A failure of the command is the exit code; only behind its success, one of framepath is.
        let returned = if status == ExitStatus::Done { failures.pop() } else { None };
        failures.iter().for_each(|failure| exit_status::print_failure("trace", failure));
        if let Some(number) = report.usage.signal {
            // The parent sees the end of the command; behind that, an exit code stands for signals that end no process.
            io::stdout().flush().ok();
            end_by(number);
        }
        returned.map_or(Ok(status), Err)
    }
}

/// Returns what ends this program if the analysis takes too much: as the command has ended, or as a failure.
fn give_up(usage: Usage, is_command: bool) -> impl FnOnce(&str) + Send {
    move |reason| {
        terminal::note(&format!(
            "framepath: trace: the analysis of the recording was given up: it took {reason}"
        ));
        if let Some(number) = usage.signal {
            end_by(number);
        }
        let code = match exit_status(&usage, is_command) {
            ExitStatus::OfCommand(code) => code,
            _ => 1,
        };
        process::exit(code.into())
    }
}

/// Returns the sentence that says why there is no page.
fn nothing_to_report(report: &TraceReport) -> String {
    let reason = report.without_frames().unwrap_or_else(|| "level `threads` sees no frames".to_owned());
    format!("--report: nothing to report: {reason}")
}

fn usage(text: &str) -> anyhow::Error {
    UsageError(text.to_owned()).into()
}

/// Returns the exit status behind the recording of a command, or of a running process.
fn exit_status(usage: &Usage, is_command: bool) -> ExitStatus {
    // The number of a signal is below 65, and an exit code is a byte.
    let byte = |code: i32| u8::try_from(code).unwrap_or(u8::MAX);
    match (usage.exit_code, usage.signal) {
        _ if signal::interrupted() => ExitStatus::Interrupted,
        // The command goes on.
        (None, None) if is_command => ExitStatus::Interrupted,
        (Some(0), _) | (None, None) => ExitStatus::Done,
        (Some(code), _) => ExitStatus::OfCommand(byte(code)),
        (None, Some(signal)) => ExitStatus::OfCommand(byte(128 + signal)),
    }
}
