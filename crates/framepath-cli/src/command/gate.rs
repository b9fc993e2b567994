// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath gate`: checks summaries of the lab against budgets, or against an older run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use framepath_lab::gate::{self, BaselineReport, BudgetLine, BudgetOutcome, GateOutcome};
use framepath_model::shown::shown;
use framepath_model::summary::Summary;

use crate::exit_status::{ExitStatus, UsageError};
use crate::run_folder;
use crate::terminal::{self, TextTarget};

const EXAMPLES: &str = "\
Examples:
  framepath lab queue decode --json run.json && framepath gate budgets.toml run.json
  framepath gate budgets.toml runs/2026-03-01T12-00-00Z
  framepath gate --baseline old.json new.json      no budgets: the same figures, before and after
  framepath gate --names run.json                  the names for a budget, with their figures

The gate prints one line per budget. A figure with a 95 % interval fails only if its whole
interval lies beyond the limit; an interval that spans the limit is inconclusive. A missing
figure fails its budget, unless the budget is optional. With --baseline, only the figures
that did not pass are listed. docs/budgets.md builds a budget file from scratch.

Exit code (with --baseline, each figure of the older run counts as a budget):
  0  every budget holds, is optional and misses a figure, or is inconclusive without --strict
  1  a budget fails or misses a figure, or a file cannot be read or is no summary
  2  the budget file or an argument is invalid, or no summary is given
  4  with --strict: no budget fails, but at least one is inconclusive";

#[derive(clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "framepath gate [--strict] BUDGETS.toml SUMMARY.json...\n       \
                      framepath gate [--strict] [--tolerance PERCENT] --baseline OLD.json NEW.json...\n       \
                      framepath gate --names SUMMARY.json..."
)]
pub(crate) struct GateArgs {
    /// TOML file with limits on the figures, then summaries of the lab: files written by `lab --json`,
    /// `compare --json` or `run --json`, or run folders. With --baseline or --names: only summaries
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Compare the summaries with this older run (a file or a run folder), instead of with a budget file
    /// [default: use the budget file, the first argument]
    #[arg(long, value_name = "OLD.json", conflicts_with = "names")]
    baseline: Option<PathBuf>,

    /// With --baseline: how much worse a time or a ratio may be, in percent (0 to 1000). The counts of bytes
    /// copied per frame, and of what was lost, undecodable or concealed, may not grow at all
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, requires = "baseline",
          value_parser = tolerance)]
    tolerance: f64,

    /// Exit with code 4 if no budget fails, but at least one is inconclusive; code 0 without this option
    #[arg(long)]
    strict: bool,

    /// List every figure of the summaries by the names that budgets use, and check nothing
    #[arg(long)]
    names: bool,
}

fn tolerance(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "expected a number of percent, such as 5".to_owned())?;
    if (0.0..=1000.0).contains(&percent) { Ok(percent) } else { Err("expected 0 to 1000 percent".to_owned()) }
}

impl GateArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        if self.names {
            TextTarget::Output.print(&gate::names(&read(&self.files)?))?;
            return Ok(ExitStatus::Done);
        }
        let outcome = match &self.baseline {
            Some(baseline) => self.compare(baseline)?,
            None => self.check()?,
        };
        Ok(match outcome {
            GateOutcome::Failed => ExitStatus::Failed,
            GateOutcome::Inconclusive if self.strict => ExitStatus::Inconclusive,
            GateOutcome::Passed | GateOutcome::Inconclusive => ExitStatus::Done,
        })
    }

    /// Checks the summaries in the other files against the budgets in the first file, and prints a line per
    /// budget. An invalid budget file (also a summary in its place) and a missing summary are usage errors; a
    /// file that cannot be read is another error.
    fn check(&self) -> anyhow::Result<GateOutcome> {
        let Some((file, summaries)) = self.files.split_first() else {
            return Err(UsageError("no budget file".to_owned()).into());
        };
        let name = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("reading `{name}`"))?;
        let budgets = gate::parse(&text).map_err(|error| {
            // A summary is JSON, which is no TOML: most likely the budget file was forgotten.
            let hint = match text.trim_start().starts_with(['{', '[']) && is_json(file) {
                true => {
                    "; a summary is compared with another by `framepath gate --baseline OLD.json NEW.json`"
                }
                false => "",
            };
            UsageError(format!("{name}: {error}{hint}"))
        })?;
        if summaries.is_empty() {
            let hint = "no summary to check; create one with \
                        `framepath lab --json run.json`, then run `framepath gate BUDGETS.toml run.json`";
            return Err(UsageError(hint.to_owned()).into());
        }
        for note in gate::old_spellings(&budgets) {
            terminal::note(&format!("framepath: gate: {}: {}", shown(&name.to_string()), shown(&note)));
        }
        let lines = gate::evaluate(&budgets, &read(summaries)?);
        print(&lines)?;
        Ok(gate::outcome(&lines))
    }

    /// Compares the summaries with those in `baseline`. Prints the figures that did not pass, and the
    /// number of figures by their result.
    fn compare(&self, baseline: &Path) -> anyhow::Result<GateOutcome> {
        let old = run_folder::summaries(baseline)?;
        let report = gate::baseline(&old, &read(&self.files)?, self.tolerance / 100.0);
        for note in &report.notes {
            terminal::note(&format!("framepath: gate: {}", shown(note)));
        }
        let open: Vec<BudgetLine> =
            report.lines.iter().filter(|line| line.outcome != BudgetOutcome::Pass).cloned().collect();
        print(&open)?;
        TextTarget::Output.print(&counts(&report))?;
        Ok(gate::outcome(&report.lines))
    }
}

fn is_json(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "json")
}

fn read(files: &[PathBuf]) -> anyhow::Result<Vec<Summary>> {
    let mut summaries = Vec::new();
    for path in files {
        summaries.extend(run_folder::summaries(path)?);
    }
    Ok(summaries)
}

fn print(lines: &[BudgetLine]) -> anyhow::Result<()> {
    let text: String = lines.iter().map(|line| format!("{}\n", shown(&line.to_string()))).collect();
    TextTarget::Output.print(&text)
}

/// Formats the number of compared figures by their result, on one line.
fn counts(report: &BaselineReport) -> String {
    let of = |outcome| report.lines.iter().filter(|line| line.outcome == outcome).count();
    format!(
        "{} figures: {} pass ({} of them better), {} fail, {} missing, {} inconclusive\n",
        report.lines.len(),
        of(BudgetOutcome::Pass),
        report.better,
        of(BudgetOutcome::Fail),
        of(BudgetOutcome::Missing),
        of(BudgetOutcome::Inconclusive)
    )
}
