// SPDX-License-Identifier: MIT OR Apache-2.0
//! `loopback`: RootStream's network benchmark. Measures the throughput of 10 MiB from one thread to another
//! over loopback TCP, and the time until the first chunk (64 KiB) has arrived; also for UDP datagrams, with
//! one send per datagram and with segmented sends (GSO).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use framepath_os::measure::meter;
use framepath_os::net;
use framepath_os::time::{now_ns, process_cpu_ns};

use crate::error::LabError;
use crate::experiment::{ExperimentResult, ExperimentSettings};
use crate::measure::{Contender, Measured};
use crate::pairs;
use crate::progress::ProgressView;

const CASE: &str = "10MB";
const BYTES: usize = 10 * 1024 * 1024;
/// Bytes of one TCP write, and of the first chunk, whose arrival is timed; for UDP the first chunk
/// is the whole datagrams that fit.
const CHUNK: usize = 64 * 1024;
/// Bytes of a datagram: about the payload of an Ethernet frame.
const DATAGRAM: usize = 1400;
/// Largest lead of the sender over the receiver, in datagrams. The kernel's default
/// receive buffer (212,992 bytes, including the overhead of each datagram) holds this
/// number without loss.
const WINDOW: u64 = 64;
/// Time without a datagram after which the receiver counts the rest as lost.
const PATIENCE: Duration = Duration::from_millis(200);

/// Returns the names of all cases, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    vec![CASE.to_owned()]
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    if !settings.wants(CASE) {
        return Ok(());
    }
    let rounds = settings.rounds(10, 30);
    watch.begin("loopback", 3 * rounds as u64);
    let contenders = vec![
        Contender::new("tcp", tcp),
        Contender::new("udp", || datagrams(1)),
        Contender::new("udp-gso", || datagrams(net::MAX_SEND / DATAGRAM)),
    ];
    let comparisons =
        [("cpu_ms", "udp-gso", "udp"), ("cpu_ms", "udp-gso", "tcp"), ("throughput_mb_s", "udp-gso", "udp")];
    pairs::run(CASE, contenders, &comparisons, rounds, watch, summary)?;
    for row in &mut summary.rows {
        // A transfer counts as one frame, so that a figure per frame would repeat that of the run.
        row.cpu_us_per_frame = None;
    }
    summary.notes.push(format!(
        "{} MiB between two threads; TCP in writes of {} KiB, UDP in datagrams of {DATAGRAM} bytes, at most \
         {WINDOW} ahead of the receiver; first chunk: from the first write to its arrival at the receiver",
        BYTES >> 20,
        CHUNK >> 10
    ));
    Ok(())
}

/// Timestamps (nanoseconds of the monotonic clock) and counts of one transfer. `received` is in bytes;
/// `first_chunk_ns` is 0 if the first chunk did not arrive.
struct Transfer {
    start_ns: u64,
    first_chunk_ns: u64,
    end_ns: u64,
    received: u64,
    lost_datagrams: u64,
}

