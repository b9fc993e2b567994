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
//! A packet is copied into shared memory, once for each worker that gets it. A frame is not copied: the
//! worker decodes into a sealed pool, which the caller maps for reading, or into buffers that the
//! caller provides. `docs/workers.md` describes the whole connection for readers of the code.
//!
//! The two ends of a stream run in two threads and share no lock. `Sending` is the right to write the
//! ring to the worker. The submit end owns it, except that the collect end owns it after a
//! replacement and after a flush until the submit end asks for it; after a loss of packets until
//! the stream resumes; and from the end of the input on. The submit end logs an input before the
//! worker can see the input. The collect end owns the `History`, which has
//! everything that a restart needs. `log` and `commands` are channels. The lock around the
//! stream's present worker is for threads outside the stream that abandon the stream
//! ([`Session::abandon`]) or wake the collect end for a request. The thread that starts the stream
//! takes this lock for the first worker; the collect end takes it for each replacement and when
//! the stream ends.
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
//!  │           │ the worker ends by itself, or the watchdog or SubmitEnd kills it:
//!  │           │ CollectEnd takes its completed frames; or CollectEnd finds that the
//!  │           │ worker breaks the rules, and ends the worker at once
//!  │           ▼
//!  │      [restarting]  SubmitEnd waits with its next input
//!  │           │   ├── 32 deaths in a row without a new frame or flush  ──▶ [failed]
//!  │           │   ├── 8 deaths in a row before a packet was taken      ──▶ [failed]
//!  │           │   ├── no worker opens the stream in 4 tries, or a try
//!  │           │   │   fails with an error that another would repeat    ──▶ [failed]
//!  │           │   └── this process is the cause: it lacks memory or
//!  │           │       descriptors, for example                         ──▶ [failed]
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
//!                returns the error and is dropped; SubmitEnd finds its channel closed.
//!                If the start fails, Session::start returns the error, and no end exists
//! ```
//!
//! A flush leads to \[replaying\], with an empty history. It can come in every state but \[failed\] and an
//! \[ended\] that is not held for a flush; a flush in \[restarting\] waits until the restart is over.
//! The limits are in `policy.rs`. [`framepath_model::replay`] decides which packets are replayed,
//! and which packet is skipped as poisoned. A demuxer's worker
//! (`RemoteDemuxer`) is never replaced: from \[running\] it ends or fails. A network source that
//! connects again starts a new `RemoteDemuxer`, with a new worker.

mod answers;
mod between;
mod buffer_provider;
#[cfg(feature = "http")]
mod byte_server;
mod collect;
mod demux_worker;
mod demuxed_input;
mod encoded;
mod encoder_control;
mod export;
mod fault;
#[doc(hidden)]
pub mod for_serve;
pub mod forks;
mod frame_inputs;
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

#[cfg(feature = "http")]
pub(crate) use byte_server::{ByteServer, ByteSource, ServedInput};
pub(crate) use collect::{CollectInput, WorkerOutput, channel};
pub(crate) use demuxed_input::{DemuxedInput, NetworkSource};
pub(crate) use encoder_control::EncoderControl;
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

/// Options for starting and watching the workers of a stage or demuxer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerOptions {
    /// Time without progress after which a stage's worker that has work, and does not wait for this process,
    /// is killed and replaced. In a path, it is at least 12 s for a worker that decodes with a device. For a
    /// demuxer's worker: CPU time without a packet after which the stream fails, or, if the stream comes from
    /// the network, the connection counts as lost. Ten times this time is the
    /// limit of the demuxer's CPU time to open its input or to seek, and of the time without a packet or
    /// answer while its file has bytes to read. For a stream from the network, the option `timeout=` limits
    /// the time without a packet instead.
    pub watchdog: Duration,
    /// Kind of worker to start: its task, its memory, and the option `sandbox=` as the worker gets it.
    pub kind: WorkerKind,
    /// Reaction to a missing confining layer of a worker's sandbox (`sandbox=`).
    pub sandbox: SandboxChoice,
    /// Faults that tests and experiments inject into the workers; empty by default.
    pub faults: InjectedFaults,
}

