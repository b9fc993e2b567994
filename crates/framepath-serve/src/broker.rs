// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop of the service: waits for clients and workers, and applies the
//! rules of `framepath_model::service`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::time::Duration;

use framepath_model::service::{Action, Denial, User};
use framepath_model::wire::{MESSAGE_BYTES, Message, StreamStatus, Totals};
use framepath_os::crossing::{Listener, Peer, PollEvents, Socket, Wait, wait};
use framepath_os::machine::effective_uid;
use framepath_os::process::signal::Stops;
use framepath_os::time::now_ns;

use super::connection::{ClientEvent, Connection};
use super::exposition;
use super::metrics::Metrics;
use super::workers::{WorkerEnd, WorkerId, WorkerWait, Workers};
use super::{ServeError, ServiceSettings};

/// Maximum number of connections accepted in one pass of the loop. The limit keeps many new clients
/// from delaying the present clients.
const ACCEPTED: usize = 32;
/// Maximum number of closing connections: the service has sent its last message, such as a denial, and keeps
/// the connection until the client closes its end. One more closes the oldest.
const LEAVING: usize = 64;
/// Time limit for the client of a closing connection to close its end, nanoseconds.
const LEAVING_NS: u64 = 1_000_000_000;
/// Pause of accepting clients after accept(2) has failed, nanoseconds. Most likely the process
/// lacks descriptors.
const PAUSE_NS: u64 = 100_000_000;

/// Number of a connection: from 0, not reused.
type ClientId = u64;

/// State of the service's one thread: clients, streams and workers.
#[derive(Debug)]
pub(super) struct Broker {
    settings: ServiceSettings,
    /// Listening socket; `None` once the service is stopping.
    listener: Option<Listener>,
    /// CLOCK_MONOTONIC time, nanoseconds, before which no client is accepted; `None` without a
    /// pause.
    paused_until_ns: Option<u64>,
    metrics: Option<Metrics>,
    clients: BTreeMap<ClientId, Connection>,
    /// Sockets of closing connections, oldest first, each with the CLOCK_MONOTONIC time, nanoseconds, when
    /// the service closes it at the latest.
    leaving: VecDeque<(Socket, u64)>,
    /// Connections that have ended, while the client may still have a grant to receive. The descriptor in it
    /// counts for the service's user. So such a connection counts for its user until the client has received
    /// everything or closed its end.
    unread: Vec<Connection>,
    /// Counts of each user for the limits, by user id: present connections and streams, and the requests of
    /// the current minute. Counts of a user without connections are removed when they no longer matter.
    users: HashMap<u32, User>,
    /// Streams of all clients, by number.
    streams: BTreeMap<u32, Stream>,
    /// Numbers of the streams that wait for a worker, oldest first.
    waiting: VecDeque<u32>,
    workers: Workers,
    /// Reason why the last worker could not be started, did not become ready, or ended before it had a
    /// stream; `None` at the start, and again once a worker has become ready. While there is a reason, the
    /// service keeps no spare workers.
    broken: Option<String>,
    next_client: ClientId,
    next_stream: u32,
    /// Sums over ended streams, and the counts of all opened streams and of all denials.
    past: Totals,
    /// CLOCK_MONOTONIC time, nanoseconds, when a stopping service ends the remaining streams;
    /// `None` while it is not stopping.
    stops_at_ns: Option<u64>,
}

/// A client's stream. The stream continues when its worker is replaced.
#[derive(Debug)]
struct Stream {
    client: ClientId,
    /// Present worker; `None` while the stream waits for a worker, and after the end of its worker.
    worker: Option<WorkerId>,
    /// Status of the stream, with sums over the workers before the present worker.
    status: StreamStatus,
}

/// Source of a poll(2) event.
#[derive(Clone, Copy, Debug)]
enum EventSource {
    Stops,
    Listener,
    MetricsListener,
    MetricsReader,
    Client(ClientId),
    Leaving,
    WorkerEnd(WorkerId),
    WorkerMessage(WorkerId),
}

