// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of the sockets of traced processes: their peers or their own addresses.
//!
//! Format: proc(5), "net". The lists have all sockets of a network namespace, also those of programs that are not traced.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use framepath_os::time::now_ns;

use crate::patience::Patience;

/// Most network namespaces whose sockets are kept.
const MOST_NETWORKS: usize = 4;

/// Most sockets of a network namespace that are kept, and most bytes of a name: a Unix socket has a path of 108 bytes.
const MOST_SOCKETS: usize = 16_384;
const NAME_BYTES: usize = 128;

/// Most processes of a network namespace that are remembered.
const MOST_PROCESSES: usize = 1024;

/// Most bytes of a list of sockets that are read.
const LIST_BYTES: u64 = 4 << 20;

/// Shortest time between two looks at the sockets of a network namespace, nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

/// Names of sockets by their network namespaces. A hostile program can make any number of both, and of processes.
#[derive(Debug, Default)]
pub(crate) struct SocketNames {
    /// Sockets by the number of the namespace.
    networks: HashMap<u64, Network>,
    /// Time for the look-ups.
    patience: Patience,
}

/// Sockets of a network namespace.
#[derive(Debug, Default)]
struct Network {
    /// Time at which the names were read, CLOCK_MONOTONIC nanoseconds.
    read_ns: u64,
    /// Names by the inodes of the sockets.
    names: HashMap<u64, String>,
    /// Processes that have waited for one of them and have not ended.
    processes: HashSet<i32>,
}

impl SocketNames {
    /// Returns the name of a socket of `process`. Reads the lists of all sockets, which can be long, for a socket that is not known,
    /// at most once in a second, and only while there is time for it.
    pub(crate) fn name(&mut self, process: i32, inode: u64) -> Option<String> {
        let number = fs::metadata(format!("/proc/{process}/ns/net")).ok()?.ino();
        self.name_in(number, process, inode, || sockets(process))
    }

    /// Returns the name of a socket in the namespace with this number, whose sockets `read` reads.
    fn name_in(
        &mut self,
        number: u64,
        process: i32,
        inode: u64,
        read: impl FnOnce() -> HashMap<u64, String>,
    ) -> Option<String> {
        if !self.networks.contains_key(&number) && self.networks.len() >= MOST_NETWORKS {
            let oldest = self.networks.iter().min_by_key(|(_, network)| network.read_ns);
            let oldest = oldest.map(|(number, _)| *number)?;
            self.networks.remove(&oldest);
        }
        let network = self.networks.entry(number).or_default();
        if network.processes.len() < MOST_PROCESSES {
            network.processes.insert(process);
        }
        let now_ns = now_ns();
        let is_due = now_ns.saturating_sub(network.read_ns) >= LOOK_NS;
        if !network.names.contains_key(&inode) && is_due && !self.patience.left().is_zero() {
            let since = Instant::now();
            (network.read_ns, network.names) = (now_ns, read());
            self.patience.spend(since);
        }
        network.names.get(&inode).cloned()
    }

    /// Forgets a process that has ended, and the sockets of its network namespace if it was the last one there.
    pub(crate) fn forget(&mut self, process: i32) {
        self.networks
            .retain(|_, network| !network.processes.remove(&process) || !network.processes.is_empty());
    }
}

/// Returns the names of the sockets of a process's network by their inodes.
fn sockets(process: i32) -> HashMap<u64, String> {
    let folder = PathBuf::from(format!("/proc/{process}/net"));
    let read = |file: &str| read_list(&folder.join(file), LIST_BYTES);
    let mut names = HashMap::new();
    for (file, protocol) in [("tcp", "tcp"), ("tcp6", "tcp"), ("udp", "udp"), ("udp6", "udp")] {
        add(&mut names, &read(file), |line| internet_socket(protocol, line));
    }
    add(&mut names, &read("unix"), unix_socket);
    names
}

/// Adds the sockets of a list, which has a heading.
fn add(names: &mut HashMap<u64, String>, list: &str, parse: impl Fn(&str) -> Option<(u64, String)>) {
    let sockets = list.lines().skip(1).filter_map(parse);
    for (inode, mut name) in sockets.take(MOST_SOCKETS.saturating_sub(names.len())) {
        while name.len() > NAME_BYTES {
            name.pop();
        }
        names.insert(inode, name);
    }
}

