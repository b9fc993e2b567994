// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that sends frames, starts the consumer and prints the figures.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use iceoryx2::config::Config;
use iceoryx2::port::{notifier::Notifier, publisher::Publisher};
use iceoryx2::prelude::{Node, ipc};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

use crate::Failure;
use crate::control::{READY, Report, lines};
use crate::frame::{MARK, Usage, WARM_UP, now_ns, write_header};
use crate::interrupt;
use crate::options::{Mode, Options};
use crate::service::Services;

const NSEC_PER_SEC: u64 = 1_000_000_000;
/// Frames per second of the warm-up.
const WARM_UP_RATE: u64 = 1000;
/// Maximum number of warm-up frames: the run fails if the consumer is not ready after
/// 10 s.
const WARM_UP_MOST: u64 = 10 * WARM_UP_RATE;
/// Timeout of the cleanup of shared memory after an interrupt.
const PATIENCE: Duration = Duration::from_secs(1);

struct Producer {
    publisher: Publisher<ipc::Service, [u8], ()>,
    notifier: Option<Notifier<ipc::Service>>,
    bytes: usize,
}

pub fn run(options: &Options) -> Result<(), Failure> {
    interrupt::watch()?;
    let name = format!("framepath-handoff-{}", std::process::id());
    let services = Services::open(&name)?;
    let producer = Producer {
        publisher: services.publisher(options.bytes)?,
        notifier: if options.mode == Mode::Wait { Some(services.notifier()?) } else { None },
        bytes: options.bytes,
    };
    let mut child = start_consumer(options, &name)?;
    let said = lines(child.stdout.take().ok_or("no standard output of the consumer")?);
    let run = producer.run(options, &said);
    if interrupt::came() {
        child.kill()?;
        child.wait()?;
        // The cleanup removes the consumer's resources.
        drop((producer, services));
        Node::<ipc::Service>::blocking_cleanup_dead_nodes(Config::global_config(), PATIENCE);
        return Err("interrupted; no figures".into());
    }
    print_run(options, &run?);
    drop(producer);
    // The end of its standard input ends the consumer.
    child.stdin.take();
    let ended = child.wait()?;
    if ended.success() { Ok(()) } else { Err(format!("the consumer: {ended}").into()) }
}

fn start_consumer(options: &Options, service: &str) -> Result<Child, Failure> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.arg(options.mode.word()).args(["--consume", service]);
    command.arg("--bytes").arg(options.bytes.to_string());
    command.arg("--frames").arg(options.frames.to_string());
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// Figures of one complete run.
struct Run {
    start_ns: u64,
    usage: Usage,
    report: Report,
}

impl Producer {
    fn run(&self, options: &Options, said: &Receiver<String>) -> Result<Run, Failure> {
        self.warm_up(said)?;
        let before = Usage::now();
        let start_ns = now_ns();
        for i in 0..options.frames {
            // No pacing if the rate is 0.
            if let Some(after_ns) = ((i + 1) * NSEC_PER_SEC).checked_div(options.rate) {
                sleep_until(start_ns + after_ns)?;
            }
            if interrupt::came() {
                return Err("interrupted".into());
            }
            self.hand_over(i)?;
        }
        let line = said.recv()?;
        let usage = Usage::now().since(before);
        let report = Report::parse(&line).ok_or("the consumer's report is invalid")?;
        Ok(Run { start_ns, usage, report })
    }

    fn hand_over(&self, sequence: u64) -> Result<(), Failure> {
        let mut sample = self.publisher.loan_slice_uninit(self.bytes)?;
        write_header(sample.payload_mut(), sequence, now_ns());
        // SAFETY: every byte is initialised: the first 16 just now, the rest by
        // the kernel, which gives shared memory filled with zeros, or by an
        // earlier frame in this slot. Any bytes are a valid `[u8]`.
        let sample = unsafe { sample.assume_init() };
        sample.send()?;
        if let Some(notifier) = &self.notifier {
            notifier.notify()?;
        }
        Ok(())
    }

    /// Sends frames until the consumer is ready, then the mark.
    fn warm_up(&self, said: &Receiver<String>) -> Result<(), Failure> {
        for _ in 0..WARM_UP_MOST {
            if interrupt::came() {
                return Err("interrupted".into());
            }
            match said.try_recv() {
                Ok(line) if line == READY => return self.hand_over(MARK),
                Ok(line) => return Err(format!("unexpected line of the consumer: {line:?}").into()),
                Err(TryRecvError::Disconnected) => return Err("the consumer has ended".into()),
                Err(TryRecvError::Empty) => {}
            }
            self.hand_over(WARM_UP)?;
            sleep_until(now_ns() + NSEC_PER_SEC / WARM_UP_RATE)?;
        }
        Err("the consumer receives no frame; timeout after 10 s".into())
    }
}

fn sleep_until(due_ns: u64) -> Result<(), Failure> {
    let at = TimeSpec::new((due_ns / NSEC_PER_SEC) as i64, (due_ns % NSEC_PER_SEC) as i64);
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    while let Err(error) = clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &at) {
        if error != nix::errno::Errno::EINTR {
            return Err(error.into());
        }
    }
    Ok(())
}

fn print_run(options: &Options, run: &Run) {
    let Run { start_ns, usage, report } = run;
    let Options { bytes, frames, rate, mode, .. } = options;
    let Report { received, lost, duplicated, out_of_order, .. } = report;
    let [p50, p95, p99, max] = report.latency_ns;
    print!("{{\"contender\":\"iceoryx2-{}\",\"software\":\"iceoryx2 {}\"", mode.word(), iceoryx2_version());
    print!(",\"bytes\":{bytes},\"frames\":{frames},\"rate\":{rate}");
    print!(",\"received\":{received},\"lost\":{lost},\"duplicated\":{duplicated}");
    print!(",\"out_of_order\":{out_of_order},\"wall_ns\":{}", report.end_ns - start_ns);
    print!(",\"producer_cpu_ns\":{},\"consumer_cpu_ns\":{}", usage.cpu_ns, report.cpu_ns);
    print!(",\"producer_switches\":{},\"consumer_switches\":{}", usage.switches, report.switches);
    // Loaned, written in place and sent: no byte of a frame is moved.
    print!(",\"copied_bytes\":0");
    println!(",\"latency_ns\":{{\"p50\":{p50},\"p95\":{p95},\"p99\":{p99},\"max\":{max}}}}}");
}

/// Returns the version of iceoryx2 in Cargo.lock; an empty text if there is none.
fn iceoryx2_version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split_once("name = \"iceoryx2\"\nversion = \"").map_or("", |(_, after)| after);
    entry.split_once('"').map_or("", |(version, _)| version)
}
