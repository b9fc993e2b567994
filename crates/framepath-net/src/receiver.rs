// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiver: a WHEP client that receives one stream of encoded frames.
//!
//! One thread has the UDP socket and the session, so that packets are taken at once, however long the caller works on
//! a frame. A frame passes the reassembly, the jitter buffer, and the inbox, from which the caller takes it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use framepath_model::access_unit::Coding;
use framepath_os::process::priority::HighPriority;
use framepath_os::time::{now_ns, thread_cpu_ns};
use rustix::event::PollFlags;

use crate::error::WebrtcError;
use crate::jitter::{JitterBuffer, JitterDepth};
use crate::ledger_channel::LedgerChannel;
use crate::ledger_exchange::LedgerExchange;
use crate::ledger_message::{SessionEnd, ViewerFrames};
use crate::lock::lock;
use crate::media_socket::{MediaSocket, ReceiveBuffer};
use crate::missing_requests::MissingRequests;
use crate::opened_session::{DELETE, OpenedSession};
use crate::pairing::PairingCode;
use crate::peer::{Identity, PeerEvent, WebrtcPeer};
use crate::reassembly::{ReassembledFrame, Reassembly, ReassemblyCounts, RtpArrival};
use crate::server_session::ServerSession;
use crate::wake_event::{WakeEvent, wait};
use crate::whep_client::Credential;
use crate::whep_names::ENDPOINT;

/// Maximum memory of the frames that wait for the caller, bytes. Further ones are dropped up to a keyframe.
const MOST_WAITING: usize = 64 << 20;
/// Time between two requests for a keyframe, while there is none.
const KEYFRAME_INTERVAL: Duration = Duration::from_millis(250);
/// Nanoseconds of one unit of an RTP timestamp, as a fraction.
const NS_PER_UNIT: (u128, u128) = (1_000_000_000, 90_000);
/// Time between two looks whether a restart of ICE has brought a datagram.
const LOOK: Duration = Duration::from_millis(50);
/// Longest time for the goodbyes at the end.
const CLOSING: Duration = Duration::from_millis(200);

/// Settings of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// Endpoint of the sender, `http://HOST:PORT/whep`, or the sender's [pairing code](crate::PairingCode).
    pub url: String,
    /// Token that the sender wants; `None` sends none. A pairing code has its own.
    pub token: Option<String>,
    /// Longest wait for a missing packet.
    pub latency: Duration,
    /// Longest wait for the answer to the offer.
    pub timeout: Duration,
    /// Longest time without a datagram.
    pub silence: Duration,
    /// Depth of the jitter buffer.
    pub jitter: JitterDepth,
    /// Longest time for which a frame may wait for the caller before further ones are dropped, up to a keyframe.
    pub backlog: Duration,
}

/// Frame that was received, and its way up to the caller.
#[derive(Debug)]
pub struct ReceivedFrame {
    /// The frame.
    pub frame: ReassembledFrame,
    /// CLOCK_MONOTONIC time at which the receiver's thread had the frame's last packet, nanoseconds.
    pub taken_ns: u64,
    /// CLOCK_MONOTONIC time at which the frame was whole, nanoseconds.
    pub whole_ns: u64,
    /// CPU time of the receiver's thread from `taken_ns` to `whole_ns`, nanoseconds.
    pub cpu_ns: u64,
    /// CLOCK_MONOTONIC time at which the frame left the jitter buffer, nanoseconds.
    pub released_ns: u64,
}

impl ReceivedFrame {
    /// Returns the memory that the frame needs, bytes. A frame can be smaller than the figures about it.
    fn memory(&self) -> usize {
        size_of::<ReceivedFrame>() + self.frame.bytes.capacity()
    }
}

/// State of the stream at a look.
#[derive(Debug)]
pub enum ReceivedItem {
    /// The next frame.
    Frame(ReceivedFrame),
    /// No frame is there yet.
    Nothing,
    /// The sender has ended the stream, and all its frames were returned.
    End,
}

/// Part of a receiver that both threads share.
struct ReceiverShared {
    inbox: Mutex<Inbox>,
    wake: WakeEvent,
    stopped: AtomicBool,
    lost_packets: AtomicU64,
    lost_frames: AtomicU64,
    invalid_frames: AtomicU64,
    unsent_frames: AtomicU64,
    /// Exchange of the ledgers with the sender.
    ledger: Arc<LedgerExchange>,
}

