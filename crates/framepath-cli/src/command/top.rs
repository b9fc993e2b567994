// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath top`: shows the streams of a running service, or the frames of a running program, as a table.

#[cfg(feature = "net")]
mod senders;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use framepath::host::default_socket;
use framepath_os::display::terminal::Terminal;
use framepath_os::process::signal;
use framepath_os::time::{now_ns, sleep_until};
use framepath_serve::table;
use framepath_serve::{Snapshot, Viewer};
use framepath_trace::LiveRecording;

use crate::exit_status::ExitStatus;
use crate::terminal::{self, TextTarget};
use crate::traced;

const EXAMPLES: &str = "\
Examples:
  framepath top
  framepath top --socket /tmp/fp.sock
  framepath top --once > streams.txt
  framepath top -p $(pidof mpv)
  framepath top -p $(pidof mpv) --json-lines --every 10 >> player.jsonl
  framepath top --sender 127.0.0.1:8443

Keys: q ends the program. The latency is a frame's time in its worker, from the
received packet to the finished frame. The causes are shown only if the client
records a ledger, as `framepath run` does.

With -p, shows the last seconds of a program that uses FFmpeg's shared libraries, GStreamer or a
V4L2 device, as `framepath trace -p` does: where the time of its frames went, by stage and cause,
and its threads. With --json-lines, each line of the output is an object as that of `framepath trace --json`.

With --sender, shows the viewers of a `framepath share` or `send` that runs on this computer: address, time,
frames per second, frames sent and dropped, bit rate, and requests for lost packets and keyframes. Below is where the
frames of the last 5 s spent their time: in each hop of the sender and, if they exchange ledgers, of the viewers.

Exit code: 0; 1 if there is no service, process or sender, or the service or sender ends; 130 after SIGINT (Ctrl-C) or SIGTERM.";

/// Measuring time for the rates of a single table (`--once`).
const ONCE: Duration = Duration::from_secs(1);
const CTRL_C: u8 = 3;

/// Time until the first table of a program.
const FIRST: Duration = Duration::from_millis(500);
/// Longest time between a key and its effect in a program's table.
const KEY: Duration = Duration::from_millis(100);

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

    /// Number of a running process whose frames and threads are shown, instead of a service
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["socket", "service_uid"],
          value_parser = clap::value_parser!(u32).range(1..=i32::MAX as i64))]
    pid: Option<u32>,

    /// Address and port of a `framepath share` or `send` that runs on this computer: show its viewers instead of a service
    #[cfg(feature = "net")]
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["socket", "service_uid", "pid"])]
    sender: Option<std::net::SocketAddr>,

    /// Seconds that the table of a process (-p) covers, 1 to 60
    #[arg(long, value_name = "SECONDS", default_value_t = 5, requires = "pid",
          value_parser = clap::value_parser!(u64).range(1..=60))]
    over: u64,

    /// Measure for one second (-p: for the seconds of --over), print one table or line and end; the default for a table
    /// if standard input or standard output is no terminal
    #[arg(long)]
    once: bool,

    /// Print the figures of a process (-p) as JSON, an object on a line for each update, until the process ends or Ctrl-C
    #[arg(long, requires = "pid")]
    json_lines: bool,

    /// Seconds between two updates of the live table or two lines of --json-lines, 1 to 3600 (a key or a resized window
    /// updates the table at once). Without effect with --once
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
}

impl TopArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        signal::install().context("installing the handler of Ctrl-C")?;
        if let Some(pid) = self.pid {
            let recording = LiveRecording::of_process(pid, None, Duration::from_secs(self.over))?;
            return if self.json_lines { self.lines(recording) } else { self.program(recording) };
        }
        #[cfg(feature = "net")]
        if let Some(address) = self.sender {
            let once = self.once || !Terminal::is_there();
            return senders::run(address, (!once).then(|| Duration::from_secs(self.every)));
        }
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

    /// Shows the frames of a program.
    fn program(&self, mut recording: LiveRecording) -> anyhow::Result<ExitStatus> {
        let (status, text) = if self.once || !Terminal::is_there() {
            recording.record(Duration::from_secs(self.over));
            let status = if signal::interrupted() { ExitStatus::Interrupted } else { ExitStatus::Done };
            (status, recording.report().text_of_part())
        } else {
            let terminal = Terminal::open().context("setting up the terminal")?;
            live_program(&mut recording, &terminal, Duration::from_secs(self.every))?
        };
        // The last table stays on the screen behind the live one.
        TextTarget::Output.print(&text)?;
        Ok(status)
    }

    /// Prints the figures of a program as JSON: a line after each interval, and the last one when the process has ended.
    fn lines(&self, mut recording: LiveRecording) -> anyhow::Result<ExitStatus> {
        let time = Duration::from_secs(if self.once { self.over } else { self.every });
        loop {
            let goes_on = recording.record(time);
            if signal::interrupted() {
                return Ok(ExitStatus::Interrupted);
            }
            // Standard output is flushed at the line's end.
            terminal::print(traced::json_line(&recording.report())?.as_bytes())?;
            if self.once || !goes_on {
                return Ok(ExitStatus::Done);
            }
        }
    }
}

/// Shows the program's last seconds on the terminal, and updates them after each interval `every`, until the process ends or
/// `q`, or Ctrl-C, SIGINT or SIGTERM, which are `Interrupted`. Returns the last table, too.
fn live_program(
    recording: &mut LiveRecording,
    terminal: &Terminal,
    every: Duration,
) -> anyhow::Result<(ExitStatus, String)> {
    let mut last = None;
    let mut next = Instant::now() + FIRST;
    let status = loop {
        let goes_on = recording.record(KEY);
        let key = terminal.key_within(Duration::ZERO).context("reading from the terminal")?;
        if signal::interrupted() || key == Some(CTRL_C) {
            break ExitStatus::Interrupted;
        }
        if !goes_on || matches!(key, Some(b'q' | b'Q')) {
            break ExitStatus::Done;
        }
        if Instant::now() >= next || key.is_some() {
            let text = last.insert(recording.report().text_of_part());
            terminal.show(text).context("writing to the terminal")?;
            next = Instant::now() + every;
        }
    };
    Ok((status, last.unwrap_or_else(|| recording.report().text_of_part())))
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