impl Broker {
    pub(super) fn new(listener: Listener, metrics: Option<TcpListener>, settings: ServiceSettings) -> Broker {
        Broker {
            workers: Workers::new(settings.memory_bytes),
            settings,
            listener: Some(listener),
            paused_until_ns: None,
            metrics: metrics.map(Metrics::new),
            clients: BTreeMap::new(),
            leaving: VecDeque::new(),
            unread: Vec::new(),
            users: HashMap::new(),
            streams: BTreeMap::new(),
            waiting: VecDeque::new(),
            broken: None,
            next_client: 0,
            next_stream: 1,
            past: Totals::default(),
            stops_at_ns: None,
        }
    }

    /// Runs the service, as [`super::Service::run`] describes. Dropping `self` kills and
    /// reaps the remaining workers.
    pub(super) fn run(mut self, stops: &Stops) -> Result<(), ServeError> {
        loop {
            self.assign_workers();
            if self.stops_at_ns.is_some_and(|at_ns| self.streams.is_empty() || at_ns <= now_ns()) {
                return Ok(());
            }
            for source in self.wait(stops)? {
                match source {
                    EventSource::Stops if stops.take() => {
                        if self.stops_at_ns.is_some() {
                            return Ok(());
                        }
                        self.stop();
                    }
                    EventSource::Stops | EventSource::MetricsReader => {}
                    EventSource::Listener => self.accept_clients(),
                    EventSource::MetricsListener => {
                        if let Some(metrics) = &mut self.metrics {
                            metrics.accept(now_ns());
                        }
                    }
                    EventSource::Client(id) => self.serve_client(id),
                    EventSource::Leaving => {}
                    EventSource::WorkerMessage(id) => self.recv_from_worker(id),
                    EventSource::WorkerEnd(id) => self.reap(id),
                }
            }
            self.check_deadlines();
        }
    }

    /// Sleeps until there is an event or a deadline is due. Returns the sources of the events, an empty
    /// list if the sleep ended at a deadline. Fails if poll(2) fails.
    fn wait(&self, stops: &Stops) -> Result<Vec<EventSource>, ServeError> {
        let (mut sources, mut waits) =
            (vec![EventSource::Stops], vec![Wait::new(stops.as_fd(), PollEvents::Readable)]);
        let mut add = |source, fd, events| {
            sources.push(source);
            waits.push(Wait::new(fd, events));
        };
        // Workers are handled before clients, because the end of a worker frees resources.
        for (id, wait) in self.workers.waits() {
            match wait {
                WorkerWait::End(fd) => add(EventSource::WorkerEnd(id), fd, PollEvents::Readable),
                WorkerWait::Message(fd) => add(EventSource::WorkerMessage(id), fd, PollEvents::Readable),
            }
        }
        for (id, connection) in &self.clients {
            let events = if connection.is_behind() { PollEvents::Writable } else { PollEvents::Readable };
            add(EventSource::Client(*id), connection.fd(), events);
        }
        for (socket, _) in &self.leaving {
            add(EventSource::Leaving, socket.as_fd(), PollEvents::End);
        }
        if let Some(listener) = self.listener.as_ref().filter(|_| self.paused_until_ns.is_none()) {
            add(EventSource::Listener, listener.as_fd(), PollEvents::Readable);
        }
        if let Some(metrics) = &self.metrics {
            for (fd, writes) in metrics.readers() {
                add(
                    EventSource::MetricsReader,
                    fd,
                    if writes { PollEvents::Writable } else { PollEvents::Readable },
                );
            }
            if let Some(listener) = metrics.listener() {
                add(EventSource::MetricsListener, listener, PollEvents::Readable);
            }
        }
        let limit = self.deadline_ns().map(|at| Duration::from_nanos(at.saturating_sub(now_ns())));
        let ready = wait(waits, limit).map_err(ServeError::Poll)?;
        Ok(sources
            .into_iter()
            .zip(ready)
            .filter(|(_, is_ready)| *is_ready)
            .map(|(source, _)| source)
            .collect())
    }

    fn deadline_ns(&self) -> Option<u64> {
        let silent = self.clients.values().filter_map(Connection::deadline_ns);
        let leaving = self.leaving.front().map(|(_, until_ns)| *until_ns);
        let metrics = self.metrics.as_ref().and_then(Metrics::deadline_ns);
        let others = [self.workers.deadline_ns(), self.stops_at_ns, self.paused_until_ns, leaving, metrics];
        silent.chain(others.into_iter().flatten()).min()
    }

