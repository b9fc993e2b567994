// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath relay`: the network of lab `stream`. Makes two virtual network devices, says `ready`, and passes packets from one
//! to the other, until its standard input ends.

use std::io::Read;

use anyhow::Context;
use framepath_lab::relay::{self, Impairment};

use crate::exit_status::ExitStatus;
use crate::terminal;

#[derive(clap::Args)]
pub(crate) struct RelayArgs {
    /// Share of lost packets, percent
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    loss: f64,

    /// Greatest delay of a packet, milliseconds
    #[arg(long, value_name = "MS", default_value = "0")]
    jitter: f64,

    /// Seed of the losses and delays
    #[arg(long, value_name = "N", default_value = "0")]
    seed: u64,
}

impl RelayArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let RelayArgs { loss, jitter, seed } = self;
        relay::start(&Impairment { loss_percent: loss, jitter_ms: jitter, seed })?;
        terminal::print(b"ready\n")?;
        let mut ignored = Vec::new();
        std::io::stdin().read_to_end(&mut ignored).context("waiting for the end of standard input")?;
        Ok(ExitStatus::Done)
    }
}
