// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source `recv`, with framepath-net.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use framepath_codec::{Codec, Packet, TrackInfo};
use framepath_model::access_unit::Coding;
use framepath_model::orientation::Orientation;
use framepath_model::path::Hop;
use framepath_model::stream::{FrameMeta, Rational, StreamInfo};
use framepath_net::{
    JitterDepth, ReassembledFrame, ReassemblyCounts, ReceivedFrame, ReceivedItem, ReceiverOptions,
    WebrtcError, WhepReceiver,
};
use framepath_os::process::signal;
use framepath_os::process::stop::{self, Stop};
use framepath_os::time::now_ns;

use super::remote_sender::RemoteSender;
use super::{ADAPTIVE_JITTER, net_error};
use crate::element::HopPlace;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::outcomes::Outcomes;
use crate::recorder::FrameArrival;
use crate::request::{Answered, Request};
use crate::source::Source;
use crate::source::reconnect::{ConnectedTimes, Lost};

/// Unit of the times: that of RTP timestamps of video.
const TIME_BASE: Rational = Rational::new(1, 90_000);
/// Longest sleep while no frame arrives, nanoseconds.
const SLEEP_NS: u64 = 100_000_000;
/// Longest time without a datagram if the source connects again. A sender sends a report each second, also without frames.
const SILENCE: Duration = Duration::from_secs(3);

/// State of the connection.
enum WhepConnection {
    Up(WhepReceiver),
    /// The connection has ended, and another attempt is due.
    Down(Lost),
    /// The last connection has ended, and so has the stream.
    Ended,
}

/// Source of the frames of a WHEP server. The birth of a frame is the arrival of its first packet.
pub(super) struct WhepSource {
    options: ReceiverOptions,
    /// Maximum number of attempts in a row to connect again.
    reconnect: u64,
    connection: WhepConnection,
    coding: Coding,
    track: TrackInfo,
    /// Run that the receiver wakes; `None` before the first frame is wanted.
    run: Arc<Mutex<Option<Stop>>>,
    next_seq: u64,
    /// Ledgers of the senders of all connections.
    remote: Arc<RemoteSender>,
    /// Loss in front of the present connection, until this one's first frame; `None` afterwards, and in the first connection. A
    /// connection without a frame is a failed attempt: HTTP may pass where UDP does not.
    unproven: Option<Lost>,
    /// Number of the first frame of the present connection.
    first_seq: u64,
    /// RTP timestamp of the first frame of the present connection; `None` before that frame.
    first_time: Option<u64>,
    timeline: ConnectedTimes,
    /// True after a flush, until a keyframe.
    skips_to_key: bool,
    /// Losses of earlier connections.
    before: ReassemblyCounts,
    outcomes: Outcomes,
}

pub(super) fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<WhepSource, StageError> {
    let (timeout, reconnect) = (Duration::from_nanos(hop.duration_ns("timeout")), hop.count("reconnect"));
    let options = ReceiverOptions {
        url: hop.text("url").to_owned(),
        token: hop.is_set("token").then(|| hop.text("token").to_owned()),
        latency: Duration::from_nanos(hop.duration_ns("latency")),
        timeout,
        silence: if reconnect > 0 { timeout.min(SILENCE) } else { timeout },
        jitter: match hop.count("jitter") {
            ADAPTIVE_JITTER => JitterDepth::Adaptive,
            depth => JitterDepth::Fixed(depth),
        },
        backlog: match hop.is_set("backlog") {
            true => Duration::from_nanos(hop.duration_ns("backlog")),
            false => Duration::MAX,
        },
    };
    let run = Arc::<Mutex<Option<Stop>>>::default();
    let receiver = open(&options, &run, signal::interrupted).map_err(net_error)?;
    let coding = receiver.coding();
    let codec = match coding {
        Coding::Hevc => Codec::Hevc,
        Coding::Vp8 => Codec::Vp8,
        Coding::Vp9 => Codec::Vp9,
        Coding::Av1 => Codec::Av1,
        _ => Codec::H264,
    };
    let unknown = Rational::new(0, 1);
    let stream = StreamInfo {
        format: None,
        width: 0,
        height: 0,
        time_base: TIME_BASE,
        frame_rate: unknown,
        sample_aspect: unknown,
        orientation: Orientation::Upright,
    };
    let track = TrackInfo::from_codec(codec, stream)?;
    log::info!("recv: {codec} from {}", receiver.server());
    let outcomes = place.outcomes.clone();
    let remote = Arc::new(RemoteSender::new(receiver.ledger()));
    // Another one is there if this path is a branch of another.
    let _ = outcomes.remote.set(remote.clone());
    Ok(WhepSource {
        options,
        reconnect,
        connection: WhepConnection::Up(receiver),
        coding,
        track,
        run,
        next_seq: 0,
        remote,
        unproven: None,
        first_seq: 0,
        first_time: None,
        timeline: ConnectedTimes::default(),
        skips_to_key: false,
        before: ReassemblyCounts::default(),
        outcomes,
    })
}

