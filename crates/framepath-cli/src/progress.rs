// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress on standard error while a path runs: a line, or the table of the last seconds.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use framepath::{FrameCount, LiveLedger, export};

/// Time from the start of the run to the first progress line. A shorter run shows no line.
const PATIENCE: Duration = Duration::from_millis(500);

/// Interval between two progress lines after the first.
const PERIOD: Duration = Duration::from_millis(250);

/// Interval between two tables.
const TABLE: Duration = Duration::from_secs(1);
/// Control sequence of a terminal that clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Progress line with frames, frames per second and elapsed seconds, or a table. A thread draws the line until
/// this value is dropped, then erases it. Without a terminal on standard error there is no thread and
/// no line.
pub(crate) struct Ticker {
    /// Channel to the drawing thread; dropping the channel ends the thread. `None` without a thread.
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts the thread that shows the counter `frames`, if standard error is a terminal.
    pub(crate) fn start(frames: FrameCount) -> Ticker {
        if !io::stderr().is_terminal() {
            return Ticker { running: None, thread: None };
        }
        let (running, ended) = mpsc::channel();
        let start = Instant::now();
        let thread = thread::spawn(move || {
            let mut wait = PATIENCE;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(wait) {
                show(frames.load(Ordering::Relaxed), start.elapsed());
                wait = PERIOD;
            }
            if wait == PERIOD {
                line("");
            }
        });
        Ticker { running: Some(running), thread: Some(thread) }
    }

    /// Starts the thread that shows the table of the ledger `live`. On a terminal, a table replaces the one before.
    pub(crate) fn start_live(live: LiveLedger) -> Ticker {
        let (running, ended) = mpsc::channel();
        let clear = if io::stderr().is_terminal() { CLEAR } else { "" };
        let thread = thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TABLE) {
                if let Some(mut report) = live.report().filter(|report| report.frames > 0) {
                    // An error of the write does not affect the run.
                    let _ = writeln!(io::stderr().lock(), "{clear}{}", export::text::live(&mut report));
                }
            }
        });
        Ticker { running: Some(running), thread: Some(thread) }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.running.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread does not affect the run, because the thread only draws.
            let _ = thread.join();
        }
    }
}

fn show(frames: u64, elapsed: Duration) {
    let seconds = elapsed.as_secs_f64();
    line(&format!("{frames} frames, {:.1} per second, {seconds:.0} s", frames as f64 / seconds));
}

/// Replaces the text of the present line on standard error by `text`. Ignores errors of the write.
fn line(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
}
