// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath doctor`: lists the capabilities of this machine.

use std::path::PathBuf;

use framepath_lab::doctor::{self, Places};

use crate::exit_status::ExitStatus;
use crate::lookup;
use crate::output_file::OutputFile;
use crate::terminal::TextTarget;

const EXAMPLES: &str = "\
Examples:
  framepath doctor
  framepath doctor --json - | jq '.probes[] | select(.state != \"ok\") | .name'

Each line shows one capability; a missing capability is followed by how to get it.
`not permitted`: the machine has the capability, and this user may not use it. Some
of these become available under sudo.

Exit code: 0, whatever is missing; 1 if the result cannot be written.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Write the findings as JSON, besides the text; `-` is standard output, in place of the text
    /// [default: write none]
    #[arg(long, value_name = "FILE")]
    json: Option<String>,

    /// Folder of the test clips [default: `clips` in the current folder, else in the checkout that contains
    /// this program]
    #[arg(long, value_name = "DIR")]
    clips: Option<PathBuf>,
}

impl DoctorArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let json = OutputFile::option(self.json.as_deref())?;
        let places = Places { clips: lookup::clips(self.clips.as_deref()), peers: lookup::peers() };
        let findings = doctor::examine(&places);
        if !json.as_ref().is_some_and(OutputFile::is_stdout) {
            TextTarget::Output.print(&doctor::text(&findings))?;
        }
        if let Some(json) = json {
            json.json(serde_json::to_string_pretty(&findings))?;
        }
        Ok(ExitStatus::Done)
    }
}
