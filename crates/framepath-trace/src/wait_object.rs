// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects behind the descriptors on which threads wait: sockets with their peers, pipes, files, devices.
//!
//! They are looked up in /proc soon after the wait has begun, so a program that closes a descriptor at once is too fast for it.
//! Formats: proc(5), "fd", "fdinfo" and "net".

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use framepath_os::process::chosen_file::{FileType, chosen_file};
use framepath_os::process::limited_reader::LimitedReader;
use framepath_os::time::now_ns;

use crate::probe_event::SystemCall;
use crate::socket_names::SocketNames;
use crate::wait_reason::{WaitCall, WaitReason};

/// Number of descriptors of a poll(2) that are looked at.
pub(crate) const POLLED: usize = 4;

/// Greatest number of objects; of further ones, the names are not kept.
const MOST: usize = 4096;

/// Look-ups of descriptors at one time, and the time for them, nanoseconds: a hostile program can make each of them slow.
const LOOK_UPS: u32 = 256;
const LOOK_UPS_NS: u64 = 5_000_000;

/// Most epolls in one another that are looked into.
const MOST_DEPTH: u8 = 3;

/// Time for the list of the descriptors in an epoll(7). A hostile process can keep the kernel from ever giving it.
const LIST: Duration = Duration::from_millis(100);

/// Object that threads wait for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WaitObject {
    pub(crate) reason: WaitReason,
    /// `tcp 192.0.2.1:80`, `/dev/video0`; `None` for an object without a name.
    pub(crate) name: Option<String>,
}

/// All objects of a recording.
#[derive(Debug, Default)]
pub(crate) struct WaitObjects {
    objects: Vec<WaitObject>,
    numbers: HashMap<WaitObject, u32>,
    /// Objects of the descriptors of processes; emptied at each look, because descriptors are used again.
    descriptors: HashMap<(i32, i32), Option<WaitObject>>,
    /// Look-ups so far, and the time of the first one, CLOCK_MONOTONIC nanoseconds, since the last [`WaitObjects::look_again`].
    looked: (u32, u64),
    sockets: SocketNames,
    lists: LimitedReader,
    /// Processes with an epoll(7) that gave no list in time. They are as few as the times that the reader waits.
    silent: HashSet<i32>,
}

impl WaitObjects {
    /// Forgets which descriptors have which objects.
    pub(crate) fn look_again(&mut self) {
        self.descriptors.clear();
        self.looked = (0, now_ns());
    }

    /// Forgets what is known only for a process that has ended.
    pub(crate) fn forget(&mut self, process: i32) {
        self.descriptors.retain(|(of, _), _| *of != process);
        self.sockets.forget(process);
    }

    /// Returns the objects with their numbers, without what further look-ups need.
    pub(crate) fn found(&self) -> WaitObjects {
        WaitObjects { objects: self.objects.clone(), ..WaitObjects::default() }
    }

    /// Returns the object with this number.
    pub(crate) fn get(&self, number: u32) -> Option<&WaitObject> {
        self.objects.get(number as usize)
    }

    /// Finds out what `call`, of process `process`, waits for.
    pub(crate) fn resolve(&mut self, process: i32, call: &mut SystemCall) {
        let found = match WaitCall::of(call.number) {
            WaitCall::For(_) => return,
            WaitCall::Object(WaitReason::Ioctl, _) => {
                let object = self.behind(process, call.arguments[0] as i32, 0);
                object.map(|object| WaitObject { reason: WaitReason::Ioctl, ..object })
            }
            WaitCall::Object(..) => self.behind(process, call.arguments[0] as i32, 0),
            WaitCall::Poll | WaitCall::Select => {
                let (descriptors, more) = polled(call);
                if descriptors.is_empty() {
                    call.is_clock = true;
                    return;
                }
                self.one_of(process, &descriptors, more, 0)
            }
        };
        let Some(object) = found else { return };
        call.is_clock = object.reason == WaitReason::Timer;
        call.object = self.number(object);
    }

