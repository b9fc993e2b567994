// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sender: a WHEP server that sends one stream of encoded frames to all its viewers.
//!
//! One thread has the UDP socket and all sessions. Another has the HTTP server, with a thread for each connection. The
//! caller's thread packetises, and never waits for the network.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver as CommandReceiver, Sender as CommandSender, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use framepath_model::access_unit::Coding;
use framepath_os::time::now_ns;
use rustix::event::PollFlags;

use crate::congestion::{CongestionControl, SenderRequest};
use crate::error::WebrtcError;
use crate::ledger_channel::LedgerChannel;
use crate::ledger_exchange::LedgerExchange;
use crate::lock::lock;
use crate::media_socket::{MediaSocket, ReceiveBuffer};
use crate::packetizer::{PacketizedFrame, Packetizer};
use crate::pairing::{FINGERPRINT, PairingCode};
use crate::peer::{Identity, WebrtcPeer};
use crate::random::{random_bytes, random_id};
use crate::reachable::reachable;
use crate::sent_frame::SentFrame;
use crate::viewer::ViewerSession;
use crate::wake_event::{WakeEvent, wait};
use crate::whep_server::WhepServer;
use crate::wrong_tokens::WrongTokens;

/// Maximum number of viewers at once.
const MOST_VIEWERS: usize = 64;
/// Shortest time between two requests to the encoder for a keyframe. A viewer cannot make the stream consist of
/// keyframes.
const KEYFRAME_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time for the end of a stream: the queued frames of slow viewers and the goodbyes.
const END: Duration = Duration::from_secs(5);

/// Longest time for the goodbyes of a sender that is dropped before the end of its stream.
const CLOSING: Duration = Duration::from_millis(200);
/// Maximum number of datagrams that are received before frames are sent again, so that a flood does not stop the
/// stream.
const MOST_RECEIVED: usize = 256;

/// Maximum number of frames whose times are kept for [`WhepSender::take_sent`]; the oldest are forgotten.
const MOST_SENT: usize = 4096;

/// Settings of a sender.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// Address and port of the HTTP server (TCP) and of the video (UDP); port 0 is a free port.
    pub listen: SocketAddr,
    /// Token that a viewer has to know; `None`: a random one.
    pub token: Option<String>,
    /// Codec of the frames.
    pub coding: Coding,
    /// Lowest and highest bit rate of an encoder that follows [`SenderRequest::Bandwidth`], bits per second. `None` for a stream
    /// that does not follow the network: its bandwidth is not estimated, and it leaves at a fixed pace.
    pub bit_rates: Option<RangeInclusive<u64>>,
}

/// Counts of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Number of viewers that have connected.
    pub viewers: u64,
    /// Number of frames that were sent, all viewers together.
    pub sent: u64,
    /// Number of frames that were dropped because a viewer's queue was full, or that depend on such a frame; all
    /// viewers together.
    pub dropped: u64,
}

/// Message to the thread that has the sessions.
pub(crate) enum SenderCommand {
    /// A frame and its number.
    Frame(Arc<PacketizedFrame>, u64),
    /// A viewer's offer, and the address of this computer to which the viewer has sent it.
    Offer {
        offer: String,
        /// SHA-256 of the viewer's certificate, if the viewer has proved it.
        viewer: Option<[u8; FINGERPRINT]>,
        local: IpAddr,
        reply: SyncSender<Result<AcceptedOffer, OfferRefused>>,
    },
    /// The end of the session with this id. The reply is false if there is none.
    Delete {
        id: String,
        reply: SyncSender<bool>,
    },
    End,
}

/// Session of a new viewer.
pub(crate) struct AcceptedOffer {
    pub(crate) id: String,
    pub(crate) answer: String,
}

/// Reason why a viewer gets no session.
pub(crate) enum OfferRefused {
    /// There are [`MOST_VIEWERS`] viewers.
    Full,
    Invalid(String),
    /// The stream has ended, or a system call failed.
    Unavailable,
}

/// Functions of the caller.
type Notify = Box<dyn Fn() + Send>;
type NotifyRequest = Box<dyn Fn(SenderRequest) + Send>;

