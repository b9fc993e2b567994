// SPDX-License-Identifier: MIT OR Apache-2.0
//! The other end of watching: what a service tells of itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use framepath_model::wire::{Message, StreamStatus, Totals};
use framepath_os::clock::now_ns;
use framepath_os::crossing::Socket;

use framepath::host::for_serve::{HostError, connect};
use framepath::host::for_serve::{hear_within, say};

/// How long the service may take to answer.
const ANSWERING: Duration = Duration::from_secs(10);
/// More streams than a service has.
const STREAMS: usize = 1 << 16;

/// A connection that asks what there is.
#[derive(Debug)]
pub struct Viewer {
    socket: Socket,
    path: PathBuf,
}

/// A service at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was taken, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// The whole.
    pub totals: Totals,
    /// Its streams, by their number.
    pub streams: Vec<StreamStatus>,
}

impl Viewer {
    /// Connects to the service at `socket`, of root or of this user.
    ///
    /// # Errors
    /// There is none, or it runs as another user.
    pub fn connect(socket: &Path) -> Result<Viewer, HostError> {
        Viewer::connect_to(socket, None)
    }

    /// As [`Viewer::connect`]; the service may run as user `allowed`, too.
    ///
    /// # Errors
    /// As [`Viewer::connect`].
    pub fn connect_to(socket: &Path, allowed: Option<u32>) -> Result<Viewer, HostError> {
        Ok(Viewer { socket: connect(socket, allowed)?, path: socket.to_owned() })
    }

    /// Asks for everything, a message per stream.
    ///
    /// # Errors
    /// The service denies it, or is gone.
    pub fn look(&self) -> Result<Snapshot, HostError> {
        let mut snapshot = Snapshot { at_ns: now_ns(), ..Snapshot::default() };
        let mut from = 0;
        while snapshot.streams.len() < STREAMS {
            // Where it is gone, its last word is still to be read.
            let _ = say(&self.socket, &Message::Watch { from }, None);
            let heard = hear_within(&self.socket, ANSWERING).map_err(|error| error.of_service(&self.path));
            match heard? {
                Some((Message::Status(status), _)) => {
                    let next = status.stream.checked_add(1);
                    snapshot.streams.push(*status);
                    // Numbers go round; who is beyond the last is seen next time.
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
