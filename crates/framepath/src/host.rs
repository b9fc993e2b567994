// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stages that run in a sandboxed worker process.
//!
//! ```text
//! caller's thread                 worker                     next thread
//! SubmitEnd ───packets──────▶ worker ──▶ stage ──▶ Export ──frames──▶ CollectEnd
//!     │ ▲                                                              │  ▲
//!     │ └───── commands: the next worker, and which end submits ───────┘  │
//!     └───────── log: the inputs, in their order ─────────────────────────┘
//! ```
//!
//! A packet is copied once, into shared memory. A frame is not copied: the worker decodes into
//! a sealed pool, which the caller maps for reading. `docs/workers.md` describes the whole
//! connection for readers of the code.
//!
//! The two ends of a stream run in two threads and share no lock. The submit end owns
//! `Sending`, the right to write the ring to the worker, and logs an
//! input before the worker can see it. The collect end owns the `History`,
//! which has everything that a restart needs. `log` and `commands` are channels. The collect
//! end takes one lock when a worker begins or ends. This lock is for threads outside the stream
//! that abandon the stream ([`Session::abandon`]).
//!
//! # States of a stream
//!
//! ```text
//!        Session::start
//!              │ a worker, spare or new, enters its sandbox      ── fails ──▶ [failed]
//!              │ the worker opens the stage                      ── fails ──▶ [failed]
//!              ▼
//!  ┌─────▶ [running]   SubmitEnd submits, CollectEnd takes frames
//!  │           │   │
//!  │           │   └── the input ends: SubmitEnd hands Sending over ──▶ [draining]
//!  │           │
//!  │           │ the worker ends by itself, is killed by the watchdog, or breaks the
//!  │           │ rules: CollectEnd takes its completed frames, then ends the worker
//!  │           ▼
//!  │      [restarting]  SubmitEnd waits with its next input
//!  │           │   ├── 32 deaths in a row without a new frame           ──▶ [failed]
//!  │           │   ├── 8 deaths before a packet was taken               ──▶ [failed]
//!  │           │   ├── no worker opens the stream in 4 tries            ──▶ [failed]
//!  │           │   └── this process lacks memory or descriptors         ──▶ [failed]
//!  │           ▼
//!  │      [replaying]  CollectEnd submits the history, and drops the frames that were
//!  │           │       delivered before; another death leads to [restarting]
//!  │           │ all was submitted, and SubmitEnd asks: CollectEnd hands Sending over
//!  └───────────┘
//!
//!     [draining]  CollectEnd submits what is left and the drain; a death leads to
//!         │       [restarting], and from there back here
//!         ▼
//!      [ended]   the worker has given its last frame, and is ended
//!
//!     [failed]   the stage failed, the stream was abandoned, or as above: CollectEnd
//!                returns the error and is dropped; SubmitEnd finds its channel closed
//! ```
//!
//! The limits are in `policy.rs`. [`framepath_model::replay`] decides which packets are replayed,
//! and which packet is skipped as poisoned. A demuxer's worker
//! (`RemoteDemuxer`) is never replaced: from \[running\] it ends or fails.

mod answers;
mod between;
mod buffer_provider;
mod collect;
mod demux_worker;
mod export;
mod fault;
#[doc(hidden)]
pub mod for_serve;
pub mod forks;
mod health;
mod history;
mod input;
mod kind;
mod memory;
pub(crate) mod message_io;
mod names;
mod opening;
mod policy;
mod process;
mod program;
mod receiving;
mod recovery;
mod remote_demuxer;
mod restart;
mod sandbox;
mod service_stream;
mod session;
pub(crate) mod spares;
mod spec;
pub(crate) mod start;
mod stats;
mod submit;
mod tally;
mod traffic;
pub mod worker;
mod worker_stream;
mod zygote;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use collect::{CollectInput, WorkerOutput, channel};
pub(crate) use fault::InjectedFaults;
pub use kind::UnknownKind;
pub(crate) use kind::{Task, WorkerKind};
pub use program::set_worker_program;
pub(crate) use program::{WORKER, ZYGOTE, use_own_program};
pub use recovery::{Recoveries, Recovery};
pub(crate) use remote_demuxer::{DemuxerSpec, RemoteDemuxer};
pub(crate) use sandbox::SandboxChoice;
pub(crate) use service_stream::ServiceStream;
pub use service_stream::default_socket;
pub(crate) use session::Session;
pub(crate) use spec::Spec;
pub use start::dismiss_spares;
pub use stats::WorkerStats;
pub use traffic::Traffic;

