// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network between a sender and a receiver that loses packets or limits their rate: two network namespaces, joined by the
//! [`relay`](crate::relay). All programs see the same network, whatever their protocols.
//!
//! The namespaces belong to a user namespace, so that an ordinary user can make them. They end with this value, and also with
//! the lab: each is held by a process that ends when its standard input does.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use framepath_os::process::children;
use serde::Deserialize;

use crate::error::LabError;
use crate::own_child::OwnChild;
use crate::process::{Program, ProgramOutput};
use crate::relay::{DEVICES, Impairment};

/// Properties of a network from a sender to a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkLimits {
    /// Losses and delays, in both directions.
    pub impairment: Impairment,
    /// Most bits from the sender to the receiver, megabits per second; `None` for no limit.
    pub megabits: Option<u32>,
}

/// Counters of the queue in front of a limited link, since its start.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct LinkTraffic {
    /// Number of bytes sent, with IP headers.
    pub bytes: u64,
    /// Number of packets sent.
    pub packets: u64,
    /// Number of packets dropped, because the queue was full.
    pub drops: u64,
    /// Number of bytes that wait.
    pub backlog: u64,
}

impl LinkTraffic {
    /// Reads the output of `tc -s -j qdisc show`; `None` if it has no limit (`tbf`).
    fn of(json: &str) -> Option<LinkTraffic> {
        let queues: Vec<serde_json::Value> = serde_json::from_str(json).ok()?;
        let queue = queues.into_iter().find(|queue| queue["kind"] == "tbf")?;
        serde_json::from_value(queue).ok()
    }
}

/// Addresses of the sender and of the receiver.
pub const ADDRESSES: [&str; 2] = ["10.87.0.1", "10.87.0.2"];

/// A running network.
#[derive(Debug)]
pub struct TestLink {
    /// Processes whose network namespaces are those of the sender and of the receiver. The first is the relay.
    holders: [OwnChild; 2],
}

impl TestLink {
    /// Starts the network; `framepath` is the program with the relay.
    ///
    /// # Errors
    /// [`LabError::Missing`]: this machine does not permit it, or a tool is missing.
    pub fn start(framepath: &Path, limits: &LinkLimits) -> Result<TestLink, LabError> {
        let Impairment { loss_percent, jitter_ms, seed } = limits.impairment;
        let mut relay = Command::new("unshare");
        relay.args(["--user", "--map-root-user", "--net"]).arg(framepath).arg("relay");
        relay.args([
            format!("--loss={loss_percent}"),
            format!("--jitter={jitter_ms}"),
            format!("--seed={seed}"),
        ]);
        let near = holder(&mut relay)?;
        let mut beside = Command::new("nsenter");
        beside.args(entering(near.id())).args(["unshare", "--net", "sh", "-c", "echo ready; exec cat"]);
        let far = holder(&mut beside)?;
        let (near_id, far_id) = (near.id(), far.id());
        configure(near_id, &format!("ip link set {} netns {far_id}", DEVICES[1]))?;
        let limit = limits.megabits.map_or(String::new(), |megabits| {
            // The queue of a home router: what would wait longer is dropped.
            format!(
                " && tc qdisc add dev {} root tbf rate {megabits}mbit burst 16kb latency 50ms",
                DEVICES[0]
            )
        });
        for (id, at, limit) in [(far_id, 1, ""), (near_id, 0, limit.as_str())] {
            let (device, own, other) = (DEVICES[at], ADDRESSES[at], ADDRESSES[1 - at]);
            configure(
                id,
                &format!(
                    "ip address add {own} peer {other} dev {device} && ip link set {device} up && ip link set lo up{limit}"
                ),
            )?;
        }
        Ok(TestLink { holders: [near, far] })
    }

    /// Reads the counters of the queue in front of the device at the sender.
    ///
    /// # Errors
    /// [`LabError::Unknown`]: the link has no limit, so that there is no such queue. `tc` fails.
    pub fn traffic(&self) -> Result<LinkTraffic, LabError> {
        let words = entering(self.holders[0].id());
        let words = words.chain(["tc", "-s", "-j", "qdisc", "show", "dev", DEVICES[0]].map(str::to_owned));
        let finished = Program::new("nsenter", words).run(true)?;
        LinkTraffic::of(&finished.stdout).ok_or_else(|| {
            LabError::Unknown(format!("tc qdisc show: no counters of a limit in `{}`", finished.stdout))
        })
    }

    /// Returns the words that run a program in the namespace of an end: 0 is the sender's, 1 the receiver's.
    pub fn entering(&self, end: usize) -> Vec<String> {
        std::iter::once("nsenter".to_owned()).chain(entering(self.holders[end].id())).collect()
    }
}

/// Returns the arguments of `nsenter` for the namespaces of the process `pid`.
fn entering(pid: u32) -> impl Iterator<Item = String> {
    // Groups cannot be changed in such a user namespace, and need no change.
    let words = ["--preserve-credentials".to_owned(), "--user".to_owned(), "--net".to_owned()];
    words.into_iter().chain([format!("--target={pid}"), "--".to_owned()])
}

/// Starts a process that prints `ready` when its namespaces are, and lives until its standard input ends.
fn holder(command: &mut Command) -> Result<OwnChild, LabError> {
    let mut errors = ProgramOutput::new()?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.to_stdio()?);
    let mut child = children::on_a_lead(command).spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            LabError::Missing("no unshare or nsenter for the network; apt install util-linux".to_owned())
        }
        _ => LabError::Io { what: "starting a network namespace".to_owned(), error },
    })?;
    let output = child.stdout.take();
    let child = OwnChild::new(child);
    let mut line = String::new();
    output
        .map_or(Ok(0), |output| BufReader::new(output).read_line(&mut line))
        .map_err(LabError::io("waiting for a network namespace"))?;
    if line.trim() == "ready" {
        return Ok(child);
    }
    Err(LabError::Missing(format!("no network namespace: {}", errors.text().trim())))
}

/// Runs a line of shell in the namespaces of the process `pid`.
fn configure(pid: u32, line: &str) -> Result<(), LabError> {
    let words = entering(pid).chain(["sh", "-c", line].map(str::to_owned));
    match Program::new("nsenter", words).run(false) {
        Ok(_) => Ok(()),
        Err(LabError::Command { stderr, .. }) => Err(LabError::Missing(format!(
            "the network cannot be set up (`ip` and `tc`: apt install iproute2): {stderr}"
        ))),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_those_of_the_limit() {
        let json = r#"[{"kind":"tbf","handle":"8001:","root":true,"options":{"rate":1250000},"bytes":900,"packets":7,
            "drops":2,"overlimits":5,"requeues":0,"backlog":100,"qlen":1}]"#;
        let traffic = LinkTraffic { bytes: 900, packets: 7, drops: 2, backlog: 100 };
        assert_eq!(LinkTraffic::of(json), Some(traffic));
        assert_eq!(LinkTraffic::of(r#"[{"kind":"pfifo_fast","bytes":1}]"#), None);
    }
}
