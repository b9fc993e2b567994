// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descendants of a process and the activity of their threads, read from /proc.

use std::fs;

/// A process. Its start time, in clock ticks since boot, distinguishes it from a later process with the
/// same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descendant {
    pid: u32,
    began: u64,
}

impl Descendant {
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns true if this process, not a later one with its id, still runs; a zombie does not run.
    pub(crate) fn runs(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.began == self.began && stat.state != 'Z')
    }
}

/// Activity of the living threads of one or more processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Number of context switches since the threads started, voluntary and involuntary. A sleeping
    /// thread that wakes up and sleeps again adds one.
    pub(crate) switches: u64,
    /// Number of threads.
    pub(crate) threads: u64,
    /// Number of threads in any state other than `S`, interruptible sleep.
    pub(crate) awake: u64,
}

/// Counts the living threads of process `pid`, those that are awake, and their context switches so far;
/// zeros if there is no such process.
pub(crate) fn activity(pid: u32) -> Activity {
    let mut activity = Activity::default();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return activity };
    for task in tasks.flatten() {
        // A thread that has just ended is skipped.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        activity.add_thread(&status);
    }
    activity
}

impl Activity {
    /// Adds one thread by the text of its status file in /proc, proc_pid_status(5).
    fn add_thread(&mut self, status: &str) {
        self.threads += 1;
        for line in status.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            match key {
                "State" => self.awake += u64::from(!value.trim_start().starts_with('S')),
                "voluntary_ctxt_switches" | "nonvoluntary_ctxt_switches" => {
                    self.switches += value.trim().parse::<u64>().unwrap_or(0);
                }
                _ => {}
            }
        }
    }
}

impl std::ops::AddAssign for Activity {
    fn add_assign(&mut self, other: Activity) {
        self.switches += other.switches;
        self.threads += other.threads;
        self.awake += other.awake;
    }
}

/// Finds the process with the id `pid`; `None` if there is no such process or it is a zombie.
pub(crate) fn process(pid: u32) -> Option<Descendant> {
    stat(pid).filter(|stat| stat.state != 'Z').map(|stat| Descendant { pid, began: stat.began })
}

/// Lists the children of `pid`, their children and so on. Omits zombies, and processes whose parent has
/// ended, because the kernel gives them another parent.
pub(crate) fn descendants(pid: u32) -> Vec<Descendant> {
    let all = all();
    let mut below = vec![pid];
    let mut at = 0;
    while let Some(parent) = below.get(at).copied() {
        let children = all.iter().filter(|(_, stat)| stat.parent == parent && stat.state != 'Z');
        below.extend(children.map(|(pid, _)| *pid));
        at += 1;
    }
    let began = |pid: &u32| all.iter().find(|(other, _)| other == pid).map(|(_, stat)| stat.began);
    below[1..].iter().filter_map(|pid| Some(Descendant { pid: *pid, began: began(pid)? })).collect()
}

/// Counts the children that `pid` has not waited for, zombies included.
pub(crate) fn children(pid: u32) -> usize {
    all().iter().filter(|(_, stat)| stat.parent == pid).count()
}

/// Lists every process in /proc with its id, zombies included.
fn all() -> Vec<(u32, Stat)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

struct Stat {
    state: char,
    parent: u32,
    began: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses fields 3, 4 and 22 (state, parent, start time) of a process's stat file, proc_pid_stat(5).
/// The name, field 2, may contain any character. Returns `None` if a field is missing or invalid.
fn parse(text: &str) -> Option<Stat> {
    let (_, behind) = text.rsplit_once(')')?;
    let fields: Vec<&str> = behind.split_whitespace().collect();
    let state = fields.first()?.chars().next()?;
    Some(Stat { state, parent: fields.get(1)?.parse().ok()?, began: fields.get(19)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_confuse_the_parser() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = parse(&format!("17 (a) Z 1 ) S {}", fields.join(" "))).unwrap();
        assert_eq!((stat.state, stat.parent, stat.began), ('S', 4, 22));
        assert!(parse("17 (short) S 1").is_none());
    }

    #[test]
    fn activity_is_the_sum_of_the_threads() {
        let mut activity = Activity::default();
        activity.add_thread(
            "State:\tS (sleeping)\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n",
        );
        activity.add_thread("State:\tR (running)\nvoluntary_ctxt_switches:\t1\n");
        assert_eq!(activity, Activity { switches: 10, threads: 2, awake: 1 });
        assert!(super::activity(std::process::id()).threads > 0);
    }

    #[test]
    fn descendants_include_children_until_they_end() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let found = descendants(std::process::id());
        let ours = *found.iter().find(|process| process.pid == child.id()).unwrap();
        assert!(ours.runs());
        let before = children(std::process::id());
        child.kill().unwrap();
        assert!(before > 0);
        child.wait().unwrap();
        assert!(!ours.runs());
    }
}