/// Error of a worker, the zygote or the service, or of the connection to one of them. Most errors occur in
/// the caller, some inside a worker or the zygote.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The process of a worker or of the zygote could not be made or prepared, or could not execute its
    /// program. Inside the zygote also: the zygote has more than one thread, or a system call for its
    /// namespaces failed.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// A worker could not enter its sandbox. Occurs inside the worker; its caller gets
    /// [`HostError::Refused`].
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The sandbox of a worker lacks layers that the option `sandbox=` requires (by default seccomp). Occurs
    /// in the caller; with `sandbox=require` also inside the worker of a plug-in.
    #[error(
        "the sandbox lacks {missing}; run `framepath doctor` for a remedy, or set sandbox=allow to run without it"
    )]
    Unconfined {
        /// Names of the missing layers, separated by commas.
        missing: String,
    },
    /// A message with a descriptor could not be sent to another framepath process, because too many file
    /// descriptors of this user are in messages that were not received.
    #[error(
        "{operation}: too many file descriptors of this user are in unread sockets \
         (ETOOMANYREFS); another program of this user sends descriptors that are not received; raise \
         the limit on open files (ulimit -n) or end that program"
    )]
    TooManyInFlight {
        /// Operation that failed, and its object.
        operation: &'static str,
    },
    /// A worker cannot load its plug-in. Occurs inside the worker; its caller gets [`HostError::Refused`].
    #[error(transparent)]
    Plugin(#[from] Frei0rError),
    /// This process cannot open the device with which a worker is to decode.
    #[error(transparent)]
    Device(#[from] V4l2Error),
    /// The program of a worker or of the zygote cannot be started, because no socket to it can be made.
    #[error("start the worker {program}: make its socket: {source}")]
    Start {
        /// Path of the program.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// No program for workers was found: `framepath` is in none of the searched folders.
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
        /// Path of the worker's program; empty for a worker that the zygote has forked.
        program: String,
        /// Version of this program's wire format.
        ours: u16,
        /// Version of the worker's wire format.
        theirs: u16,
    },
    /// The worker's program ended before it was ready, as a program does that is no worker.
    #[error(
        "start the worker {program}: it ended before it was ready; is it the `framepath` of this release?"
    )]
    NeverReady {
        /// Path of the worker's program; empty for a worker that the zygote has forked.
        program: String,
    },
    /// The service was built with another version of the wire format.
    #[error(
        "connect to the service at {path}: its wire format has version {theirs}, expected version {ours}; restart \
         the service with the `framepath` of this program's release",
        path = .path.display()
    )]
    ServiceVersion {
        /// Path of the service's socket.
        path: PathBuf,
        /// Version of this program's wire format.
        ours: u16,
        /// Version of the service's wire format.
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
        /// Path of the service's socket.
        path: PathBuf,
        /// Effective user id of this program.
        ours: u32,
        /// User id of the service.
        theirs: u32,
    },
    /// A worker was not started, ended, sent no answer in time or sent an unexpected message before its
    /// stream was open, or later did not send the message that belongs to a cell; or too many workers of a
    /// stream ended. Also a service that sent no answer in time, and a zygote that sent no answer in time or
    /// an invalid answer. Inside a worker: the caller sent an unexpected message; or an input pool, or a
    /// frame in it, is invalid, or the pool did not arrive or cannot be mapped.
    #[error("{what}")]
    NotOpened {
        /// Description of the failure.
        what: &'static str,
    },
    /// A worker ended by itself or was killed: by another process or the kernel; by the watchdog, because the
    /// worker made no progress; or by an end of the stream, because the worker broke the rules or the
    /// connection failed. This is the reason for a replacement; the stream does not fail with this error.
    #[error("the worker ended")]
    Gone,
    /// [`Session::abandon`] was called, because the stream's output is no longer needed; or the grace period
    /// after a signal or a stop request has passed.
    #[error("the stream was abandoned")]
    Abandoned,
    /// No service listens at the socket, or the connection to the service cannot be made.
    #[error(
        "no service at {path}: {source}; start one with `framepath serve`, or name another socket with socket=",
        path = .path.display()
    )]
    NoService {
        /// Path of the service's socket.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The service closed the connection or sent an unexpected message.
    #[error("request to the service {}: the service {what}; its standard error may say why", path.display())]
    Service {
        /// Path of the service's socket.
        path: PathBuf,
        /// Verb and object: what the service did.
        what: &'static str,
    },
    /// The service denied the request.
    #[error("the service denied the request: {text}")]
    Denied {
        /// Message of the service.
        text: String,
    },
    /// The zygote could not fork a worker.
    #[error("starting a worker: {text}")]
    NotForked {
        /// Message of the zygote.
        text: String,
    },
    /// The worker could not open its stage, file or network stream, load its plug-in or libavfilter, or enter
    /// its sandbox; or sent an invalid description of a track.
    #[error("in the worker: {text}")]
    Refused {
        /// Message of the worker, or the error in its description of a track.
        text: String,
    },
    /// The stage or the demuxer failed in the worker; or this process has no memory for a packet, too many
    /// pools for the worker, or a provider without buffers; or this process could not read the input of the
    /// demuxer's worker, or stopped reading because the worker broke the rules; or the demuxer cannot read a
    /// packet without seeking in an input that is not seekable. Inside a worker: libavfilter cannot be
    /// loaded, or the stage emitted frames of too many pools or of a pool that is not shared with the caller.
    /// The crate `framepath-serve` also uses this error for a codec that is not supported, and for a lack of
    /// memory.
    #[error("{text}")]
    Failed {
        /// Description of the failure; a message that the worker sent begins with "in the worker:".
        text: String,
    },
    /// The demuxer's worker ended before it had sent the end of its file or network stream, or before it had
    /// answered a seek or flush.
    #[error("demux: the demuxer's worker ended after {packets} packets; the rest of the file is missing")]
    DemuxerEnded {
        /// Number of packets received from the worker before its end.
        packets: u64,
    },
    /// The demuxer's worker has exceeded a limit while this process waited for a packet, for the file or
    /// network stream to be open, or for the answer to a seek. [`HostError::NetworkSilent`] is the error of
    /// the other limit of a network stream.
    #[error(
        "demux: the demuxer's worker {what} for {} ms after {packets} packets; raise watchdog= for a slow file",
        after.as_millis()
    )]
    DemuxerStuck {
        /// Number of packets received from the worker so far.
        packets: u64,
        /// Verb and object: what the worker did instead of sending a packet.
        what: &'static str,
        /// CPU time that the worker used in this wait; or the wall-clock time for which the awaited packet or
        /// answer did not come although the file had bytes to read.
        after: Duration,
    },
    /// The demuxer's worker sent nothing for too long while this process waited for a packet from the
    /// network, for the network stream to be open, or for the answer to a flush.
    #[error(
        "demux: no packet from the network for {} ms after {packets} packets; raise timeout= for a slow sender",
        after.as_millis()
    )]
    NetworkSilent {
        /// Number of packets received from the worker so far.
        packets: u64,
        /// Length of the wait.
        after: Duration,
    },
    /// A packet, the description of a track, or the URL or session description of a network stream does not
    /// fit into the memory for packets that is shared with a worker.
    #[error(
        "send packet, track description, URL or session description: {bytes} bytes exceed the room for packets of \
         a worker, {most} bytes"
    )]
    PacketSize {
        /// Size of the packet or text, bytes.
        bytes: usize,
        /// Largest size that fits, bytes.
        most: usize,
    },
    /// A system call for the connection to a worker, the zygote or the service failed, or one for memory, a
    /// descriptor or a thread that belongs to a worker. Or the grace period of a signal, such as that of
    /// Ctrl-C, ended during a wait for one of these processes; or a signal or a stop request canceled the
    /// wait for a demuxer's worker to open its input. Inside a worker or the zygote: a system call for the
    /// connection to the caller, or inside a worker for the page of the service's counters or for a thread.
    /// The crate `framepath-serve` also uses this error for system calls for that page and for the kernel's
    /// device.
    #[error("cannot {operation}: {source}")]
    Socket {
        /// Operation that failed, and its object, such as "watch the worker".
        operation: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The memory shared with a worker cannot be made or mapped.
    #[error(transparent)]
    Area(#[from] AreaError),
    /// The other process broke the rules of the shared memory or of the messages.
    #[error(transparent)]
    Breach(#[from] Breach),
    /// The other process sent an invalid message or cell, or one of another version of the wire format.
    #[error("the other process sent an invalid message: {0}")]
    Wire(#[from] WireError),
    /// The other process offered memory for a pool that this process refuses or cannot map, or a frame that
    /// does not lie in its pool.
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    /// The text that describes the kind of a worker is invalid. Occurs inside the zygote or the worker.
    #[error(transparent)]
    Kind(#[from] UnknownKind),
    /// A text is not the description of a stage. No code returns this error at present: a worker that cannot
    /// parse its stage answers with a message, and its caller gets [`HostError::Refused`].
    #[error("start worker: not a stage: {0}")]
    Stage(#[from] PathError),
}

impl HostError {
    /// Returns true if this process or its user caused the error: it lacks descriptors, memory or buffers,
    /// cannot make or map the memory shared with a worker, has too many descriptors in unread messages,
    /// canceled a wait because of a signal or a stop request, or has a packet that is too large for any
    /// worker of the stream. Another worker would not help.
    fn is_of_caller(&self) -> bool {
        match self {
            HostError::Socket { source, .. } => is_lack(source),
            HostError::Foreign(error) => error.is_lack(),
            HostError::Area(AreaError::Os { .. })
            | HostError::PacketSize { .. }
            | HostError::TooManyInFlight { .. } => true,
            _ => false,
        }
    }

    /// Adds the program's path to an error about a worker with another version of the wire format. Returns
    /// every other error unchanged.
    pub fn with_worker(self, program: &std::path::Path) -> HostError {
        match self {
            HostError::Wire(WireError::Version { ours, theirs }) => {
                HostError::WorkerVersion { program: program.display().to_string(), ours, theirs }
            }
            other => other,
        }
    }

    /// Adds the socket's path to an error about a service with another version of the wire format. Returns
    /// every other error unchanged.
    pub fn with_service(self, path: &std::path::Path) -> HostError {
        match self {
            HostError::Wire(WireError::Version { ours, theirs }) => {
                HostError::ServiceVersion { path: path.to_owned(), ours, theirs }
            }
            other => other,
        }
    }

    /// Returns the error for a failure in a worker, which has sent the message `text`.
    fn failed_in_worker(text: &str) -> HostError {
        HostError::Failed { text: format!("in the worker: {text}") }
    }

    /// True if another attempt to start and open a worker would most likely end in the same error, so that no
    /// other attempt is made.
    fn is_final(&self) -> bool {
        self.is_of_caller()
            || matches!(
                self,
                HostError::NotForked { .. }
                    | HostError::Refused { .. }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_the_caller_is_not_a_fault_of_the_worker() {
        let crowded = HostError::TooManyInFlight { operation: "send a message" };
        assert!(crowded.is_of_caller() && crowded.is_final());
        let failed = HostError::failed_in_worker("no picture");
        assert!(!failed.is_of_caller());
    }
}
