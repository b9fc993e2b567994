// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath worker`: what `host=process` starts; not for people.

use std::path::PathBuf;

use framepath::host::worker;
use framepath_os::spawn;

use crate::ending::Ending;

#[derive(clap::Args)]
pub(crate) struct Worker {
    /// Most address space, bytes
    #[arg(long)]
    memory: u64,

    /// The plug-in to load before it is locked in
    #[arg(long)]
    plugin: Option<PathBuf>,
}

impl Worker {
    pub(crate) fn run(self) -> anyhow::Result<Ending> {
        worker::lock_in_and_serve(spawn::take_socket()?, self.memory, self.plugin)?;
        Ok(Ending::Done)
    }
}