/// Connects to the sender. The receiver wakes `run`.
fn open(
    options: &ReceiverOptions,
    run: &Arc<Mutex<Option<Stop>>>,
    canceled: impl Fn() -> bool,
) -> Result<WhepReceiver, WebrtcError> {
    let woken = run.clone();
    let notify = move || {
        if let Some(run) = &*woken.lock().unwrap_or_else(PoisonError::into_inner) {
            run.wake();
        }
    };
    WhepReceiver::open(options, canceled, notify)
}

impl WhepSource {
    /// Waits for the next frame, also over a lost connection. Returns `None` if there is none before a request, a signal or a
    /// stop request, or if the stream has ended.
    fn wait(&mut self, out: &Out<'_>) -> Result<Option<ReceivedFrame>, StageError> {
        loop {
            let receiver = match &self.connection {
                WhepConnection::Up(receiver) => receiver,
                WhepConnection::Ended => return Ok(None),
                WhepConnection::Down(_) => {
                    if !self.try_again(out)? {
                        return Ok(None);
                    }
                    continue;
                }
            };
            let received = receiver.recv();
            let counts = receiver.counts();
            let network = &self.outcomes.network;
            network.lost_frames.store(self.before.lost_frames + counts.lost_frames, Ordering::Relaxed);
            network
                .invalid_frames
                .store(self.before.invalid_frames + counts.invalid_frames, Ordering::Relaxed);
            network.unsent_frames.store(self.before.unsent_frames + counts.unsent_frames, Ordering::Relaxed);
            network.lost.store(self.before.lost_packets + counts.lost_packets, Ordering::Relaxed);
            match received {
                Ok(ReceivedItem::Frame(received)) if self.skips_to_key && !received.frame.key => {}
                Ok(ReceivedItem::Frame(received)) => return Ok(Some(received)),
                Ok(ReceivedItem::Nothing) if signal::interrupted() || out.has_request() => return Ok(None),
                Ok(ReceivedItem::Nothing) => {
                    let awake = || receiver.has_news() || out.has_request();
                    stop::sleep_unless(now_ns() + SLEEP_NS, awake);
                }
                Ok(ReceivedItem::End) => self.end_connection(counts, None)?,
                // Its user does not want this viewer any more.
                Err(error @ WebrtcError::EndedBySender) => {
                    self.connection = WhepConnection::Ended;
                    return Err(net_error(error));
                }
                Err(error) => self.end_connection(counts, Some(error))?,
            }
        }
    }

    /// Ends the present connection, which has had these losses, because of `error`, or because the sender has ended the stream.
    ///
    /// # Errors
    /// `error`, if the source does not connect again.
    fn end_connection(
        &mut self,
        counts: ReassemblyCounts,
        error: Option<WebrtcError>,
    ) -> Result<(), StageError> {
        self.before.lost_packets += counts.lost_packets;
        self.before.lost_frames += counts.lost_frames;
        self.before.invalid_frames += counts.invalid_frames;
        self.before.unsent_frames += counts.unsent_frames;
        if self.reconnect == 0 {
            self.connection = WhepConnection::Ended;
            return error.map_or(Ok(()), |error| Err(net_error(error)));
        }
        if let Some(lost) = self.unproven.take() {
            log::info!("recv: no frame from the new connection");
            return self.attempt_failed(lost);
        }
        let silence = match error {
            Some(WebrtcError::Silent { .. }) => self.options.silence,
            _ => Duration::ZERO,
        };
        let lost = Lost::now(self.next_seq - self.first_seq, error.map(net_error)).behind_silence(silence);
        log::warn!("recv: connection lost after {} frames ({}); connects again", lost.packets, lost.reason());
        self.connection = WhepConnection::Down(lost);
        Ok(())
    }

    /// Counts a failed attempt to connect again behind `lost`. The stream ends if it was the last.
    ///
    /// # Errors
    /// The error by which the connection was lost, if it was the last attempt.
    fn attempt_failed(&mut self, mut lost: Lost) -> Result<(), StageError> {
        lost.failed();
        let limit_ns = lost.since_ns.saturating_add(self.options.timeout.as_nanos() as u64);
        if lost.attempts < self.reconnect && lost.due_ns < limit_ns {
            self.connection = WhepConnection::Down(lost);
            return Ok(());
        }
        self.connection = WhepConnection::Ended;
        lost.error.map_or(Ok(()), Err)
    }

