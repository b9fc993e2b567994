// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiver: a WHEP client that receives one stream of encoded frames.
//!
//! One thread has the UDP socket and the session, so that packets are taken at once, however long the caller works on
//! a frame.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use framepath_model::access_unit::Coding;
use framepath_os::time::now_ns;
use rustix::event::PollFlags;

use crate::error::WebrtcError;
use crate::lock::lock;
use crate::media_socket::{LARGEST, MediaSocket};
use crate::pairing::PairingCode;
use crate::peer::{Identity, PeerEvent, WebrtcPeer};
use crate::reassembly::{ReassembledFrame, Reassembly, ReassemblyCounts, RtpArrival};
use crate::wake_event::{WakeEvent, wait};
use crate::whep_client::{Credential, WhepClient};
use crate::whep_server::{ENDPOINT, GONE};

/// Maximum size of the frames that wait for the caller, bytes. Further ones are dropped up to a keyframe.
const MOST_WAITING: usize = 64 << 20;
/// Time between two requests for a keyframe, while there is none.
const KEYFRAME_INTERVAL: Duration = Duration::from_millis(250);
/// Longest time for the goodbyes at the end.
const CLOSING: Duration = Duration::from_millis(200);
/// Longest time for the request that ends the session at the server.
const DELETE: Duration = Duration::from_millis(500);

/// Settings of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// Endpoint of the sender, `http://HOST:PORT/whep`, or the sender's [pairing code](crate::PairingCode).
    pub url: String,
    /// Token that the sender wants; `None` sends none. A pairing code has its own.
    pub token: Option<String>,
    /// Longest wait for a missing packet.
    pub latency: Duration,
    /// Longest time without a datagram, and for the answer to the offer.
    pub timeout: Duration,
}

/// State of the stream at a look.
#[derive(Debug)]
pub enum ReceivedItem {
    /// The next frame.
    Frame(ReassembledFrame),
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
}

