// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath bare`: decodes a file with the codec library alone, as the lower bound in lab `decode`.

use std::path::PathBuf;

use framepath_codec::{DecoderThreads, bare};

use crate::exit_status::ExitStatus;
use crate::terminal;

#[derive(clap::Args)]
pub(crate) struct BareArgs {
    /// The video file to decode
    file: PathBuf,

    /// Threads of the decoder: a number from 1 to 256, or auto for the library's choice
    #[arg(long, value_name = "N", default_value = "auto", value_parser = threads)]
    threads: DecoderThreads,
}

fn threads(text: &str) -> Result<DecoderThreads, String> {
    match text.parse() {
        _ if text == "auto" => Ok(DecoderThreads::Auto),
        Ok(count @ 1..=256) => Ok(DecoderThreads::Count(count)),
        _ => Err("expected a number from 1 to 256, or auto".to_owned()),
    }
}

impl BareArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let frames = bare::decode(&self.file, self.threads)?;
        terminal::print(format!("{frames}\n").as_bytes())?;
        Ok(ExitStatus::Done)
    }
}
