// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client that reads the status of a service.

use std::path::{Path, PathBuf};
use std::time::Duration;

use framepath_model::wire::{Message, StreamStatus, Totals};
use framepath_os::crossing::Socket;
use framepath_os::time::now_ns;

use framepath::host::for_serve::{HostError, connect};
use framepath::host::for_serve::{recv_within, send};

/// Time limit for the service's answer to each query.
const ANSWERING: Duration = Duration::from_secs(10);
/// Maximum number of streams in a snapshot.
const STREAMS: usize = 1 << 16;

/// A connection that requests the status of a service.
#[derive(Debug)]
pub struct Viewer {
    socket: Socket,
    path: PathBuf,
}

/// Status of a service, read by one query for each stream and one for the totals. The service may change
/// between the queries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// CLOCK_MONOTONIC time just before the first query, nanoseconds.
    pub at_ns: u64,
    /// Counts of the present streams, connections and spare workers, and sums since the service's start.
    /// All 0 if `streams` ends early: at its limit, or with stream number `u32::MAX`.
    pub totals: Totals,
    /// Status of each open stream of the service, in the order of the streams' numbers; at most 65,536.
    pub streams: Vec<StreamStatus>,
}

impl Viewer {
    /// Connects to the service at `socket`, which must run as root or as this process's user.
    ///
    /// # Errors
    /// There is no service at `socket`, the connection fails, or the service runs as a user other than root
    /// and this process's user.
    pub fn connect(socket: &Path) -> Result<Viewer, HostError> {
        Viewer::connect_to(socket, None)
    }

    /// Connects as [`Viewer::connect`] does, to a service that may also run as the user with id `allowed`;
    /// `None` allows no other user.
    ///
    /// # Errors
    /// There is no service at `socket`, the connection fails, or the service runs as a user that is not
    /// allowed.
    pub fn connect_to(socket: &Path, allowed: Option<u32>) -> Result<Viewer, HostError> {
        Ok(Viewer { socket: connect(socket, allowed)?, path: socket.to_owned() })
    }

    /// Requests the whole status with one query for each stream and one for the totals, and waits for each
    /// answer.
    ///
    /// # Errors
    /// The service denied a query, is gone, sent another or an invalid message, or did not answer a query
    /// within 10 s.
    pub fn snapshot(&self) -> Result<Snapshot, HostError> {
        let mut snapshot = Snapshot { at_ns: now_ns(), ..Snapshot::default() };
        let mut from = 0;
        while snapshot.streams.len() < STREAMS {
            // An error is ignored, so that the last message of a service that is gone is read.
            let _ = send(&self.socket, &Message::Watch { from }, None);
            let reply = recv_within(&self.socket, ANSWERING).map_err(|error| error.with_service(&self.path));
            match reply? {
                Some((Message::Status(status), _)) => {
                    let next = status.stream.checked_add(1);
                    snapshot.streams.push(*status);
                    // No stream has a higher number, so there is no query that the totals would answer.
                    let Some(next) = next else { break };
                    from = next;
                }
                Some((Message::Totals(totals), _)) => {
                    snapshot.totals = totals;
                    break;
                }
                Some((Message::Denied { text }, _)) => return Err(HostError::Denied { text }),
                Some(_) => return Err(self.broken("sent an unexpected message")),
                None => return Err(self.broken("closed the connection")),
            }
        }
        Ok(snapshot)
    }

    fn broken(&self, what: &'static str) -> HostError {
        HostError::Service { path: self.path.clone(), what }
    }
}