/// Frames that wait for the caller.
#[derive(Default)]
struct Inbox {
    frames: VecDeque<ReceivedFrame>,
    bytes: usize,
    ended: Option<Result<(), WebrtcError>>,
}

/// WHEP client with one stream.
pub struct WhepReceiver {
    shared: Arc<ReceiverShared>,
    coding: Coding,
    server: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl WhepReceiver {
    /// Opens a session at the server, and starts to receive. `notify` is called, on another thread, when
    /// [`recv`](WhepReceiver::recv) has something new. The wait for the server ends early if `canceled` returns true.
    ///
    /// # Errors
    /// The URL is not valid; the server cannot be reached, refuses the offer, or does not answer in time; its answer
    /// has no video that can be received; or the wait was canceled.
    pub fn open(
        options: &ReceiverOptions,
        canceled: impl Fn() -> bool,
        notify: impl Fn() + Send + 'static,
    ) -> Result<WhepReceiver, WebrtcError> {
        let deadline = Instant::now() + options.timeout;
        let identity = Identity::new()?;
        let pairing = PairingCode::from_word(&options.url)?;
        let sender = pairing.as_ref().map(|code| code.fingerprint);
        let (url, credential) = match pairing {
            Some(code) => (
                format!("http://{}{ENDPOINT}", code.address),
                Credential::Pairing(Box::new(code), identity.fingerprint),
            ),
            None => (options.url.clone(), options.token.clone().map_or(Credential::None, Credential::Token)),
        };
        let opened = OpenedSession::open((&url, credential), deadline, canceled, |local, exchange| {
            WebrtcPeer::offer(sender, &identity, local, exchange)
        })?;
        let OpenedSession { server: at_server, socket, peer } = opened;
        let latency_ns = u64::try_from(options.latency.as_nanos()).unwrap_or(u64::MAX);
        let shared = Arc::new(ReceiverShared {
            inbox: Mutex::default(),
            wake: WakeEvent::new()?,
            stopped: AtomicBool::new(false),
            lost_packets: AtomicU64::new(0),
            lost_frames: AtomicU64::new(0),
            invalid_frames: AtomicU64::new(0),
            unsent_frames: AtomicU64::new(0),
            ledger: Arc::default(),
        });
        let (coding, server) = (peer.coding(), at_server.server());
        // An attacker on the network can take the ledger out of the answer, but not out of the code.
        let is_told_end = sender.is_some() || peer.has_ledger();
        let mut reassembly = Reassembly::new(coding, latency_ns)?;
        if peer.has_ledger() {
            reassembly.expect_first();
        }
        let session = ReceiverSession {
            shared: shared.clone(),
            reassembly,
            requests: MissingRequests::default(),
            jitter: JitterBuffer::new(options.jitter),
            backlog_ns: u64::try_from(options.backlog.as_nanos()).unwrap_or(u64::MAX),
            kept: VecDeque::new(),
            peer,
            ledger: LedgerChannel::new(shared.ledger.clone()),
            is_told_end,
            socket,
            received: ReceiveBuffer::new(),
            server: at_server,
            silence: options.silence,
            is_connected: false,
            has_heard: false,
            heard: Instant::now(),
            next_request: Instant::now(),
            needs_key: false,
            dropped: 0,
            notify: Box::new(notify),
        };
        let thread = thread::Builder::new().name("recv".to_owned()).spawn(move || session.run());
        let thread = Some(thread.map_err(WebrtcError::io("start a thread"))?);
        Ok(WhepReceiver { shared, coding, server, thread })
    }

    /// Returns the codec of the frames.
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// Returns the address of the HTTP server.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// Returns the next frame if there is one. Does not wait.
    ///
    /// # Errors
    /// The session failed, or the sender disappeared. Later calls return the end of the stream.
    pub fn recv(&self) -> Result<ReceivedItem, WebrtcError> {
        let mut inbox = lock(&self.shared.inbox);
        if let Some(frame) = inbox.frames.pop_front() {
            inbox.bytes -= frame.memory();
            return Ok(ReceivedItem::Frame(frame));
        }
        match &mut inbox.ended {
            None => Ok(ReceivedItem::Nothing),
            Some(ended) => std::mem::replace(ended, Ok(())).map(|()| ReceivedItem::End),
        }
    }

    /// Returns true if [`recv`](WhepReceiver::recv) would not return [`ReceivedItem::Nothing`].
    pub fn has_news(&self) -> bool {
        let inbox = lock(&self.shared.inbox);
        !inbox.frames.is_empty() || inbox.ended.is_some()
    }

    /// Returns the exchange of the ledgers with the sender.
    pub fn ledger(&self) -> Arc<LedgerExchange> {
        self.shared.ledger.clone()
    }

    /// Returns the losses so far.
    pub fn counts(&self) -> ReassemblyCounts {
        ReassemblyCounts {
            lost_packets: self.shared.lost_packets.load(Ordering::Relaxed),
            lost_frames: self.shared.lost_frames.load(Ordering::Relaxed),
            invalid_frames: self.shared.invalid_frames.load(Ordering::Relaxed),
            unsent_frames: self.shared.unsent_frames.load(Ordering::Relaxed),
        }
    }
}

impl Drop for WhepReceiver {
    /// Ends the session.
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.wake.set();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
    }
}

