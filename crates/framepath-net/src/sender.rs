// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sender: a WHEP server that sends one stream of encoded frames to all its viewers, or a client of a WHIP server.
//!
//! One thread has the UDP socket and all sessions. Another has the HTTP server, with a thread for each connection. The
//! caller's thread packetises, and never waits for the network.

use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use data_encoding::HEXLOWER;
use framepath_model::access_unit::Coding;

use crate::congestion::{CongestionControl, SenderRequest};
use crate::error::WebrtcError;
use crate::ledger_channel::LedgerChannel;
use crate::ledger_exchange::LedgerExchange;
use crate::ledger_message::SessionEnd;
use crate::lock::lock;
use crate::media_socket::MediaSocket;
use crate::packetizer::Packetizer;
use crate::pairing::PairingCode;
use crate::peer::Identity;
use crate::publication::{Publication, PublishOptions};
use crate::random::random_bytes;
use crate::reachable::reachable;
use crate::sender_control::SenderControl;
use crate::sender_sessions::SenderSessions;
use crate::sender_shared::{Commands, SenderCommand, SenderCounts, SenderShared};
use crate::sent_frame::SentFrame;
use crate::viewer::ViewerSession;
use crate::whep_server::WhepServer;

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

/// Number of ports that are tried for port 0.
const MOST_PORTS: u32 = 100;

/// WHEP server with one stream, or a client that publishes one.
pub struct WhepSender {
    commands: Commands,
    packetizer: Packetizer,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
    /// Session at a WHIP server; `None` for a WHEP server, and behind the end.
    publication: Option<Publication>,
    /// True if the WHIP server could not be reached at the end.
    has_lost_server: bool,
}

impl WhepSender {
    /// Binds the address, and starts to accept viewers.
    ///
    /// # Errors
    /// WebRTC cannot carry the codec; the address cannot be bound; or a thread or a descriptor could not be made.
    pub fn new(options: SenderOptions) -> Result<WhepSender, WebrtcError> {
        let SenderOptions { listen, token, coding, bit_rates } = options;
        let packetizer = Packetizer::new(coding)?;
        let (listener, socket) = bind(listen, MediaSocket::bind)?;
        let address = listener.local_addr().map_err(WebrtcError::io("getsockname"))?;
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
        let shared = SenderShared::new((coding, bit_rates.as_ref()), identity, address.port())?;
        let shared = Arc::new(SenderShared { token, pairing, ..shared });
        let sessions = SenderSessions::new(shared.clone(), socket, bit_rates.map(CongestionControl::new));
        let mut sender = WhepSender::start(shared, packetizer, address, sessions)?;
        let server = WhepServer::new(listener, sender.commands.clone());
        sender.spawn("whep", move || server.run())?;
        Ok(sender)
    }

    /// Opens a session at a WHIP server, which then is the only viewer. The wait for the server ends early if `canceled` returns true.
    ///
    /// # Errors
    /// WebRTC cannot carry the codec; the URL is not valid; the server cannot be reached, refuses the offer, does not answer in time, or
    /// does not take the codec; the wait was canceled; or a thread or a descriptor could not be made.
    pub fn publish(options: &PublishOptions, canceled: impl Fn() -> bool) -> Result<WhepSender, WebrtcError> {
        let packetizer = Packetizer::new(options.coding)?;
        let identity = Identity::new()?;
        let (publication, peer, socket) = Publication::open(options, &identity, canceled)?;
        let (address, server) = (socket.local_addr()?, publication.server());
        let rates = options.bit_rates.clone();
        let shared = Arc::new(SenderShared::new((options.coding, rates.as_ref()), identity, address.port())?);
        let mut sessions = SenderSessions::new(shared.clone(), socket, rates.map(CongestionControl::new));
        let ledger = LedgerChannel::new(shared.ledger.clone());
        let viewer = ViewerSession::new(String::new(), None, server.ip(), peer, ledger);
        sessions.publish(viewer, publication.session());
        let mut sender = WhepSender::start(shared, packetizer, address, sessions)?;
        sender.publication = Some(publication);
        Ok(sender)
    }

