// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath handoff`: runs framepath's contender of the experiment `handoff`. Takes the same options
//! as the programs of the other contenders (the peers). Prints the figures as one line of JSON.

use anyhow::Context;
use clap::value_parser;
use framepath_lab::{LabError, handoff};
use framepath_os::process::signal;

use crate::exit_status::ExitStatus;
use crate::terminal;

#[derive(clap::Args)]
pub(crate) struct HandoffArgs {
    /// Size of a frame in bytes, 16 to 1073741824 (1 GiB); required
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(16..=1 << 30))]
    bytes: u64,

    /// Number of measured frames, 1 to 100000000; required
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=100_000_000))]
    frames: u64,

    /// Frames per second, up to 1000000; 0 sends as fast as possible
    #[arg(long, value_name = "HZ", default_value = "0", value_parser = value_parser!(u64).range(0..=1_000_000))]
    rate: u64,
}

impl HandoffArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        signal::install().context("installing the handler of Ctrl-C")?;
        let HandoffArgs { bytes, frames, rate } = self;
        match (handoff::Handoff { bytes, frames, rate }).line() {
            Ok(line) => terminal::print(format!("{line}\n").as_bytes())?,
            Err(LabError::Interrupted) => return Ok(ExitStatus::Interrupted),
            Err(error) => return Err(error.into()),
        }
        Ok(ExitStatus::Done)
    }
}
