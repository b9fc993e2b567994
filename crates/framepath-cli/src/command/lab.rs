// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath lab`: runs experiments and writes a run folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use framepath::export;
use framepath_lab::experiment::{EXPERIMENTS, Experiment, ExperimentSettings, Size, find, with_cases};
use framepath_lab::progress::Bar;
use framepath_lab::report::{FrameTimeline, LabRun};
use framepath_lab::{KeptLedger, LabError};
use framepath_lab::{plain, report};
use framepath_model::summary::Summary;
use framepath_os::process::signal;

use crate::exit_status::{self, ExitStatus, UsageError};
use crate::output_file::OutputFile;
use crate::terminal::TextTarget;
use crate::{lookup, run_folder};

const EXAMPLES: &str = "\
Examples:
  framepath lab                             the quick set with small input, as `make demo` runs it
  framepath lab --list                      all experiments, and the question each one answers
  framepath lab queue                       one experiment with small input
  framepath lab decode --full --pairs 20    with the input of the published figures, 20 pairs
  framepath lab decode --case vp9-1080p8    one case of an experiment
  framepath lab decode my.mp4               the decoders and the ffmpeg tool with your own file
  framepath lab players                     every installed player, at the clips' own rate
  framepath lab players film.mkv            the same with your own file
  framepath lab queue --json queue.json     the summary as JSON, for `framepath gate`

The lab writes a run folder with run.json (the summaries) and report.html. Experiments
with a ledger add frames.csv, trace.json (opens in ui.perfetto.dev) and timeline.json
(the slowest frames). `framepath report` puts several run folders side by side.

Exit code:
  0    every experiment is complete
  1    an experiment failed
  2    an argument is invalid, such as an unknown experiment or case
  3    a path lost packets or frames unexpectedly, and nothing else failed
  130  SIGINT (Ctrl-C) or SIGTERM; the results until then are written";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LabArgs {
    /// Experiments to run; `decode` and `players` also accept video files
    /// [default: the quick set; with --full, all]
    #[arg(value_name = "EXPERIMENT")]
    experiments: Vec<String>,

    /// Run few rounds with small input; this is the default
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Run the rounds and the input of the published figures; without named experiments, run all
    #[arg(long)]
    full: bool,

    /// Number of rounds: every contender runs once per round. In `faults` the number of kills of workers;
    /// without effect in `inject` [default: the experiment's own number, which --full raises]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pairs: Option<u32>,

    /// Run only this case, and only the experiments that have it; may be given several times. With files, the
    /// cases of `decode` and `players` are the files' names without extension, and naming one runs all files
    /// [default: every case of the chosen size]
    #[arg(long = "case", visible_alias = "condition", value_name = "CASE")]
    cases: Vec<String>,

    /// Also write the summaries as JSON to this file: an object for one experiment, an array for several; `-`
    /// is standard output, and the tables then go to standard error [default: only run.json in the run folder]
    #[arg(long, value_name = "FILE")]
    json: Option<String>,

    /// Run folder to write; in an existing folder the results replace earlier ones [default: a new folder
    /// runs/TIME in the current folder, with the time in UTC]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Folder of the test clips [default: `clips` in the current folder, else in the checkout that contains
    /// this program]
    #[arg(long, value_name = "DIR")]
    clips: Option<PathBuf>,

    /// List the experiments, those of the quick set marked `quick`, and run none
    #[arg(long)]
    list: bool,
}

impl LabArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        if self.list {
            TextTarget::Output.print(&list())?;
            return Ok(ExitStatus::Done);
        }
        let (experiments, files) = self.chosen()?;
        let settings = self.settings(files)?;
        let experiments =
            with_cases(&experiments, &settings).map_err(|error| UsageError(error.to_string()))?;
        let json = OutputFile::option(self.json.as_deref())?;
        let screen = TextTarget::beside_data(json.as_ref().is_some_and(OutputFile::is_stdout));
        let folder = run_folder::create(self.out.as_deref())?;
        signal::install().context("installing the handler of Ctrl-C")?;
        let mut outcome = run_all(&experiments, &settings, screen)?;
        if outcome.has_anything() {
            let summaries = &outcome.summaries;
            let object = match summaries.as_slice() {
                [one] => serde_json::to_string_pretty(one),
                several => serde_json::to_string_pretty(several),
            };
            let text = object.context("formatting the summary as JSON")?;
            screen.print(&findings(summaries))?;
            OutputFile::create(&folder.join("run.json").to_string_lossy())?.json(Ok(text.clone()))?;
            if let Some(json) = json {
                json.json(Ok(text))?;
            }
            let slow_frames = write_ledgers(&folder, &mut outcome.ledgers)?;
            let report = write_report(&folder, outcome.summaries.clone(), slow_frames)?;
            screen.print(&format!("{}\n", report.display()))?;
        } else if self.out.is_none() {
            // The folder is empty; an error of its removal does not matter.
            let _ = fs::remove_dir(&folder);
        }
        Ok(outcome.ending)
    }

    /// Splits the arguments into experiments, by name, and files for the experiments that accept
    /// files. Without arguments, returns the experiments of the quick set, or all experiments with `--full`.
    ///
    /// # Errors
    /// An unknown experiment, or a file without an experiment that accepts files. An unknown word with a dot
    /// or a slash counts as a file.
    fn chosen(&self) -> anyhow::Result<(Vec<&'static Experiment>, Vec<PathBuf>)> {
        let (mut experiments, mut files) = (Vec::new(), Vec::new());
        for word in &self.experiments {
            match find(word) {
                Ok(experiment) => experiments.push(experiment),
                // A word with a dot or a slash is a file name, even if the file is missing.
                Err(_) if word.contains(['/', '.']) => files.push(PathBuf::from(word)),
                Err(error) => return Err(UsageError(error.to_string()).into()),
            }
        }
        if let Some(file) = files.first().filter(|_| !experiments.iter().any(|one| one.takes_files)) {
            let takers: Vec<&str> =
                EXPERIMENTS.iter().filter(|one| one.takes_files).map(|one| one.name).collect();
            let wanted = takers.join(", ");
            return Err(UsageError(format!(
                "`{}`: only {wanted} accept files; name one of them before the file",
                file.display()
            ))
            .into());
        }
        if self.experiments.is_empty() {
            experiments = EXPERIMENTS.iter().filter(|experiment| self.full || experiment.quick).collect();
        }
        Ok((experiments, files))
    }

    fn settings(&self, files: Vec<PathBuf>) -> anyhow::Result<ExperimentSettings> {
        Ok(ExperimentSettings {
            size: if self.full { Size::Full } else { Size::Quick },
            pairs: self.pairs.map(|pairs| pairs as usize),
            cases: self.cases.clone(),
            files,
            framepath: lookup::framepath()?,
            clips: lookup::clips(self.clips.as_deref()),
            peers: lookup::peers(),
        })
    }
}

