// SPDX-License-Identifier: MIT OR Apache-2.0
//! The zygote's side: forks workers on request.

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use framepath_model::wire::Message;
use framepath_os::crash;
use framepath_os::crossing::Socket;
use framepath_os::spawn::{WorkerProcess, Zygote, tend};

use super::kind::{Kind, Task};
use super::say::{hear, say};
use super::{HostError, worker};

/// The whole life of the zygote: forks workers until its caller is gone, and
/// ends the process. In the main thread of a process that has no other.
///
/// # Errors
/// Threads, no namespaces for a reason other than a refusal, or a caller that
/// broke the rules.
pub fn serve(caller: OwnedFd) -> Result<Infallible, HostError> {
    fork_on_request(&Socket::from(caller))?;
    // What a hundred libraries registered for the end is of no use here.
    crash::leave()
}

fn fork_on_request(caller: &Socket) -> Result<(), HostError> {
    let zygote = Zygote::new()?;
    let failed = |source| HostError::Socket { operation: "waiting for", source };
    let mut children = Vec::new();
    loop {
        tend(caller, &mut children).map_err(failed)?;
        let Some((message, _)) = hear(caller)? else { return Ok(()) };
        let Message::Spawn { memory_bytes, plugin, by_device, without_seccomp } = message else { continue };
        let task = match (plugin.is_empty(), by_device) {
            (false, _) => Task::Plugin(PathBuf::from(plugin)),
            (true, true) => Task::Device,
            (true, false) => Task::Stage,
        };
        match make(&zygote, &Kind { memory_bytes, task, without_seccomp }) {
            Ok((child, socket)) => {
                let layers = child.layers().bits();
                let granted = Message::Grant { stream: 0, pid: child.pid(), layers };
                say(caller, &granted, Some(socket.as_fd()))?;
                say(caller, &granted, Some(child.pidfd()))?;
                children.push(child);
            }
            Err(error) => say(caller, &Message::Denied { text: error.to_string() }, None)?,
        }
    }
}

fn make(zygote: &Zygote, kind: &Kind) -> Result<(WorkerProcess, Socket), HostError> {
    let failed = |source| HostError::Socket { operation: "making a socket for", source };
    let (callers, workers) = Socket::pair().map_err(failed)?;
    let child = zygote.fork(workers.as_fd(), kind.bounds(), |socket| work(socket, kind))?;
    Ok((child, callers))
}

/// The whole life of a worker; its exit code.
fn work(socket: OwnedFd, kind: &Kind) -> i32 {
    match worker::lock_in_and_serve(socket, kind.memory_bytes, kind.task.clone(), kind.without_seccomp) {
        Ok(()) => 0,
        Err(error) => {
            // Seen only where the caller asked to keep standard error.
            eprintln!("framepath: worker: {error}");
            1
        }
    }
}
