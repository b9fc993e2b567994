// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source of a live stream: packets that a worker receives from the network, over one connection after another.
//!
//! A worker with the role `Network` makes one connection and demuxes its stream. When the stream ends or the
//! connection is lost, this source starts another worker after a pause, as often as `reconnect=` allows. The
//! stream goes on at the new connection's first random access point. Its times go on, too: they are shifted by
//! the time without a packet.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use framepath_codec::{Packet, TrackInfo};
use framepath_model::path::{Hop, all_hops};
use framepath_model::stream::{Rational, StreamInfo};
use framepath_model::wire::{DemuxPosition, NetworkTransport};
use framepath_os::process::cancel;
use framepath_os::process::signal;
use framepath_os::process::stop;
use framepath_os::time::now_ns;

use crate::element::HopPlace;
use crate::error::StageError;
use crate::host::{
    DemuxedInput, DemuxerSpec, NetworkSource, RemoteDemuxer, Task, WorkerOptions, WorkerStats,
};
use crate::hosting::worker_options;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::outcomes::Outcomes;
use crate::request::{Answered, Request};
use crate::source::Source;
use crate::source::reconnect::{ConnectedTimes, Lost};

/// Function that returns, for each address of the server, the text of the [`NetworkSource`] to which the
/// worker connects. The list is empty if a signal or a stop request ended the look-up of the addresses.
type Texts = Box<dyn Fn() -> Result<Vec<Vec<u8>>, StageError> + Send>;

/// Maker of connections.
struct Connector {
    texts: Texts,
    transport: NetworkTransport,
    latency: Duration,
    timeout: Duration,
    track: Option<u32>,
    options: WorkerOptions,
    /// True if the packets are copied into memory that the worker cannot change, because this process reads
    /// their bytes itself.
    private: bool,
}

impl Connector {
    /// Connects to the first address that answers; `None` if a signal or a stop request came before a
    /// connection.
    ///
    /// # Errors
    /// The error of the last address.
    fn connect(&self) -> Result<Option<RemoteDemuxer>, StageError> {
        let mut last = None;
        for text in (self.texts)()? {
            let (transport, latency, timeout) = (self.transport, self.latency, self.timeout);
            let source = NetworkSource { transport, text, latency, timeout };
            let spec = DemuxerSpec {
                loops: 1,
                start: Duration::ZERO,
                track: self.track,
                options: self.options.clone(),
                service: None,
                private: self.private,
            };
            match RemoteDemuxer::open(DemuxedInput::Network(source), spec) {
                Ok(remote) => return Ok(Some(remote)),
                Err(_) if signal::interrupted() => return Ok(None),
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(None), |error| Err(error.into()))
    }
}

/// State of the connection.
enum Connection {
    Up(Box<RemoteDemuxer>),
    /// The connection has ended, and another attempt is due.
    Down(Lost),
    /// The last connection has ended, and so has the stream.
    Ended,
}

/// Source of a live stream. The birth of a packet is the time when the path requests it.
pub(super) struct Live {
    name: String,
    connector: Connector,
    connection: Connection,
    /// Maximum number of attempts in a row to connect again.
    reconnect: u64,
    track: TrackInfo,
    /// Parameter sets of the present connection, to put in front of its first packet; empty after that packet,
    /// and if the connection needs none.
    sets: Vec<u8>,
    timeline: ConnectedTimes,
    next_seq: u64,
    /// Statistics of the workers of all connections.
    stats: Arc<WorkerStats>,
    outcomes: Outcomes,
    /// Number of lost packets of earlier connections.
    lost_before: u64,
}

impl Live {
    /// Makes the source of `hop`, and connects. `tcp_port` is the port of the server, if it uses TCP. `worker` has the options of the
    /// worker: `hop` itself, or another hop.
    ///
    /// # Errors
    /// An option is invalid; no address can be reached or has a video; or a signal or a stop request has
    /// ended the wait.
    pub(super) fn new(
        hop: &Hop,
        worker: &Hop,
        place: &HopPlace<'_>,
        transport: NetworkTransport,
        tcp_port: Option<u16>,
        texts: Texts,
    ) -> Result<Live, StageError> {
        let decoders: Vec<&Hop> = all_hops(place.behind).filter(|hop| hop.name() == "decode").collect();
        let connector = Connector {
            texts,
            transport,
            latency: Duration::from_nanos(hop.duration_ns("latency")),
            timeout: Duration::from_nanos(hop.duration_ns("timeout")),
            track: worker.is_set("track").then(|| worker.count("track") as u32),
            options: worker_options(worker, Task::Network(tcp_port), |_| worker)?,
            // A decoder in this process must not read memory that the worker can change.
            private: decoders.is_empty() || decoders.iter().any(|decoder| !decoder.is_hosted()),
        };
        let canceled = || StageError::io("connect")(cancel::canceled());
        let remote = connector.connect()?.ok_or_else(canceled)?;
        let (track, stats) = (remote.track().clone(), remote.stats());
        place.outcomes.demuxer.get_or_init(|| stats.clone());
        let StreamInfo { width, height, .. } = track.stream;
        log::info!("{}: {} {width}x{height}, received in a worker", hop.name(), track.codec);
        Ok(Live {
            name: hop.name().to_owned(),
            connector,
            connection: Connection::Up(Box::new(remote)),
            reconnect: hop.count("reconnect"),
            track,
            sets: Vec::new(),
            timeline: ConnectedTimes::default(),
            next_seq: 0,
            stats,
            outcomes: place.outcomes.clone(),
            lost_before: 0,
        })
    }

