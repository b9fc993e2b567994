// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry point that makes a program its own worker program.
//!
//! A stage with `host=process`, for example, runs in a worker: a process that framepath starts from a
//! program. If a program calls [`init`] first thing in `main`, its workers run this program. Otherwise they
//! run the `framepath` command. The variable FRAMEPATH_WORKER and
//! [`set_worker_program`](crate::host::set_worker_program) override both.

use std::ffi::OsString;
use std::process;

use framepath_os::process::spawn;

use crate::host;
use crate::registry::Registry;

/// Does the work of a worker, or of the zygote (the process that forks workers), and then ends the process, if
/// framepath has started this process as one of them. Otherwise makes this program the worker program, unless
/// FRAMEPATH_WORKER or [`set_worker_program`](crate::host::set_worker_program) names another one, and returns
/// at once. Call this function first in `main`, before any thread starts and before arguments are read.
///
/// ```no_run
/// use framepath::Pipeline;
///
/// fn main() -> Result<(), framepath::RunError> {
///     framepath::worker::init();
///     for frame in Pipeline::parse("file clip.mp4 ! decode host=process")?.frames()? {
///         println!("{:?}", frame?.meta().pts);
///     }
///     Ok(())
/// }
/// ```
pub fn init() {
    init_with(Registry::built_in());
}

/// [`init`] for a program with stages of its own, which its workers find in `registry`.
///
/// ```no_run
/// use framepath::{Pipeline, Registry};
///
/// fn registry() -> Registry {
///     let registry = Registry::default();
///     // registry.add_stage(&DEFINITION, ...)
///     registry
/// }
///
/// fn main() -> Result<(), framepath::RunError> {
///     let registry = registry();
///     framepath::worker::init_with(&registry);
///     for frame in Pipeline::parse_with(&registry, "file clip.mp4 ! decode host=process")?.frames()? {
///         println!("{:?}", frame?.meta().pts);
///     }
///     Ok(())
/// }
/// ```
pub fn init_with(registry: &Registry) {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().unwrap_or_default();
    let ended = if first == host::ZYGOTE {
        serve_zygote(registry)
    } else if first == host::WORKER {
        serve_worker(arguments, registry)
    } else {
        host::use_own_program();
        return;
    };
    if let Err(error) = ended {
        // Visible only if the process that started this one kept standard error (FRAMEPATH_WORKER_STDERR=1).
        eprintln!("framepath: worker: {error}");
        process::exit(1);
    }
    process::exit(0);
}

fn serve_zygote(registry: &Registry) -> Result<(), Box<dyn std::error::Error>> {
    match host::forks::serve(spawn::take_socket()?, registry)? {}
}

fn serve_worker(
    mut arguments: impl Iterator<Item = OsString>,
    registry: &Registry,
) -> Result<(), Box<dyn std::error::Error>> {
    let kind = arguments.next().unwrap_or_default().to_string_lossy().parse()?;
    host::worker::lock_in_and_serve(spawn::take_socket()?, kind, registry)?;
    Ok(())
}