/// Part of a sender that its threads share.
pub(crate) struct SenderShared {
    /// Token that other programs' viewers send.
    pub(crate) token: String,
    /// Code for framepath's viewers, which do not send the token; `None` if the caller chose the token.
    pub(crate) pairing: Option<PairingCode>,
    pub(crate) wrong_tokens: WrongTokens,
    /// Wakes the thread that has the sessions.
    wake: WakeEvent,
    /// Ends the HTTP server, and stays set.
    pub(crate) stop: WakeEvent,
    pub(crate) stopped: AtomicBool,
    watching: AtomicUsize,
    viewers: AtomicU64,
    sent: AtomicU64,
    dropped: AtomicU64,
    /// Exchange of the ledgers with the viewers.
    ledger: Arc<LedgerExchange>,
    /// Frames that have left since [`WhepSender::take_sent`].
    sent_frames: Mutex<VecDeque<SentFrame>>,
    /// Function that is called when the number of viewers changes.
    on_change: Mutex<Option<Notify>>,
    /// Function that passes on requests to the encoder.
    on_request: Mutex<Option<NotifyRequest>>,
}

impl SenderShared {
    fn add_sent(&self, frames: impl ExactSizeIterator<Item = SentFrame>) {
        if frames.len() == 0 {
            return;
        }
        let mut sent = lock(&self.sent_frames);
        sent.extend(frames);
        let surplus = sent.len().saturating_sub(MOST_SENT);
        sent.drain(..surplus);
    }
}

/// Handle by which HTTP connections send commands.
#[derive(Clone)]
pub(crate) struct Commands {
    pub(crate) shared: Arc<SenderShared>,
    queue: CommandSender<SenderCommand>,
}

impl Commands {
    /// Sends a command. Returns false after the end of the stream.
    pub(crate) fn send(&self, command: SenderCommand) -> bool {
        let sent = self.queue.send(command).is_ok();
        self.shared.wake.set();
        sent
    }
}

