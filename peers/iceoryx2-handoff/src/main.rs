// SPDX-License-Identifier: MIT OR Apache-2.0
//! iceoryx2-handoff: sends frames through iceoryx2's publish/subscribe without a copy.
//! The producer borrows a sample in shared memory, writes 16 bytes and sends it.
//!
//! In mode `wait`, the consumer sleeps on iceoryx2's event service, as in iceoryx2's
//! own event-based examples: the producer sends one notification per frame, and at each
//! notification the consumer receives all available frames. In mode `poll`, the
//! consumer polls for frames and never sleeps.
//!
//! Back-pressure: the subscriber has a buffer of 8 frames that does not overflow. If it
//! is full, iceoryx2's publisher retries until the frame is delivered.
//!
//! The convention is that of `../handoff/handoff.h`: the same frame, the same warm-up,
//! mark and clocks, the same line of JSON.

mod consumer;
mod control;
mod frame;
mod interrupt;
mod options;
mod producer;
mod service;

use std::process::ExitCode;

use options::{Options, Role};

/// An error with a text for users.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("iceoryx2-handoff: {error}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    // Warnings of iceoryx2 would go to standard output, between the processes' messages.
    iceoryx2::prelude::set_log_level(iceoryx2::prelude::LogLevel::Fatal);
    let ended = match &options.role {
        Role::Produce => producer::run(&options),
        Role::Consume { service } => consumer::run(&options, service),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("iceoryx2-handoff: {error}");
            ExitCode::FAILURE
        }
    }
}