/// Frames that wait for the caller.
#[derive(Default)]
struct Inbox {
    frames: VecDeque<ReassembledFrame>,
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
        let mut client = WhepClient::connect(&url, credential, deadline)?;
        let socket = MediaSocket::bind(SocketAddr::new(client.local.ip(), 0))?;
        let mut resource = None;
        let peer = WebrtcPeer::offer(sender, &identity, socket.local_addr()?, |offer| {
            let answer = client.offer(offer, deadline, canceled)?;
            resource = answer.resource;
            Ok(answer.answer)
        })?;
        let latency_ns = u64::try_from(options.latency.as_nanos()).unwrap_or(u64::MAX);
        let shared = Arc::new(ReceiverShared {
            inbox: Mutex::default(),
            wake: WakeEvent::new()?,
            stopped: AtomicBool::new(false),
            lost_packets: AtomicU64::new(0),
            lost_frames: AtomicU64::new(0),
        });
        let (coding, server) = (peer.coding(), client.server);
        let session = ReceiverSession {
            shared: shared.clone(),
            reassembly: Reassembly::new(coding, latency_ns)?,
            peer,
            socket,
            client,
            resource,
            timeout: options.timeout,
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
            inbox.bytes -= frame.bytes.len();
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

    /// Returns the losses so far.
    pub fn counts(&self) -> ReassemblyCounts {
        ReassemblyCounts {
            lost_packets: self.shared.lost_packets.load(Ordering::Relaxed),
            lost_frames: self.shared.lost_frames.load(Ordering::Relaxed),
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
    peer: WebrtcPeer,
    socket: MediaSocket,
    client: WhepClient,
    /// Path of the session at the server.
    resource: Option<String>,
    timeout: Duration,
    /// Time of the last datagram of the sender.
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
        let received = self.receive();
        while let Some(frame) = self.reassembly.finish() {
            self.deliver(frame);
        }
        self.count();
        let sender_ended = matches!(received, Ok(true));
        let received = received.and_then(|_| if sender_ended { self.check_reason() } else { Ok(()) });
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
            let mut closed = false;
            let mut buffer = [0; LARGEST];
            while let Some(arrival) = self.socket.recv(&mut buffer)? {
                let now = Instant::now();
                if self.peer.recv(&arrival, now)? {
                    self.heard = now;
                    closed |= self.drive(now, arrival.arrived_ns)?;
                }
            }
            let now = Instant::now();
            closed |= self.drive(now, now_ns())?;
            let is_new = self.reassemble();
            if is_new {
                (self.notify)();
            }
            if closed {
                return Ok(true);
            }
            if now.duration_since(self.heard) >= self.timeout {
                let (peer, seconds) = (self.client.server, self.timeout.as_secs_f64());
                return Err(WebrtcError::Silent { peer, seconds });
            }
            let needs_key = self.needs_key || self.reassembly.needs_key();
            if needs_key && now >= self.next_request {
                self.peer.request_keyframe();
                self.next_request = now + KEYFRAME_INTERVAL;
                continue;
            }
            let mut deadline = self.peer.deadline().min(self.heard + self.timeout);
            if needs_key {
                deadline = deadline.min(self.next_request);
            }
            if let Some(at_ns) = self.reassembly.deadline_ns() {
                deadline = deadline.min(now + Duration::from_nanos(at_ns.saturating_sub(now_ns())));
            }
            wait(&self.shared.wake, &self.socket, PollFlags::IN, Some(deadline))?;
        }
    }

    /// Lets the session work. Returns true if the sender has ended it.
    fn drive(&mut self, now: Instant, arrived_ns: u64) -> Result<bool, WebrtcError> {
        let mut closed = false;
        let reassembly = &mut self.reassembly;
        self.peer.drive(now, &self.socket, |event| match event {
            PeerEvent::Closed => closed = true,
            PeerEvent::Packet { seq, time, marker, payload } => {
                reassembly.push(RtpArrival { seq, time, marker, payload, arrived_ns });
            }
            PeerEvent::Connected | PeerEvent::KeyframeRequest | PeerEvent::Missed(_) => {}
        })?;
        Ok(closed)
    }

    /// Delivers the frames that are whole. Returns true if there were any.
    fn reassemble(&mut self) -> bool {
        let mut is_new = false;
        while let Some(frame) = self.reassembly.poll(now_ns()) {
            self.deliver(frame);
            is_new = true;
        }
        self.count();
        is_new
    }

    fn deliver(&mut self, frame: ReassembledFrame) {
        let mut inbox = lock(&self.shared.inbox);
        let is_full = inbox.bytes + frame.bytes.len() > MOST_WAITING && !inbox.frames.is_empty();
        if is_full || self.needs_key && !frame.key {
            (self.needs_key, self.dropped) = (true, self.dropped + 1);
            return;
        }
        self.needs_key = false;
        inbox.bytes += frame.bytes.len();
        inbox.frames.push_back(frame);
    }

    fn count(&self) {
        let ReassemblyCounts { lost_packets, lost_frames } = self.reassembly.counts();
        self.shared.lost_packets.store(lost_packets, Ordering::Relaxed);
        self.shared.lost_frames.store(lost_frames + self.dropped, Ordering::Relaxed);
    }

    /// Asks the sender for the reason of the end. A sender whose stream has ended does not answer.
    ///
    /// # Errors
    /// [`WebrtcError::EndedBySender`].
    fn check_reason(&mut self) -> Result<(), WebrtcError> {
        let Some(resource) = &self.resource else { return Ok(()) };
        let status = self.client.delete(resource, Instant::now() + DELETE);
        if status == Some(GONE) { Err(WebrtcError::EndedBySender) } else { Ok(()) }
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
        if let Some(resource) = &self.resource {
            self.client.delete(resource, Instant::now() + DELETE);
        }
    }
}
