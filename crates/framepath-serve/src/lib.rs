// SPDX-License-Identifier: MIT OR Apache-2.0
//! Service of framepath: touches the service's socket, its workers, a local TCP port and the kernel
//! module's node.
//!
//! The service starts sandboxed workers for every program of the machine that may use the service.
//! Each stream of a client has a worker of its own. The service ends this worker when the client releases
//! the stream, requests a replacement or loses its connection, and when the service itself ends.
//!
//! ```text
//! client ──hello──▶ broker ──spawns──▶ worker
//!        ◀─grant, worker's socket──┘      ▲  │ counters
//!        ◀═══════ packets and frames ═════┘  ▼
//!                                  page ──▶ broker ──▶ top, metrics
//! ```
//!
//! No packet and no frame passes through the service. A client waits for the service only when the
//! client requests a worker or the service's status. [`Service::run`] needs only its caller's thread,
//! which sleeps in poll(2) and makes no system call while nothing happens.
//!
//! - [`Service`] listens and runs; [`ServiceSettings`] has its limits and the users that it admits.
//! - [`Viewer`] reads the figures of a running service; [`table`] formats them as text.
//! - [`device`] decodes for the clients of the kernel module's V4L2 decoder node.
//!
//! A client needs only the crate `framepath`, and a path with `host=service`. `docs/serve.md` describes
//! the service for its users.
//!
//! # Example
//!
//! ```no_run
//! use framepath_os::crossing::Listener;
//! use framepath_os::process::signal::Stops;
//! use framepath_serve::{Service, ServiceSettings};
//!
//! // Before any other thread starts: SIGTERM and SIGINT end the service.
//! let stops = Stops::open()?;
//! let listener = Listener::bind("/run/user/1000/framepath.sock".as_ref(), 0o600)?;
//! Service::new(listener, None, ServiceSettings::default())?.run(&stops)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod broker;
mod connection;
pub mod device;
mod exposition;
mod metrics;
pub mod table;
mod viewer;
mod workers;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use framepath_os::crossing::Listener;
use framepath_os::process::signal::Stops;

pub use framepath_model::service::UserLimits;
pub use viewer::{Snapshot, Viewer};

use broker::Broker;

/// Settings of a service: its limits, and the users that it admits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// Limits for each user. Default: [`UserLimits::default`].
    pub limits: UserLimits,
    /// Ids of users that are admitted, in addition to the service's own user. Default: none.
    pub uids: Vec<u32>,
    /// Group ids. A client is admitted if its effective or a supplementary group is one of them.
    /// Default: none.
    pub gids: Vec<u32>,
    /// Number of spare workers that are kept running. After a worker could not be started, did not
    /// become ready or ended before it had a stream, the service keeps workers without a stream
    /// only for waiting streams, until a worker becomes ready. While the service stops, it keeps no
    /// spares. Default: 2.
    pub spares: u32,
    /// Limit of a worker's address space beyond the part that is mapped when the worker enters its sandbox,
    /// bytes. Default: 4 GiB.
    pub memory_bytes: u64,
    /// Time that running streams may continue after the stop signal. Default: 10 s.
    pub grace: Duration,
    /// Time limit for a client to send its first message and, when the service's messages have filled
    /// the client's socket, to read the next message. The service closes the connection of a slower client.
    /// Default: 10 s.
    pub patience: Duration,
}

impl Default for ServiceSettings {
    fn default() -> ServiceSettings {
        ServiceSettings {
            limits: UserLimits::default(),
            uids: Vec::new(),
            gids: Vec::new(),
            // A path with a file takes two workers: one demuxes, one decodes.
            spares: 2,
            memory_bytes: 4 << 30,
            grace: Duration::from_secs(10),
            patience: Duration::from_secs(10),
        }
    }
}

/// Reason why a service does not start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The metrics address is not a loopback address, so programs on other machines could read the
    /// metrics.
    #[error("--metrics={0}: the address is not a loopback address; use 127.0.0.1:PORT or [::1]:PORT")]
    NotLoopback(SocketAddr),
    /// Listening on the metrics address failed.
    #[error("--metrics={address}: cannot listen: {source}; choose another port")]
    Metrics {
        /// Metrics address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// Waiting for events of clients, workers and metrics readers by poll(2) failed.
    #[error("cannot wait for events of clients and workers: {0}")]
    Poll(io::Error),
}

/// A service that listens, and serves its clients in [`Service::run`].
#[derive(Debug)]
pub struct Service {
    broker: Broker,
    metrics: Option<SocketAddr>,
}

impl Service {
    /// Makes a service for the clients of `listener`. The service serves its metrics over HTTP at `metrics`;
    /// with `None`, it serves no metrics.
    ///
    /// # Errors
    /// The address is not a loopback address, or listening on it fails.
    pub fn new(
        listener: Listener,
        metrics: Option<SocketAddr>,
        settings: ServiceSettings,
    ) -> Result<Service, ServeError> {
        let socket = metrics.map(|address| {
            if !address.ip().is_loopback() {
                return Err(ServeError::NotLoopback(address));
            }
            let socket = TcpListener::bind(address).and_then(|socket| {
                socket.set_nonblocking(true)?;
                Ok(socket)
            });
            socket.map_err(|source| ServeError::Metrics { address, source })
        });
        let socket = socket.transpose()?;
        let metrics = socket.as_ref().and_then(|socket| socket.local_addr().ok());
        Ok(Service { broker: Broker::new(listener, socket, settings), metrics })
    }

    /// Returns the address of the metrics, with the actual port if port 0 was requested; `None` if the
    /// service serves no metrics, or if the system did not report the address.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Serves clients until `stops` receives a signal. Then accepts no more clients and no more
    /// streams, and returns when the running streams have ended or the grace time is over; returns
    /// at once after a second signal. Kills the remaining workers when it returns.
    ///
    /// Call it in a thread that lives as long as the process, because workers end with this thread.
    ///
    /// # Errors
    /// poll(2) failed.
    pub fn run(self, stops: &Stops) -> Result<(), ServeError> {
        self.broker.run(stops)
    }
}
