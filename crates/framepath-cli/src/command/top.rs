// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath top`: shows the streams of a running service as a table.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use framepath::host::default_socket;
use framepath_os::display::terminal::Terminal;
use framepath_os::process::signal;
use framepath_os::time::{now_ns, sleep_until};
use framepath_serve::table;
use framepath_serve::{Snapshot, Viewer};

use crate::exit_status::ExitStatus;
use crate::terminal::TextTarget;

const EXAMPLES: &str = "\
Examples:
  framepath top
  framepath top --socket /tmp/fp.sock
  framepath top --once > streams.txt

Keys: q ends the program. The latency is a frame's time in its worker, from the
received packet to the finished frame. The causes are shown only if the client
records a ledger, as `framepath run` does.

Exit code: 0; 1 if there is no service or it ends, 130 after SIGINT (Ctrl-C) or SIGTERM.";

/// Measuring time for the rates of a single table (`--once`).
const ONCE: Duration = Duration::from_secs(1);
const CTRL_C: u8 = 3;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// Socket of the service [default: framepath.sock in $XDG_RUNTIME_DIR; /run/framepath.sock if the
    /// variable is unset or empty, or only that socket exists]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Also accept a service that runs as this user; services of root and of your own user are always
    /// accepted [default: no other user]
    #[arg(long, value_name = "UID")]
    service_uid: Option<u32>,

    /// Measure for one second, print one table and end; the default if standard input or standard output
    /// is no terminal
    #[arg(long)]
    once: bool,

    /// Seconds between two updates of the live table, 1 to 3600 (a key or a resized window updates it at
    /// once). Without effect on a single table (--once)
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
}

impl TopArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        signal::install().context("installing the handler of Ctrl-C")?;
        let viewer = Viewer::connect_to(&self.socket.unwrap_or_else(default_socket), self.service_uid)?;
        let first = viewer.snapshot()?;
        if self.once || !Terminal::is_there() {
            let until = now_ns() + ONCE.as_nanos() as u64;
            while now_ns() < until {
                if signal::interrupted() {
                    return Ok(ExitStatus::Interrupted);
                }
                sleep_until(until);
            }
            TextTarget::Output.print(&table::table(&first, &viewer.snapshot()?, usize::MAX))?;
            return Ok(ExitStatus::Done);
        }
        let terminal = Terminal::open().context("setting up the terminal")?;
        live(&viewer, &terminal, first, Duration::from_secs(self.every))
    }
}

/// Shows the table on the terminal, starting with the snapshot `first`, and updates it after each
/// interval `every`, each key and each change of the window's size. Returns `Done` after `q`, and
/// `Interrupted` after Ctrl-C, SIGINT or SIGTERM; fails if the service or the terminal is gone.
fn live(
    viewer: &Viewer,
    terminal: &Terminal,
    first: Snapshot,
    every: Duration,
) -> anyhow::Result<ExitStatus> {
    // The first table appears immediately, although it has no rates yet.
    let (mut before, mut now) = (first.clone(), first);
    loop {
        let (columns, _) = terminal.size();
        terminal.show(&table::table(&before, &now, columns)).context("writing to the terminal")?;
        let key = terminal.key_within(every).context("reading from the terminal")?;
        if signal::interrupted() || key == Some(CTRL_C) {
            return Ok(ExitStatus::Interrupted);
        }
        if matches!(key, Some(b'q' | b'Q')) {
            return Ok(ExitStatus::Done);
        }
        let next = viewer.snapshot()?;
        // After an unknown key or a resized window the old snapshot stays, because rates over
        // a very short interval are meaningless.
        if key.is_none() {
            before = now;
        }
        now = next;
    }
}
