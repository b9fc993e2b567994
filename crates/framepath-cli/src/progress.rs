// SPDX-License-Identifier: MIT OR Apache-2.0
//! FrameCount line on standard error while a path runs.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use framepath::FrameCount;

/// Shortest run that shows progress.
const PATIENCE: Duration = Duration::from_millis(500);

/// Interval between two reads of the counter.
const PERIOD: Duration = Duration::from_millis(250);

/// Shows frames and frames per second until it is dropped, from a thread of
/// its own. There is no thread if standard error is no terminal.
pub(crate) struct Ticker {
    /// Dropped to end the thread.
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Begins to watch `frames`.
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
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.running.take();
        if let Some(thread) = self.thread.take() {
            // The thread only draws; the run is right without it.
            let _ = thread.join();
        }
    }
}

fn show(frames: u64, elapsed: Duration) {
    let seconds = elapsed.as_secs_f64();
    line(&format!("{frames} frames, {:.1} per second, {seconds:.0} s", frames as f64 / seconds));
}

/// Replaces the cursor's line by `text`.
fn line(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
}
