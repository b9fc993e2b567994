// SPDX-License-Identifier: MIT OR Apache-2.0
//! One viewer of a sender: the session, and the frames that wait for their turn on the network.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use framepath_os::time::now_ns;

use crate::bandwidth::Bandwidth;
use crate::congestion::ViewerNetwork;
use crate::error::WebrtcError;
use crate::ice_patch::{IceRestart, IceRestartRefused, IceRestarted, PatchedSession, entity_tag};
use crate::ledger_channel::LedgerChannel;
use crate::ledger_message::{SessionEnd, ViewerFrames};
use crate::media_socket::{Datagram, MediaSocket};
use crate::pacer::Pacer;
use crate::packetizer::PacketizedFrame;
use crate::pairing::FINGERPRINT;
use crate::payload::LARGEST_PAYLOAD;
use crate::peer::{PeerEvent, WebrtcPeer};
use crate::reassembly::FIRST_SEQ;
use crate::sent_frame::{Departures, SentFrame};
use crate::server_session::ServerSession;
use crate::viewer_figures::ViewerFigures;

/// Maximum size of a viewer's queue, bytes. A frame that does not fit is dropped, and so are those up to the next
/// keyframe.
const MOST_QUEUED: usize = 16 << 20;
/// Longest time that the frames in a viewer's queue need. Further ones are dropped as those that do not fit.
const MOST_BACKLOG: Duration = Duration::from_secs(1);
/// Pace of the packets where the bandwidth is not estimated, bits per second. A keyframe that leaves all at once overflows the
/// buffers of switches and receivers.
const FIXED_PACE: u64 = 256_000_000;
/// Pace of the packets by the estimated bandwidth. On a network that is faster than the stream, the estimate is at least twice the
/// highest bit rate. On a slower one, a faster pace would only fill the network's queues, which the estimation takes for congestion.
const PACE_BY_ESTIMATE: f64 = 1.5;
/// Time without a datagram after which a viewer counts as gone. WebRTC's ends send several each second.
const SILENCE: Duration = Duration::from_secs(10);
/// Longest time from the offer to the end of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time for which a finished stream stays open, so that the viewer can ask for its last packets again.
const LINGER: Duration = Duration::from_millis(250);
/// Shortest time between two restarts of ICE, each of which needs some time of the thread that sends to all viewers.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for the viewer to confirm that it has the message about the end of its session.
const END_MESSAGE: Duration = Duration::from_secs(3);

/// Frame of which not all packets have been sent.
struct QueuedFrame {
    frame: Arc<PacketizedFrame>,
    number: u64,
    /// Index of the next packet.
    next: usize,
}

/// Progress of a viewer's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ViewerProgress {
    Connecting,
    Watching,
    /// The session is being closed.
    Closing,
    Gone,
}

/// Events of one call of [`ViewerSession::drive`].
#[derive(Default)]
struct ViewerEvents {
    connected: bool,
    closed: bool,
    /// Number of requests for a keyframe.
    asks: u64,
    /// Number of requests so far for packets that the viewer has missed.
    missed: u64,
}

/// Sums of one viewer's session.
#[derive(Clone, Copy, Default)]
struct ViewerSums {
    sent: u64,
    dropped: u64,
    bytes: u64,
    missed: u64,
    keyframe_requests: u64,
}

/// One viewer.
pub(crate) struct ViewerSession {
    /// Last part of the viewer's resource (`Location`).
    pub(crate) id: String,
    /// SHA-256 of the viewer's certificate, if the viewer has proved it before the session.
    pub(crate) proved: Option<[u8; FINGERPRINT]>,
    /// Number that the user sees, and that [`SentFrame`] has; 0 before the sender has accepted the session.
    pub(crate) number: u64,
    /// Address from which the offer came.
    address: IpAddr,
    /// Time of the connection; that of the offer before.
    since: Instant,
    /// Sums since the connection, except `number`, `address` and `since`.
    sums: ViewerSums,
    peer: WebrtcPeer,
    /// Number of restarts of ICE, and the time of the last one.
    restarts: u32,
    restarted: Option<Instant>,
    began: Instant,
    progress: ViewerProgress,
    queue: VecDeque<QueuedFrame>,
    queued_bytes: usize,
    /// Number of frames that were queued so far.
    queued: u64,
    /// True until the next keyframe: the frames before it cannot be decoded.
    needs_key: bool,
    /// True after the first frame in the queue.
    has_begun: bool,
    /// True from the connection until [`take_connected`](ViewerSession::take_connected).
    has_connected: bool,
    /// True if the sender has to ask its encoder for a keyframe.
    wants_keyframe: bool,
    next_seq: u64,
    /// Bandwidth of the network; `None` if it is not known.
    bandwidth: Option<Bandwidth>,
    /// Number of packets that the session has not sent.
    unsent: u16,
    /// Time at which the next packets may leave.
    next_burst: Instant,
    pacer: Pacer,
    heard: Instant,
    /// Way in which the session is to end, and the time up to which frames are sent before; `None` before it is.
    end: Option<(SessionEnd, Instant)>,
    /// Time at which the message about the end is sent; `None` before the end, and while packets wait.
    end_message: Option<Instant>,
    /// Numbers of sent and dropped frames at the last [`take_frames`](ViewerSession::take_frames).
    taken: (u64, u64),
    departures: Departures,
    pub(crate) ledger: LedgerChannel,
    /// Frames that have left since [`take_sent`](ViewerSession::take_sent).
    sent: Vec<SentFrame>,
}

