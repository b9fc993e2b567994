// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath worker`: what `host=process` starts; not for people.

use std::path::PathBuf;

use framepath::host::{Task, worker};
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

    /// It decodes by a device, which it will be sent
    #[arg(long, conflicts_with = "plugin")]
    device: bool,

    /// It goes on where the kernel has no seccomp
    #[arg(long)]
    without_seccomp: bool,
}

impl Worker {
    pub(crate) fn run(self) -> anyhow::Result<Ending> {
        let task = match self.plugin {
            Some(file) => Task::Plugin(file),
            None if self.device => Task::Device,
            None => Task::Stage,
        };
        worker::lock_in_and_serve(spawn::take_socket()?, self.memory, task, self.without_seccomp)?;
        Ok(Ending::Done)
    }
}
