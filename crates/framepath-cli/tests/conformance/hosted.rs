// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stages in worker processes, as links: what goes in comes out in another
//! thread, by way of another process.

use framepath::{Pipeline, path};

use framepath_testkit::conformance::way::{Full, Link};
use framepath_testkit::service::Service;

/// Cells of a ring between caller and worker.
const CELLS: u64 = 64;
/// Slots of the pool of `encode raw copy=1`.
const COPY_SLOTS: u64 = 8;
/// Each run starts a process.
const RUNS: usize = 8;
/// A busy machine must not pass for a worker that stands still.
const WATCHDOG: &str = "watchdog=60s";

/// What comes out of the worker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// The caller's own frame.
    Same,
    /// A frame in the worker's memory.
    Copies,
}

/// A stage in a worker of this process.
pub fn process(gives: Gives) -> Link {
    framepath::host::set_worker_program(env!("CARGO_BIN_EXE_framepath"));
    link(gives, "host=process".to_owned(), |built| built)
}

/// A stage in a worker of a service, which is there as long as the link.
pub fn service(gives: Gives) -> Link {
    let service = Service::start(&[]);
    let host = format!("host=service socket={}", service.socket().display());
    link(gives, host, move |built| {
        let _until_dropped = &service;
        built
    })
}

fn link(gives: Gives, host: String, keep: impl Fn(Pipeline) -> Pipeline + 'static) -> Link {
    let stage = match gives {
        Gives::Same => "burn time=1us",
        Gives::Copies => "encode raw copy=1",
    };
    let hop = path::parse_stage(&format!("{stage} {host} {WATCHDOG}")).unwrap();
    // Done with: it cannot hand on more of them than its cells name, or than it
    // has slots, the one in the sink's hands among them.
    let done = match gives {
        Gives::Same => CELLS,
        Gives::Copies => COPY_SLOTS - 1,
    };
    Link {
        add: Box::new(move |built| keep(built).add_hop(&hop, 1).unwrap()),
        // One more is in the worker's hands. The last cell is for a layout. A
        // source that found no cell sleeps until half of them are free.
        holds: Some(CELLS - 1 + 1 + done),
        holds_least: CELLS / 2 + 1 + 1 + done,
        full: Full::Waits,
        own_slots: (gives == Gives::Copies).then_some(COPY_SLOTS as usize),
        runs: RUNS,
    }
}
