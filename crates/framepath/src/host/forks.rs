// SPDX-License-Identifier: MIT OR Apache-2.0
//! Zygote's own side: forks workers on request.

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};

use framepath_model::wire::Message;
use framepath_os::crossing::Socket;
use framepath_os::process::crash;
use framepath_os::process::spawn::{WorkerProcess, Zygote, serve_spawner};

use super::kind::WorkerKind;
use super::message_io::{recv, send};
use super::{HostError, worker};
use crate::registry::Registry;

/// Runs the zygote: forks workers until the caller at the other end of the socket is gone, and then
/// ends the workers and the process. Call this function in the main thread of a process that has no other
/// thread. A failure to fork a worker is the answer to the request, and is not returned here.
///
/// # Errors
/// There are other threads, the zygote's namespaces cannot be made for a reason other than a refusal by the
/// kernel, the socket failed, or the caller sent an invalid message.
pub fn serve(caller: OwnedFd, registry: &Registry) -> Result<Infallible, HostError> {
    fork_on_request(&Socket::from(caller), registry)?;
    // Skips the exit handlers that the libraries registered.
    crash::leave()
}

fn fork_on_request(caller: &Socket, registry: &Registry) -> Result<(), HostError> {
    let zygote = Zygote::new()?;
    let failed = |source| HostError::Socket { operation: "wait for a request to the zygote", source };
    let mut children = Vec::new();
    loop {
        serve_spawner(caller, &mut children).map_err(failed)?;
        let Some((message, _)) = recv(caller)? else { return Ok(()) };
        let Message::Spawn { kind } = message else { continue };
        match make(&zygote, &kind, registry) {
            Ok((child, socket)) => {
                let layers = child.layers().bits();
                let granted = Message::Grant { stream: 0, pid: child.pid(), layers };
                send(caller, &granted, Some(socket.as_fd()))?;
                send(caller, &granted, Some(child.pidfd()))?;
                children.push(child);
            }
            Err(error) => send(caller, &Message::Denied { text: error.to_string() }, None)?,
        }
    }
}

fn make(zygote: &Zygote, kind: &str, registry: &Registry) -> Result<(WorkerProcess, Socket), HostError> {
    let kind: WorkerKind = kind.parse()?;
    let failed = |source| HostError::Socket { operation: "make a socket for the worker", source };
    let (callers, workers) = Socket::pair().map_err(failed)?;
    let child = zygote.fork(workers.as_fd(), kind.bounds(), |socket| work(socket, kind.clone(), registry))?;
    Ok((child, callers))
}

/// Runs a worker from start to end, in the forked process; returns the exit code of the worker.
fn work(socket: OwnedFd, kind: WorkerKind, registry: &Registry) -> i32 {
    match worker::lock_in_and_serve(socket, kind, registry) {
        Ok(()) => 0,
        Err(error) => {
            // Visible only if the zygote kept standard error (FRAMEPATH_WORKER_STDERR=1).
            eprintln!("framepath: worker: {error}");
            1
        }
    }
}