    /// Starts the thread that has the sessions.
    fn start(
        shared: Arc<SenderShared>,
        packetizer: Packetizer,
        address: SocketAddr,
        sessions: SenderSessions,
    ) -> Result<WhepSender, WebrtcError> {
        let (queue, received) = mpsc::channel();
        let commands = Commands { shared, queue };
        let mut sender = WhepSender {
            commands,
            packetizer,
            address,
            threads: Vec::new(),
            publication: None,
            has_lost_server: false,
        };
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

    /// Returns a handle that shows and ends the sessions.
    pub fn control(&self) -> SenderControl {
        SenderControl(self.commands.shared.clone())
    }

    /// Returns the number of viewers that get frames now.
    pub fn watching(&self) -> usize {
        self.commands.shared.watching.load(Ordering::Acquire)
    }

    /// Sets the function that is called, on another thread, when the number of viewers has changed.
    pub fn on_change(&self, change: impl Fn() + Send + 'static) {
        *lock(&self.commands.shared.on_change) = Some(Box::new(change));
    }

    /// Sets the function that returns further lines of the page of figures (`/metrics`). It is called on another thread.
    pub fn on_metrics(&self, metrics: impl Fn() -> String + Send + 'static) {
        *lock(&self.commands.shared.on_metrics) = Some(Box::new(metrics));
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
        self.end_as(SessionEnd::Complete, goes_on);
    }

    /// As [`end`](WhepSender::end), for a stream that cannot go on: the viewers learn that frames may be missing.
    pub fn fail(&mut self, goes_on: impl Fn() -> bool) {
        self.end_as(SessionEnd::Failed, goes_on);
    }

    fn end_as(&mut self, end: SessionEnd, goes_on: impl Fn() -> bool) {
        self.stop_server();
        self.commands.send(SenderCommand::End(end));
        while goes_on() && self.threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(Duration::from_millis(5));
        }
        self.has_lost_server = self.publication.take().is_some_and(|publication| !publication.end());
    }