    fn check_deadlines(&mut self) {
        let now_ns = now_ns();
        let silent = |connection: &Connection| connection.deadline_ns().is_some_and(|at| at <= now_ns);
        let silent: Vec<ClientId> =
            self.clients.iter().filter(|(_, connection)| silent(connection)).map(|(id, _)| *id).collect();
        silent.into_iter().for_each(|id| self.remove_client(id));
        self.leaving.retain(|(socket, until_ns)| *until_ns > now_ns && !socket.has_ended());
        for _ in 0..self.workers.end_late(now_ns) {
            self.fail("a worker did not become ready in time".to_owned());
        }
        if self.paused_until_ns.is_some_and(|at| at <= now_ns) {
            self.paused_until_ns = None;
        }
        if let Some(mut metrics) = self.metrics.take() {
            metrics.serve(now_ns, || exposition::text(&self.totals(), &self.statuses()));
            self.metrics = Some(metrics);
        }
    }

    fn stop(&mut self) {
        let grace_ns = u64::try_from(self.settings.grace.as_nanos()).unwrap_or(u64::MAX);
        self.stops_at_ns = Some(now_ns().saturating_add(grace_ns));
        // Also removes the socket's name, so that the next service can use it.
        self.listener = None;
    }

    /// Accepts the waiting clients, at most `ACCEPTED`; pauses accepting for `PAUSE_NS` if that fails.
    fn accept_clients(&mut self) {
        for _ in 0..ACCEPTED {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok(Some((socket, peer))) => self.add_client(socket, peer),
                Ok(None) => return,
                // accept(2) has failed, most likely because the process lacks descriptors until a
                // client leaves.
                Err(_) => {
                    self.paused_until_ns = Some(now_ns() + PAUSE_NS);
                    return;
                }
            }
        }
    }

    fn add_client(&mut self, socket: Socket, peer: Peer) {
        let now_ns = now_ns();
        if !self.admits(&peer) {
            return self.reject(socket, Denial::User(peer.uid));
        }
        self.close_received();
        self.users.retain(|_, user| !user.is_forgettable(now_ns));
        if let Err(denial) = self.users.entry(peer.uid).or_default().connect(&self.settings.limits) {
            return self.reject(socket, denial);
        }
        log::info!("client {} connected: process {}, user {}", self.next_client, peer.pid, peer.uid);
        self.clients.insert(self.next_client, Connection::new(socket, peer, self.settings.patience));
        self.next_client += 1;
    }

    fn admits(&self, peer: &Peer) -> bool {
        peer.uid == effective_uid()
            || self.settings.uids.contains(&peer.uid)
            || peer.gids.iter().any(|gid| self.settings.gids.contains(gid))
    }

    /// Denies a client that has just connected: sends the client the reason, and keeps the connection open
    /// as [`Broker::leave`] describes, so that the client can read the reason. Closes the connection at once
    /// if the reason cannot be sent.
    fn reject(&mut self, socket: Socket, denial: Denial) {
        log::warn!("a client was denied: {denial}");
        self.past.denied += 1;
        let mut bytes = [0; MESSAGE_BYTES];
        Message::Denied { text: denial.to_string() }.encode(&mut bytes);
        if socket.try_send(&bytes, None).is_ok_and(|sent| sent) {
            self.leave(socket);
        }
    }

    /// Ends the sending direction of `socket`, and keeps the socket until the client has closed its end, but
    /// at most `LEAVING_NS`, and only while fewer than `LEAVING` newer sockets are kept. Closing the socket
    /// at once would discard the last message if data from the client is unread.
    fn leave(&mut self, socket: Socket) {
        socket.finish();
        if self.leaving.len() >= LEAVING {
            self.leaving.pop_front();
        }
        self.leaving.push_back((socket, now_ns() + LEAVING_NS));
    }

    /// Closes the ended connections whose clients have now received everything or closed their ends. This is
    /// looked up when a client connects, because only then the count of connections matters, and because no
    /// event of poll(2) reports it: a client can end the connection and leave its messages unread.
    fn close_received(&mut self) {
        let users = &mut self.users;
        self.unread.retain_mut(|connection| {
            let stays = connection.has_unread_grant();
            if let Some(user) = users.get_mut(&connection.peer.uid).filter(|_| !stays) {
                user.disconnect(&connection.client);
            }
            stays
        });
    }

    /// Handles one message from client `id`, or sends more of the messages that wait for the
    /// client.
    fn serve_client(&mut self, id: ClientId) {
        let Some(connection) = self.clients.get_mut(&id) else { return };
        if connection.is_behind() {
            if connection.flush().is_err() {
                self.remove_client(id);
            }
            return;
        }
        let message = match connection.recv() {
            ClientEvent::Message(message) => message,
            ClientEvent::Nothing => return,
            ClientEvent::Gone => return self.remove_client(id),
        };
        let user = self.users.entry(connection.peer.uid).or_default();
        let stopping = self.stops_at_ns.is_some();
        let limits = &self.settings.limits;
        let action =
            connection.client.on_message(message, user, limits, self.next_stream, stopping, now_ns());
        match action {
            Action::Open { stream } => self.open(id, stream),
            Action::Replace { stream } => self.replace(stream),
            Action::Release { stream } => self.release(stream),
            Action::Report { from } => {
                let report = match self.streams.range(from..).next() {
                    Some((_, stream)) => Message::Status(Box::new(self.status(stream))),
                    None => Message::Totals(self.totals()),
                };
                self.send_to(id, report);
            }
            Action::Deny(denial) => self.deny(id, &denial),
        }
    }

    fn deny(&mut self, id: ClientId, denial: &Denial) {
        self.past.denied += 1;
        self.send_to(id, Message::Denied { text: denial.to_string() });
        if denial.ends_connection() {
            if let Some(socket) = self.dismiss(id) {
                self.leave(socket);
            }
        }
    }

    fn send_to(&mut self, id: ClientId, message: Message) {
        let Some(connection) = self.clients.get_mut(&id) else { return };
        if connection.send(message, None).is_err() {
            self.remove_client(id);
        }
    }

    /// Ends all streams of client `id`, and its connection, as [`Broker::dismiss`] describes.
    fn remove_client(&mut self, id: ClientId) {
        drop(self.dismiss(id));
    }

    /// Ends all streams of client `id`, and removes its connection. Returns the socket to close; `None` if
    /// there is no such client, or if the connection was moved to `unread` because of an unread grant.
    fn dismiss(&mut self, id: ClientId) -> Option<Socket> {
        let mut connection = self.clients.remove(&id)?;
        log::info!("client {id} has left");
        let user = self.users.entry(connection.peer.uid).or_default();
        let streams = connection.client.end_streams(user);
        let is_unread = connection.has_unread_grant();
        if !is_unread {
            user.disconnect(&connection.client);
        }
        streams.into_iter().for_each(|stream| self.release(stream));
        if is_unread {
            connection.end();
            self.unread.push(connection);
            return None;
        }
        Some(connection.into_socket())
    }

    fn open(&mut self, id: ClientId, number: u32) {
        let Some(connection) = self.clients.get(&id) else { return };
        let status = StreamStatus {
            stream: number,
            client_pid: connection.peer.pid,
            client_uid: connection.peer.uid,
            ..StreamStatus::default()
        };
        self.streams.insert(number, Stream { client: id, worker: None, status });
        self.waiting.push_back(number);
        self.past.granted += 1;
        // Skips numbers in use, because numbers wrap around after years.
        self.next_stream = self.next_stream.wrapping_add(1).max(1);
        while self.streams.contains_key(&self.next_stream) {
            self.next_stream = self.next_stream.wrapping_add(1).max(1);
        }
    }

    fn replace(&mut self, number: u32) {
        self.take_worker(number);
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.status.crashes += 1;
            log::warn!("stream {number}: worker replaced, {} times so far", stream.status.crashes);
            self.waiting.push_back(number);
        }
    }

    fn release(&mut self, number: u32) {
        self.take_worker(number);
        self.waiting.retain(|waiting| *waiting != number);
        if let Some(stream) = self.streams.remove(&number) {
            self.past.crashes += stream.status.crashes;
            self.past.cpu_ns += stream.status.cpu_ns;
            self.past.frames = self.past.frames.saturating_add(stream.status.figures.frames);
        }
    }

    /// Ends the worker of stream `number`, and adds the worker's figures and CPU time to the stream. Does
    /// nothing if the stream has no worker.
    fn take_worker(&mut self, number: u32) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let Some(worker) = stream.worker.take() else { return };
        if let Some(work) = self.workers.work(worker) {
            stream.status.figures += &work.figures;
            stream.status.cpu_ns += work.cpu_ns;
        }
        self.workers.end(worker);
    }

    fn recv_from_worker(&mut self, id: WorkerId) {
        match self.workers.recv(id) {
            Some(Ok(())) => self.broken = None,
            Some(Err(reason)) => self.fail(reason),
            None => {}
        }
    }

    fn reap(&mut self, id: WorkerId) {
        match self.workers.reap(id) {
            Some(WorkerEnd::Unused(death)) => {
                log::error!("{death} before it had a stream");
                self.fail(format!("{death} before it had a stream"));
            }
            Some(WorkerEnd::Used { work, death }) => {
                if let Some(death) = death {
                    log::error!("{death}");
                }
                // Only updates the stream: the client notices the end itself, and requests another worker.
                if let Some(stream) = self.streams.values_mut().find(|stream| stream.worker == Some(id)) {
                    stream.worker = None;
                    stream.status.figures += &work.figures;
                    stream.status.cpu_ns += work.cpu_ns;
                }
            }
            None => {}
        }
    }

    /// Denies and removes the oldest waiting stream, if there is one, because no worker could be started.
    /// Stores `reason` in `broken`, because the next attempt is not likely to succeed.
    fn fail(&mut self, reason: String) {
        if let Some(number) = self.waiting.pop_front() {
            let text = format!("no worker could be started: {reason}");
            log::error!("stream {number}: {text}");
            if let Some(stream) = self.streams.get(&number) {
                let id = stream.client;
                if let Some(connection) = self.clients.get_mut(&id) {
                    if let Some(user) = self.users.get_mut(&connection.peer.uid) {
                        connection.client.failed(number, user);
                    }
                }
                self.past.denied += 1;
                self.send_to(id, Message::Denied { text });
            }
            self.release(number);
        }
        self.broken = Some(reason);
    }

    /// Assigns ready workers to waiting streams. Then ends surplus workers, or starts the workers that the
    /// waiting streams and the number of spares require. For each worker that cannot be started, denies the
    /// oldest waiting stream; starts no more workers once no stream waits.
    fn assign_workers(&mut self) {
        while let (Some(number), Some(worker)) = (self.waiting.front().copied(), self.workers.ready()) {
            self.waiting.pop_front();
            self.grant(number, worker);
        }
        let no_spares = self.broken.is_some() || self.stops_at_ns.is_some();
        let spares = if no_spares { 0 } else { self.settings.spares as usize };
        // Surplus workers were started for streams that are gone, or are spares that are no longer kept.
        self.workers.end_unused(self.waiting.len() + spares);
        while let Err(error) = self.workers.fill(self.waiting.len() + spares) {
            let was_spare = self.waiting.is_empty();
            self.fail(error.to_string());
            if was_spare {
                return;
            }
        }
    }

    fn grant(&mut self, number: u32, worker: WorkerId) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let Some(connection) = self.clients.get_mut(&stream.client) else { return };
        let Some((pid, layers, socket)) = self.workers.grant(worker, number) else { return };
        stream.worker = Some(worker);
        connection.client.granted(number);
        let client = stream.client;
        // A client in another pid namespace has peer pid 0, and could take the worker's pid for that of
        // another process. So this client gets 0.
        let pid = if connection.peer.pid == 0 { 0 } else { pid };
        if connection
            .send(Message::Grant { stream: number, pid, layers: layers.bits() }, Some(socket))
            .is_err()
        {
            self.remove_client(client);
        }
    }

    fn status(&self, stream: &Stream) -> StreamStatus {
        let mut status = stream.status.clone();
        if let Some(worker) = stream.worker {
            status.worker_pid = self.workers.pid(worker).unwrap_or(0);
            if let Some(work) = self.workers.work(worker) {
                status.figures += &work.figures;
                status.cpu_ns += work.cpu_ns;
            }
        }
        status
    }

    fn statuses(&self) -> Vec<StreamStatus> {
        self.streams.values().map(|stream| self.status(stream)).collect()
    }

    fn totals(&self) -> Totals {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let mut totals = Totals {
            streams: count(self.streams.len()),
            connections: count(self.clients.len() + self.unread.len()),
            spares: count(self.workers.spares()),
            ..self.past
        };
        for status in self.statuses() {
            totals.crashes += status.crashes;
            totals.cpu_ns += status.cpu_ns;
            totals.frames = totals.frames.saturating_add(status.figures.frames);
        }
        totals
    }
}
