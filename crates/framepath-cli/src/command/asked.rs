// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath asked`: contender `process-uncached` of lab `rpc`.

use anyhow::Context;
use framepath_lab::{LabError, asked};
use framepath_os::process::signal;

use crate::exit_status::Ending;
use crate::terminal;

#[derive(clap::Args)]
pub(crate) struct Asked {
    /// A path without its sink
    path: String,
}

impl Asked {
    pub(crate) fn run(self) -> anyhow::Result<Ending> {
        signal::install().context("installing the handler of Ctrl-C")?;
        match asked::run(&self.path) {
            Ok(asked) => terminal::print(format!("{}\n", asked.questions).as_bytes())?,
            Err(LabError::Interrupted) => return Ok(Ending::Interrupted),
            Err(error) => return Err(error.into()),
        }
        Ok(Ending::Done)
    }
}
