// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath asked`: runs a path with one query to another process per frame, as contender
//! `process-uncached` of lab `rpc`. Prints the number of answered queries.

use anyhow::Context;
use framepath_lab::{LabError, asked};
use framepath_os::process::signal;

use crate::exit_status::ExitStatus;
use crate::terminal;

#[derive(clap::Args)]
pub(crate) struct QuestionArgs {
    /// A path without its sink; the command adds the sink `null`
    path: String,
}

impl QuestionArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        signal::install().context("installing the handler of Ctrl-C")?;
        match asked::run(&self.path) {
            Ok(asked) => terminal::print(format!("{}\n", asked.questions).as_bytes())?,
            Err(LabError::Interrupted) => return Ok(ExitStatus::Interrupted),
            Err(error) => return Err(error.into()),
        }
        Ok(ExitStatus::Done)
    }
}