    /// Returns true if the stream has ended, and its WHIP server could not be reached then: it may lack the last frames.
    pub fn has_lost_server(&self) -> bool {
        self.has_lost_server
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> SenderCounts {
        self.commands.shared.counts()
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
    /// Ends all sessions and threads at once, without the frames that still wait. Unless [`end`](WhepSender::end) was called, the
    /// viewers learn that frames may be missing, as by [`fail`](WhepSender::fail).
    fn drop(&mut self) {
        self.stop_server();
        // The thread of the sessions sees that no handle is left once that of the server, which was started behind it, has ended, too.
        let (closed, _) = mpsc::channel();
        self.commands.queue = closed;
        self.commands.shared.wake.set();
        for thread in self.threads.drain(..).rev() {
            // A thread that panicked has reported it.
            let _ = thread.join();
            self.commands.shared.wake.set();
        }
        self.publication.take().map(Publication::end);
    }
}

/// Binds the address for TCP and for UDP. A port that the kernel has chosen for TCP may be in use for UDP: then it chooses again.
fn bind(
    listen: SocketAddr,
    mut bind_udp: impl FnMut(SocketAddr) -> Result<MediaSocket, WebrtcError>,
) -> Result<(TcpListener, MediaSocket), WebrtcError> {
    let mut tries = 0;
    loop {
        let listener = TcpListener::bind(listen).map_err(WebrtcError::io(format!("bind TCP {listen}")))?;
        listener.set_nonblocking(true).map_err(WebrtcError::io("set O_NONBLOCK"))?;
        let address = listener.local_addr().map_err(WebrtcError::io("getsockname"))?;
        match bind_udp(address) {
            Err(_) if listen.port() == 0 && tries < MOST_PORTS => tries += 1,
            socket => return Ok((listener, socket?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};
    use std::time::Instant;

    use super::*;
    use crate::pairing::ProvenRequest;
    use crate::peer::{PeerEvent, WebrtcPeer};
    use crate::sender_sessions::MOST_VIEWERS;
    use crate::whep_names::ENDPOINT;

    /// Posts `body` to the sender and returns the answer's text.
    fn post(sender: &WhepSender, authorization: &str, body: &str) -> String {
        ask(sender, "POST", ENDPOINT, authorization, body)
    }

    /// Sends a request to the sender and returns the answer's text.
    fn ask(sender: &WhepSender, method: &str, path: &str, authorization: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(sender.address()).unwrap();
        let head =
            format!("Host: localhost\r\nContent-Type: application/sdp\r\nAuthorization: {authorization}");
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}")
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
    fn a_proof_that_is_sent_again_neither_opens_nor_ends_a_session() {
        let (sender, viewer) = (sender(), Identity::new().unwrap());
        let code = sender.pairing().unwrap();
        let socket = MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let request = |method: &str, path: &str, body: &str| {
            code.to_header(&viewer.fingerprint, ProvenRequest { method, path, body }).unwrap()
        };
        let mut peer =
            WebrtcPeer::offer(Some(code.fingerprint), &viewer, socket.local_addr().unwrap(), |offer| {
                let proof = request("POST", ENDPOINT, &offer);
                let answer = post(&sender, &proof, &offer);
                assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
                // An observer has seen all of this, and sends it while the viewer still connects.
                for _ in 0..=MOST_VIEWERS {
                    let answer = post(&sender, &proof, &offer);
                    assert!(answer.starts_with("HTTP/1.1 409 "), "{answer}");
                }
                let head = answer.to_lowercase();
                let resource = head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
                let answers = [&proof, &request("DELETE", ENDPOINT, "")]
                    .map(|proof| ask(&sender, "DELETE", resource, proof, ""));
                assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 401 ")), "{answers:?}");
                Ok(answer.split_once("\r\n\r\n").unwrap().1.to_owned())
            })
            .unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while sender.watching() == 0 {
            assert!(Instant::now() < until);
            peer.step(&socket, |_| ());
        }
        assert_eq!(sender.counts().viewers, 1);
    }

    #[test]
    fn a_viewer_too_many_may_send_its_offer_again() {
        let (sender, viewer) = (sender(), Identity::new().unwrap());
        let code = sender.pairing().unwrap();
        let mut offers = Vec::new();
        for _ in 0..=MOST_VIEWERS {
            let _ = WebrtcPeer::offer(None, &viewer, (Ipv4Addr::LOCALHOST, 9).into(), |offer| {
                offers.push(offer);
                Err(WebrtcError::Canceled)
            });
        }
        let last = offers.pop().unwrap();
        for offer in offers {
            let answer = post(&sender, &format!("Bearer {}", sender.token()), &offer);
            assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
        }
        let request = ProvenRequest { method: "POST", path: ENDPOINT, body: &last };
        let proof = code.to_header(&viewer.fingerprint, request).unwrap();
        for _ in 0..2 {
            let answer = post(&sender, &proof, &last).to_lowercase();
            assert!(
                answer.starts_with("http/1.1 503 ") && answer.contains("\r\nretry-after: 1\r\n"),
                "{answer}"
            );
        }
    }

    #[test]
    fn a_viewer_that_is_ended_while_it_connects_learns_it() {
        let (sender, viewer) = (sender(), Identity::new().unwrap());
        let code = sender.pairing().unwrap();
        let socket = MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let mut peer =
            WebrtcPeer::offer(Some(code.fingerprint), &viewer, socket.local_addr().unwrap(), |offer| {
                let request = ProvenRequest { method: "POST", path: ENDPOINT, body: &offer };
                let answer = post(&sender, &code.to_header(&viewer.fingerprint, request).unwrap(), &offer);
                Ok(answer.split_once("\r\n\r\n").unwrap().1.to_owned())
            })
            .unwrap();
        assert_eq!(sender.control().end_all(), 0);
        let until = Instant::now() + Duration::from_secs(20);
        while lock(&sender.commands.shared.to_end).all {
            assert!(Instant::now() < until);
            thread::sleep(Duration::from_millis(1));
        }
        let (mut ledger, mut is_closed) = (LedgerChannel::new(Arc::default()), false);
        while !is_closed {
            assert!(Instant::now() < until);
            peer.step(&socket, |event| match event {
                PeerEvent::LedgerMessage(message) => ledger.recv(&message, 0),
                PeerEvent::Closed => is_closed = true,
                _ => {}
            });
        }
        assert_eq!(ledger.remote_end().map(|(end, _)| end), Some(SessionEnd::ByUser));
    }

    #[test]
    fn a_proof_ends_only_its_own_session() {
        let sender = sender();
        let code = sender.pairing().unwrap();
        let viewers = [(); 2].map(|()| Identity::new().unwrap());
        let mut resources = Vec::new();
        for viewer in &viewers {
            let _ = WebrtcPeer::offer(None, viewer, (Ipv4Addr::LOCALHOST, 9).into(), |offer| {
                let request = ProvenRequest { method: "POST", path: ENDPOINT, body: &offer };
                let answer = post(&sender, &code.to_header(&viewer.fingerprint, request).unwrap(), &offer);
                let head = answer.to_lowercase();
                resources
                    .push(head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned());
                Err(WebrtcError::Canceled)
            });
        }
        let delete = |viewer: &Identity, path: &str| {
            let request = ProvenRequest { method: "DELETE", path, body: "" };
            let answer =
                ask(&sender, "DELETE", path, &code.to_header(&viewer.fingerprint, request).unwrap(), "");
            answer[9..12].to_owned()
        };
        assert_eq!(delete(&viewers[0], &resources[1]), "404");
        assert_eq!(delete(&viewers[1], &resources[1]), "200");
    }

    /// Sends a change of a session's ICE part with these headers, and returns the answer's text.
    fn patch(sender: &WhepSender, path: &str, headers: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(sender.address()).unwrap();
        let (token, length) = (sender.token(), body.len());
        let head = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}");
        write!(stream, "PATCH {path} HTTP/1.1\r\n{head}\r\n{headers}\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_change_of_the_ice_part_needs_its_headers_and_its_session() {
        let (sender, viewer) = (sender(), Identity::new().unwrap());
        let socket = MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let mut resource = String::new();
        let mut peer = WebrtcPeer::offer(None, &viewer, socket.local_addr().unwrap(), |offer| {
            let answer = post(&sender, &format!("Bearer {}", sender.token()), &offer);
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let header = |name: &str| {
                let line = head.lines().find(|line| line.to_lowercase().starts_with(name));
                line.map(|line| line.split_once(": ").unwrap().1.to_owned())
            };
            assert_eq!(header("etag").as_deref(), Some("\"0\""));
            assert_eq!(header("accept-patch").as_deref(), Some("application/trickle-ice-sdpfrag"));
            resource = header("location").unwrap();
            Ok(body.to_owned())
        });
        let peer = peer.as_mut().unwrap();
        let kind = "Content-Type: application/trickle-ice-sdpfrag\r\n";
        let (any, first) = (format!("{kind}If-Match: *\r\n"), format!("{kind}If-Match: \"0\"\r\n"));
        let candidates = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\na=candidate:1 1 udp 1 127.0.0.1 9 typ host\r\n\
                          a=candidate:2 1 tcp 1 ::1 9 typ host\r\na=candidate:rubbish\r\n";
        let restart = format!("a=ice-ufrag:abcd\r\na=ice-pwd:{}\r\n{candidates}", "x".repeat(22));
        let status =
            |path: &str, headers: &str, body: &str| patch(&sender, path, headers, body)[9..12].to_owned();
        for (path, headers, body, expected) in [
            (resource.as_str(), "", candidates, "415"),
            (&resource, kind, candidates, "428"),
            (&resource, &format!("{kind}If-Match: \"7\"\r\n"), candidates, "412"),
            (&resource, &any, "a=ice-ufrag:x\r\n", "400"),
            (&resource, &any, &"x".repeat((16 << 10) + 1), "413"),
            ("/whep/unknown", &any, candidates, "404"),
            (&resource, &first, candidates, "204"),
            (&resource, &any, "", "204"),
            // It connects, so that there is nothing to restart.
            (&resource, &any, &restart, "503"),
            // A line of the description that cannot be read.
            (&resource, &any, &restart.replace("a=mid:0", "a=mid:"), "503"),
        ] {
            assert_eq!(status(path, headers, body), expected, "{path} {headers} {body:.80}");
        }
        let mut is_connected = false;
        let until = Instant::now() + Duration::from_secs(20);
        while !is_connected || sender.watching() == 0 {
            assert!(Instant::now() < until, "no connection");
            peer.step(&socket, |event| is_connected |= matches!(event, PeerEvent::Connected));
        }
        let answer = patch(&sender, &resource, &first, &restart);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("a=ice-pwd:"), "{answer}");
        assert!(answer.to_lowercase().contains("\r\netag: \"1\"\r\n"), "{answer}");
        // A session that ends has none, and the tag before is that of no session.
        assert_eq!(status(&resource, &first, &restart.replace("abcd", "efgh")), "412");
    }

    #[test]
    fn an_offer_is_at_most_16_kib() {
        let sender = sender();
        let answer = |bytes| post(&sender, &format!("Bearer {}", sender.token()), &"x".repeat(bytes));
        assert!(answer(16 << 10).starts_with("HTTP/1.1 400 "));
        assert!(answer((16 << 10) + 1).starts_with("HTTP/1.1 413 "));
    }

    #[test]
    fn a_chosen_port_is_free_for_both_protocols() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut tried = Vec::new();
        // The first two ports are in use for UDP.
        let bound = bind(any, |address| {
            tried.push(address);
            let is_used = tried.len() <= 2;
            MediaSocket::bind(if is_used { (Ipv4Addr::new(192, 0, 2, 1), 9).into() } else { address })
        });
        let (listener, socket) = bound.unwrap();
        assert_eq!((tried.len(), tried[2]), (3, socket.local_addr().unwrap()));
        assert_eq!(listener.local_addr().unwrap(), tried[2]);
        let chosen = bind(tried[2], MediaSocket::bind);
        assert!(chosen.is_err(), "a port that the user has chosen is the only one");
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
    fn the_figures_are_for_no_web_page() {
        let sender = sender();
        for (host, status) in [
            ("127.0.0.1:8443", "200"),
            ("[::1]:8443", "200"),
            ("LocalHost", "200"),
            ("rebound.example:8443", "404"),
            ("127.0.0.1.example", "404"),
            ("a b", "404"),
        ] {
            let mut stream = TcpStream::connect(sender.address()).unwrap();
            write!(stream, "GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(&answer[9..12], status, "{host}: {answer}");
        }
    }

    #[test]
    fn idle_connections_keep_nobody_out() {
        let sender = sender();
        let mut idle: Vec<TcpStream> =
            (0..100).map(|_| TcpStream::connect(sender.address()).unwrap()).collect();
        let answer = post(&sender, "Bearer x", "");
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        // Their clients learn that the sender is busy, and has not ended.
        let mut answer = String::new();
        idle[0].read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
}
