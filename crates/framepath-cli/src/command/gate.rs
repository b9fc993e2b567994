// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath gate`: checks summaries of the lab against budgets.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use framepath_lab::gate;

use crate::exit_status::{ExitStatus, UsageError};
use crate::run_folder;
use crate::terminal::TextTarget;

const EXAMPLES: &str = "\
Examples:
  framepath lab queue decode --json run.json && framepath gate budgets.toml run.json
  framepath gate budgets.toml runs/2026-03-01T12-00-00Z

The gate prints one line per budget. A ratio fails only if its whole 95 % interval
lies beyond the limit. A missing figure fails its budget, unless the budget is
optional.

Exit code: 0 if every budget holds, 1 if a budget fails or a file cannot be read, 2 if
the budget file is invalid or no summary is given.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GateArgs {
    /// TOML file with limits on the ratios and counts in the summaries
    #[arg(value_name = "BUDGETS.toml")]
    budgets: PathBuf,

    /// Summaries of the lab: files written by `lab --json`, or run folders
    #[arg(value_name = "SUMMARY.json")]
    summaries: Vec<PathBuf>,
}

impl GateArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let name = self.budgets.display();
        let text = fs::read_to_string(&self.budgets).with_context(|| format!("reading `{name}`"))?;
        let budgets = gate::parse(&text).map_err(|error| UsageError(format!("{name}: {error}")))?;
        if self.summaries.is_empty() {
            let hint = "no summary to check; create one with \
                        `framepath lab --json run.json`, then run `framepath gate BUDGETS.toml run.json`";
            return Err(UsageError(hint.to_owned()).into());
        }
        let mut summaries = Vec::new();
        for path in &self.summaries {
            summaries.extend(run_folder::summaries(path)?);
        }
        let lines = gate::evaluate(&budgets, &summaries);
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        TextTarget::Output.print(&text)?;
        Ok(if gate::passed(&lines) { ExitStatus::Done } else { ExitStatus::Failed })
    }
}
