// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts on which a hop can run, and the arguments that all hops with a choice of hosts share.

use super::definition::{Arg, DefaultValue};
use super::value::ValueKind;

/// Hosts on which a stage or source can run. A hop that can run in a worker has the arguments for
/// workers, such as `host=` and `watchdog=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// The path's own thread only.
    Inline,
    /// The path's own thread, a sandboxed process, or a process of the service.
    Any,
    /// The path's own thread or a sandboxed process. Not the service, because the service opens no
    /// file for a client, not even a plug-in's.
    NoService,
    /// Any host. Without `host=`, the host of the decoder after the hop if that host is a worker;
    /// else the path's own thread.
    AsDecoder,
    /// A sandboxed process or a process of the service, never the path's own thread: the hop parses
    /// bytes of other machines.
    Workers,
    /// A sandboxed process of this program only: the hop has no choice of hosts, but the arguments for workers.
    Process,
}

impl Hosts {
    /// Returns the arguments for workers that a hop with these hosts has, `host` first if there is a choice; empty
    /// for [`Hosts::Inline`].
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
    "where the hop runs: `inline` in the path's own thread, `process` in a sandboxed process, `service` in a \
     sandboxed process of `framepath serve`",
);
const PROCESS_HOST: Arg = Arg { kind: ValueKind::choice(&["inline", "process"]), help: PROCESS_HELP, ..HOST };
const PROCESS_HELP: &str =
    "where the hop runs: `inline` in the path's own thread, `process` in a sandboxed process";
const DECODER_HOST: Arg = Arg {
    default: DefaultValue::Unset("the host of the decoder, where that is a worker; else inline"),
    ..HOST
};
const WORKER_HOST: Arg = Arg {
    kind: ValueKind::choice(&["process", "service"]),
    default: DefaultValue::Unset("the host of the decoder, where that is a worker; else process"),
    help: "where the demuxer runs: `process` in a sandboxed process, `service` in a sandboxed process of \
           `framepath serve`",
    ..HOST
};
const WATCHDOG: Arg = Arg::option(
    "watchdog",
    ValueKind::Duration,
    DefaultValue::Is("2s"),
    "not inline: time without progress after which a worker is replaced",
);
const MEMORY: Arg = Arg::option(
    "memory",
    ValueKind::Bytes { min: 64 << 20, max: 1 << 40 },
    DefaultValue::Is("4GiB"),
    "host=process: address space a worker may take beyond its program; a service has its own --memory",
);
const SANDBOX: Arg = Arg::option(
    "sandbox",
    ValueKind::choice(&["default", "require", "allow"]),
    DefaultValue::Is("default"),
    "not inline: `require` rejects a worker whose sandbox lacks any layer, `allow` accepts a worker without \
     seccomp; the default requires seccomp and reports other missing layers",
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
    "for tests, not inline: makes the worker fail at packet N, counted from 0, to test the recovery of the path",
);