/// Returns the inode and the name of a line of /proc/net/tcp and its relatives: with the peer's address, or the own one without
/// a peer.
fn internet_socket(protocol: &str, line: &str) -> Option<(u64, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (own, peer, inode) = (address(words.get(1)?)?, address(words.get(2)?)?, words.get(9)?.parse().ok()?);
    let name = match peer.port() {
        0 => format!("{protocol} on {own}"),
        _ => format!("{protocol} {peer}"),
    };
    Some((inode, name))
}

/// Returns the inode and the name of a line of /proc/net/unix.
fn unix_socket(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_whitespace();
    let inode = words.nth(6)?.parse().ok()?;
    Some((inode, words.next().map_or("unix".to_owned(), |path| format!("unix {path}"))))
}

/// Returns an address, whose words of 32 bits are in the order of this machine.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |n: usize| u32::from_str_radix(address.get(8 * n..8 * n + 8)?, 16).ok();
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        _ => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].map(u32::to_ne_bytes);
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

/// Returns the first `most` bytes of a file of /proc; empty if it cannot be read.
fn read_list(path: &Path, most: u64) -> String {
    let mut bytes = Vec::new();
    // The bytes read before an error count.
    let _ = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sockets_of_few_networks_are_kept_and_each_is_read_seldom() {
        let mut sockets = SocketNames::default();
        let list = || HashMap::from([(7, "unix".to_owned())]);
        assert_eq!(sockets.name_in(1, 10, 7, list).as_deref(), Some("unix"));
        // A socket that is not there, soon after the look, and one that is.
        assert_eq!(sockets.name_in(1, 11, 8, || panic!("read twice")), None);
        assert_eq!(sockets.name_in(1, 11, 7, || panic!("read twice")).as_deref(), Some("unix"));
        for number in 0..1000 {
            sockets.name_in(number, 12, 7, list);
            assert!(sockets.networks.len() <= MOST_NETWORKS);
        }
        let mut sockets = SocketNames::default();
        for process in 0..100_000 {
            sockets.name_in(1, process, 7, list);
        }
        assert_eq!(sockets.networks[&1].processes.len(), MOST_PROCESSES);
    }

    #[test]
    fn without_time_no_list_is_read() {
        let mut sockets = SocketNames::default();
        sockets.patience.spend(Instant::now() - std::time::Duration::from_secs(60));
        assert_eq!(sockets.name_in(1, 10, 7, || panic!("no time")), None);
    }

    #[test]
    fn the_end_of_the_last_process_ends_its_network() {
        let mut sockets = SocketNames::default();
        for (number, process) in [(1, 10), (1, 11), (2, 10)] {
            sockets.name_in(number, process, 7, HashMap::new);
        }
        sockets.forget(12);
        assert_eq!(sockets.networks.len(), 2);
        sockets.forget(10);
        assert_eq!(sockets.networks.keys().collect::<Vec<_>>(), [&1]);
        sockets.forget(11);
        assert!(sockets.networks.is_empty());
    }

    #[test]
    fn a_list_has_a_limit_and_so_has_a_name() {
        let line = |inode: usize, path: &str| format!("0: 2 0 0 1 01 {inode} {path}\n");
        let lines: String = (0..2 * MOST_SOCKETS).map(|inode| line(inode, &"\u{fffd}".repeat(100))).collect();
        let mut names = HashMap::new();
        for _ in 0..2 {
            add(&mut names, &format!("Num\n{lines}"), unix_socket);
        }
        assert_eq!(names.len(), MOST_SOCKETS);
        assert!(names[&0].starts_with("unix ") && names.values().all(|name| name.len() <= NAME_BYTES));
    }

    #[test]
    fn addresses_are_read_in_the_order_of_the_machine() {
        assert_eq!(address("0100007F:1F90").unwrap().to_string(), "127.0.0.1:8080");
        let mapped = "0000000000000000FFFF00000100007F:0050";
        assert_eq!(address(mapped).unwrap().to_string(), "127.0.0.1:80");
        for text in ["", "0100007F", "01:1", "zz00007F:1F90", "0100007F:zzzz"] {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