fn list() -> String {
    let width = EXPERIMENTS.iter().map(|experiment| experiment.name.len()).max().unwrap_or(0);
    EXPERIMENTS
        .iter()
        .map(|experiment| {
            let quick = if experiment.quick { "quick" } else { "" };
            format!("{:<width$}  {quick:<5}  {}\n", experiment.name, experiment.question)
        })
        .collect()
}

struct Outcome {
    summaries: Vec<Summary>,
    ledgers: Vec<KeptLedger>,
    ending: ExitStatus,
}

impl Outcome {
    /// Returns true if a summary has a row of a contender, or a skipped contender.
    fn has_anything(&self) -> bool {
        self.summaries.iter().any(|summary| !summary.rows.is_empty() || !summary.skipped.is_empty())
    }
}

/// Runs the experiments in order and prints the tables of each at its end. Reports a failed
/// experiment on standard error and runs the next. After SIGINT or SIGTERM, the running experiment is the
/// last. Fails only if a table cannot be printed.
fn run_all(
    experiments: &[&Experiment],
    settings: &ExperimentSettings,
    screen: TextTarget,
) -> anyhow::Result<Outcome> {
    let bar = Bar::new();
    let mut outcome = Outcome { summaries: Vec::new(), ledgers: Vec::new(), ending: ExitStatus::Done };
    for experiment in experiments {
        match experiment.run(settings, &bar) {
            Ok(found) => {
                let heading = format!("{}: {}", experiment.name, experiment.question);
                screen.print(&format!("{heading}\n\n{}\n", plain::tables(&found.summary)))?;
                outcome.summaries.push(found.summary);
                outcome.ledgers.extend(found.ledgers);
            }
            Err(error) => {
                let ending =
                    if matches!(error, LabError::Lost(_)) { ExitStatus::Lost } else { ExitStatus::Failed };
                exit_status::print_error("lab", &anyhow::Error::new(error).context(experiment.name));
                // A failure takes precedence over a loss.
                if outcome.ending != ExitStatus::Failed {
                    outcome.ending = ending;
                }
            }
        }
        if signal::interrupted() {
            outcome.ending = ExitStatus::Interrupted;
            break;
        }
    }
    Ok(outcome)
}

fn findings(summaries: &[Summary]) -> String {
    let sentences = plain::findings(summaries);
    let mut text: String = sentences.iter().map(|sentence| format!("{sentence}\n")).collect();
    text.push('\n');
    text
}

/// Writes the rows of all kept ledgers to `frames.csv` and `trace.json` in `folder`, and the slowest
/// frames of the first ledger to `timeline.json`. Returns these frames; without ledgers, writes
/// no file and returns an empty list.
fn write_ledgers(folder: &Path, ledgers: &mut [KeptLedger]) -> anyhow::Result<Vec<FrameTimeline>> {
    // Only the first ledger, because the frames of all would be too many to read.
    let Some(first) = ledgers.first_mut() else { return Ok(Vec::new()) };
    let slow_frames = first.slowest_frames();
    let runs: Vec<_> = ledgers.iter().map(|kept| (kept.name.as_str(), &kept.report)).collect();
    let file = |name: &str| OutputFile::create(&folder.join(name).to_string_lossy());
    file("frames.csv")?.write(|to| export::csv::write_all(&runs, to))?;
    file("trace.json")?.write(|to| export::trace::write_all(&runs, to))?;
    file("timeline.json")?.json(serde_json::to_string_pretty(&slow_frames))?;
    Ok(slow_frames)
}

fn write_report(
    folder: &Path,
    summaries: Vec<Summary>,
    slow_frames: Vec<FrameTimeline>,
) -> anyhow::Result<PathBuf> {
    let label = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
    let run = LabRun { label, summaries, slow_frames };
    let file = folder.join("report.html");
    OutputFile::create(&file.to_string_lossy())?.write(|to| to.write_all(report::html(&[run]).as_bytes()))?;
    Ok(file)
}