use framepath_codec::frei0r::Frei0rError;
use framepath_model::path::PathError;
use framepath_model::wire::WireError;
use framepath_os::crossing::{AreaError, Breach};
use framepath_os::memory::pool::ForeignError;
use framepath_os::process::lack::is_lack;
use framepath_os::process::sandbox::SandboxError;
use framepath_os::process::spawn::SpawnError;
use framepath_os::v4l2::V4l2Error;

/// How a stage's worker is started and watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerOptions {
    /// Time without progress after which a worker that has work is replaced.
    pub watchdog: Duration,
    /// Kind of worker to start.
    pub kind: WorkerKind,
    /// Reaction to a missing layer of the sandbox.
    pub sandbox: SandboxChoice,
    /// Faults to inject.
    pub faults: InjectedFaults,
}

/// Error between a caller and its worker.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No worker process could be made.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// A worker could not lock itself in.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The sandbox of a worker lacks layers that the stage's options require.
    #[error(
        "the sandbox lacks {missing}; run `framepath doctor` for a remedy, or set sandbox=allow to run without it"
    )]
    Unconfined {
        /// Names of the layers.
        missing: String,
    },
    /// Too many descriptors of this user are in sockets that nobody reads.
    #[error(
        "{operation} the worker: too many file descriptors of this user are in unread sockets \
         (ETOOMANYREFS); another program of this user sends descriptors that are not received; raise \
         the limit on open files (ulimit -n) or end that program"
    )]
    TooManyInFlight {
        /// Operation that failed.
        operation: &'static str,
    },
    /// The plug-in cannot be loaded.
    #[error(transparent)]
    Plugin(#[from] Frei0rError),
    /// The device that decodes cannot be opened.
    #[error(transparent)]
    Device(#[from] V4l2Error),
    /// The worker's program cannot be started.
    #[error("start the worker {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// No program for workers was found.
    #[error(
        "cannot find the worker program `framepath` in {places}; set FRAMEPATH_WORKER to its path, or call \
         framepath::worker::init() first in main"
    )]
    NoProgram {
        /// The folders that were searched, in order, separated by commas.
        places: String,
    },
    /// The worker's program was built with another version of the wire format.
    #[error(
        "start the worker {program}: its wire format has version {theirs}, expected version {ours}; install both \
         programs from one release, or set FRAMEPATH_WORKER to the worker program of this release"
    )]
    WorkerVersion {
        /// The worker's program.
        program: String,
        /// Version of this program.
        ours: u16,
        /// Version of the worker.
        theirs: u16,
    },
    /// The service was built with another version of the wire format.
    #[error(
        "connect to the service at {path}: its wire format has version {theirs}, expected version {ours}; restart \
         the service with the `framepath` of this program's release",
        path = .path.display()
    )]
    ServiceVersion {
        /// The socket's name.
        path: PathBuf,
        /// Version of this program.
        ours: u16,
        /// Version of the service.
        theirs: u16,
    },
    /// The service runs as a user that this program does not trust.
    #[error(
        "the service at {path} runs as user {theirs}, this program as user {ours}: only services of root and of \
         user {ours} are trusted; to trust this one, set service_uid={theirs} (`framepath top`: --service-uid \
         {theirs})",
        path = .path.display()
    )]
    ServiceUser {
        /// The socket's name.
        path: PathBuf,
        /// User id of this program.
        ours: u32,
        /// User of the service.
        theirs: u32,
    },
    /// A worker ended, sent no answer in time or sent an unexpected message before its stream was open;
    /// or too many workers of a stream ended.
    #[error("start worker: the worker {what}")]
    NotOpened {
        /// Verb and object: what the worker did.
        what: &'static str,
    },
    /// A worker ended by itself, or the watchdog killed the worker because it made no progress.
    #[error("the worker ended")]
    Gone,
    /// The stream was abandoned, because the output of the stream is no longer needed.
    #[error("the stream was abandoned")]
    Abandoned,
    /// No service listens at the socket.
    #[error(
        "no service at {path}: {source}; start one with `framepath serve`, or name another socket with socket=",
        path = .path.display()
    )]
    NoService {
        /// The socket's name.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The service closed the connection or sent an unexpected message.
    #[error("request to the service: the service {what}")]
    Service {
        /// Verb and object: what the service did.
        what: &'static str,
    },
    /// The service denied the request.
    #[error("request to the service: denied: {text}")]
    Denied {
        /// Message of the service.
        text: String,
    },
    /// The stage could not be opened in the worker.
    #[error("in the worker: {text}")]
    Refused {
        /// Message of the worker.
        text: String,
    },
    /// The stage failed in the worker.
    #[error("in the worker: {text}")]
    Failed {
        /// Message of the worker.
        text: String,
    },
    /// The demuxer's worker ended before the end of the file.
    #[error("demux: the demuxer's worker ended after {packets} packets; the rest of the file is missing")]
    DemuxerEnded {
        /// Number of packets received before.
        packets: u64,
    },
    /// The demuxer's worker makes no progress.
    #[error(
        "demux: the demuxer's worker {what} for {} ms after {packets} packets; raise watchdog= for a slow file",
        after.as_millis()
    )]
    DemuxerStuck {
        /// Number of packets received before.
        packets: u64,
        /// Verb and object: what the worker did instead of sending a packet.
        what: &'static str,
        /// CPU time that the worker used, or wall-clock time that passed.
        after: Duration,
    },
    /// A packet is larger than the memory for packets.
    #[error("send packet: {bytes} bytes exceed the room for packets of a worker, {most} bytes")]
    PacketSize {
        /// Bytes of the packet.
        bytes: usize,
        /// Largest size that fits, bytes.
        most: usize,
    },
    /// The socket to the worker failed.
    #[error("{operation} the worker: {source}")]
    Socket {
        /// Operation that failed.
        operation: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The shared memory cannot be made or used.
    #[error(transparent)]
    Area(#[from] AreaError),
    /// The other process broke the rules of shared memory.
    #[error(transparent)]
    Breach(#[from] Breach),
    /// The other process sent an invalid message.
    #[error("the other process sent an invalid message: {0}")]
    Wire(#[from] WireError),
    /// The other process offered memory that this process refuses.
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    /// The requested kind of worker does not exist.
    #[error(transparent)]
    Kind(#[from] UnknownKind),
    /// The text that describes the worker's work is not a stage.
    #[error("start worker: not a stage: {0}")]
    Stage(#[from] PathError),
}

impl HostError {
    /// True if this process caused the error: it lacks descriptors, memory or threads, canceled a wait,
    /// or has a packet that is too large for any worker. Another worker would not help.
    fn is_of_caller(&self) -> bool {
        match self {
            HostError::Socket { source, .. } => is_lack(source),
            HostError::Foreign(error) => error.is_lack(),
            HostError::Area(AreaError::Os { .. }) | HostError::PacketSize { .. } => true,
            _ => false,
        }
    }

    /// Adds the program's name to an error about a worker of another version.
    pub fn with_worker(self, program: &std::path::Path) -> HostError {
        match self {
            HostError::Wire(WireError::Version { ours, theirs }) => {
                HostError::WorkerVersion { program: program.display().to_string(), ours, theirs }
            }
            other => other,
        }
    }

    /// Adds the socket's name to an error about a service of another version.
    pub fn with_service(self, path: &std::path::Path) -> HostError {
        match self {
            HostError::Wire(WireError::Version { ours, theirs }) => {
                HostError::ServiceVersion { path: path.to_owned(), ours, theirs }
            }
            other => other,
        }
    }

    /// True if another attempt, with another worker, would end in the same error.
    fn is_final(&self) -> bool {
        self.is_of_caller()
            || matches!(
                self,
                HostError::Refused { .. }
                    | HostError::Unconfined { .. }
                    | HostError::Denied { .. }
                    | HostError::NoService { .. }
                    | HostError::NoProgram { .. }
                    | HostError::WorkerVersion { .. }
                    | HostError::ServiceVersion { .. }
                    | HostError::ServiceUser { .. }
                    | HostError::Abandoned
            )
    }
}
