// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes of memory for frames, and of sending many UDP datagrams with one system call.

use std::fs;
use std::io;
use std::net::UdpSocket;

use framepath_os::memory::pool::Pool;
use framepath_os::net;

use super::probe::{Probe, ProbeState};

const GROUP: &str = "memory and network";

pub(super) fn probes() -> Vec<Probe> {
    vec![sealed_memfd(), huge_pages(), udp_gso()]
}

/// Probes sealed memfds by creating one, because a pool is a sealed memfd.
fn sealed_memfd() -> Probe {
    let (name, unlocks) = ("sealed memfds", "pools: every path needs them");
    match Pool::new(4096, 1) {
        Ok(_) => Probe::ok(GROUP, name, unlocks, "a pool was created and sealed"),
        Err(error) => Probe::lacking(
            GROUP,
            name,
            unlocks,
            ProbeState::Missing,
            error.to_string(),
            "a kernel 3.17 or newer with CONFIG_MEMFD_CREATE=y",
        ),
    }
}

fn huge_pages() -> Probe {
    let name = "huge pages for memfds";
    let unlocks = "fewer page faults and TLB misses in large pools (planned)";
    let file = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let found = match fs::read_to_string(file) {
        Ok(modes) => chosen(&modes).unwrap_or("unknown").to_owned(),
        Err(error) => format!("{file}: {error}"),
    };
    match found.as_str() {
        "always" | "within_size" | "advise" | "force" => {
            Probe::ok(GROUP, name, unlocks, format!("shmem_enabled is {found}"))
        }
        "never" | "deny" => Probe::lacking(
            GROUP,
            name,
            unlocks,
            ProbeState::Missing,
            format!("shmem_enabled is {found}"),
            format!("echo advise | sudo tee {file}"),
        ),
        _ => Probe::lacking(
            GROUP,
            name,
            unlocks,
            ProbeState::Missing,
            found.clone(),
            "a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y and CONFIG_SHMEM=y",
        ),
    }
}

/// Returns the current mode, which is the word in brackets: `never` for `always [never] deny`; `None`
/// without brackets.
fn chosen(modes: &str) -> Option<&str> {
    let (_, rest) = modes.split_once('[')?;
    rest.split_once(']').map(|(mode, _)| mode)
}

fn udp_gso() -> Probe {
    let (name, unlocks) = ("UDP GSO", "lab `loopback`: many datagrams with one system call");
    let asked: io::Result<()> =
        UdpSocket::bind(("127.0.0.1", 0)).and_then(|socket| net::set_segment_size(&socket, 1200));
    match asked {
        Ok(()) => Probe::ok(GROUP, name, unlocks, "UDP_SEGMENT can be set"),
        Err(error) => {
            let found = format!("UDP_SEGMENT: {error}");
            Probe::lacking(
                GROUP,
                name,
                unlocks,
                ProbeState::from_error(&error),
                found,
                "a kernel 4.18 or newer",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn the_current_mode_is_in_brackets() {
        assert_eq!(chosen("always within_size advise [never] deny force\n"), Some("never"));
        assert_eq!(chosen(""), None);
    }
}