impl ViewerSession {
    pub(crate) fn new(
        id: String,
        proved: Option<[u8; FINGERPRINT]>,
        address: IpAddr,
        peer: WebrtcPeer,
        ledger: LedgerChannel,
    ) -> ViewerSession {
        let now = Instant::now();
        ViewerSession {
            id,
            proved,
            number: 0,
            address,
            since: now,
            sums: ViewerSums::default(),
            peer,
            restarts: 0,
            restarted: None,
            began: now,
            progress: ViewerProgress::Connecting,
            queue: VecDeque::new(),
            queued_bytes: 0,
            queued: 0,
            needs_key: true,
            has_begun: false,
            has_connected: false,
            wants_keyframe: false,
            next_seq: 1,
            bandwidth: None,
            unsent: 0,
            next_burst: now,
            pacer: Pacer::new(now),
            heard: now,
            end: None,
            end_message: None,
            taken: (0, 0),
            departures: Departures::default(),
            ledger,
            sent: Vec::new(),
        }
    }

    /// Returns true while frames are sent to the viewer.
    pub(crate) fn is_watching(&self) -> bool {
        self.progress == ViewerProgress::Watching
    }

    /// Returns true until the end of the handshake.
    pub(crate) fn is_connecting(&self) -> bool {
        self.progress == ViewerProgress::Connecting
    }

    /// Returns true once the viewer has left, has disappeared or was told the end.
    pub(crate) fn is_gone(&self) -> bool {
        self.progress == ViewerProgress::Gone
    }

    /// Returns the figures; `None` unless the viewer watches.
    pub(crate) fn figures(&self) -> Option<ViewerFigures> {
        let ViewerSums { sent, dropped, bytes, missed, keyframe_requests } = self.sums;
        let ViewerSession { number, address, since, .. } = *self;
        self.is_watching().then_some(ViewerFigures {
            number,
            address,
            since,
            sent,
            dropped,
            missed,
            bytes,
            keyframe_requests,
        })
    }

    /// Returns true if the viewer needs a keyframe, once for each request.
    pub(crate) fn take_keyframe_request(&mut self) -> bool {
        std::mem::take(&mut self.wants_keyframe)
    }

    /// Returns true if the viewer has connected since the last call.
    pub(crate) fn take_connected(&mut self) -> bool {
        std::mem::take(&mut self.has_connected)
    }

    /// Returns the numbers of frames that were sent and dropped since the last call.
    pub(crate) fn take_frames(&mut self) -> (u64, u64) {
        let (sent, dropped) = (self.sums.sent, self.sums.dropped);
        let taken = std::mem::replace(&mut self.taken, (sent, dropped));
        (sent - taken.0, dropped - taken.1)
    }

