// SPDX-License-Identifier: MIT OR Apache-2.0
//! One viewer of a sender: the session, and the frames that wait for their turn on the network.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::WebrtcError;
use crate::media_socket::{Datagram, MediaSocket};
use crate::packetizer::PacketizedFrame;
use crate::pairing::FINGERPRINT;
use crate::peer::{PeerEvent, WebrtcPeer};
use crate::viewer_figures::ViewerFigures;

/// Maximum size of a viewer's queue, bytes. A frame that does not fit is dropped, and so are those up to the next
/// keyframe.
const MOST_QUEUED: usize = 16 << 20;
/// Bytes that leave at once, and the time to the next bytes: 256 Mbit/s. A keyframe that leaves all at once overflows the
/// buffers of switches and receivers.
const BURST: (usize, Duration) = (16_000, Duration::from_micros(500));
/// Time without a datagram after which a viewer counts as gone. WebRTC's ends send several each second.
const SILENCE: Duration = Duration::from_secs(10);
/// Longest time from the offer to the end of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time for which a finished stream stays open, so that the viewer can ask for its last packets again.
const LINGER: Duration = Duration::from_millis(250);

/// Frame of which not all packets have been sent.
struct QueuedFrame {
    frame: Arc<PacketizedFrame>,
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
    /// Number that the user sees; 0 before the sender has accepted the session.
    pub(crate) number: u64,
    /// Address from which the offer came.
    address: IpAddr,
    /// Time of the connection; that of the offer before.
    since: Instant,
    /// Sums since the connection, except `number`, `address` and `since`.
    sums: ViewerSums,
    peer: WebrtcPeer,
    began: Instant,
    progress: ViewerProgress,
    queue: VecDeque<QueuedFrame>,
    queued_bytes: usize,
    /// True until the next keyframe: the frames before it cannot be decoded.
    needs_key: bool,
    /// True after the first frame in the queue.
    has_begun: bool,
    /// True from the connection until [`take_connected`](ViewerSession::take_connected).
    has_connected: bool,
    /// True if the sender has to ask its encoder for a keyframe.
    wants_keyframe: bool,
    next_seq: u64,
    /// Time at which the next packets may leave.
    next_burst: Instant,
    heard: Instant,
    /// Time at which a finished stream closes; `None` before the stream's end, and while frames wait.
    closes: Option<Instant>,
    ends: bool,
    /// Number of frames that were sent, and of those that were dropped after the first, since
    /// [`take_frames`](ViewerSession::take_frames).
    frames: (u64, u64),
}

impl ViewerSession {
    pub(crate) fn new(
        id: String,
        proved: Option<[u8; FINGERPRINT]>,
        address: IpAddr,
        peer: WebrtcPeer,
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
            began: now,
            progress: ViewerProgress::Connecting,
            queue: VecDeque::new(),
            queued_bytes: 0,
            needs_key: true,
            has_begun: false,
            has_connected: false,
            wants_keyframe: false,
            // Not 0, because a missing first packet is then visible.
            next_seq: 1,
            next_burst: now,
            heard: now,
            closes: None,
            ends: false,
            frames: (0, 0),
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
        std::mem::take(&mut self.frames)
    }

    /// Queues a frame, or drops it if the queue is full or the viewer waits for a keyframe.
    pub(crate) fn push(&mut self, frame: &Arc<PacketizedFrame>) {
        if !self.is_watching() {
            return;
        }
        let is_full = self.queued_bytes + frame.bytes > MOST_QUEUED && !self.queue.is_empty();
        if is_full || self.needs_key && !frame.key {
            self.frames.1 += u64::from(self.has_begun);
            self.sums.dropped += u64::from(self.has_begun);
            (self.needs_key, self.wants_keyframe) = (true, true);
            return;
        }
        (self.needs_key, self.has_begun) = (false, true);
        self.queued_bytes += frame.bytes;
        self.queue.push_back(QueuedFrame { frame: frame.clone(), next: 0 });
    }

    /// Ends the stream: sends the queued frames, and closes the session.
    pub(crate) fn end(&mut self) {
        self.ends = true;
    }

    /// Closes the session at once. Returns false if it is closing or closed.
    pub(crate) fn close(&mut self) -> bool {
        let is_open = matches!(self.progress, ViewerProgress::Connecting | ViewerProgress::Watching);
        if is_open {
            self.peer.close();
            self.progress = ViewerProgress::Closing;
        }
        is_open
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

    /// Sends the packets that are due, and lets the session work.
    pub(crate) fn drive(&mut self, now: Instant, socket: &MediaSocket) {
        if self.is_gone() {
            return;
        }
        if self.is_watching() && now >= self.next_burst {
            self.write_burst(now);
        }
        let (mut events, mut missed) = ((false, false, 0), self.sums.missed);
        let driven = self.peer.drive(now, socket, |event| match event {
            PeerEvent::Connected => events.0 = true,
            PeerEvent::Closed => events.1 = true,
            PeerEvent::KeyframeRequest => events.2 += 1,
            PeerEvent::Missed(packets) => missed = packets,
            PeerEvent::Packet { .. } => {}
        });
        if let Err(error) = driven {
            self.fail(&error);
            return;
        }
        let (connected, closed, asks) = events;
        self.sums.missed = missed;
        self.sums.keyframe_requests += asks;
        if connected && self.progress == ViewerProgress::Connecting {
            log::info!("viewer {} at {}: connected", self.number, self.address);
            self.progress = ViewerProgress::Watching;
            self.since = now;
            (self.has_connected, self.wants_keyframe) = (true, true);
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
        if self.ends && self.queue.is_empty() {
            let lingers = if self.is_watching() { LINGER } else { Duration::ZERO };
            if now >= *self.closes.get_or_insert(now + lingers) {
                self.close();
            }
        }
        if !self.peer.is_alive() {
            self.progress = ViewerProgress::Gone;
        }
    }

    /// Returns the time at which [`drive`](ViewerSession::drive) has to be called if nothing else happens.
    pub(crate) fn deadline(&self) -> Instant {
        let mut deadline = self.peer.deadline().min(self.heard + SILENCE);
        if self.is_connecting() {
            deadline = deadline.min(self.began + HANDSHAKE);
        }
        if self.is_watching() && !self.queue.is_empty() {
            deadline = deadline.min(self.next_burst);
        }
        if self.ends && !matches!(self.progress, ViewerProgress::Closing | ViewerProgress::Gone) {
            deadline = deadline.min(self.closes.unwrap_or(self.next_burst));
        }
        deadline
    }

    fn write_burst(&mut self, now: Instant) {
        let mut left = BURST.0;
        while let Some(queued) = self.queue.front_mut() {
            let PacketizedFrame { time, payloads, bytes, .. } = &*queued.frame;
            while let Some(payload) = payloads.get(queued.next) {
                if payload.len() > left && left < BURST.0 {
                    self.next_burst = now + BURST.1;
                    return;
                }
                left = left.saturating_sub(payload.len());
                queued.next += 1;
                let marker = queued.next == payloads.len();
                self.peer.write(self.next_seq, *time, marker, payload.clone(), now);
                self.next_seq += 1;
            }
            self.queued_bytes -= bytes;
            self.sums.bytes += *bytes as u64;
            self.queue.pop_front();
            self.frames.0 += 1;
            self.sums.sent += 1;
        }
    }

    fn fail(&mut self, error: &WebrtcError) {
        log::warn!("viewer {} at {}: {error}", self.number, self.address);
        self.progress = ViewerProgress::Gone;
    }
}
