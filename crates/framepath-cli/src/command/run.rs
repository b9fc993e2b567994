// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath run`: runs a path and shows how its frames spent their time.

use anyhow::Context;
use clap::ValueEnum;
use framepath::{FrameCount, Level, LiveLedger, Options, Path, PathError, Report, export, path};
use framepath_model::shown::shown;
use framepath_os::process::signal;

use crate::exit_status::{ExitStatus, UsageError};
use crate::output_file::OutputFile;
use crate::progress::Ticker;
use crate::terminal::{self, TextTarget};

const EXAMPLES: &str = "\
Examples:
  framepath run 'file clip.mp4 ! decode ! null'
  framepath run 'file clip.mp4 ! decode format=nv12 threads=1 ! queue depth=4 ! null'
  framepath run 'file clip.mp4 ! decode ! tee ( queue ! framemd5 a.md5 ) ( queue ! play )'
  framepath run 'file clip.mp4 ! decode ! framemd5 -' --frames 10
  framepath run 'file clip.mp4 ! decode host=process ! play'
  framepath run 'test frames=600 rate=60 ! queue ! null' --perfetto trace.json
  framepath run 'file clip.mp4 ! decode ! queue ! null' --report report.html
  framepath run test frames=0 rate=30 ! threshold level=100 ! null

`play` opens a window: q ends the path, space pauses, f fills the screen. Ctrl-C ends an
endless path, such as one with `test frames=0`, and prints its summary.

-v logs files, workers and connections; -vv also logs hops, decoders and pools.
FRAMEPATH_LOG=off, error, warn, info, debug or trace sets the level if there is no -v.

`framepath stages` lists the parts of a path. The summary goes to standard output, or
to standard error if the path's sink or an option writes to standard output.

Exit code:
  0    every frame was delivered. Frames that a queue with leaky= drops, and late frames
       that `play` drops, are counted in the summary and are no loss; frames that `send`
       drops for a slow network are a loss of that viewer
  1    a stage failed, no frame reached the sink, or an output cannot be written
  2    the path or an option is invalid
  3    packets were skipped or frames lost; a line on standard error has the number, the
       hop, the first packet and the reason (--quiet keeps this line). With --strict also
       if the stream is damaged; without it, such a line and exit code 0
  130  SIGINT (Ctrl-C) or SIGTERM: frames in flight have 0.4 s to be delivered. A second
       signal ends the program immediately";

/// Ledger rows per thread, if no option says otherwise.
const ROWS: u32 = 65_536;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The path as one argument in quotes, or as several words if your shell does not interpret `!`
    #[arg(required = true, value_name = "PATH")]
    path: Vec<String>,

    /// Detail of the ledger: `off` records no rows, `times` records timestamps and copied bytes of every hop,
    /// `full` adds CPU time, run delay, context switches and page faults and, where the machine counts them,
    /// cycles, instructions and cache misses
    #[arg(long, value_enum, default_value_t = Ledger::Full)]
    ledger: Ledger,

    /// Write the ledger as CSV, a line per frame and hop; `-` is standard output [default: write none]
    #[arg(long, value_name = "FILE")]
    csv: Option<String>,

    /// Write a trace for Perfetto (ui.perfetto.dev): a track for each thread, decoder thread and
    /// worker, bars of waits, depths of queues; `-` is standard output [default: write none]
    #[arg(long = "perfetto", alias = "trace", value_name = "FILE")]
    trace: Option<String>,

    /// Write a report that says where the time went: one HTML file with pictures, which needs no
    /// network; `-` is standard output [default: write none]
    #[arg(long, value_name = "FILE")]
    report: Option<String>,

    /// Write the figures as JSON; for a path that cannot start, the error; `-` is standard output
    /// [default: write none]
    #[arg(long, value_name = "FILE")]
    json: Option<String>,

    /// Stop after N frames or packets at the sink; after a tee, at each sink [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    frames: Option<u64>,

    /// Maximum number of ledger rows per thread (1 to 67108864); newer rows overwrite the oldest. Without
    /// effect with --ledger off
    #[arg(long, value_name = "N", default_value_t = ROWS,
          value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    rows: u32,

    /// Exit with code 3 also if the stream is damaged: packets that cannot be decoded or are left out after
    /// damage, or frames with parts that the decoder concealed. Without this option, damage is only reported
    #[arg(long)]
    strict: bool,

    /// While the path runs, show each second where the frames of the last 5 s spent their time, on standard error;
    /// with a network stream also in the hops of the other end
    #[arg(long)]
    live: bool,

    /// Print no summary and no progress; failures, losses, damage and notes still go to standard error
    #[arg(long)]
    quiet: bool,

    /// Print the number of frames that reached the sink, unless standard output carries data; for
    /// `compare`
    #[arg(long, hide = true)]
    count: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Ledger {
    Off,
    Times,
    Full,
}

impl Ledger {
    fn level(self) -> Level {
        match self {
            Ledger::Off => Level::Off,
            Ledger::Times => Level::Times,
            Ledger::Full => Level::Full,
        }
    }
}

/// Output files of the options `--csv`, `--trace`, `--report` and `--json`, created before the run and
/// written after it. If the path cannot start, only `--json` is written. `None`: the option is absent.
struct Outputs {
    csv: Option<OutputFile>,
    trace: Option<OutputFile>,
    report: Option<OutputFile>,
    json: Option<OutputFile>,
}

