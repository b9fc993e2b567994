// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread of a sender that has the sessions and the UDP socket.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as CommandReceiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use framepath_os::process::priority::HighPriority;
use framepath_os::time::now_ns;
use rustix::event::PollFlags;

use crate::congestion::{CongestionControl, SenderRequest};
use crate::ice_patch::{IceRestart, IceRestartRefused, IceRestarted};
use crate::ledger_exchange::LedgerExchange;
use crate::ledger_message::SessionEnd;
use crate::lock::lock;
use crate::media_socket::{MediaSocket, ReceiveBuffer};
use crate::pairing::FINGERPRINT;
use crate::sender_shared::{OfferRefused, SenderCommand, SenderShared, SessionsToEnd};
use crate::server_session::ServerSession;
use crate::viewer::ViewerSession;
use crate::wake_event::wait;

/// Maximum number of viewers at once.
pub(crate) const MOST_VIEWERS: usize = 64;
// The ledger keeps the rows of all that watch at once.
const _: () = assert!(MOST_VIEWERS <= LedgerExchange::MOST_REMOTES);
/// Shortest time between two requests to the encoder for a keyframe. A viewer cannot make the stream consist of
/// keyframes.
const KEYFRAME_INTERVAL: Duration = Duration::from_millis(500);
/// Shortest time between two restarts of ICE, all viewers together: each takes some milliseconds of this thread.
const RESTART_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time for the end of a stream: the queued frames of slow viewers and the goodbyes.
const END: Duration = Duration::from_secs(5);
/// Part of it for the frames. Afterwards a viewer learns the stream's end, and so which frames it will not get.
const LAST_FRAMES: Duration = Duration::from_millis(3700);
/// Longest time for the goodbyes of a sender that is dropped before the end of its stream.
const CLOSING: Duration = Duration::from_millis(200);
/// Maximum number of datagrams that are received before frames are sent again, so that a flood does not stop the
/// stream.
const MOST_RECEIVED: usize = 256;

/// Thread that has the sessions and the UDP socket.
pub(crate) struct SenderSessions {
    shared: Arc<SenderShared>,
    socket: MediaSocket,
    received: ReceiveBuffer,
    viewers: Vec<ViewerSession>,
    /// Server to which the only viewer belongs; `None` for a sender that has viewers of its own.
    server: Option<Arc<Mutex<ServerSession>>>,
    next_number: u64,
    /// True if a viewer needs a keyframe that was not requested yet.
    wants_keyframe: bool,
    next_keyframe_request: Instant,
    /// Earliest time of the next restart of ICE.
    next_restart: Instant,
    /// Bandwidth for the encoder; `None` for a stream that does not follow the network.
    congestion: Option<CongestionControl>,
    /// Time at which the sessions end even if frames wait; `None` before the end of the stream.
    ends: Option<Instant>,
}

impl SenderSessions {
    pub(crate) fn new(
        shared: Arc<SenderShared>,
        socket: MediaSocket,
        congestion: Option<CongestionControl>,
    ) -> SenderSessions {
        SenderSessions {
            shared,
            socket,
            received: ReceiveBuffer::new(),
            viewers: Vec::new(),
            server: None,
            next_number: 1,
            wants_keyframe: false,
            next_keyframe_request: Instant::now(),
            next_restart: Instant::now(),
            congestion,
            ends: None,
        }
    }

    pub(crate) fn run(mut self, commands: &CommandReceiver<SenderCommand>) {
        let _priority = HighPriority::begin();
        loop {
            self.shared.wake.reset();
            let now = Instant::now();
            let is_closed = self.take_commands(commands, now);
            self.end_chosen();
            self.take_datagrams();
            for frame in self.shared.ledger.take_outgoing() {
                self.viewers.iter_mut().for_each(|viewer| viewer.ledger.push_packetized(frame.clone()));
            }
            if is_closed {
                for viewer in &mut self.viewers {
                    // The caller has not ended the stream, and frames may wait.
                    viewer.end_now(SessionEnd::Failed);
                }
                self.ends = Some(self.ends.map_or(now + CLOSING, |ends| ends.min(now + CLOSING)));
            }
            let now = Instant::now();
            for viewer in &mut self.viewers {
                viewer.drive(now, now_ns(), &self.socket);
                self.wants_keyframe |= viewer.take_keyframe_request();
            }
            let restart = self.restart_publication();
            self.request_keyframe(now);
            self.report_congestion();
            self.count();
            if self.ends.is_some_and(|ends| self.viewers.is_empty() || now >= ends) {
                for viewer in &mut self.viewers {
                    viewer.close();
                    viewer.drive(now, now_ns(), &self.socket);
                }
                self.count();
                return;
            }
            let request = self.wants_keyframe.then_some(self.next_keyframe_request).filter(|at| *at > now);
            let deadline = self
                .viewers
                .iter()
                .map(ViewerSession::deadline)
                .chain(self.ends)
                .chain(request)
                .chain(restart)
                .min();
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
            self.shared.keyframe_requests.fetch_add(1, Ordering::Relaxed);
            (self.wants_keyframe, self.next_keyframe_request) = (false, now + KEYFRAME_INTERVAL);
        }
    }

