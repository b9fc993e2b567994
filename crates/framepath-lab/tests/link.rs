// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network of lab `stream`, with a program that knows nothing of it.

use framepath_lab::LabError;
use framepath_lab::process::Program;
use framepath_lab::relay::Impairment;
use framepath_lab::test_link::{ADDRESSES, LinkLimits, TestLink};
use framepath_testkit::harness::{Missing, Tested, needs_program};
use framepath_testkit::program;

framepath_testkit::tests! {
    a_good_network_passes_every_packet,
    a_network_that_loses_all_passes_none,
}

/// Number of pings.
const PINGS: usize = 3;

fn a_good_network_passes_every_packet() -> Tested {
    let jitter = Impairment { jitter_ms: 5.0, ..Impairment::default() };
    let limits = LinkLimits { impairment: jitter, megabits: Some(10) };
    assert_eq!(answered(&limits)?, PINGS);
    Ok(())
}

fn a_network_that_loses_all_passes_none() -> Tested {
    let all = Impairment { loss_percent: 100.0, ..Impairment::default() };
    assert_eq!(answered(&LinkLimits { impairment: all, megabits: None })?, 0);
    Ok(())
}

/// Returns the number of answered pings, from the sender's end to the receiver's.
fn answered(limits: &LinkLimits) -> Result<usize, Missing> {
    needs_program("busybox", "busybox")?;
    let link = TestLink::start(&program(), limits).map_err(|error| match error {
        LabError::Missing(reason) => Missing::new(reason),
        error => panic!("{error}"),
    })?;
    // The exit code is 1 without any answer.
    let ping = format!("busybox ping -c {PINGS} -W 1 {}; true", ADDRESSES[1]);
    let mut words = link.entering(0).into_iter();
    let nsenter = words.next().unwrap();
    let output =
        Program::new(nsenter, words.chain(["sh", "-c", &ping].map(str::to_owned))).run(true).unwrap();
    Ok(output.stdout.lines().filter(|line| line.contains("bytes from")).count())
}
