// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath bare`: the floor for comparisons in lab `decode`.

use std::path::PathBuf;

use framepath_codec::{Threads, bare};

use crate::exit_status::Ending;
use crate::terminal;

#[derive(clap::Args)]
pub(crate) struct Bare {
    /// The file to decode
    file: PathBuf,

    /// Threads of the decoder: a number, or auto
    #[arg(long, value_name = "N", default_value = "auto", value_parser = threads)]
    threads: Threads,
}

fn threads(text: &str) -> Result<Threads, String> {
    match text.parse() {
        _ if text == "auto" => Ok(Threads::Auto),
        Ok(count @ 1..=256) => Ok(Threads::Count(count)),
        _ => Err("a number from 1 to 256, or auto".to_owned()),
    }
}

impl Bare {
    pub(crate) fn run(self) -> anyhow::Result<Ending> {
        let frames = bare::decode(&self.file, self.threads)?;
        terminal::print(format!("{frames}\n").as_bytes())?;
        Ok(Ending::Done)
    }
}
