// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's capabilities, and the features that each of them unlocks.
//!
//! A probe tries the real operation if the operation is cheap and has no side effect:
//! it opens the file, creates the object, runs `--version`. No probe installs anything or loads a
//! kernel module. The only setting that a probe changes: in a delegated cgroup, the probe `cgroup`
//! enables the controllers memory and pids.

mod device;
pub(crate) mod hardware;
mod kernel;
mod memory;
mod probe;
mod sandbox;
mod software;
mod trace;

use std::fmt::Write;
use std::path::PathBuf;

use framepath_model::summary::Machine;
use serde::Serialize;

pub use probe::{Probe, ProbeState};

/// Folders that the probes of clips and peers look into.
#[derive(Clone, Debug)]
pub struct Places {
    /// Folder of the committed clips.
    pub clips: PathBuf,
    /// Folder of the built peers: small programs that are contenders of the lab, most of which drive other
    /// people's software.
    pub peers: PathBuf,
}

/// Description of a machine and the results of all probes: the output of `framepath doctor`.
#[derive(Clone, Debug, Serialize)]
pub struct MachineReport {
    /// Description of the machine, as in summaries.
    pub machine: Machine,
    /// Results of all probes, group by group.
    pub probes: Vec<Probe>,
}

/// Runs all probes on this machine. An absent capability is a result, not an error.
pub fn examine(places: &Places) -> MachineReport {
    let mut probes = kernel::probes();
    probes.extend(device::probes());
    probes.extend(hardware::probes());
    probes.extend(sandbox::probes());
    probes.extend(memory::probes());
    probes.push(trace::probe());
    probes.extend(software::probes(places));
    MachineReport { machine: crate::machine(), probes }
}

/// Formats the findings as aligned text for a terminal: the machine, one line per probe under the
/// heading of its group, and the number of capabilities present. A capability that is missing or
/// not permitted also has its use and its remedy.
pub fn text(findings: &MachineReport) -> String {
    let MachineReport { machine, probes } = findings;
    let os = machine.os.as_deref().unwrap_or("Linux");
    let mut text = format!(
        "{}, {}; {os}, kernel {}\n",
        machine.cpu,
        counted(machine.cores as usize, "CPU", "CPUs"),
        machine.kernel
    );
    let width = probes.iter().map(|probe| probe.name.chars().count()).max().unwrap_or(0);
    let mut group = "";
    for probe in probes {
        if probe.group != group {
            group = probe.group;
            text.push_str(&format!("\n{group}\n"));
        }
        // Writing to a string cannot fail.
        let _ = lines(&mut text, probe, width);
    }
    let missing = probes.iter().filter(|probe| probe.state != ProbeState::Ok).count();
    let _ = writeln!(text, "\n{} of {} capabilities present", probes.len() - missing, probes.len());
    text
}

fn lines(text: &mut String, probe: &Probe, width: usize) -> std::fmt::Result {
    let Probe { name, state, found, unlocks, remedy, .. } = probe;
    writeln!(text, "  {:<13}  {name:<width$}  {found}", state.word())?;
    if let Some(remedy) = remedy {
        writeln!(text, "  {:<13}    unlocks: {unlocks}", "")?;
        writeln!(text, "  {:<13}    to get it: {remedy}", "")?;
    }
    Ok(())
}

/// Formats a count with the noun `one` or `many`: `1 CPU`, `2 CPUs`.
fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_name_their_use_and_remedy() {
        let findings = MachineReport {
            machine: Machine { cpu: "A".into(), cores: 1, kernel: "6.1".into(), ..Machine::default() },
            probes: vec![
                Probe::ok("kernel", "schedstat", "run delay", "/proc/self/schedstat"),
                Probe::lacking(
                    "devices",
                    "udmabuf",
                    "dmabufs",
                    ProbeState::Missing,
                    "no /dev/udmabuf",
                    "modprobe it",
                ),
            ],
        };
        assert_eq!(
            text(&findings),
            "A, 1 CPU; Linux, kernel 6.1\n\
             \nkernel\n  ok             schedstat  /proc/self/schedstat\n\
             \ndevices\n  missing        udmabuf    no /dev/udmabuf\n\
             \x20                  unlocks: dmabufs\n\
             \x20                  to get it: modprobe it\n\
             \n1 of 2 capabilities present\n"
        );
    }

    #[test]
    fn every_probe_has_a_result() {
        let nowhere = Places { clips: "/nowhere/clips".into(), peers: "/nowhere/peers".into() };
        let findings = examine(&nowhere);
        for probe in &findings.probes {
            assert!(!probe.found.is_empty() && !probe.unlocks.is_empty(), "{probe:?}");
            assert_eq!(probe.remedy.is_some(), probe.state != ProbeState::Ok, "{probe:?}");
        }
        let state = |name| findings.probes.iter().find(|p| p.name == name).map(|p| p.state);
        assert_eq!(state("committed clips"), Some(ProbeState::Missing));
        assert_eq!(state("sealed memfds"), Some(ProbeState::Ok), "pools are made of them");
    }
}
