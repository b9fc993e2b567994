// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of the two processes beside the frames: lines on the consumer's standard
//! output. The consumer ends at the end of its standard input.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, exit};
use std::sync::mpsc::{Receiver, channel};

use crate::interrupt;

/// Line that the consumer prints after its warm-up frames.
pub const READY: &str = "ready";

/// Figures of the consumer, printed as one line of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub received: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub out_of_order: u64,
    pub cpu_ns: u64,
    pub switches: u64,
    pub end_ns: u64,
    /// Latency in nanoseconds: 50th, 95th and 99th percentile, maximum.
    pub latency_ns: [u64; 4],
}

impl Report {
    pub fn line(&self) -> String {
        let [p50, p95, p99, max] = self.latency_ns;
        let numbers = [
            self.received,
            self.lost,
            self.duplicated,
            self.out_of_order,
            self.cpu_ns,
            self.switches,
            self.end_ns,
            p50,
            p95,
            p99,
            max,
        ];
        numbers.map(|n| n.to_string()).join(" ")
    }

    pub fn parse(line: &str) -> Option<Report> {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let [received, lost, duplicated, out_of_order, cpu_ns, switches, end_ns, p50, p95, p99, max] =
            numbers.try_into().ok()?;
        let latency_ns = [p50, p95, p99, max];
        Some(Report { received, lost, duplicated, out_of_order, cpu_ns, switches, end_ns, latency_ns })
    }
}

/// Returns the lines of the consumer's standard output. A thread reads them and ends
/// the process if the consumer ends without a report, because the producer's send may
/// then never return.
pub fn lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut reported = false;
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            reported |= Report::parse(&line).is_some();
            if sender.send(line).is_err() {
                return;
            }
        }
        if !reported && !interrupt::came() {
            eprintln!("iceoryx2-handoff: the consumer ended early");
            exit(1);
        }
    });
    receiver
}