fn tcp() -> Result<Measured, LabError> {
    let io = |what: &str| LabError::io(format!("loopback TCP: {what}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io("listen"))?;
    let address = listener.local_addr().map_err(io("address"))?;
    let mut sender = TcpStream::connect(address).map_err(io("connect"))?;
    sender.set_nodelay(true).map_err(io("TCP_NODELAY"))?;
    let (mut receiver, _) = listener.accept().map_err(io("accept"))?;
    receiver.set_read_timeout(Some(Duration::from_secs(10))).map_err(io("timeout"))?;
    let chunk = vec![0x5a; CHUNK];
    let cpu = process_cpu_ns();
    let transfer = std::thread::scope(|scope| {
        let reading = scope.spawn(move || -> std::io::Result<(u64, u64, u64)> {
            let mut buffer = vec![0; CHUNK];
            let (mut received, mut first_ns) = (0, 0);
            while received < BYTES {
                let count = meter::copy(0, || receiver.read(&mut buffer))?;
                if count == 0 {
                    break;
                }
                received += count;
                if first_ns == 0 && received >= CHUNK {
                    first_ns = now_ns();
                }
            }
            Ok((received as u64, first_ns, now_ns()))
        });
        let start_ns = now_ns();
        for _ in 0..BYTES / CHUNK {
            meter::copy(CHUNK, || sender.write_all(&chunk))?;
        }
        let (received, first_chunk_ns, end_ns) = reading.join().unwrap_or(Ok((0, 0, start_ns)))?;
        Ok(Transfer { start_ns, first_chunk_ns, end_ns, received, lost_datagrams: 0 })
    });
    Ok(transfer.map_err(io("transfer"))?.measured(process_cpu_ns() - cpu))
}

/// Runs the UDP contender with `per_send` datagrams per system call; above 1 the kernel splits the
/// bytes of a call into datagrams.
///
/// # Errors
/// [`LabError::Missing`] if the kernel cannot split the bytes; [`LabError::Io`] if another operation on a
/// socket fails. Lost datagrams are a figure, not an error.
fn datagrams(per_send: usize) -> Result<Measured, LabError> {
    let io = |what: &str| LabError::io(format!("loopback UDP: {what}"));
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io("bind"))?;
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io("bind"))?;
    sender.connect(receiver.local_addr().map_err(io("address"))?).map_err(io("connect"))?;
    receiver.set_read_timeout(Some(PATIENCE)).map_err(io("timeout"))?;
    if per_send > 1 {
        net::set_segment_size(&sender, DATAGRAM as u16).map_err(|e| {
            LabError::Missing(format!("the kernel has no UDP segmentation: {e}; use 4.18 or newer"))
        })?;
    }
    let total = (BYTES / DATAGRAM) as u64;
    let arrived = AtomicU64::new(0);
    let gone = AtomicU64::new(0);
    let payload = vec![0x5a; DATAGRAM * per_send];
    let cpu = process_cpu_ns();
    let transfer = std::thread::scope(|scope| {
        let (arrived, gone) = (&arrived, &gone);
        let reading = scope.spawn(move || {
            let mut buffer = vec![0; DATAGRAM];
            let (mut first_ns, mut last_ns) = (0, now_ns());
            let mut count = 0;
            // A datagram that does not arrive within `PATIENCE` is lost.
            while count < total && receiver.recv(&mut buffer).is_ok() {
                count += 1;
                last_ns = now_ns();
                if count == (CHUNK / DATAGRAM) as u64 {
                    first_ns = last_ns;
                }
                arrived.store(count, Ordering::Release);
            }
            gone.store(1, Ordering::Release);
            (count, first_ns, last_ns)
        });
        let start_ns = now_ns();
        let mut sent = 0;
        while sent < total && gone.load(Ordering::Acquire) == 0 {
            let batch = (per_send as u64).min(total - sent);
            if sent + batch > arrived.load(Ordering::Acquire) + WINDOW {
                std::thread::yield_now();
                continue;
            }
            let bytes = batch as usize * DATAGRAM;
            meter::copy(bytes, || sender.send(&payload[..bytes]))?;
            sent += batch;
        }
        let (count, first_chunk_ns, end_ns) = reading.join().unwrap_or((0, 0, start_ns));
        Ok(Transfer {
            start_ns,
            first_chunk_ns,
            end_ns,
            received: count * DATAGRAM as u64,
            lost_datagrams: total - count,
        })
    });
    Ok(transfer.map_err(io("send"))?.measured(process_cpu_ns() - cpu))
}

impl Transfer {
    fn measured(&self, cpu_ns: u64) -> Measured {
        let wall_ns = self.end_ns.saturating_sub(self.start_ns);
        let mut measured = Measured { frames: 1, wall_ns, cpu_ns, ..Measured::default() };
        let megabytes = self.received as f64 / 1e6;
        let extra = &mut measured.extra;
        extra.insert("throughput_mb_s".to_owned(), megabytes / (wall_ns.max(1) as f64 / 1e9));
        extra.insert("lost_datagrams".to_owned(), self.lost_datagrams as f64);
        if self.first_chunk_ns > 0 {
            let first = self.first_chunk_ns.saturating_sub(self.start_ns);
            extra.insert("first_chunk_us".to_owned(), first as f64 / 1e3);
        }
        measured
    }
}