/// Thread that has the session and the UDP socket.
struct ReceiverSession {
    shared: Arc<ReceiverShared>,
    reassembly: Reassembly,
    requests: MissingRequests,
    jitter: JitterBuffer,
    backlog_ns: u64,
    /// Frames in the jitter buffer, each with the CLOCK_MONOTONIC time at which it leaves, nanoseconds.
    kept: VecDeque<(u64, ReceivedFrame)>,
    peer: WebrtcPeer,
    ledger: LedgerChannel,
    /// True if the sender says how the session ends: the one of a pairing code, and any other that exchanges its ledger.
    is_told_end: bool,
    socket: MediaSocket,
    received: ReceiveBuffer,
    server: ServerSession,
    silence: Duration,
    /// True once the session is established.
    is_connected: bool,
    /// True once a datagram of the session has arrived.
    has_heard: bool,
    /// Time of the last datagram of the sender; that of the offer before the session is established, because anyone who has seen the
    /// descriptions can send datagrams until then.
    heard: Instant,
    next_request: Instant,
    /// True after the inbox was full, until the next keyframe.
    needs_key: bool,
    /// Number of frames that were dropped because the inbox was full.
    dropped: u64,
    notify: Box<dyn Fn() + Send>,
}

impl ReceiverSession {
    fn run(mut self) {
        let _priority = HighPriority::begin();
        let received = self.receive();
        let sender_ended = matches!(received, Ok(true));
        if let Some((_, ViewerFrames { all, dropped })) = self.ledger.remote_end().filter(|_| sender_ended) {
            self.reassembly.set_sent(all, dropped);
        }
        while let Some(frame) = self.reassembly.finish() {
            self.keep(frame, (now_ns(), thread_cpu_ns()));
        }
        self.release(u64::MAX);
        self.count();
        self.ledger.finish();
        let received = received.and_then(|_| if sender_ended { self.end() } else { Ok(()) });
        lock(&self.shared.inbox).ended = Some(received);
        (self.notify)();
        if !sender_ended {
            self.leave();
        }
    }

