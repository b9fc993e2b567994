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
use framepath_net::{ReassembledFrame, ReceivedItem, ReceiverOptions, WhepReceiver};
use framepath_os::process::signal;
use framepath_os::process::stop::{self, Stop};
use framepath_os::time::now_ns;

use super::net_error;
use super::remote_sender::RemoteSender;
use crate::element::HopPlace;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::outcomes::Outcomes;
use crate::request::{Answered, Request};
use crate::source::Source;

/// Longest sleep while no frame arrives, nanoseconds.
const SLEEP_NS: u64 = 100_000_000;

/// Source of the frames of a WHEP server. The birth of a frame is the arrival of its first packet.
pub(super) struct WhepSource {
    receiver: WhepReceiver,
    track: TrackInfo,
    /// Run that the receiver wakes; `None` before the first frame is wanted.
    run: Arc<Mutex<Option<Stop>>>,
    next_seq: u64,
    /// Sender's ledger.
    remote: Arc<RemoteSender>,
    /// RTP timestamp of the first frame.
    first_time: Option<u64>,
    /// True after a flush, until a keyframe.
    skips_to_key: bool,
    outcomes: Outcomes,
}

pub(super) fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<WhepSource, StageError> {
    let options = ReceiverOptions {
        url: hop.text("url").to_owned(),
        token: hop.is_set("token").then(|| hop.text("token").to_owned()),
        latency: Duration::from_nanos(hop.duration_ns("latency")),
        timeout: Duration::from_nanos(hop.duration_ns("timeout")),
    };
    let run = Arc::<Mutex<Option<Stop>>>::default();
    let woken = run.clone();
    let notify = move || {
        if let Some(run) = &*woken.lock().unwrap_or_else(PoisonError::into_inner) {
            run.wake();
        }
    };
    let receiver = WhepReceiver::open(&options, signal::interrupted, notify).map_err(net_error)?;
    let codec = match receiver.coding() {
        Coding::Vp8 => Codec::Vp8,
        _ => Codec::H264,
    };
    let unknown = Rational::new(0, 1);
    let stream = StreamInfo {
        format: None,
        width: 0,
        height: 0,
        time_base: Rational::new(1, 90_000),
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
        receiver,
        track,
        run,
        next_seq: 0,
        remote,
        first_time: None,
        skips_to_key: false,
        outcomes,
    })
}

impl WhepSource {
    /// Waits for the next frame. Returns `None` if there is none before a request, a signal or a stop request.
    fn wait(&self, out: &Out<'_>) -> Result<Option<ReceivedItem>, StageError> {
        loop {
            let received = self.receiver.recv();
            let counts = self.receiver.counts();
            let network = &self.outcomes.network;
            network.lost_frames.store(counts.lost_frames, Ordering::Relaxed);
            network.lost.store(counts.lost_packets, Ordering::Relaxed);
            match received.map_err(net_error)? {
                ReceivedItem::Nothing if signal::interrupted() || out.has_request() => return Ok(None),
                ReceivedItem::Nothing => {
                    let awake = || self.receiver.has_news() || out.has_request();
                    stop::sleep_unless(now_ns() + SLEEP_NS, awake);
                }
                received => return Ok(Some(received)),
            }
        }
    }

    /// Records the arrival of the frame that gets the next number, for the ledger of both ends.
    fn record_arrival(&self, frame: &ReassembledFrame) {
        if let Some(number) = frame.number {
            self.remote.arrived(self.next_seq, number, frame.complete_ns);
        }
    }

    fn packet(&mut self, frame: &ReassembledFrame, birth_ns: u64) -> Result<Packet, StageError> {
        let first = *self.first_time.get_or_insert(frame.time);
        let pts = Some(frame.time.wrapping_sub(first) as i64);
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

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        self.run
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(|| stop::current().unwrap_or_default());
        out.mark();
        let waited_since_ns = now_ns();
        let frame = loop {
            match self.wait(out).map_err(|error| out.fail(error))? {
                Some(ReceivedItem::Frame(frame)) if self.skips_to_key && !frame.key => {}
                Some(ReceivedItem::Frame(frame)) => break frame,
                Some(_) => return Ok(false),
                None => return Ok(!signal::interrupted()),
            }
        };
        self.skips_to_key = false;
        let birth_ns = out.recorder().captured(frame.arrived_ns, waited_since_ns);
        self.record_arrival(&frame);
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