    /// Returns the number of an object.
    fn number(&mut self, object: WaitObject) -> Option<u32> {
        if let Some(number) = self.numbers.get(&object) {
            return Some(*number);
        }
        let object = match self.objects.len() < MOST {
            true => object,
            false => WaitObject { name: None, ..object },
        };
        if let Some(number) = self.numbers.get(&object) {
            return Some(*number);
        }
        let number = self.objects.len() as u32;
        self.objects.push(object.clone());
        Some(*self.numbers.entry(object).or_insert(number))
    }

    /// Returns the object of several ones that a wait is about: what comes from outside of the process, rather than what its threads
    /// wake up one another with. `more` is the number of further descriptors that were not looked at.
    fn one_of(&mut self, process: i32, descriptors: &[i32], more: usize, depth: u8) -> Option<WaitObject> {
        let mut objects: Vec<WaitObject> =
            descriptors.iter().filter_map(|descriptor| self.behind(process, *descriptor, depth)).collect();
        let is_inner = |object: &WaitObject| {
            matches!(object.reason, WaitReason::Timer | WaitReason::EventFd | WaitReason::Descriptor)
        };
        if objects.iter().any(|object| !is_inner(object)) {
            objects.retain(|object| !is_inner(object));
        } else if more == 0 && objects.iter().any(|object| object.reason != WaitReason::Timer) {
            objects.retain(|object| object.reason != WaitReason::Timer);
        }
        let first = objects.first()?.clone();
        let others = objects.len() - 1 + more;
        if others == 0 {
            return Some(first);
        }
        let is_same = objects.iter().all(|object| object.reason == first.reason);
        let reason = if is_same { first.reason } else { WaitReason::Poll };
        let name = first.name.unwrap_or_else(|| first.reason.name().to_owned());
        Some(WaitObject { reason, name: Some(format!("{name} and {others} more")) })
    }

    /// Returns the object behind a descriptor, which is in `depth` others; `None` if the process has closed it or has ended, and
    /// beyond the look-ups of this time.
    fn behind(&mut self, process: i32, descriptor: i32, depth: u8) -> Option<WaitObject> {
        let key = (process, descriptor);
        if let Some(known) = self.descriptors.get(&key) {
            return known.clone();
        }
        let (count, since_ns) = &mut self.looked;
        *count += 1;
        if *count > LOOK_UPS || now_ns().saturating_sub(*since_ns) > LOOK_UPS_NS {
            return None;
        }
        // An epoll(7) may be in another one: no look at itself below.
        self.descriptors.insert(key, None);
        let found = self.look_up(process, descriptor, depth);
        self.descriptors.insert(key, found.clone());
        found
    }

    fn look_up(&mut self, process: i32, descriptor: i32, depth: u8) -> Option<WaitObject> {
        let link = format!("/proc/{process}/fd/{descriptor}");
        let target = fs::read_link(&link).ok()?;
        let text = target.to_string_lossy();
        let named = |reason, name: &str| Some(WaitObject { reason, name: Some(name.to_owned()) });
        let unnamed = |reason| Some(WaitObject { reason, name: None });
        let inode = |kind: &str| text.strip_prefix(kind)?.strip_suffix(']')?.parse::<u64>().ok();
        if let Some(inode) = inode("socket:[") {
            let name = self.sockets.name(process, inode);
            return Some(WaitObject { reason: WaitReason::Socket, name });
        }
        if inode("pipe:[").is_some() {
            return unnamed(WaitReason::Pipe);
        }
        if let Some(kind) = text.strip_prefix("anon_inode:") {
            return match kind.trim_matches(['[', ']']) {
                "eventpoll" if depth >= MOST_DEPTH => unnamed(WaitReason::Poll),
                "eventpoll" => match self.watched(process, descriptor) {
                    Ok(watched) if watched.is_empty() => unnamed(WaitReason::Timer),
                    Ok(watched) => {
                        let (first, more) = watched.split_at(watched.len().min(POLLED));
                        self.one_of(process, first, more.len(), depth + 1)
                    }
                    Err(_) => unnamed(WaitReason::Poll),
                },
                "eventfd" => unnamed(WaitReason::EventFd),
                "timerfd" => unnamed(WaitReason::Timer),
                "io_uring" => unnamed(WaitReason::IoUring),
                kind => named(WaitReason::Descriptor, kind),
            };
        }
        let kind = chosen_file(Path::new(&link)).ok()?.kind;
        if text.starts_with("/dev/pts/") || text.starts_with("/dev/tty") {
            return named(WaitReason::Terminal, &text);
        }
        let reason = match () {
            () if kind == FileType::Fifo => WaitReason::Pipe,
            () if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) => WaitReason::Device,
            () if kind == FileType::Socket => WaitReason::Socket,
            () => WaitReason::File,
        };
        named(reason, &text)
    }

    /// Returns the descriptors in an epoll(7).
    ///
    /// # Errors
    /// The process has closed it or has ended; `TimedOut` if the kernel does not give the list, now or once before.
    fn watched(&mut self, process: i32, descriptor: i32) -> io::Result<Vec<i32>> {
        if self.silent.contains(&process) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let list = format!("/proc/{process}/fdinfo/{descriptor}");
        let bytes = self.lists.read(Path::new(&list), LIST).inspect_err(|error| {
            if error.kind() == io::ErrorKind::TimedOut {
                self.silent.insert(process);
            }
        })?;
        let number = |line: &str| line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok();
        Ok(String::from_utf8_lossy(&bytes).lines().filter_map(number).collect())
    }
}