    /// Returns the frames that have left since the last call.
    pub(crate) fn take_sent(&mut self) -> std::vec::Drain<'_, SentFrame> {
        self.sent.drain(..)
    }

    /// Queues a frame, or drops it if the queue is full or the viewer waits for a keyframe.
    pub(crate) fn push(&mut self, frame: &Arc<PacketizedFrame>, number: u64) {
        if !self.is_watching() || self.end.is_some() {
            return;
        }
        let is_slow = self.network().is_some_and(|network| network.backlog > MOST_BACKLOG);
        let is_full = is_slow || self.queued_bytes + frame.bytes > MOST_QUEUED && !self.queue.is_empty();
        if is_full || self.needs_key && !frame.key {
            self.sums.dropped += u64::from(self.has_begun);
            self.needs_key = true;
            // Not earlier, because it would have to wait, and all other viewers get it, too.
            self.wants_keyframe |= self.queue.is_empty();
            return;
        }
        (self.needs_key, self.has_begun) = (false, true);
        (self.queued, self.queued_bytes) = (self.queued + 1, self.queued_bytes + frame.bytes);
        self.queue.push_back(QueuedFrame { frame: frame.clone(), number, next: 0 });
    }

    /// Ends the session with the stream: sends the queued frames, until `frames_until` at most, says how the stream has ended, and
    /// closes the session.
    pub(crate) fn end(&mut self, end: SessionEnd, frames_until: Instant) {
        self.end.get_or_insert((end, frames_until));
    }

    /// Ends the session without the queued frames: says so to the viewer, and closes the session. A viewer that still connects
    /// learns it once it has connected. Returns false if the session ends already.
    pub(crate) fn end_now(&mut self, end: SessionEnd) -> bool {
        let is_open = self.is_open() && self.end.is_none();
        if is_open {
            let now = Instant::now();
            self.queue.clear();
            self.queued_bytes = 0;
            self.end = Some((end, now));
            self.end_message = self.is_watching().then_some(now);
        }
        is_open
    }

    /// Closes the session at once. Frames that wait are dropped.
    pub(crate) fn close(&mut self) {
        if self.is_open() {
            if self.end.is_some_and(|(end, _)| end != SessionEnd::ByUser) {
                self.sums.dropped += self.queued - self.sums.sent;
            }
            self.peer.close();
            self.progress = ViewerProgress::Closing;
        }
    }

    /// Returns what a request for a change needs; `None` if the session ends.
    pub(crate) fn patched(&self) -> Option<PatchedSession> {
        let description = self.peer.description().clone();
        self.is_open().then(|| PatchedSession { description, tag: entity_tag(self.restarts) })
    }

    /// Restarts the ICE of the session, whose socket has the port `port`. The viewer counts as silent as before: a restart shows that it
    /// reaches HTTP.
    ///
    /// # Errors
    /// See [`IceRestartRefused`].
    pub(crate) fn accept_restart(
        &mut self,
        request: IceRestart,
        port: u16,
        now: Instant,
    ) -> Result<IceRestarted, IceRestartRefused> {
        let IceRestart { tag, description, offer, local, remote } = request;
        if !self.is_open() {
            return Err(IceRestartRefused::NoSession);
        }
        if tag != entity_tag(self.restarts) {
            return Err(IceRestartRefused::OtherTag);
        }
        let is_recent = self.restarted.is_some_and(|at| now.duration_since(at) < RESTART_INTERVAL);
        if !self.is_watching() || is_recent {
            return Err(IceRestartRefused::Busy);
        }
        self.restarted = Some(now);
        let accepted = self.peer.accept_restart((offer, description), SocketAddr::new(local, port), remote);
        let fragment = accepted.map_err(|error| {
            self.fail(&error);
            IceRestartRefused::Invalid(error.to_string())
        })?;
        log::info!("viewer {} at {}: restarts ICE at {remote}", self.number, self.address);
        self.restarts += 1;
        self.address = remote;
        Ok(IceRestarted { fragment, tag: entity_tag(self.restarts) })
    }

    /// Restarts the ICE of the session at a server if it is time to. Returns the new socket.
    pub(crate) fn restart(
        &mut self,
        server: &mut ServerSession,
        canceled: impl Fn() -> bool,
    ) -> Option<MediaSocket> {
        let heard = self.heard;
        self.is_watching().then(|| server.restart(&mut self.peer, heard, canceled))?
    }

    /// Returns the time at which [`restart`](ViewerSession::restart) has something to do if no datagram arrives.
    pub(crate) fn restarts_at(&self, server: &ServerSession) -> Option<Instant> {
        server.restarts_at(self.heard).filter(|_| self.is_watching())
    }

    fn is_open(&self) -> bool {
        matches!(self.progress, ViewerProgress::Connecting | ViewerProgress::Watching)
    }

    /// Passes on a datagram. Returns false if it belongs to another viewer.
    pub(crate) fn recv(&mut self, arrival: &Datagram<'_>, now: Instant) -> bool {
        if self.is_gone() {
            return false;
        }
        match self.peer.recv(arrival, now) {
            Ok(true) => {
                self.heard = now;
                true
            }
            Ok(false) => false,
            Err(error) => {
                self.fail(&error);
                true
            }
        }
    }

    /// Sends the packets that are due, and lets the session work. The last datagram arrived at `arrived_ns`, CLOCK_MONOTONIC
    /// nanoseconds.
    pub(crate) fn drive(&mut self, now: Instant, arrived_ns: u64, socket: &MediaSocket) {
        if self.is_gone() {
            return;
        }
        if self.is_watching() && now >= self.next_burst {
            self.write_burst(now);
        }
        if let Some((end, frames_until)) = self.end.filter(|_| self.is_open()) {
            if now >= frames_until || !self.has_unsent() {
                self.drive_end(now, end);
            }
        }
        let mut events = ViewerEvents { missed: self.sums.missed, ..ViewerEvents::default() };
        let mut driven = self.drive_peer(now, arrived_ns, socket, &mut events);
        if driven.is_ok() && self.peer.write_messages(&mut self.ledger) {
            driven = self.drive_peer(now, arrived_ns, socket, &mut events);
        }
        if let Err(error) = driven {
            self.fail(&error);
            return;
        }
        let ViewerEvents { connected, closed, asks, missed } = events;
        self.sums.missed = missed;
        self.sums.keyframe_requests += asks;
        if connected && self.progress == ViewerProgress::Connecting {
            log::info!("viewer {} at {}: connected", self.number, self.address);
            self.progress = ViewerProgress::Watching;
            self.since = now;
            (self.has_connected, self.wants_keyframe) = (true, true);
            self.write_empty(now);
        }
        self.wants_keyframe |= asks > 0;
        if closed {
            log::info!("viewer {} at {}: left", self.number, self.address);
            self.progress = ViewerProgress::Closing;
        }
        if self.is_connecting() && now.duration_since(self.began) >= HANDSHAKE {
            log::info!(
                "viewer {} at {}: no handshake within {} s",
                self.number,
                self.address,
                HANDSHAKE.as_secs()
            );
            self.progress = ViewerProgress::Gone;
        }
        if now.duration_since(self.heard) >= SILENCE {
            log::info!("viewer {} at {}: no datagram for {} s", self.number, self.address, SILENCE.as_secs());
            self.progress = ViewerProgress::Gone;
        }
        if !self.peer.is_alive() {
            self.progress = ViewerProgress::Gone;
        }
    }

    /// Tells the viewer how the session ends, and closes the session once the viewer knows.
    fn drive_end(&mut self, now: Instant, end: SessionEnd) {
        if self.is_connecting() {
            // A stream that has ended waits for nobody.
            if end != SessionEnd::ByUser {
                self.close();
            }
            return;
        }
        let linger = if end == SessionEnd::ByUser { Duration::ZERO } else { LINGER };
        let at = *self.end_message.get_or_insert(now + linger);
        if now >= at {
            let (queued, dropped) = (self.queued, self.sums.dropped);
            self.ledger.end(end, ViewerFrames { all: queued + dropped, dropped });
        }
        let knows = !self.peer.has_ledger() || self.ledger.has_sent_end() && self.peer.has_delivered_rows();
        if now >= at && knows || now >= at + END_MESSAGE {
            self.close();
        }
    }

    /// Lets the session work. Sets the members of `events` if it has connected, has closed, or asks for a keyframe.
    fn drive_peer(
        &mut self,
        now: Instant,
        arrived_ns: u64,
        socket: &MediaSocket,
        events: &mut ViewerEvents,
    ) -> Result<(), WebrtcError> {
        let (departures, sent, ledger) = (&mut self.departures, &mut self.sent, &mut self.ledger);
        let (bandwidth, number) = (&mut self.bandwidth, self.number);
        let (unsent, next_seq, sent_frames) = (&mut self.unsent, self.next_seq as u16, &mut self.sums.sent);
        let mut restart = None;
        self.peer.drive(now, socket, |event| match event {
            PeerEvent::Connected => events.connected = true,
            PeerEvent::Closed => events.closed = true,
            PeerEvent::KeyframeRequest => events.asks += 1,
            PeerEvent::Missed(packets) => events.missed = packets,
            PeerEvent::Sent(packet) => {
                *unsent = next_seq.wrapping_sub(packet.seq).wrapping_sub(1);
                if let Some(frame) = departures.sent(packet) {
                    ledger.push_departure(frame);
                    sent.push(frame);
                    *sent_frames += 1;
                }
            }
            PeerEvent::Network(None) => *bandwidth = None,
            PeerEvent::Network(Some(sample)) => {
                let known = bandwidth.get_or_insert_with(|| Bandwidth::new(sample.estimate));
                restart = known.update(now, sample);
                log::trace!("send: viewer {number}: {} bits per second; {sample:?}", known.bits());
            }
            PeerEvent::LedgerOpen(stream) => ledger.opened(stream),
            PeerEvent::LedgerMessage(message) => ledger.recv(&message, arrived_ns),
            PeerEvent::Packet { .. } => {}
        })?;
        if let Some(bits) = restart {
            log::debug!("send: viewer {number}: the estimation begins anew, at {bits} bits per second");
            self.peer.restart_estimation(bits);
        }
        Ok(())
    }

    /// Returns the time at which [`drive`](ViewerSession::drive) has to be called if nothing else happens.
    pub(crate) fn deadline(&self) -> Instant {
        let mut deadline = self.peer.deadline().min(self.heard + SILENCE);
        if self.is_connecting() {
            deadline = deadline.min(self.began + HANDSHAKE);
        }
        if let Some(at_ns) = self.ledger.deadline_ns() {
            let left = Duration::from_nanos(at_ns.saturating_sub(now_ns()));
            deadline = deadline.min(Instant::now() + left);
        }
        if self.is_watching() && !self.queue.is_empty() {
            deadline = deadline.min(self.next_burst);
        }
        if let Some((_, frames_until)) = self.end.filter(|_| self.is_watching()) {
            let now = Instant::now();
            deadline = deadline.min(match self.end_message {
                Some(at) if now >= at => at + END_MESSAGE,
                Some(at) => at,
                None if self.has_unsent() => frames_until,
                None => now,
            });
        }
        deadline
    }

    /// Returns what is known of the viewer's network; `None` if its bandwidth is not estimated.
    pub(crate) fn network(&self) -> Option<ViewerNetwork> {
        let bandwidth = self.bandwidth.as_ref().filter(|_| self.is_watching())?;
        let seconds = |bytes: usize, pace: f64| bytes as f64 * 8.0 / pace;
        // The session sends at its own pace, about the estimate, what is more than its bursts.
        let unsent = seconds(usize::from(self.unsent) * LARGEST_PAYLOAD, bandwidth.bits().max(1) as f64);
        let backlog = Duration::from_secs_f64(seconds(self.queued_bytes, self.pace()) + unsent);
        Some(ViewerNetwork { estimate: bandwidth.bits(), backlog })
    }

    /// Returns true if packets wait, here or in the session, which sends at its own pace.
    fn has_unsent(&self) -> bool {
        !self.queue.is_empty() || self.unsent > 0
    }

    /// Returns the pace of the packets, bits per second.
    fn pace(&self) -> f64 {
        let estimated = |bandwidth: &Bandwidth| bandwidth.bits().max(1) as f64 * PACE_BY_ESTIMATE;
        self.bandwidth.as_ref().map_or(FIXED_PACE as f64, estimated)
    }

    /// Writes the packets in front of [`FIRST_SEQ`]. Where the bandwidth is estimated there are none, because they would be taken for
    /// a slow network; an encoder makes another keyframe.
    fn write_empty(&mut self, now: Instant) {
        if self.peer.follows_network {
            self.next_seq = FIRST_SEQ;
        }
        while self.next_seq < FIRST_SEQ {
            self.peer.write(self.next_seq, (None, 0), false, Arc::default(), now);
            self.next_seq += 1;
            self.unsent = self.unsent.saturating_add(1);
        }
    }

    fn write_burst(&mut self, now: Instant) {
        let pace = self.pace();
        let most = self.pacer.refill(now, pace);
        let mut written = 0;
        while let Some(queued) = self.queue.front_mut() {
            let PacketizedFrame { time, payloads, bytes, packetized_ns, .. } = &*queued.frame;
            if queued.next == 0 {
                let frame = SentFrame {
                    number: queued.number,
                    time: *time,
                    viewer: self.number,
                    packetized_ns: *packetized_ns,
                    bytes: *bytes,
                    packets: payloads.len(),
                    ..SentFrame::default()
                };
                self.departures.push(self.next_seq, frame);
            }
            while let Some(payload) = payloads.get(queued.next).filter(|_| written < most) {
                let number = (queued.next == 0).then_some(queued.number);
                queued.next += 1;
                written += payload.len();
                let marker = queued.next == payloads.len();
                self.peer.write(self.next_seq, (number, *time), marker, payload.clone(), now);
                self.next_seq += 1;
                self.unsent = self.unsent.saturating_add(1);
            }
            if queued.next < payloads.len() {
                break;
            }
            self.sums.bytes += *bytes as u64;
            self.queue.pop_front();
        }
        self.queued_bytes -= written;
        self.pacer.spend(written);
        self.next_burst = if self.queue.is_empty() { now } else { self.pacer.next_burst(pace) };
    }

    fn fail(&mut self, error: &WebrtcError) {
        log::warn!("viewer {} at {}: {error}", self.number, self.address);
        self.progress = ViewerProgress::Gone;
    }
}