    /// Receives until the sender ends the stream (true) or the receiver is dropped (false).
    fn receive(&mut self) -> Result<bool, WebrtcError> {
        loop {
            self.shared.wake.reset();
            if self.shared.stopped.load(Ordering::Acquire) {
                return Ok(false);
            }
            let mut woken = (now_ns(), thread_cpu_ns());
            let mut closed = self.take_datagrams()?;
            self.shared.ledger.take_outgoing().into_iter().for_each(|frame| self.ledger.push(frame));
            let now = Instant::now();
            closed |= self.drive(now, now_ns())?;
            while let Some(frame) = self.reassembly.poll(now_ns()) {
                self.keep(frame, woken);
                // No work counts for two frames.
                woken = (now_ns(), thread_cpu_ns());
            }
            if self.release(now_ns()) {
                (self.notify)();
            }
            self.count();
            if closed {
                return Ok(true);
            }
            let is_silent = now.duration_since(self.heard) >= self.silence;
            if is_silent && !self.server.is_restarting(now) {
                let (peer, seconds) = (self.server.server(), self.silence.as_secs_f64());
                return Err(match self.has_heard && !self.is_connected {
                    true => WebrtcError::NotConnected { peer, seconds },
                    false => WebrtcError::Silent { peer, seconds },
                });
            }
            if self.is_connected && !is_silent {
                let stopped = || self.shared.stopped.load(Ordering::Acquire);
                if let Some(socket) = self.server.restart(&mut self.peer, self.heard, stopped) {
                    // Datagrams that wait in the socket before are lost, and requested again.
                    (self.socket, self.received) = (socket, ReceiveBuffer::new());
                    continue;
                }
            }
            let needs_key = self.needs_key || self.reassembly.needs_key();
            if needs_key && now >= self.next_request {
                self.peer.request_keyframe();
                self.next_request = now + KEYFRAME_INTERVAL;
                continue;
            }
            let (missing, has_gap) = (self.reassembly.missing(), self.reassembly.take_gap());
            self.requests.update(missing, has_gap, now_ns());
            let request_ns = self.requests.deadline_ns(missing);
            if let Some(first) = missing.filter(|_| request_ns.is_some_and(|at_ns| at_ns <= now_ns())) {
                self.requests.asked(first, now_ns());
                self.peer.request_missing(now)?;
                continue;
            }
            let session = match missing {
                Some(_) => self.peer.deadline(),
                None => self.peer.deadline_without_losses(now),
            };
            let silent_at = self.heard + self.silence;
            let mut deadline = session.min(if is_silent { now + LOOK } else { silent_at });
            if needs_key {
                deadline = deadline.min(self.next_request);
            }
            if let Some(at) = self.server.restarts_at(self.heard).filter(|_| self.is_connected && !is_silent)
            {
                deadline = deadline.min(at);
            }
            let released_ns = self.kept.front().map(|(release_ns, _)| *release_ns);
            let others_ns = [self.reassembly.deadline_ns(), self.ledger.deadline_ns(), request_ns];
            for at_ns in others_ns.into_iter().chain([released_ns]).flatten() {
                deadline = deadline.min(now + Duration::from_nanos(at_ns.saturating_sub(now_ns())));
            }
            wait(&self.shared.wake, &self.socket, PollFlags::IN, Some(deadline))?;
        }
    }

    /// Passes the datagrams that have arrived to the session. Returns true if the sender has ended it.
    fn take_datagrams(&mut self) -> Result<bool, WebrtcError> {
        let mut closed = false;
        while let Some(arrival) = self.socket.recv(&mut self.received)? {
            let now = Instant::now();
            let arrived_ns = arrival.arrived_ns;
            // The sender estimates the bandwidth by the times of arrival.
            let age = Duration::from_nanos(now_ns().saturating_sub(arrived_ns));
            if self.peer.recv(&arrival, now.checked_sub(age).unwrap_or(now))? {
                self.has_heard = true;
                closed |= self.drive(now, arrived_ns)?;
                if self.is_connected {
                    self.heard = now;
                }
            }
        }
        Ok(closed)
    }

    /// Lets the session work. Returns true if the sender has ended it.
    fn drive(&mut self, now: Instant, arrived_ns: u64) -> Result<bool, WebrtcError> {
        let mut closed = self.drive_peer(now, arrived_ns)?;
        if self.peer.write_messages(&mut self.ledger) {
            closed |= self.drive_peer(now, arrived_ns)?;
        }
        Ok(closed)
    }

    fn drive_peer(&mut self, now: Instant, arrived_ns: u64) -> Result<bool, WebrtcError> {
        let mut closed = false;
        let (reassembly, ledger) = (&mut self.reassembly, &mut self.ledger);
        let is_connected = &mut self.is_connected;
        self.peer.drive(now, &self.socket, |event| match event {
            PeerEvent::Closed => closed = true,
            PeerEvent::Packet { seq, time, marker, number, payload } => {
                reassembly.push(RtpArrival { seq, time, marker, number, payload, arrived_ns });
            }
            PeerEvent::LedgerOpen(stream) => ledger.opened(stream),
            PeerEvent::LedgerMessage(message) => ledger.recv(&message, arrived_ns),
            PeerEvent::Connected => *is_connected = true,
            PeerEvent::KeyframeRequest
            | PeerEvent::Missed(_)
            | PeerEvent::Sent(_)
            | PeerEvent::Network(_) => {}
        })?;
        Ok(closed)
    }

