// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath worker`: what `host=process` starts; not for people.

use framepath::host::worker;
use framepath_os::sandbox::{Limits, Role, enter};
use framepath_os::spawn;

use crate::ending::Ending;

#[derive(clap::Args)]
pub(crate) struct Worker {
    /// Most address space, bytes
    #[arg(long)]
    memory: u64,
}

impl Worker {
    pub(crate) fn run(self) -> anyhow::Result<Ending> {
        let socket = spawn::take_socket()?;
        worker::prepare();
        let limits = Limits { memory_bytes: self.memory, ..Limits::default() };
        // Refusing to run without a filter of system calls is the default.
        let layers = enter(Role::Decode, &limits)?;
        worker::serve(socket, layers.bits())?;
        Ok(Ending::Done)
    }
}
