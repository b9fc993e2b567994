// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of standard input by which the user of `send` sees and ends viewers.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use framepath_model::shown::shown;
use framepath_net::{SenderControl, ViewerFigures};
use framepath_os::display::line_input::LineInput;

use crate::export::text::live as live_table;
use crate::live_ledger::LiveLedger;

/// Longest time until the thread sees the end of the sink.
const LOOK: Duration = Duration::from_millis(200);
const USAGE: &str = "lines: `viewers` lists the viewers, `end NUMBER` ends the session of one, `end all` those of all, `table` \
                     shows where the last frames spent their time";

/// Thread that reads the lines, until standard input ends or this value is dropped.
pub(super) struct ControlLines {
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ControlLines {
    /// Starts the thread. The answers are lines on standard error.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(control: SenderControl, live: LiveLedger) -> io::Result<ControlLines> {
        let stopped = Arc::<AtomicBool>::default();
        let seen = stopped.clone();
        let run = move || {
            let mut input = LineInput::default();
            while !seen.load(Ordering::Acquire) {
                let lines = match input.lines_within(LOOK) {
                    Ok(Some(lines)) => lines,
                    Ok(None) => return,
                    Err(error) => {
                        log::warn!("send: read standard input: {error}");
                        return;
                    }
                };
                for line in lines.iter().filter(|line| !line.is_empty()) {
                    let _ = write!(io::stderr(), "{}", answer(line, &control, &live));
                }
            }
        };
        let thread = Some(thread::Builder::new().name("control".to_owned()).spawn(run)?);
        Ok(ControlLines { stopped, thread })
    }
}

impl Drop for ControlLines {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
    }
}

/// Does what a line says, and returns the text of the answer.
fn answer(line: &str, control: &SenderControl, live: &LiveLedger) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["viewers"] => list(&control.viewers(), Instant::now()),
        ["table"] => match live.report() {
            Some(mut report) => live_table(&mut report),
            None => "framepath: send: there is no ledger: the stream has not begun, or has --ledger off\n"
                .to_owned(),
        },
        ["end", "all"] => format!("framepath: send: ended the sessions of {} viewers\n", control.end_all()),
        ["end", number] => match number.parse() {
            Ok(number) if control.end(number) => {
                format!("framepath: send: ended the session of viewer {number}\n")
            }
            Ok(number) => format!("framepath: send: there is no viewer {number}; `viewers` lists them\n"),
            Err(_) => format!("framepath: send: {}: expected a viewer's number or `all`\n", shown(number)),
        },
        _ => format!("framepath: send: {}: {USAGE}\n", shown(line)),
    }
}

/// Returns a line for each viewer.
fn list(viewers: &[ViewerFigures], now: Instant) -> String {
    let mut text = String::new();
    if viewers.is_empty() {
        text.push_str("framepath: send: no viewers\n");
    }
    for viewer in viewers {
        let ViewerFigures { number, address, sent, dropped, missed, keyframe_requests, .. } = viewer;
        let seconds = now.saturating_duration_since(viewer.since).as_secs_f64();
        let rate = if seconds > 0.0 { viewer.bytes as f64 * 8.0 / seconds / 1e6 } else { 0.0 };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "framepath: send: viewer {number}: {address}, for {seconds:.0} s, {sent} frames sent, {dropped} dropped, \
             {rate:.2} Mbit/s, asked {missed} times for lost packets and {keyframe_requests} times for a keyframe"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_is_one_line() {
        let now = Instant::now();
        let viewer = ViewerFigures {
            number: 3,
            address: [192, 168, 1, 7].into(),
            since: now,
            sent: 250,
            dropped: 4,
            missed: 2,
            bytes: 2_500_000,
            keyframe_requests: 1,
        };
        assert_eq!(
            list(&[viewer], now + Duration::from_secs(10)),
            "framepath: send: viewer 3: 192.168.1.7, for 10 s, 250 frames sent, 4 dropped, 2.00 Mbit/s, asked 2 times for lost \
             packets and 1 times for a keyframe\n"
        );
        assert_eq!(list(&[], now), "framepath: send: no viewers\n");
    }
}