    /// Tells the encoder what the networks of the viewers carry.
    fn report_congestion(&mut self) {
        let request = lock(&self.shared.on_request);
        if let (Some(congestion), Some(request)) = (&mut self.congestion, &*request) {
            let networks = self.viewers.iter().filter_map(ViewerSession::network);
            let is_unknown =
                networks.clone().next().is_none() && self.viewers.iter().any(ViewerSession::is_watching);
            let unknown = is_unknown.then(|| congestion.unknown_network());
            congestion.update(networks.chain(unknown)).for_each(request);
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
                Ok(SenderCommand::Accept { session, reply }) => {
                    let accepted = self.accept(*session);
                    // The connection may have ended.
                    let _ = reply.send(accepted);
                }
                Ok(SenderCommand::Delete { id, viewer, reply }) => {
                    let viewer = self.session(&id, viewer);
                    let _ = reply.send(viewer.map(|viewer| viewer.end_now(SessionEnd::ByUser)).is_some());
                }
                Ok(SenderCommand::Session { id, viewer, reply }) => {
                    let session = self.session(&id, viewer);
                    let _ = reply.send(session.and_then(|session| session.patched()));
                }
                Ok(SenderCommand::Restart { id, viewer, request, reply }) => {
                    let _ = reply.send(self.restart(&id, viewer, *request, now));
                }
                Ok(SenderCommand::End(end)) => {
                    self.ends = Some(now + END);
                    self.viewers.iter_mut().for_each(|viewer| viewer.end(end, now + LAST_FRAMES));
                }
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Restarts the ICE of a viewer's session.
    fn restart(
        &mut self,
        id: &str,
        viewer: Option<[u8; FINGERPRINT]>,
        request: IceRestart,
        now: Instant,
    ) -> Result<IceRestarted, IceRestartRefused> {
        let (port, is_early) = (self.shared.port, now < self.next_restart);
        let session = self.session(id, viewer).ok_or(IceRestartRefused::NoSession)?;
        if is_early {
            return Err(IceRestartRefused::Busy);
        }
        let restarted = session.accept_restart(request, port, now);
        if matches!(restarted, Ok(_) | Err(IceRestartRefused::Invalid(_))) {
            self.next_restart = now + RESTART_INTERVAL;
        }
        restarted
    }

    /// Returns the session with this id, which is that of this viewer if one is named.
    fn session(&mut self, id: &str, viewer: Option<[u8; FINGERPRINT]>) -> Option<&mut ViewerSession> {
        let is_named =
            |session: &&mut ViewerSession| session.id == id && (viewer.is_none() || session.proved == viewer);
        self.viewers.iter_mut().find(is_named)
    }

    /// Ends the sessions that the user has chosen.
    fn end_chosen(&mut self) {
        let SessionsToEnd { numbers, all } = std::mem::take(&mut *lock(&self.shared.to_end));
        for viewer in &mut self.viewers {
            if (all || numbers.contains(&viewer.number)) && viewer.end_now(SessionEnd::ByUser) {
                log::info!("viewer {}: ended by the user", viewer.number);
            }
        }
    }

    /// Adds the session at a server, the only one.
    pub(crate) fn publish(&mut self, session: ViewerSession, server: Arc<Mutex<ServerSession>>) {
        // There is room for one.
        let _ = self.accept(session);
        self.server = Some(server);
    }

    /// Restarts the ICE of the session at a server if nothing comes from there. Returns the time of the next look.
    fn restart_publication(&mut self) -> Option<Instant> {
        let (mut server, viewer) = (lock(self.server.as_ref()?), self.viewers.first_mut()?);
        let stopped = || self.shared.stopped.load(Ordering::Acquire);
        if let Some(socket) = viewer.restart(&mut server, stopped) {
            (self.socket, self.received) = (socket, ReceiveBuffer::new());
            viewer.drive(Instant::now(), now_ns(), &self.socket);
        }
        viewer.restarts_at(&server)
    }

    fn accept(&mut self, mut session: ViewerSession) -> Result<(), OfferRefused> {
        if self.ends.is_some() {
            return Err(OfferRefused::Unavailable);
        }
        if self.viewers.len() >= MOST_VIEWERS {
            return Err(OfferRefused::Full);
        }
        session.number = self.next_number;
        session.ledger.viewer = self.next_number;
        self.next_number += 1;
        self.viewers.push(session);
        Ok(())
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
            let (sent, dropped) = viewer.take_frames();
            self.shared.add_sent(viewer.take_sent());
            self.shared.sent.fetch_add(sent, Ordering::Relaxed);
            self.shared.dropped.fetch_add(dropped, Ordering::Relaxed);
            self.shared.viewers.fetch_add(u64::from(viewer.take_connected()), Ordering::Relaxed);
        }
        self.viewers.retain(|viewer| !viewer.is_gone());
        let watching = {
            let mut figures = lock(&self.shared.figures);
            figures.clear();
            figures.extend(self.viewers.iter().filter_map(ViewerSession::figures));
            figures.len()
        };
        if self.shared.watching.swap(watching, Ordering::AcqRel) != watching {
            if let Some(on_change) = &*lock(&self.shared.on_change) {
                on_change();
            }
        }
    }
}
