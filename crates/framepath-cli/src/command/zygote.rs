// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath zygote`: what the workers of `host=process` are forked from; not
//! for people.

use framepath::host::zygote;
use framepath_os::spawn;

use crate::ending::Ending;

#[derive(clap::Args)]
pub(crate) struct Zygote {}

impl Zygote {
    pub(crate) fn run(self) -> anyhow::Result<Ending> {
        match zygote::serve(spawn::take_socket()?)? {}
    }
}
