// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a hop's worker (`host=`, `watchdog=`, `memory=`, ...), read from the hop's arguments.

use std::sync::Arc;
use std::time::Duration;

use framepath_model::path::Hop;

use crate::device::PATIENCE;
use crate::error::StageError;
use crate::host::{self, SandboxChoice, ServiceStream, Task, WorkerKind, WorkerOptions};

/// Reads the options of the worker of `hop` for `task`. For `watchdog`, `memory` and `sandbox`, `naming`
/// returns the hop that sets the option of this name: the hop itself, or the hop whose worker `hop` shares.
/// `fault` is read from `hop` itself. For a device, raises a watchdog below 12 s to 12 s.
///
/// # Errors
/// `fault=` is invalid.
pub(crate) fn worker_options<'a>(
    hop: &'a Hop,
    task: Task,
    naming: impl Fn(&str) -> &'a Hop,
) -> Result<WorkerOptions, StageError> {
    let watchdog = Duration::from_nanos(naming("watchdog").duration_ns("watchdog"));
    let sandbox = SandboxChoice::of(naming("sandbox").choice("sandbox"));
    Ok(WorkerOptions {
        watchdog: match task {
            // Longer than `PATIENCE`, after which the stage in the worker reports a silent device. A restart
            // by the watchdog would not help.
            Task::Device(_) => watchdog.max(PATIENCE + Duration::from_secs(2)),
            Task::Stage | Task::Plugin(_) | Task::Filter | Task::Network(_) => watchdog,
        },
        kind: WorkerKind::new(task, naming("memory").bytes("memory").unwrap_or(0), sandbox),
        sandbox,
        faults: hop.text("fault").parse().map_err(StageError::Option)?,
    })
}

/// Checks that `hop`, which runs in this process, does not require a sandbox. Passes if the hop has no option
/// `sandbox=`, or if the option has another value than `require`.
///
/// # Errors
/// `sandbox=require` is set.
pub(crate) fn refuse_required_sandbox(hop: &Hop) -> Result<(), StageError> {
    match hop.def.arg("sandbox").is_some() && hop.choice("sandbox") == "require" {
        true => Err(StageError::Option(format!(
            "sandbox=require: `{}` would run in this process, without a sandbox; add host=process",
            hop.name()
        ))),
        false => Ok(()),
    }
}

/// Options that have an effect on workers only.
const OF_WORKERS: [&str; 3] = ["fault", "watchdog", "memory"];

/// Checks that `hop`, which runs in this process, sets none of the options [`OF_WORKERS`].
///
/// # Errors
/// One of them is set.
pub(crate) fn refuse_worker_options(hop: &Hop) -> Result<(), StageError> {
    let is_set = |name: &&&str| hop.def.arg(name).is_some() && hop.is_set(name);
    let Some(option) = OF_WORKERS.iter().find(is_set) else { return Ok(()) };
    let service = if hop.def.arg("socket").is_some() { " or host=service" } else { "" };
    Err(StageError::Option(format!(
        "{option}= belongs to workers, but `{}` would run in this process; remove it, or add host=process{service}",
        hop.name()
    )))
}

/// Creates the handle for the stream's connection to the service, without connecting; `None` if `hop` does
/// not run in the service. The options are read from `named`: `socket` (if it is not set there, the default
/// socket is used), and `service_uid` (if it is not set there, it is read from `hop`; if it is not set there
/// either, only services of root and of this process's user are accepted).
pub(crate) fn service_stream_of(hop: &Hop, named: &Hop) -> Option<Arc<ServiceStream>> {
    (hop.choice("host") == "service").then(|| {
        let set = |of: &Hop, name| of.def.arg(name).is_some() && of.is_set(name);
        let socket = set(named, "socket").then(|| named.text("socket").into());
        let uid = |of: &Hop| set(of, "service_uid").then(|| of.count("service_uid") as u32);
        ServiceStream::new(socket.unwrap_or_else(host::default_socket), uid(named).or_else(|| uid(hop)))
    })
}
