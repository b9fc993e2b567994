// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection by which a stream requests its workers from a service.
//!
//! No packet and no frame goes through the connection.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use framepath_model::wire::{Message, VERSION};
use framepath_os::crossing::Socket;
use framepath_os::machine::effective_uid;
use framepath_os::process::sandbox::Layers;

use super::HostError;
use super::message_io::{recv_within, send};
use super::policy::GRANTING;
use super::process::Worker;

const NAME: &str = "framepath.sock";
/// Socket of the service of the whole machine.
const SYSTEM: &str = "/run/framepath.sock";

/// Returns the default socket of services and their clients: `framepath.sock` in the folder that
/// XDG_RUNTIME_DIR names. Returns `/run/framepath.sock` if the variable is unset or empty, or if
/// `/run/framepath.sock` exists and the other does not.
pub fn default_socket() -> PathBuf {
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    match of_user.map(|folder| Path::new(&folder).join(NAME)) {
        Some(of_user) if of_user.exists() || !Path::new(SYSTEM).exists() => of_user,
        _ => PathBuf::from(SYSTEM),
    }
}

/// Connects to the service at `path`. The service must run as root, as this process's user, or as user
/// `allowed`.
///
/// The user is checked because the service controls the worker, and any program that can write to the
/// folder could listen at this path first.
///
/// # Errors
/// No service listens at `path`, the connection fails, the grace period of a signal ends during the wait, or
/// the service runs as a user that is not accepted.
pub fn connect(path: &Path, allowed: Option<u32>) -> Result<Socket, HostError> {
    let failed = |source| HostError::NoService { path: path.to_owned(), source };
    let socket = Socket::connect(path).map_err(failed)?;
    let theirs = socket.peer().map_err(failed)?.uid;
    let ours = effective_uid();
    if theirs != 0 && theirs != ours && Some(theirs) != allowed {
        return Err(HostError::ServiceUser { path: path.to_owned(), ours, theirs });
    }
    log::info!("service {}: connected, it runs as user {theirs}", path.display());
    Ok(socket)
}

/// Number of a worker among those that the service has granted to one stream, from 1.
pub(super) type WorkerNumber = u64;

/// One stream's connection to the service; dropping it ends the stream and its
/// worker.
#[derive(Debug)]
pub struct ServiceStream {
    /// Path of the service's socket.
    path: PathBuf,
    /// User id whose service is accepted, in addition to root and the user of this program; `None` if there
    /// is no such user.
    allowed: Option<u32>,
    state: Mutex<ServiceStreamState>,
}

#[derive(Debug, Default)]
struct ServiceStreamState {
    /// Socket to the service; `None` until a connection was made.
    connection: Option<Arc<Socket>>,
    /// The service's number of the stream; `None` until a worker was granted on this connection.
    stream: Option<u32>,
    /// Number of the newest worker; 0 before the first.
    number: WorkerNumber,
    /// True from a request for a worker, the first or another, until the service grants one.
    asked: bool,
}

impl ServiceStream {
    /// Makes the state of a connection to the service at `path`. The connection is made when the first
    /// worker is requested. For `allowed`, see [`connect`].
    pub(crate) fn new(path: PathBuf, allowed: Option<u32>) -> Arc<ServiceStream> {
        Arc::new(ServiceStream { path, allowed, state: Mutex::default() })
    }

    /// Requests a worker from the service; the service then ends the stream's previous worker. Connects
    /// again, once, if an earlier connection has failed, for example because the service was restarted. Only
    /// one thread at a time may call this function.
    ///
    /// # Errors
    /// The service cannot be reached, runs as a user that is not accepted, has another version of the wire
    /// format, denied the request, sent no answer in time, or broke the protocol; or the grace period of a
    /// signal ended during the wait.
    pub(super) fn worker(self: &Arc<ServiceStream>) -> Result<Worker, HostError> {
        let fresh = self.locked().connection.is_none();
        match self.ask() {
            // The service has gone since the last call, perhaps because it was restarted.
            Err(HostError::Socket { .. } | HostError::Service { .. }) if !fresh => {
                let mut state = self.locked();
                *state = ServiceStreamState { number: state.number, ..ServiceStreamState::default() };
                drop(state);
                self.ask()
            }
            other => other,
        }
    }

    fn ask(self: &Arc<ServiceStream>) -> Result<Worker, HostError> {
        let connection = {
            let mut state = self.locked();
            let connection = match &state.connection {
                Some(connection) => connection.clone(),
                None => {
                    let connection = Arc::new(connect(&self.path, self.allowed)?);
                    state.connection = Some(connection.clone());
                    connection
                }
            };
            if !state.asked {
                let message = match state.stream {
                    Some(stream) => Message::Replace { stream, kill: true },
                    None => Message::Hello { version: VERSION },
                };
                state.asked = true;
                // An error is ignored, so that messages which the service sent before its end are read.
                let _ = send(&connection, &message, None);
            }
            connection
        };
        // Without the lock, so that a thread that kills the old worker does not wait.
        let reply = recv_within(&connection, GRANTING).map_err(|error| error.with_service(&self.path));
        match reply? {
            Some((Message::Grant { stream, pid, layers }, Some(fd))) => {
                let mut state = self.locked();
                let number = state.number + 1;
                *state = ServiceStreamState {
                    stream: Some(stream),
                    number,
                    asked: false,
                    ..std::mem::take(&mut *state)
                };
                let layers = Layers::from_bits(layers).unwrap_or_default();
                Ok(Worker::from_service(Socket::from(fd), pid, layers, self.clone(), number))
            }
            Some((Message::Denied { text }, _)) => Err(HostError::Denied { text }),
            Some(_) => Err(self.broken("sent an unexpected message")),
            None => Err(self.broken("closed the connection")),
        }
    }

    fn broken(&self, what: &'static str) -> HostError {
        HostError::Service { path: self.path.clone(), what }
    }

    /// Ends worker `number` if it is the stream's present worker, by a request for another worker. Only
    /// the service can end the process, and the stream needs another worker anyway. Does not wait for the
    /// answer. Never fails.
    pub(super) fn kill(&self, number: WorkerNumber) -> io::Result<()> {
        let mut state = self.locked();
        let ServiceStreamState { connection: Some(connection), stream: Some(stream), .. } = &*state else {
            return Ok(());
        };
        if state.number == number && !state.asked {
            // If the service is gone, its workers are gone too.
            let _ = send(connection, &Message::Replace { stream: *stream, kill: true }, None);
            state.asked = true;
        }
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, ServiceStreamState> {
        // A panic leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