/// Returns the descriptors that a poll(2) or select(2) waits for, as far as the record has them, and the number of those that it has
/// not.
fn polled(call: &SystemCall) -> (Vec<i32>, usize) {
    if WaitCall::of(call.number) == WaitCall::Select {
        let first = call.arguments[0].min(64) as i32;
        let bits = call.polled[0] | call.polled[1];
        return ((0..first).filter(|bit| bits >> bit & 1 == 1).take(POLLED).collect(), 0);
    }
    let count = call.arguments[1] as usize;
    let entries = call.polled.iter().take(count).map(|entry| *entry as i32);
    (entries.filter(|descriptor| *descriptor >= 0).collect(), count.saturating_sub(POLLED))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    use super::*;

    fn call(number: i64, arguments: [u64; 2]) -> SystemCall {
        SystemCall { number, arguments, ..SystemCall::default() }
    }

    /// Descriptors of this process, as a wait on them would name them.
    #[test]
    fn descriptors_have_the_names_of_their_objects() -> io::Result<()> {
        let mut objects = WaitObjects::default();
        let process = std::process::id() as i32;
        let mut name = |call: &mut SystemCall| {
            objects.look_again();
            objects.resolve(process, call);
            call.object
                .and_then(|number| objects.get(number).cloned())
                .map(|object| (object.reason, object.name))
        };
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let peer = stream.peer_addr()?;
        let mut recv = call(libc::SYS_recvfrom, [stream.as_raw_fd() as u64, 0]);
        assert_eq!(name(&mut recv), Some((WaitReason::Socket, Some(format!("tcp {peer}")))));
        let mut accept = call(libc::SYS_accept4, [listener.as_raw_fd() as u64, 0]);
        assert_eq!(name(&mut accept), Some((WaitReason::Socket, Some(format!("tcp on {peer}")))));
        let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn()?;
        let fd = cat.stdin.as_ref().unwrap().as_raw_fd() as u64;
        assert_eq!(name(&mut call(libc::SYS_read, [fd, 0])), Some((WaitReason::Pipe, None)));
        // Descriptors and none in a poll.
        let polled = [fd, stream.as_raw_fd() as u64, 0, 0];
        let mut poll = SystemCall { polled, ..call(libc::SYS_ppoll, [0, 2]) };
        assert_eq!(name(&mut poll), Some((WaitReason::Poll, Some("pipe and 1 more".to_owned()))));
        let mut none = call(libc::SYS_ppoll, [0, 0]);
        assert_eq!((name(&mut none), none.is_clock), (None, true));
        let mut bits = SystemCall { polled: [1 << fd, 0, 0, 0], ..call(libc::SYS_pselect6, [fd + 1, 0]) };
        assert_eq!(name(&mut bits), Some((WaitReason::Pipe, None)));
        let closed = call(libc::SYS_read, [u64::from(u32::MAX), 0]);
        assert_eq!(name(&mut { closed }), None);
        drop(cat.stdin.take());
        cat.wait()?;
        Ok(())
    }
}
