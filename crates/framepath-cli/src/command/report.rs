// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath report`: writes runs of the lab as one HTML file.

use std::path::{Path, PathBuf};

use framepath_lab::report::{self, LabRun};

use crate::exit_status::ExitStatus;
use crate::output_file::OutputFile;
use crate::run_folder;
use crate::terminal::TextTarget;

const EXAMPLES: &str = "\
Examples:
  framepath report runs/2026-03-01T12-00-00Z
  framepath report laptop/run.json board/run.json --out both.html

The report is one HTML file that opens in any browser, without a network.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Runs to show: run folders, or files written by `lab --json`, `compare --json` or `run --json`
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,

    /// File to write; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: String,
}

impl ReportArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let mut runs = Vec::new();
        for path in &self.runs {
            let summaries = run_folder::summaries(path)?;
            let slow_frames = run_folder::slow_frames(path)?;
            runs.push(LabRun { label: label(path), summaries, slow_frames });
        }
        let output = OutputFile::create(&self.out)?;
        let screen = TextTarget::beside_data(output.is_stdout());
        output.write(|to| to.write_all(report::html(&runs).as_bytes()))?;
        screen.print(&format!("{}\n", self.out))?;
        Ok(ExitStatus::Done)
    }
}

/// Returns the name of a run in the report: the last name in `path`, a folder or a file. For a `run.json`
/// returns the name of its folder, if `path` contains the folder's name.
fn label(path: &Path) -> String {
    let named = if run_folder::is_run_json(path) {
        path.parent().filter(|folder| folder.file_name().is_some()).unwrap_or(path)
    } else {
        path
    };
    named.file_name().unwrap_or(named.as_os_str()).to_string_lossy().into_owned()
}
