// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings of the doctor on this machine.

use std::path::PathBuf;

use framepath_lab::doctor::{Places, ProbeState, examine};
use framepath_testkit::harness::{Missing, Tested};

framepath_testkit::tests! {
    the_installed_header_has_no_fences_yet,
}

/// Fails when the kernel's header gains fences, as a reminder: buffers can then be sent before
/// their frames are finished.
fn the_installed_header_has_no_fences_yet() -> Tested {
    let header = PathBuf::from("/usr/include/linux/videodev2.h");
    if !header.exists() {
        return Err(Missing::new(format!("no {}: apt install linux-libc-dev", header.display())));
    }
    let nowhere = PathBuf::from("/nonexistent");
    let findings = examine(&Places { clips: nowhere.clone(), peers: nowhere });
    let probe = findings.probes.iter().find(|probe| probe.name == "V4L2 fence flags").expect("the probe");
    assert_eq!(probe.state, ProbeState::Missing, "{}", probe.found);
    Ok(())
}
