// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a program its own worker program.
//!
//! `host=process` starts a program for its workers. A program that calls [`init`] first
//! thing in `main` is that program itself; otherwise it is the `framepath` command
//! ([`set_worker_program`](crate::host::set_worker_program) says where).

use std::ffi::OsString;
use std::process;

use framepath_os::spawn;

use crate::host::{self, Task};

/// Runs the worker and ends the process, if framepath has started this process as a
/// worker; returns at once otherwise. Call it first thing in `main`, before any thread
/// starts and before arguments are read.
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
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().unwrap_or_default();
    let ended = if first == host::ZYGOTE {
        serve_zygote()
    } else if first == host::WORKER {
        serve_worker(arguments)
    } else {
        host::use_own_program();
        return;
    };
    if let Err(error) = ended {
        // Seen only where the caller kept standard error open.
        eprintln!("framepath: worker: {error}");
        process::exit(1);
    }
    process::exit(0);
}

fn serve_zygote() -> Result<(), Box<dyn std::error::Error>> {
    match host::forks::serve(spawn::take_socket()?)? {}
}

fn serve_worker(mut arguments: impl Iterator<Item = OsString>) -> Result<(), Box<dyn std::error::Error>> {
    let (mut memory_bytes, mut task, mut without_seccomp) = (None, Task::Stage, false);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("an argument lacks its value");
        match argument.to_str() {
            Some("--memory") => memory_bytes = value()?.to_str().and_then(|text| text.parse().ok()),
            Some("--plugin") => task = Task::Plugin(value()?.into()),
            Some("--device") => task = Task::Device,
            Some("--without-seccomp") => without_seccomp = true,
            _ => return Err(format!("unknown argument {}", argument.to_string_lossy()).into()),
        }
    }
    let memory_bytes = memory_bytes.ok_or("--memory BYTES is missing")?;
    host::worker::lock_in_and_serve(spawn::take_socket()?, memory_bytes, task, without_seccomp)?;
    Ok(())
}
