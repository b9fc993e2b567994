// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that receives frames.

use std::io::Read;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::Failure;
use crate::control::{READY, Report};
use crate::frame::{MARK, Usage, WARM_UP, now_ns, read_header};
use crate::interrupt;
use crate::options::{Mode, Options};
use crate::service::Services;

/// Number of warm-up frames after which the consumer is ready: enough to use every slot
/// twice.
const WARM_UP_FRAMES: u64 = 16;

/// Receives the frames of the service named `service` and prints the report. Returns when the
/// producer closes this process's standard input.
pub fn run(options: &Options, service: &str) -> Result<(), Failure> {
    set_pdeathsig(Signal::SIGKILL)?;
    interrupt::ignore()?;
    let services = Services::open(service)?;
    // Before the subscriber: else the producer could fill the subscriber's buffer while nobody listens to
    // its notifications, and block.
    let listener = if options.mode == Mode::Wait { Some(services.listener()?) } else { None };
    let subscriber = services.subscriber()?;
    let mut tally = Tally::new(options.frames);
    while !tally.done {
        if let Some(listener) = &listener {
            listener.blocking_wait_one()?;
        }
        while let Some(sample) = subscriber.receive()? {
            tally.saw(sample.payload())?;
        }
        if listener.is_none() {
            std::hint::spin_loop();
        }
    }
    println!("{}", tally.report().line());
    // The frames' memory may end with this process, so the producer ends first.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Figures of the consumer while it receives frames.
struct Tally {
    /// Latency in nanoseconds of each measured frame, by sequence number; 0 if not
    /// received.
    latency_ns: Vec<u64>,
    /// Number of warm-up frames received so far.
    warm_up: u64,
    /// True after the mark: the clocks run.
    marked: bool,
    /// True after the last measured frame.
    done: bool,
    /// Next expected sequence number.
    next: u64,
    /// Number of measured frames received, without duplicates.
    received: u64,
    duplicated: u64,
    out_of_order: u64,
    /// Resource usage at the mark; after the last frame, the usage between the two.
    usage: Usage,
    /// Arrival of the last frame, CLOCK_MONOTONIC nanoseconds.
    end_ns: u64,
}

impl Tally {
    fn new(frames: u64) -> Tally {
        Tally {
            latency_ns: vec![0; frames as usize],
            warm_up: 0,
            marked: false,
            done: false,
            next: 0,
            received: 0,
            duplicated: 0,
            out_of_order: 0,
            usage: Usage::default(),
            end_ns: 0,
        }
    }

    /// Records the arrival of a frame. Prints [`READY`] after the last warm-up frame.
    /// Fails if the producer cannot have sent the frame.
    fn saw(&mut self, frame: &[u8]) -> Result<(), Failure> {
        let now = now_ns();
        let (sequence, stamp_ns) = read_header(frame);
        match sequence {
            WARM_UP => {
                self.warm_up += 1;
                if self.warm_up == WARM_UP_FRAMES {
                    println!("{READY}");
                }
                return Ok(());
            }
            MARK => {
                self.usage = Usage::now();
                self.marked = true;
                return Ok(());
            }
            _ if !self.marked || self.done => return Err("received a frame that was not sent".into()),
            _ => {}
        }
        let latency =
            self.latency_ns.get_mut(sequence as usize).ok_or("received a frame that was not sent")?;
        if *latency != 0 {
            self.duplicated += 1;
        } else {
            // 0 means a missing frame, so the smallest latency is 1.
            *latency = (now - stamp_ns).max(1);
            self.received += 1;
        }
        if sequence < self.next {
            self.out_of_order += 1;
        } else {
            self.next = sequence + 1;
        }
        if sequence + 1 == self.latency_ns.len() as u64 {
            self.usage = Usage::now().since(self.usage);
            self.end_ns = now;
            self.done = true;
        }
        Ok(())
    }

    /// Returns the figures after the last frame. Lost frames have no latency.
    fn report(mut self) -> Report {
        let lost = self.latency_ns.len() as u64 - self.received;
        self.latency_ns.sort_unstable();
        // Lost frames have latency 0 and are first.
        let seen = &self.latency_ns[lost as usize..];
        // Nearest rank: the smallest value that this percentage does not exceed.
        let at = |percent: usize| seen[(seen.len() * percent).div_ceil(100).max(1) - 1];
        Report {
            received: self.received,
            lost,
            duplicated: self.duplicated,
            out_of_order: self.out_of_order,
            cpu_ns: self.usage.cpu_ns,
            switches: self.usage.switches,
            end_ns: self.end_ns,
            latency_ns: [at(50), at(95), at(99), at(100)],
        }
    }
}
