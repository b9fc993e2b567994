// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a case leaves over: processes, descriptors and shared memory.

use std::fs;

use framepath::host::dismiss_spares;

/// What this process has. Workers that are kept ready are ended first: they
/// are there on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holdings {
    processes: u64,
    fds: u64,
    shared: u64,
}

/// A process, told from a later one of the same number by when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pid: u32,
    began: u64,
}

impl Holdings {
    pub(super) fn now() -> Holdings {
        dismiss_spares();
        let fds = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Holdings {
            processes: descendants(std::process::id()).len() as u64,
            fds,
            shared: maps.lines().filter(|line| line.contains("/memfd:framepath-")).count() as u64,
        }
    }

    /// What is there more than before: processes, descriptors, mappings of
    /// shared memory.
    pub(super) fn more_than(&self, before: &Holdings) -> [(&'static str, f64); 3] {
        let more = |now: u64, before: u64| now.saturating_sub(before) as f64;
        [
            ("left_processes", more(self.processes, before.processes)),
            ("left_fds", more(self.fds, before.fds)),
            ("left_shared_memory", more(self.shared, before.shared)),
        ]
    }
}

impl Process {
    /// Whether it still runs; one that only nobody has waited for does not.
    pub(super) fn runs(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.began == self.began && stat.state != 'Z')
    }
}

/// All running processes below `pid`.
pub(super) fn descendants(pid: u32) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<(u32, Stat)> = pids.filter_map(|pid| Some((pid, stat(pid)?))).collect();
    let mut below = vec![pid];
    let mut at = 0;
    while let Some(parent) = below.get(at).copied() {
        let children = all.iter().filter(|(_, stat)| stat.parent == parent && stat.state != 'Z');
        below.extend(children.map(|(pid, _)| *pid));
        at += 1;
    }
    let began = |pid: &u32| all.iter().find(|(other, _)| other == pid).map(|(_, stat)| stat.began);
    below[1..].iter().filter_map(|pid| Some(Process { pid: *pid, began: began(pid)? })).collect()
}

struct Stat {
    state: char,
    parent: u32,
    began: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// proc_pid_stat(5): fields 3, 4 and 22; the name, field 2, may hold anything.
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
    fn a_name_cannot_fool_the_reader_of_stat() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = parse(&format!("17 (a) Z 1 ) S {}", fields.join(" "))).unwrap();
        assert_eq!((stat.state, stat.parent, stat.began), ('S', 4, 22));
        assert!(parse("17 (short) S 1").is_none());
    }

    #[test]
    fn children_are_found_until_they_end() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let found = descendants(std::process::id());
        let ours = *found.iter().find(|process| process.pid == child.id()).unwrap();
        assert!(ours.runs());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!ours.runs());
    }
}
