// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stages in worker processes, tested as links: frames pass through another process and
//! arrive in another thread.

use framepath::{Pipeline, path};

use framepath_testkit::conformance::way::{LinkUnderTest, WhenFull};
use framepath_testkit::service::ServiceProcess;

/// Number of cells of a ring between caller and worker.
const CELLS: u64 = 64;
/// Number of slots of the pool of `encode raw copy=1`.
const COPY_SLOTS: u64 = 8;
/// Number of repetitions; small, because each run starts a process.
const RUNS: usize = 8;
/// Option with the watchdog's timeout, long enough for a busy machine.
const WATCHDOG: &str = "watchdog=60s";

/// Memory of the frames that the worker's stage emits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// The stage passes on the caller's own frame.
    Same,
    /// The stage emits a copy in the worker's memory.
    Copies,
}

/// Returns a link that is a stage in a worker started by this process.
pub fn process(gives: Gives) -> LinkUnderTest {
    framepath::host::set_worker_program(env!("CARGO_BIN_EXE_framepath"));
    link(gives, "host=process".to_owned(), |built| built)
}

/// Returns a link that is a stage in a worker of a service, which runs as long as the link exists.
pub fn service(gives: Gives) -> LinkUnderTest {
    let service = ServiceProcess::start(&[]);
    let host = format!("host=service socket={}", service.socket().display());
    link(gives, host, move |built| {
        let _until_dropped = &service;
        built
    })
}

fn link(gives: Gives, host: String, keep: impl Fn(Pipeline) -> Pipeline + 'static) -> LinkUnderTest {
    let stage = match gives {
        Gives::Same => "burn time=1us",
        Gives::Copies => "encode raw copy=1",
    };
    let hop = path::parse_stage(&format!("{stage} {host} {WATCHDOG}")).unwrap();
    // Finished frames: the worker can send at most as many as it has cells or slots, and
    // the sink holds one of them.
    let done = match gives {
        Gives::Same => CELLS,
        Gives::Copies => COPY_SLOTS - 1,
    };
    LinkUnderTest {
        add: Box::new(move |built| keep(built).add_hop(&hop, 1).unwrap()),
        // One more frame is in the worker. The last cell is reserved for a layout. A
        // source without a free cell sleeps until half of the cells are free.
        holds: Some(CELLS - 1 + 1 + done),
        holds_least: CELLS / 2 + 1 + 1 + done,
        full: WhenFull::Waits,
        own_slots: (gives == Gives::Copies).then_some(COPY_SLOTS as usize),
        runs: RUNS,
    }
}