    /// Puts a whole frame into the jitter buffer. The thread has worked on it since `woken`: CLOCK_MONOTONIC time and the thread's
    /// CPU time, nanoseconds.
    fn keep(&mut self, frame: ReassembledFrame, (woken_ns, woken_cpu_ns): (u64, u64)) {
        let stamp_ns = u128::from(frame.time) * NS_PER_UNIT.0 / NS_PER_UNIT.1;
        let release_ns = self.jitter.release_ns(stamp_ns as u64, frame.last_arrived_ns);
        let taken_ns = woken_ns.max(frame.last_arrived_ns);
        let whole_ns = now_ns().max(taken_ns);
        let cpu_ns = thread_cpu_ns().saturating_sub(woken_cpu_ns).min(whole_ns - taken_ns);
        self.kept.push_back((
            release_ns,
            ReceivedFrame { frame, taken_ns, whole_ns, cpu_ns, released_ns: whole_ns },
        ));
    }

    /// Delivers the frames that are due at `now_ns`. Returns true if there were any.
    fn release(&mut self, now_ns: u64) -> bool {
        let mut is_new = false;
        while self.kept.front().is_some_and(|(release_ns, _)| *release_ns <= now_ns) {
            let Some((_, frame)) = self.kept.pop_front() else { break };
            self.deliver(frame);
            is_new = true;
        }
        is_new
    }

    /// Puts a frame into the inbox, or drops it if the path is too slow.
    fn deliver(&mut self, mut frame: ReceivedFrame) {
        let (memory, key) = (frame.memory(), frame.frame.key);
        let released_ns = now_ns().max(frame.whole_ns);
        let mut inbox = lock(&self.shared.inbox);
        let oldest_ns = inbox.frames.front().map_or(released_ns, |oldest| oldest.released_ns);
        let is_late = released_ns.saturating_sub(oldest_ns) > self.backlog_ns;
        let is_full = inbox.bytes + memory > MOST_WAITING && !inbox.frames.is_empty();
        if is_late || is_full || self.needs_key && !key {
            (self.needs_key, self.dropped) = (true, self.dropped + 1);
            return;
        }
        self.needs_key = false;
        inbox.bytes += memory;
        frame.released_ns = released_ns;
        inbox.frames.push_back(frame);
    }

    fn count(&self) {
        let ReassemblyCounts { lost_packets, lost_frames, invalid_frames, unsent_frames } =
            self.reassembly.counts();
        self.shared.lost_packets.store(lost_packets, Ordering::Relaxed);
        self.shared.lost_frames.store(lost_frames + self.dropped, Ordering::Relaxed);
        self.shared.invalid_frames.store(invalid_frames, Ordering::Relaxed);
        self.shared.unsent_frames.store(unsent_frames, Ordering::Relaxed);
    }

    /// Returns the end of a stream whose session the sender has closed.
    ///
    /// # Errors
    /// The stream goes on or has failed; or the way of the end is not known, although the sender would have said it.
    fn end(&self) -> Result<(), WebrtcError> {
        match self.ledger.remote_end().map(|(end, _)| end) {
            Some(SessionEnd::Complete) => Ok(()),
            Some(SessionEnd::Failed) => Err(WebrtcError::SenderFailed),
            Some(SessionEnd::ByUser) => Err(WebrtcError::EndedBySender),
            None if self.is_told_end => Err(WebrtcError::EndedWithoutReason),
            None => Ok(()),
        }
    }

    /// Tells the sender that this viewer leaves.
    fn leave(&mut self) {
        self.peer.close();
        let ends = Instant::now() + CLOSING;
        while self.peer.is_alive() && Instant::now() < ends {
            if self.peer.drive(Instant::now(), &self.socket, |_| {}).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        if self.server.is_named() {
            // A sender that does not answer ends the session by itself.
            let _ = self.server.delete(Instant::now() + DELETE);
        }
    }
}

#[cfg(test)]
mod tests;
