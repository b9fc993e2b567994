// SPDX-License-Identifier: MIT OR Apache-2.0
//! The viewer's side of the service's status.

use std::path::{Path, PathBuf};
use std::time::Duration;

use framepath_model::wire::{Message, StreamStatus, Totals};
use framepath_os::crossing::Socket;
use framepath_os::time::now_ns;

use framepath::host::for_serve::{HostError, connect};
use framepath::host::for_serve::{recv_within, send};

/// Longest time the service takes to answer.
const ANSWERING: Duration = Duration::from_secs(10);
/// Limit of streams, more than a service has.
const STREAMS: usize = 1 << 16;

/// A connection that asks a service for its status.
#[derive(Debug)]
pub struct Viewer {
    socket: Socket,
    path: PathBuf,
}

/// Status of a service at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Time of the status, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// Sums over all streams and workers.
    pub totals: Totals,
    /// The service's streams, by number.
    pub streams: Vec<StreamStatus>,
}

impl Viewer {
    /// Connects to the service at `socket`, which must run as root or as this user.
    ///
    /// # Errors
    /// There is no service, or it runs as another user.
    pub fn connect(socket: &Path) -> Result<Viewer, HostError> {
        Viewer::connect_to(socket, None)
    }

    /// [`Viewer::connect`]; the service may also run as user `allowed`.
    ///
    /// # Errors
    /// As [`Viewer::connect`].
    pub fn connect_to(socket: &Path, allowed: Option<u32>) -> Result<Viewer, HostError> {
        Ok(Viewer { socket: connect(socket, allowed)?, path: socket.to_owned() })
    }

    /// Asks for the whole status, a message per stream.
    ///
    /// # Errors
    /// The service denies it, or is gone.
    pub fn snapshot(&self) -> Result<Snapshot, HostError> {
        let mut snapshot = Snapshot { at_ns: now_ns(), ..Snapshot::default() };
        let mut from = 0;
        while snapshot.streams.len() < STREAMS {
            // If the service is gone, its last message is still to be read.
            let _ = send(&self.socket, &Message::Watch { from }, None);
            let heard = recv_within(&self.socket, ANSWERING).map_err(|error| error.with_service(&self.path));
            match heard? {
                Some((Message::Status(status), _)) => {
                    let next = status.stream.checked_add(1);
                    snapshot.streams.push(*status);
                    // Numbers wrap around; streams beyond the last number are seen next time.
                    let Some(next) = next else { break };
                    from = next;
                }
                Some((Message::Totals(totals), _)) => {
                    snapshot.totals = totals;
                    break;
                }
                Some((Message::Denied { text }, _)) => return Err(HostError::Denied { text }),
                Some(_) => return Err(HostError::Service { what: "answered something else" }),
                None => return Err(HostError::Service { what: "went away" }),
            }
        }
        Ok(snapshot)
    }
}