impl Outputs {
    fn any_on_stdout(&self) -> usize {
        [&self.csv, &self.trace, &self.report, &self.json]
            .into_iter()
            .flatten()
            .filter(|o| o.is_stdout())
            .count()
    }

    /// Writes the JSON summary of a path that could not start, with `error` as a note. Writes nothing
    /// without `--json`.
    fn write_failure(self, error: &anyhow::Error) -> anyhow::Result<()> {
        self.json.map_or(Ok(()), |json| {
            let summary = export::summary::stopped(&error.to_string());
            json.json(serde_json::to_string_pretty(&summary))
        })
    }

    fn write(self, report: &mut Report, path: &Path) -> anyhow::Result<()> {
        if let Some(csv) = self.csv {
            csv.write(|to| export::csv::write(report, to))?;
        }
        if let Some(trace) = self.trace {
            trace.write(|to| export::trace::write(report, to))?;
        }
        if let Some(page) = self.report {
            page.write(|to| export::page::write(report, to))?;
        }
        if let Some(json) = self.json {
            json.json(serde_json::to_string_pretty(&export::summary::summary(report, &path.to_string())))?;
        }
        Ok(())
    }
}

impl RunArgs {
    /// Returns the arguments of a command that runs the path `text` and has no options but `--live` and `--quiet`.
    #[cfg(feature = "net")]
    pub(super) fn of_path(text: String, live: bool, quiet: bool) -> RunArgs {
        RunArgs {
            path: vec![text],
            ledger: Ledger::Full,
            csv: None,
            trace: None,
            report: None,
            json: None,
            frames: None,
            rows: ROWS,
            strict: false,
            live,
            quiet,
            count: false,
        }
    }

    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let text = text_of(&self.path);
        let path = path::parse(&text).map_err(|error| unreadable(&text, &error))?;
        let options = [
            ("--csv", &self.csv),
            ("--perfetto", &self.trace),
            ("--report", &self.report),
            ("--json", &self.json),
        ];
        let files = options.iter().filter_map(|(option, file)| Some((*option, file.as_deref()?)));
        export::files::check_files(&path.hops, files).map_err(|error| UsageError(error.to_string()))?;
        let sink_on_stdout = export::takes_stdout(&path);
        let outputs = Outputs {
            csv: OutputFile::option(self.csv.as_deref())?,
            trace: OutputFile::option(self.trace.as_deref())?,
            report: OutputFile::option(self.report.as_deref())?,
            json: OutputFile::option(self.json.as_deref())?,
        };
        let on_stdout = outputs.any_on_stdout() + usize::from(sink_on_stdout);
        if on_stdout > 1 {
            return Err(UsageError(format!(
                "{on_stdout} outputs use standard output; write all but one to files"
            ))
            .into());
        }
        signal::install().context("installing the handler of Ctrl-C")?;
        let options = Options {
            level: self.ledger.level(),
            rows: self.rows as usize,
            frames: self.frames,
            live: self.live.then(LiveLedger::default),
            ..Options::default()
        };
        let mut report = match self.watched(&path, &options) {
            Ok(report) => report,
            Err(error) => {
                outputs.write_failure(&error)?;
                return Err(error);
            }
        };
        let data_on_stdout = on_stdout > 0;
        // The ledger of a failed run is shown too, before the error.
        let shown = self.show(&mut report, TextTarget::beside_data(data_on_stdout));
        let losses = report.losses();
        for loss in &losses {
            terminal::note(&format!("framepath: run: {loss}"));
        }
        let damage = report.damage.clone();
        if !damage.is_none() {
            terminal::note(&format!("framepath: run: damaged stream: {damage}"));
        }
        let written = outputs.write(&mut report, &path);
        if let Some(error) = report.error {
            return Err(error.into());
        }
        shown.and(written)?;
        Ok(match (report.interrupted, losses.is_empty() && (damage.is_none() || !self.strict)) {
            (true, _) => ExitStatus::Interrupted,
            (false, false) => ExitStatus::Lost,
            (false, true) => ExitStatus::Done,
        })
    }

    fn watched(&self, path: &Path, options: &Options) -> anyhow::Result<Report> {
        let progress = FrameCount::clone(&options.progress);
        let ticker = match &options.live {
            Some(live) => Some(Ticker::start_live(live.clone())),
            None => (!self.quiet).then(|| Ticker::start(progress)),
        };
        let outcome = framepath::run(path, options);
        drop(ticker);
        Ok(outcome?)
    }

    fn show(&self, report: &mut Report, screen: TextTarget) -> anyhow::Result<()> {
        for note in &report.notes {
            TextTarget::Error.print(&format!("framepath: {}\n", shown(note)))?;
        }
        if !self.quiet {
            screen.print(&export::text::summary(report))?;
        }
        if self.count && screen == TextTarget::Output {
            terminal::print(format!("{}\n", report.frames).as_bytes())?;
        }
        Ok(())
    }
}

/// Returns the path's text. A single word is the whole text. Several words were split by the shell; this
/// function joins them with spaces, and quotes each word that needs quotes.
fn text_of(words: &[String]) -> String {
    match words {
        [text] => text.clone(),
        words => path::join(words),
    }
}

/// Creates a usage error that shows the path `text` and marks its wrong word.
pub(super) fn unreadable(text: &str, error: &PathError) -> UsageError {
    UsageError(format!("invalid path:\n{}", error.render(text)))
}
