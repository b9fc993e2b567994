// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts on which a hop can run, and the arguments that all hops with a choice of hosts share.

use super::definition::{Arg, DefaultValue};
use super::value::ValueKind;

/// Hosts on which a stage or source can run. A hop that can run in a worker has arguments for the
/// worker, such as `watchdog=`; a hop with a choice of hosts has `host=` too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// A thread of this program only; the hop has no arguments for workers.
    Inline,
    /// A thread of this program (the default), a sandboxed process of this program, or a sandboxed
    /// process of the service. Exception: a decoder without `host=` runs in a sandboxed process of
    /// this program if the file's container or codec is not a known one.
    Any,
    /// A thread of this program (the default) or a sandboxed process of this program. Not the
    /// service, because its workers load no plug-in and no libavfilter.
    NoService,
    /// Any host. Without `host=`, the host of the first decoder behind the hop that runs in a
    /// worker, else a thread of this program. Exception: if no decoder sets `host=` either, a file
    /// whose container or codec is not a known one is demuxed in a sandboxed process of this
    /// program.
    AsDecoder,
    /// A sandboxed process of this program or of the service, never a thread of this program: the
    /// hop parses bytes of other machines. Without `host=`, the host of the first decoder behind
    /// the hop that runs in a worker, else a sandboxed process of this program. The hop may
    /// restrict this: an `rtsp://` address runs only in a sandboxed process of this program.
    Workers,
    /// A sandboxed process of this program only. The hop has no `host=`, but the other arguments
    /// for workers that do not concern the service.
    Process,
}

impl Hosts {
    /// Returns the arguments for workers that a hop with these hosts has; empty for
    /// [`Hosts::Inline`]. `host` is the first of them, unless the hop has no choice of hosts.
    pub fn args(self) -> &'static [Arg] {
        match self {
            Hosts::Inline => &[],
            Hosts::Any => &ANY,
            Hosts::NoService => &NO_SERVICE,
            Hosts::AsDecoder => &AS_DECODER,
            Hosts::Workers => &WORKERS,
            Hosts::Process => &PROCESS,
        }
    }
}

static ANY: [Arg; 7] = [HOST, WATCHDOG, MEMORY, SANDBOX, SOCKET, SERVICE_UID, FAULT];
static NO_SERVICE: [Arg; 5] = [PROCESS_HOST, WATCHDOG, MEMORY, SANDBOX, FAULT];
static PROCESS: [Arg; 4] = [WATCHDOG, MEMORY, SANDBOX, FAULT];
static AS_DECODER: [Arg; 7] = [DECODER_HOST, WATCHDOG, MEMORY, SANDBOX, SOCKET, SERVICE_UID, FAULT];
static WORKERS: [Arg; 7] = [WORKER_HOST, WATCHDOG, MEMORY, SANDBOX, SOCKET, SERVICE_UID, FAULT];

const HOST: Arg = Arg::option(
    "host",
    ValueKind::choice(&["inline", "process", "service"]),
    DefaultValue::Is("inline"),
    "where the hop runs: `inline` in a thread of this program, `process` in a sandboxed process of this program, \
     `service` in a sandboxed process of `framepath serve`. Without host=, `decode` runs in a sandboxed process if \
     the container or codec is an unusual one",
);
const PROCESS_HOST: Arg = Arg { kind: ValueKind::choice(&["inline", "process"]), help: PROCESS_HELP, ..HOST };
const PROCESS_HELP: &str =
    "where the hop runs: `inline` in a thread of this program, `process` in a sandboxed process of it";
const DECODER_HOST: Arg = Arg {
    default: DefaultValue::Unset(
        "the host of the decoder if that is process or service; else inline, or process for an unusual container \
         or codec if no decoder sets host=",
    ),
    ..HOST
};
const WORKER_HOST: Arg = Arg {
    kind: ValueKind::choice(&["process", "service"]),
    default: DefaultValue::Unset(
        "the host of the decoder if that is process or service, else process; rtsp: always process",
    ),
    help: "where the demuxer runs: `process` in a sandboxed process of this program, `service` in a sandboxed \
           process of `framepath serve`",
    ..HOST
};
const WATCHDOG: Arg = Arg::option(
    "watchdog",
    ValueKind::Duration,
    DefaultValue::Is("2s"),
    "not inline: a stage's worker that has work and makes no progress for this time is killed and replaced (with a \
     V4L2 device, a shorter time than 12s counts as 12s; 0 does not switch the watchdog off). A demuxer's worker is not replaced; its stream fails, or a network \
     stream's connection is lost: after this CPU time without a packet, after 10 times this CPU time to open the \
     input or to seek, and, for a file, after 10 times this time by the clock without a packet or answer \
     while there are bytes to read",
);
const MEMORY: Arg = Arg::option(
    "memory",
    ValueKind::Bytes { min: 64 << 20, max: 1 << 40 },
    DefaultValue::Is("4GiB"),
    "not inline: limit of the memory of all of a worker's pools together, of which one pool may have a quarter; with \
     host=process also of the address space that the worker may use beyond what its program has mapped at its \
     start (with host=service, the service's --memory limits that)",
);
const SANDBOX: Arg = Arg::option(
    "sandbox",
    ValueKind::choice(&["default", "require", "allow"]),
    DefaultValue::Is("default"),
    "not inline: `default` rejects a worker without seccomp and reports other missing layers, `require` rejects a \
     worker whose sandbox lacks any layer, `allow` rejects none and reports all missing layers; a missing cgroup \
     does not count, nor does a missing network namespace for a worker that receives from the network",
);
const SOCKET: Arg = Arg::option(
    "socket",
    ValueKind::Text("the path of a socket"),
    DefaultValue::Unset("where `framepath serve` listens by default"),
    "host=service: the service's socket",
);
const SERVICE_UID: Arg = Arg::option(
    "service_uid",
    ValueKind::count(0, u32::MAX as u64),
    DefaultValue::Unset("none"),
    "host=service: user id whose service is accepted, besides those of root and of this program's user",
);
const FAULT: Arg = Arg::option(
    "fault",
    ValueKind::Text("crash@N, hang@N, bomb@N or poison@N, several separated by commas"),
    DefaultValue::Unset("none"),
    "for tests, not inline: failures of the worker: `crash` and `poison` by a segmentation fault, `hang` by endless \
     sleep, `bomb` by using up its memory. In a stage's worker, N counts the packets or frames and the flushes \
     together, from 0; `poison` fails every worker that takes N, the others only the stream's first worker. In a \
     demuxer's worker, N counts the packets that this worker has read, from 0; a worker for a new connection fails \
     again",
);