    /// Prepares `packet`, the next of the present connection, for the path.
    fn placed(&mut self, packet: Packet) -> Result<Packet, StageError> {
        let mut packet = match self.sets.is_empty() {
            true => packet,
            false => {
                let sets = std::mem::take(&mut self.sets);
                packet
                    .prefixed(&sets)
                    .ok_or_else(|| StageError::Option("no memory for a packet".to_owned()))?
            }
        };
        let (pts, duration) = (packet.meta().pts, packet.meta().duration);
        packet.meta_mut().pts = pts.map(|pts| self.timeline.place(pts, duration));
        Ok(packet)
    }

    /// Waits until the next attempt to connect again is due, and makes it. Returns true after the attempt,
    /// also if it failed; false if a request for the thread ended the wait, or a signal or a stop request ended
    /// the wait or the attempt.
    ///
    /// # Errors
    /// The error by which the connection was lost, if the last attempt failed; or the new stream differs from
    /// the old one in more than its parameter sets. If the server had ended the stream, a failed last attempt
    /// is no error.
    fn try_again(&mut self, out: &Out<'_>) -> Result<bool, StageError> {
        let Connection::Down(lost) = &mut self.connection else { return Ok(true) };
        while now_ns() < lost.due_ns {
            if signal::interrupted() || out.has_request() {
                return Ok(false);
            }
            stop::sleep_unless(lost.due_ns, || out.has_request());
        }
        let mut remote = match self.connector.connect() {
            Ok(Some(remote)) => remote,
            Ok(None) => return Ok(false),
            Err(error) => {
                log::info!("{}: cannot connect again: {error}", self.name);
                lost.failed();
                if lost.attempts < self.reconnect {
                    return Ok(true);
                }
                let ended = lost.error.take();
                self.connection = Connection::Ended;
                return ended.map_or(Ok(true), Err);
            }
        };
        let gap_ns = lost.reconnected(&self.name, &self.outcomes);
        let new = remote.track();
        let changed =
            || StageError::Option(format!("the stream changed from {} to {}", self.track.codec, new.codec));
        self.sets = self.track.sets_of(new).ok_or_else(changed)?;
        let base = self.track.stream.time_base;
        if new.stream.time_base != base {
            return Err(StageError::Option("the stream changed its time base".to_owned()));
        }
        let gap = Rational::new(1, 1_000_000_000).rescale(gap_ns as i64, base);
        self.timeline.reconnect(gap.unwrap_or(0));
        remote.add_to(&self.stats);
        self.connection = Connection::Up(Box::new(remote));
        Ok(true)
    }

    /// Ends the present connection because of `error`, or because the server has ended the stream.
    ///
    /// # Errors
    /// `error`, if the source does not connect again.
    fn end_connection(&mut self, error: Option<StageError>) -> Result<(), StageError> {
        let packets = match &self.connection {
            Connection::Up(remote) => {
                let (packets, lost) = remote.counts();
                self.lost_before += lost;
                packets
            }
            Connection::Down(_) | Connection::Ended => 0,
        };
        if self.reconnect == 0 {
            self.connection = Connection::Ended;
            return error.map_or(Ok(()), Err);
        }
        let lost = Lost::now(packets, error);
        log::warn!(
            "{}: connection lost after {packets} packets ({}); connects again",
            self.name,
            lost.reason()
        );
        self.connection = Connection::Down(lost);
        Ok(())
    }
}

impl Source for Live {
    fn info(&self) -> StreamInfo {
        self.track.stream
    }

    fn track_info(&self) -> Option<TrackInfo> {
        Some(self.track.clone())
    }

    fn is_live(&self) -> bool {
        true
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        let birth_ns = out.birth();
        loop {
            let remote = match &mut self.connection {
                Connection::Up(remote) => remote,
                Connection::Ended => return Ok(false),
                Connection::Down(_) => {
                    if !self.try_again(out).map_err(|error| out.fail(error))? {
                        return Ok(!signal::interrupted());
                    }
                    continue;
                }
            };
            let read = remote.read();
            let lost = self.lost_before + remote.counts().1;
            self.outcomes.network.lost.store(lost, Ordering::Relaxed);
            let packet = match read {
                Ok(Some(packet)) => packet,
                Ok(None) if signal::interrupted() => return Ok(false),
                Ok(None) => {
                    self.end_connection(None).map_err(|error| out.fail(error))?;
                    continue;
                }
                Err(error) => {
                    self.end_connection(Some(error.into())).map_err(|error| out.fail(error))?;
                    continue;
                }
            };
            let mut packet = self.placed(packet).map_err(|error| out.fail(error))?;
            packet.meta_mut().seq = self.next_seq;
            packet.meta_mut().birth_ns = birth_ns;
            self.next_seq += 1;
            out.push(Item::Packet(packet))?;
            return Ok(true);
        }
    }

    fn can_seek(&self) -> Result<(), &'static str> {
        Err("a live stream from the network is not seekable")
    }

    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        match (&mut self.connection, request) {
            (Connection::Up(remote), Request::Flush) => remote.seek(DemuxPosition::NextKey)?,
            (_, Request::Flush) => {}
            _ => return Ok(Answered::PassOn),
        }
        Ok(Answered::Done)
    }
}