/// WHEP server with one stream.
pub struct WhepSender {
    commands: Commands,
    packetizer: Packetizer,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl WhepSender {
    /// Binds the address, and starts to accept viewers.
    ///
    /// # Errors
    /// WebRTC cannot carry the codec; the address cannot be bound; or a thread or a descriptor could not be made.
    pub fn new(options: SenderOptions) -> Result<WhepSender, WebrtcError> {
        let SenderOptions { listen, token, coding, bit_rates } = options;
        let packetizer = Packetizer::new(coding)?;
        let listener = TcpListener::bind(listen).map_err(WebrtcError::io(format!("bind TCP {listen}")))?;
        listener.set_nonblocking(true).map_err(WebrtcError::io("set O_NONBLOCK"))?;
        let address = listener.local_addr().map_err(WebrtcError::io("getsockname"))?;
        let socket = MediaSocket::bind(address)?;
        let identity = Identity::new()?;
        let (token, pairing) = match token {
            Some(token) => (token, None),
            None => {
                let token = random_bytes()?;
                let fingerprint = identity.fingerprint;
                let address = SocketAddr::new(reachable(address.ip()), address.port());
                (HEXLOWER.encode(&token), Some(PairingCode { address, fingerprint, token }))
            }
        };
        let shared = Arc::new(SenderShared {
            token,
            pairing,
            wrong_tokens: WrongTokens::default(),
            wake: WakeEvent::new()?,
            stop: WakeEvent::new()?,
            stopped: AtomicBool::new(false),
            watching: AtomicUsize::new(0),
            viewers: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            ledger: Arc::default(),
            sent_frames: Mutex::default(),
            on_change: Mutex::new(None),
            on_request: Mutex::new(None),
        });
        let (queue, received) = mpsc::channel();
        let commands = Commands { shared, queue };
        let mut sender = WhepSender { commands, packetizer, address, threads: Vec::new() };
        let server = WhepServer::new(listener, sender.commands.clone());
        let sessions = SenderSessions {
            shared: sender.commands.shared.clone(),
            socket,
            received: ReceiveBuffer::new(),
            coding,
            identity,
            port: address.port(),
            viewers: Vec::new(),
            next_viewer: 0,
            wants_keyframe: false,
            next_keyframe_request: Instant::now(),
            highest_rate: bit_rates.as_ref().map(|rates| *rates.end()),
            congestion: bit_rates.map(CongestionControl::new),
            ends: None,
        };
        sender.spawn("whep", move || server.run())?;
        sender.spawn("send", move || sessions.run(&received))?;
        Ok(sender)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), WebrtcError> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(WebrtcError::io("start a thread"))?);
        Ok(())
    }

    /// Returns the address of the server, with the port that was chosen for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the token that a viewer has to know.
    pub fn token(&self) -> &str {
        &self.commands.shared.token
    }

    /// Returns the code for viewers of framepath, which contains the token; `None` if the options had a token. The address in the
    /// code is that of the options. If that means all networks, it is the address by which this computer would reach others.
    pub fn pairing(&self) -> Option<&PairingCode> {
        self.commands.shared.pairing.as_ref()
    }

    /// Returns the number of viewers that get frames now.
    pub fn watching(&self) -> usize {
        self.commands.shared.watching.load(Ordering::Acquire)
    }

    /// Sets the function that is called, on another thread, when the number of viewers has changed.
    pub fn on_change(&self, change: impl Fn() + Send + 'static) {
        *lock(&self.commands.shared.on_change) = Some(Box::new(change));
    }

    /// Returns the exchange of the ledgers with the viewers. The rows given to it end with the hand-over of a frame to
    /// [`send`](WhepSender::send); the last hop of the path is the way through the sender's thread, whose row the sender adds.
    pub fn ledger(&self) -> Arc<LedgerExchange> {
        self.commands.shared.ledger.clone()
    }

    /// Sends the frame `bytes` with this number and the RTP timestamp `time` to all viewers. Returns at once. H.264 has start codes,
    /// and parameter sets in front of each keyframe.
    ///
    /// # Errors
    /// The packetiser rejects the bytes.
    pub fn send(&mut self, bytes: &[u8], number: u64, time: u32) -> Result<(), WebrtcError> {
        let frame = self.packetizer.packetize(bytes, time)?;
        if !frame.payloads.is_empty() {
            self.commands.send(SenderCommand::Frame(Arc::new(frame), number));
        }
        Ok(())
    }

    /// Sets the function that is called, on another thread, for each request to the encoder: for a keyframe at most twice a second, and
    /// with [`SenderOptions::bit_rates`] for what the network carries. Needs from before the call are not forgotten.
    pub fn on_request(&self, request: impl Fn(SenderRequest) + Send + 'static) {
        *lock(&self.commands.shared.on_request) = Some(Box::new(request));
        self.commands.shared.wake.set();
    }

    /// Ends the stream: sends the frames that still wait, tells all viewers the end, and waits for this while
    /// `goes_on` returns true, at most five seconds. Accepts no viewers from now on.
    pub fn end(&mut self, goes_on: impl Fn() -> bool) {
        self.stop_server();
        self.commands.send(SenderCommand::End);
        while goes_on() && self.threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> SenderCounts {
        let SenderShared { viewers, sent, dropped, .. } = &*self.commands.shared;
        let [viewers, sent, dropped] = [viewers, sent, dropped].map(|count| count.load(Ordering::Relaxed));
        SenderCounts { viewers, sent, dropped }
    }

    /// Returns the times of the frames that have left since the last call, an entry for each frame and viewer, in order for each
    /// viewer. At most 4096 are kept.
    pub fn take_sent(&self) -> Vec<SentFrame> {
        lock(&self.commands.shared.sent_frames).drain(..).collect()
    }

    fn stop_server(&self) {
        self.commands.shared.stopped.store(true, Ordering::Release);
        self.commands.shared.stop.set();
    }
}

impl Drop for WhepSender {
    /// Ends all sessions and threads at once, without the frames that still wait.
    fn drop(&mut self) {
        self.stop_server();
        // The thread sees that no handle is left once the server has ended, too.
        let (closed, _) = mpsc::channel();
        self.commands.queue = closed;
        self.commands.shared.wake.set();
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported it.
            let _ = thread.join();
            self.commands.shared.wake.set();
        }
    }
}

/// Thread that has the sessions and the UDP socket.
struct SenderSessions {
    shared: Arc<SenderShared>,
    socket: MediaSocket,
    received: ReceiveBuffer,
    coding: Coding,
    identity: Identity,
    port: u16,
    viewers: Vec<ViewerSession>,
    /// Number of the next viewer.
    next_viewer: u64,
    /// True if a viewer needs a keyframe that was not requested yet.
    wants_keyframe: bool,
    next_keyframe_request: Instant,
    /// Highest bit rate of the encoder, bits per second; `None` for a stream that does not follow the network.
    highest_rate: Option<u64>,
    congestion: Option<CongestionControl>,
    /// Time at which the sessions end even if frames wait; `None` before the end of the stream.
    ends: Option<Instant>,
}

