// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of the machine: their states, and which of them belong to a run.

use std::collections::HashSet;
use std::fs;

use framepath_os::process::children::signal_process;

/// Number of SIGKILL.
const SIGKILL: i32 = 9;

/// Process, as `/proc/PID/stat` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Name of its program, at most 15 bytes.
    pub name: String,
    /// State of its first thread, as a letter of proc(5).
    pub state: char,
    /// Id of its parent.
    pub parent: u32,
    /// Id of its process group.
    pub group: u32,
    /// Id of its session.
    pub session: u32,
}

impl Process {
    /// Returns the process `pid`; `None` if there is none.
    pub fn of(pid: u32) -> Option<Process> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // The name is in parentheses, and may contain some.
        let (head, tail) = stat.rsplit_once(") ")?;
        let name = head.split_once('(')?.1.to_owned();
        let mut fields = tail.split(' ');
        let state = fields.next()?.chars().next()?;
        let mut number = || fields.next()?.parse().ok();
        Some(Process { pid, name, state, parent: number()?, group: number()?, session: number()? })
    }

    /// Returns all processes that have not ended.
    pub fn all() -> Vec<Process> {
        let numbers =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers.filter_map(Process::of).filter(|process| !matches!(process.state, 'Z' | 'X')).collect()
    }

    /// Returns true if the process is stopped, by a signal or a tracer.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Returns true if the environment with which the program was executed has the line `entry`: NAME=VALUE. False if it
    /// cannot be read.
    pub fn has_environment(&self, entry: &str) -> bool {
        // A last empty line would be in each environment.
        assert!(entry.contains('='), "{entry:?} is no line NAME=VALUE");
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|line| line == entry.as_bytes())
    }
}

/// Returns the processes of a run: `first`, what descends from it, what is in its session, and what has `entry` in its
/// environment. A process that has lost all four (its parent has ended, for example) is missing.
pub fn family(first: u32, entry: &str) -> Vec<Process> {
    let all = Process::all();
    let belongs = |process: &Process| {
        process.pid == first || process.session == first || process.has_environment(entry)
    };
    let mut family: HashSet<u32> =
        all.iter().filter(|process| belongs(process)).map(|process| process.pid).collect();
    loop {
        let before = family.len();
        for process in &all {
            if family.contains(&process.parent) {
                family.insert(process.pid);
            }
        }
        if family.len() == before {
            break;
        }
    }
    all.into_iter().filter(|process| family.contains(&process.pid)).collect()
}

/// Kills the processes of a run, as [`family`] returns them, until none is left or 100 rounds have passed.
pub fn kill_family(first: u32, entry: &str) {
    for _ in 0..100 {
        let left = family(first, entry);
        if left.is_empty() {
            return;
        }
        for process in left {
            // Fails if the process has ended meanwhile.
            let _ = signal_process(process.pid, SIGKILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
