// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath view`: shows what another computer shares.

use crate::command::run::RunArgs;
use crate::exit_status::ExitStatus;

const EXAMPLES: &str = "\
Examples:
  framepath view FP1-ATAKQAIFED5QAAIC...                      the code that `framepath share` prints
  framepath view http://192.168.1.5:8443/whep --token secret  another WHEP server

A code proves both ends to each other. With an address, the connection is encrypted, but
an attacker who can change the HTTP request or its answer can take the sender's place. The
video is decoded in a sandboxed process. q closes the window. The window shows each picture
at once. If the window is too slow, it shows the newest picture, and the summary counts the
others as dropped. After a lost connection, view tries for 10 s to connect again.

The same as a path:
  framepath run 'recv CODE reconnect=inf backlog=1s jitter=0 ! decode host=process threading=slice !
    queue depth=1 leaky=downstream ! play'";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ViewArgs {
    /// Pairing code, or the address of a WHEP endpoint
    #[arg(value_name = "CODE|URL")]
    from: String,

    /// Secret that the server at the address requires
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,

    /// While the stream runs, show each second where the frames of the last 5 s spent their time, also at the sender
    #[arg(long)]
    live: bool,

    /// Print no summary at the end
    #[arg(long)]
    quiet: bool,
}

impl ViewArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let quote = framepath::path::quote;
        let token = self.token.map_or_else(String::new, |token| format!(" token={}", quote(&token)));
        // Slice threads, because frame threads delay each picture by the number of threads. A picture waits for the
        // window only until the next one is decoded; nothing is dropped in front of the decoder.
        let shown = "decode host=process threading=slice ! queue depth=1 leaky=downstream ! play";
        let path = format!("recv {}{token} reconnect=inf backlog=1s jitter=0 ! {shown}", quote(&self.from));
        RunArgs::of_path(path, self.live, self.quiet).run()
    }
}