impl SenderSessions {
    fn run(mut self, commands: &CommandReceiver<SenderCommand>) {
        loop {
            self.shared.wake.reset();
            let now = Instant::now();
            let is_closed = self.take_commands(commands, now);
            self.take_datagrams();
            for frame in self.shared.ledger.take_outgoing() {
                self.viewers.iter_mut().for_each(|viewer| viewer.ledger.push_packetized(frame.clone()));
            }
            if is_closed {
                self.viewers.iter_mut().for_each(ViewerSession::close);
                self.ends = Some(self.ends.map_or(now + CLOSING, |ends| ends.min(now + CLOSING)));
            }
            let now = Instant::now();
            for viewer in &mut self.viewers {
                viewer.drive(now, now_ns(), &self.socket);
                self.wants_keyframe |= viewer.take_keyframe_request();
            }
            self.request_keyframe(now);
            self.report_congestion();
            self.count();
            if self.ends.is_some_and(|ends| self.viewers.is_empty() || now >= ends) {
                return;
            }
            let request = self.wants_keyframe.then_some(self.next_keyframe_request).filter(|at| *at > now);
            let deadline =
                self.viewers.iter().map(ViewerSession::deadline).chain(self.ends).chain(request).min();
            if let Err(error) = wait(&self.shared.wake, &self.socket, PollFlags::IN, deadline) {
                log::error!("send: {error}");
                return;
            }
        }
    }

    /// Asks for a keyframe if a viewer needs one, the last request is long enough ago, and the caller takes requests.
    fn request_keyframe(&mut self, now: Instant) {
        if !self.wants_keyframe || now < self.next_keyframe_request {
            return;
        }
        if let Some(request) = &*lock(&self.shared.on_request) {
            request(SenderRequest::Keyframe);
            (self.wants_keyframe, self.next_keyframe_request) = (false, now + KEYFRAME_INTERVAL);
        }
    }

    /// Tells the encoder what the networks of the viewers carry.
    fn report_congestion(&mut self) {
        let request = lock(&self.shared.on_request);
        if let (Some(congestion), Some(request)) = (&mut self.congestion, &*request) {
            let networks = self.viewers.iter().filter_map(ViewerSession::network);
            congestion.update(networks).for_each(request);
        }
    }

