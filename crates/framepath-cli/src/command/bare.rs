// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath bare`: the lower bound for comparisons in lab `decode`.

use std::path::PathBuf;

use framepath_codec::{DecoderThreads, bare};

use crate::exit_status::ExitStatus;
use crate::terminal;

#[derive(clap::Args)]
pub(crate) struct BareArgs {
    /// The file to decode
    file: PathBuf,

    /// Threads of the decoder: a number, or auto
    #[arg(long, value_name = "N", default_value = "auto", value_parser = threads)]
    threads: DecoderThreads,
}

fn threads(text: &str) -> Result<DecoderThreads, String> {
    match text.parse() {
        _ if text == "auto" => Ok(DecoderThreads::Auto),
        Ok(count @ 1..=256) => Ok(DecoderThreads::Count(count)),
        _ => Err("a number from 1 to 256, or auto".to_owned()),
    }
}

impl BareArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let frames = bare::decode(&self.file, self.threads)?;
        terminal::print(format!("{frames}\n").as_bytes())?;
        Ok(ExitStatus::Done)
    }
}
