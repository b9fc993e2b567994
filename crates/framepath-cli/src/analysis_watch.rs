// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limit of the work on a recording that has ended.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use framepath_os::process::running::{self, Used};

use crate::terminal;

/// CPU time that the analysis of any recording may take: many times what an hour of video takes.
const MOST_CPU: Duration = Duration::from_secs(120);

/// Memory that it may take in any case, bytes, and one part of so many of the machine's.
const LEAST_MEMORY: u64 = 1 << 30;
const PART_OF_MEMORY: u64 = 2;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// CPU time from which on a user at a terminal is told what takes so long.
const LONG: Duration = Duration::from_secs(2);

/// Thread that ends this process if the analysis of a recording takes too much time or memory, until this value is dropped.
///
/// The recorded program may be hostile, and has then chosen what is analysed. Nothing is attached to it any more.
pub(crate) struct AnalysisWatch {
    running: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Time and memory that the analysis may take.
struct Limits {
    cpu: Duration,
    memory: u64,
}

impl AnalysisWatch {
    /// Starts the thread; without one, because of a limit of processes, there is no limit of the work. With too much work, `give_up` is called with the reason, and must end the process.
    pub(crate) fn start(give_up: impl FnOnce(&str) + Send + 'static) -> AnalysisWatch {
        let available = running::available_memory().unwrap_or(0);
        let memory = LEAST_MEMORY.max(available / PART_OF_MEMORY);
        let limits = Limits { cpu: MOST_CPU, memory };
        let before = (running::own_usage(), running::own_memory().unwrap_or(0));
        let (running, ended) = mpsc::channel();
        let watching = move || {
            let mut is_told = !io::stderr().is_terminal();
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK) {
                let (cpu, reason) = limits.look(before);
                if let Some(reason) = reason {
                    return give_up(&reason);
                }
                if cpu > LONG && !is_told {
                    is_told = true;
                    terminal::note("framepath: the recording has ended; its analysis goes on");
                }
            }
        };
        let thread = thread::Builder::new().name("fp-analysis".to_owned()).spawn(watching).ok();
        AnalysisWatch { running: Some(running), thread }
    }
}

impl Limits {
    /// Returns the CPU time so far, and why the analysis cannot go on.
    fn look(&self, (used, memory): (Used, u64)) -> (Duration, Option<String>) {
        let cpu = Duration::from_nanos(running::own_usage().since(used).cpu_ns);
        let memory = running::own_memory().map_or(0, |now| now.saturating_sub(memory));
        let reason = match () {
            () if cpu > self.cpu => Some(format!("more than {} s of CPU time", self.cpu.as_secs())),
            () if memory > self.memory => Some(format!("more than {} MB of memory", self.memory / 1_000_000)),
            () => None,
        };
        (cpu, reason)
    }
}

impl Drop for AnalysisWatch {
    fn drop(&mut self) {
        drop(self.running.take());
        // If it panicked, there was no limit.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_memory_have_limits() {
        let before = (running::own_usage(), running::own_memory().unwrap());
        let large = Limits { cpu: Duration::from_secs(600), memory: 1 << 40 };
        assert_eq!(large.look(before).1, None);
        let bytes = std::hint::black_box(vec![1u8; 64 << 20]);
        let little_memory = Limits { cpu: Duration::from_secs(600), memory: 10_000_000 };
        assert_eq!(little_memory.look(before).1.unwrap(), "more than 10 MB of memory", "{}", bytes.len());
        let little_time = Limits { cpu: Duration::ZERO, memory: 1 << 40 };
        assert_eq!(little_time.look(before).1.unwrap(), "more than 0 s of CPU time");
    }
}