    /// Takes all commands that wait. Returns true if no more can come.
    fn take_commands(&mut self, commands: &CommandReceiver<SenderCommand>, now: Instant) -> bool {
        loop {
            match commands.try_recv() {
                Ok(SenderCommand::Frame(frame, number)) => {
                    self.congestion.iter_mut().for_each(|congestion| congestion.measure_interval(frame.time));
                    self.viewers.iter_mut().for_each(|viewer| viewer.push(&frame, number));
                }
                Ok(SenderCommand::Offer { offer, viewer, local, reply }) => {
                    let accepted = self.accept(&offer, viewer, local);
                    // The connection may have ended.
                    let _ = reply.send(accepted);
                }
                Ok(SenderCommand::Delete { id, reply }) => {
                    let viewer = self.viewers.iter_mut().find(|viewer| viewer.id == id);
                    let _ = reply.send(viewer.map(ViewerSession::close).is_some());
                }
                Ok(SenderCommand::End) => {
                    self.ends = Some(now + END);
                    self.viewers.iter_mut().for_each(ViewerSession::end);
                }
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    fn accept(
        &mut self,
        offer: &str,
        viewer: Option<[u8; FINGERPRINT]>,
        local: IpAddr,
    ) -> Result<AcceptedOffer, OfferRefused> {
        if self.ends.is_some() {
            return Err(OfferRefused::Unavailable);
        }
        // A proof that was overheard and sent again opens no second session. The certificate's owner can try again.
        let is_again = |session: &ViewerSession| viewer.is_some() && session.proved == viewer;
        if self.viewers.iter().any(|session| is_again(session) && !session.is_connecting()) {
            return Err(OfferRefused::Invalid("this viewer has a session".to_owned()));
        }
        self.viewers.retain(|session| !is_again(session));
        if self.viewers.len() >= MOST_VIEWERS {
            return Err(OfferRefused::Full);
        }
        let id = random_id().map_err(|_| OfferRefused::Unavailable)?;
        let local = SocketAddr::new(local, self.port);
        let accepted =
            WebrtcPeer::accept(offer, viewer, (self.coding, self.highest_rate), &self.identity, local);
        let (peer, answer) = accepted.map_err(|error| match error {
            WebrtcError::Description(text) => OfferRefused::Invalid(text),
            error => {
                log::debug!("offer: {error}");
                OfferRefused::Invalid("the offer is not possible".to_owned())
            }
        })?;
        let ledger = LedgerChannel::new(self.shared.ledger.clone());
        self.viewers.push(ViewerSession::new(id.clone(), self.next_viewer, viewer, peer, ledger));
        self.next_viewer += 1;
        Ok(AcceptedOffer { id, answer })
    }

    fn take_datagrams(&mut self) {
        // Those that were received with one system call are taken together, because the socket does not announce them again.
        let mut number = 0;
        while number < MOST_RECEIVED || !self.received.is_empty() {
            number += 1;
            match self.socket.recv(&mut self.received) {
                Ok(Some(arrival)) => {
                    let now = Instant::now();
                    // A datagram of no viewer gets no answer.
                    let viewer = self.viewers.iter_mut().find_map(|viewer| {
                        let is_receiver = viewer.recv(&arrival, now);
                        is_receiver.then_some(viewer)
                    });
                    if let Some(viewer) = viewer {
                        viewer.drive(now, arrival.arrived_ns, &self.socket);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    log::warn!("send: {error}");
                    return;
                }
            }
        }
    }

    /// Removes viewers that are gone, and counts the others.
    fn count(&mut self) {
        for viewer in &mut self.viewers {
            self.shared.add_sent(viewer.take_sent());
            let (sent, dropped) = viewer.take_frames();
            self.shared.sent.fetch_add(sent, Ordering::Relaxed);
            self.shared.dropped.fetch_add(dropped, Ordering::Relaxed);
            self.shared.viewers.fetch_add(u64::from(viewer.take_connected()), Ordering::Relaxed);
        }
        self.viewers.retain(|viewer| !viewer.is_gone());
        let watching = self.viewers.iter().filter(|viewer| viewer.is_watching()).count();
        if self.shared.watching.swap(watching, Ordering::AcqRel) != watching {
            if let Some(on_change) = &*lock(&self.shared.on_change) {
                on_change();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    /// Posts `body` to the sender and returns the answer's text.
    fn post(sender: &WhepSender, authorization: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(sender.address()).unwrap();
        let head =
            format!("Host: localhost\r\nContent-Type: application/sdp\r\nAuthorization: {authorization}");
        write!(stream, "POST /whep HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn sender() -> WhepSender {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        WhepSender::new(SenderOptions { listen, token: None, coding: Coding::H264, bit_rates: None }).unwrap()
    }

    #[test]
    fn a_proof_that_is_sent_again_takes_no_second_place() {
        let (sender, viewer) = (sender(), Identity::new().unwrap());
        let proof = sender.pairing().unwrap().to_header(&viewer.fingerprint).unwrap();
        let mut offer = String::new();
        let made = WebrtcPeer::offer(None, &viewer, (Ipv4Addr::LOCALHOST, 9).into(), |text| {
            offer = text;
            Err(WebrtcError::Canceled)
        });
        assert!(made.is_err());
        for _ in 0..=MOST_VIEWERS {
            let answer = post(&sender, &proof, &offer);
            assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
        }
    }

    #[test]
    fn an_answer_has_no_addresses_of_this_process() {
        let sender = sender();
        for offer in ["", "garbage", "v=0\r\no=x\r\n"] {
            let answer = post(&sender, &format!("Bearer {}", sender.token()), offer);
            assert!(
                answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("\r\nnot a session description\n"),
                "{answer}"
            );
        }
    }

    #[test]
    fn idle_connections_keep_nobody_out() {
        let sender = sender();
        let idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(sender.address()).unwrap()).collect();
        let answer = post(&sender, "Bearer x", "");
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        drop(idle);
    }
}