    /// Counts the connection in which a frame has arrived, and moves the times behind those of the one before.
    fn reconnected(&mut self, lost: &Lost) {
        let gap_ns = lost.reconnected("recv", &self.outcomes);
        let gap = Rational::new(1, 1_000_000_000).rescale(gap_ns as i64, TIME_BASE);
        self.timeline.reconnect(gap.unwrap_or(0));
    }

    /// Waits until the next attempt to connect again is due, and makes it. Returns true after the attempt, also if it
    /// failed; false if a request for the thread, a signal or a stop request ended the wait or the attempt.
    ///
    /// # Errors
    /// The error by which the connection was lost, if the last attempt failed; or the new stream has another codec. If the
    /// sender had ended the stream, a failed last attempt is no error.
    fn try_again(&mut self, out: &Out<'_>) -> Result<bool, StageError> {
        let WhepConnection::Down(lost) = &mut self.connection else { return Ok(true) };
        let canceled = || signal::interrupted() || out.has_request();
        while now_ns() < lost.due_ns {
            if canceled() {
                return Ok(false);
            }
            stop::sleep_unless(lost.due_ns, || out.has_request());
        }
        let lasted = Duration::from_nanos(now_ns().saturating_sub(lost.since_ns));
        let timeout = self.options.timeout.saturating_sub(lasted);
        let opened = open(&ReceiverOptions { timeout, ..self.options.clone() }, &self.run, canceled);
        if matches!(opened, Err(WebrtcError::Canceled)) {
            return Ok(false);
        }
        let connection = std::mem::replace(&mut self.connection, WhepConnection::Ended);
        let WhepConnection::Down(lost) = connection else { return Ok(true) };
        match opened {
            Ok(receiver) if receiver.coding() != self.coding => {
                let (old, new) = (self.coding, receiver.coding());
                return Err(StageError::Option(format!("the stream changed from {old} to {new}")));
            }
            Ok(receiver) => {
                (self.first_time, self.first_seq) = (None, self.next_seq);
                self.remote.reconnected(receiver.ledger());
                (self.connection, self.unproven) = (WhepConnection::Up(receiver), Some(lost));
            }
            Err(error) => {
                log::info!("recv: cannot connect again: {error}");
                self.attempt_failed(lost)?;
            }
        }
        Ok(true)
    }

    fn packet(&mut self, frame: &ReassembledFrame, birth_ns: u64) -> Result<Packet, StageError> {
        let first = *self.first_time.get_or_insert(frame.time);
        let pts = Some(self.timeline.place(frame.time.wrapping_sub(first) as i64, 0));
        let meta = FrameMeta { seq: self.next_seq, birth_ns, pts, ..FrameMeta::default() };
        self.next_seq += 1;
        Packet::copied(&frame.bytes, meta, frame.key)
            .ok_or_else(|| StageError::Option("no memory for a packet".to_owned()))
    }
}

impl Source for WhepSource {
    fn name(&self) -> &str {
        "recv"
    }

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
        self.run
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(|| stop::current().unwrap_or_default());
        out.mark();
        let waited_since_ns = now_ns();
        let Some(received) = self.wait(out).map_err(|error| out.fail(error))? else {
            let has_ended = matches!(self.connection, WhepConnection::Ended);
            return Ok(!has_ended && !signal::interrupted());
        };
        self.skips_to_key = false;
        if let Some(lost) = self.unproven.take() {
            self.reconnected(&lost);
        }
        let ReceivedFrame { frame, taken_ns, whole_ns, cpu_ns, released_ns } = received;
        let (first_ns, last_ns) = (frame.arrived_ns, frame.last_arrived_ns);
        let mut arrival = FrameArrival { first_ns, last_ns, taken_ns, whole_ns, cpu_ns, released_ns };
        let birth_ns = out.recorder().received(&mut arrival, self.next_seq, waited_since_ns);
        self.remote.arrived(self.next_seq, frame.number, arrival);
        let packet = self.packet(&frame, birth_ns).map_err(|error| out.fail(error))?;
        out.push(Item::Packet(packet))?;
        Ok(true)
    }

    fn can_seek(&self) -> Result<(), &'static str> {
        Err("a live stream from the network is not seekable")
    }

    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        if *request != Request::Flush {
            return Ok(Answered::PassOn);
        }
        self.skips_to_key = true;
        Ok(Answered::Done)
    }
}
