// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath compare`: measures two paths, two commands, or a path and a command, in interleaved pairs.

use anyhow::Context;
use framepath_lab::LabError;
use framepath_lab::compare::{self, ComparedSide, SideError};
use framepath_lab::progress::Bar;
use framepath_os::process::signal;

use super::run::unreadable;
use crate::exit_status::{self, ExitStatus, UsageError};
use crate::lookup;
use crate::output_file::OutputFile;
use crate::terminal::TextTarget;

const EXAMPLES: &str = "\
Examples:
  framepath compare 'test ! null' 'test ! queue ! null'
  framepath compare 'file a.ivf ! decode ! null' 'file a.ivf ! decode threads=1 ! null'
  framepath compare 'file a.ivf ! decode ! null' -- ffmpeg -i a.ivf -f null -
  framepath compare --pairs 20 -- 'sort data' 'sort --parallel=1 data'
  framepath compare -- gzip -k -f data -- zstd -k -f data
  framepath compare --trace -- 'ffmpeg -i a.mp4 -f null -' 'ffmpeg -threads 1 -i a.mp4 -f null -'

Both sides run once to warm up, then alternate (a b, b a, ...). Each path runs in its
own process, without a ledger. Each command runs without a shell. The CPU figure
includes all processes that a side starts and waits for. A verdict is given only if
the 95 % interval of the ratio excludes 1.

With --trace, each run of a pair is observed as by `framepath trace`, at the highest
level that you have the rights for. The text and the JSON then also have the time per
frame of each stage by cause, and the difference a - b; the text names the largest
difference. docs/trace.md explains the stages and causes.

Exit code:
  0    the comparison is complete, whatever the verdict
  1    a side failed
  2    a path or a command is invalid
  3    a path lost packets or frames; no figures are shown
  130  SIGINT (Ctrl-C) or SIGTERM";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompareArgs {
    /// Two paths, each in quotes; or one path, and then a command after `--`; or none, and two commands
    #[arg(value_name = "PATH")]
    paths: Vec<String>,

    /// The words after the first `--`: without a path two commands, each in quotes, or unquoted with another
    /// `--` between them; after one path one command, in quotes or unquoted
    #[arg(last = true, value_name = "COMMAND")]
    commands: Vec<String>,

    /// Number of pairs; each side runs once per pair, and once before the first pair to warm up
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pairs: u32,

    /// Trace each run, and compare the stages of the frames by cause: of programs that use FFmpeg's shared libraries
    /// or GStreamer; the times then include the cost of the tracer
    #[arg(long)]
    trace: bool,

    /// Write the figures as JSON; `-` is standard output, and the text then goes to standard error
    /// [default: write none]
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

impl CompareArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let sides = self.sides()?;
        let json = OutputFile::option(self.json.as_deref())?;
        let screen = TextTarget::beside_data(json.as_ref().is_some_and(OutputFile::is_stdout));
        signal::install().context("installing the handler of Ctrl-C")?;
        let (pairs, framepath, bar) = (self.pairs as usize, lookup::framepath()?, Bar::new());
        let outcome = match self.trace {
            true => compare::trace(&sides, pairs, &framepath, &bar)
                .map(|traced| (traced.text(), serde_json::to_string_pretty(&traced))),
            false => compare::run(&sides, pairs, &framepath, &bar)
                .map(|summary| (compare::text(&summary), serde_json::to_string_pretty(&summary))),
        };
        let (text, figures) = match outcome {
            Err(LabError::Interrupted) => return Ok(ExitStatus::Interrupted),
            Err(error @ LabError::Lost(_)) => {
                exit_status::print_error("compare", &error.into());
                return Ok(ExitStatus::Lost);
            }
            outcome => outcome?,
        };
        screen.print(&text)?;
        if let Some(json) = json {
            json.json(figures)?;
        }
        Ok(ExitStatus::Done)
    }

    fn sides(&self) -> anyhow::Result<[ComparedSide; 2]> {
        compare::sides(&self.paths, &self.commands).map_err(|error| match error {
            SideError::Path { text, error } => unreadable(&text, &error).into(),
            error => UsageError(error.to_string()).into(),
        })
    }
}
