// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions of the service about a client's messages. The module does no I/O, so tests need no
//! socket.
//!
//! A *client* is a connection, a *user* is all clients with the same uid. Limits
//! apply to a user: another connection does not raise them.
//!
//! A grant carries a descriptor, which counts for the service's user until the client receives it. So a connection
//! has at most one grant that is not received, and a user at most as many as connections.

use crate::wire::{Message, VERSION, WireError};

/// Maximum number of messages from one connection in a second; the service ends the connection at
/// the next message in this second. A second begins with the first message after the second before.
/// A client that watches a thousand streams twice a second stays below the limit.
pub const MESSAGES_PER_SECOND: u32 = 2500;

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

/// Limits of the service for one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLimits {
    /// Maximum number of simultaneous connections. Default: 128.
    pub connections: u32,
    /// Maximum number of simultaneous streams. Default: 64.
    pub streams: u32,
    /// Maximum number of new streams in a minute. Default: 2400.
    pub opens_per_minute: u32,
    /// Maximum number of workers that are replaced in a minute. Default: 600.
    pub replacements_per_minute: u32,
}

impl Default for UserLimits {
    fn default() -> UserLimits {
        UserLimits { connections: 128, streams: 64, opens_per_minute: 2400, replacements_per_minute: 600 }
    }
}

/// Counter of the events in a period; restarts with the first event after the period.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since_ns: u64,
    count: u32,
}

impl Window {
    /// Counts one event at `now_ns` (CLOCK_MONOTONIC nanoseconds). Returns true if the present
    /// period of `length_ns` nanoseconds has had at most `most` events, this one included.
    fn allows(&mut self, now_ns: u64, length_ns: u64, most: u32) -> bool {
        if now_ns.saturating_sub(self.since_ns) >= length_ns {
            *self = Window { since_ns: now_ns, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= most
    }

    /// Returns true if the period began at least a minute before `now_ns`.
    fn is_over(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.since_ns) >= MINUTE_NS
    }
}

/// Connections, streams and recent requests of one user, counted for the limits.
#[derive(Clone, Debug, Default)]
pub struct User {
    connections: u32,
    streams: u32,
    opens: Window,
    replacements: Window,
}

/// Reason for which the service denies a connection or a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The user has the maximum number of connections, which is the field.
    #[error(
        "this user has {0} connections already, the limit of --connections; close a connection or raise the limit"
    )]
    Connections(u32),
    /// The user has the maximum number of streams, which is the field.
    #[error("this user has {0} streams already, the limit of --streams; close a stream or raise the limit")]
    Streams(u32),
    /// The user requested more new streams in a minute than the limit, which is the field.
    #[error(
        "this user opened {0} streams in a minute, the limit of --opens-per-minute; retry later or raise the \
         limit"
    )]
    Opens(u32),
    /// The user requested more replaced workers in a minute than the limit, which is the field.
    #[error(
        "this user had {0} workers replaced in a minute, the limit of --replacements-per-minute; retry later or \
         raise the limit"
    )]
    Replacements(u32),
    /// The user with this uid is not allowed to use the service.
    #[error(
        "user {0} is not allowed; start the service with --allow-uid {0}, or with --allow-gid and a group of this user"
    )]
    User(u32),
    /// The client requested a stream, but the service is stopping and opens no new stream.
    #[error("the service is stopping and opens no stream; retry when it runs again")]
    Stopping,
    /// The client named a stream, by the number in the field, that its connection does not have.
    #[error(
        "stream {0} is not a stream of this connection; use the number of a granted stream that is not released"
    )]
    NotYours(u32),
    /// The client requested another worker for the stream with this number, which already waits for
    /// a worker.
    #[error("stream {0} already waits for a worker; wait for the answer to the earlier request")]
    Waiting(u32),
    /// The client requested a worker although an answer that grants one on this connection waits or is unread.
    /// Each unread answer keeps a descriptor of the service's user in flight, and the kernel limits their number.
    #[error(
        "this connection has not received its earlier worker; read each answer before requesting another worker"
    )]
    Unread,
    /// The message is one that only a worker, a caller, a zygote or the service sends.
    #[error("a client does not send this message to the service; send hello, replace, release or watch")]
    NotForUs,
    /// The connection sent more than [`MESSAGES_PER_SECOND`] messages in a second.
    #[error("this connection sent more than {MESSAGES_PER_SECOND} messages in a second; send fewer")]
    Flood,
    /// The message has a wrong size, start, kind or content, or another version of the wire format;
    /// also a hello that names another version.
    #[error("cannot decode the message: {0}")]
    Meaningless(WireError),
}

impl Denial {
    /// Returns true if the service ends the connection after this denial. False for the limits of
    /// streams, new streams and replaced workers, and while the service is stopping; true for every
    /// other denial.
    pub fn ends_connection(&self) -> bool {
        !matches!(self, Denial::Streams(_) | Denial::Opens(_) | Denial::Replacements(_) | Denial::Stopping)
    }
}

/// Action that the service takes after a client's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give this new stream a worker.
    Open {
        /// Number of the stream.
        stream: u32,
    },
    /// End the stream's worker, and give the stream another.
    Replace {
        /// Number of the stream.
        stream: u32,
    },
    /// End the stream and its worker.
    Release {
        /// Number of the stream.
        stream: u32,
    },
    /// Report the first stream whose number is at least `from`, or the totals if there is none.
    Report {
        /// Lowest stream number of interest.
        from: u32,
    },
    /// Send the denial; end the connection if [`Denial::ends_connection`].
    Deny(Denial),
}

impl User {
    /// Counts a new connection if it is allowed. Each counted connection needs a later
    /// [`User::disconnect`].
    ///
    /// # Errors
    /// The user already has the maximum number of connections.
    pub fn connect(&mut self, limits: &UserLimits) -> Result<(), Denial> {
        if self.connections >= limits.connections {
            return Err(Denial::Connections(limits.connections));
        }
        self.connections += 1;
        Ok(())
    }

    /// Records the end of connection `client` of this user, and of the connection's streams that have not
    /// [ended](Client::end_streams).
    pub fn disconnect(&mut self, client: &Client) {
        self.connections = self.connections.saturating_sub(1);
        self.streams = self.streams.saturating_sub(client.streams.len() as u32);
    }

    /// Returns true if this record can be dropped at `now_ns` (CLOCK_MONOTONIC nanoseconds): the
    /// user has no connection, and the minutes in which new streams and replacements are counted
    /// are over.
    pub fn is_forgettable(&self, now_ns: u64) -> bool {
        self.connections == 0 && self.opens.is_over(now_ns) && self.replacements.is_over(now_ns)
    }
}

/// Stream of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stream {
    number: u32,
    /// True while the stream waits for a worker.
    waits: bool,
}

/// State of one connection: its streams, whether a granted worker is unread, and its messages in the present
/// second.
#[derive(Clone, Debug, Default)]
pub struct Client {
    streams: Vec<Stream>,
    /// True from a grant until the client is known to have received all messages.
    unread_grant: bool,
    messages: Window,
}

impl Client {
    /// Decides about a message of the client, received at `now_ns` (CLOCK_MONOTONIC nanoseconds),
    /// and counts it for the limits. Also records the streams that it opens, releases or replaces,
    /// here and in `user`. Returns the action that the service takes. `message` is an error if it
    /// could not be decoded. `next_stream` is the number for a new stream. While the service is
    /// `stopping`, it opens no stream.
    pub fn on_message(
        &mut self,
        message: Result<Message, WireError>,
        user: &mut User,
        limits: &UserLimits,
        next_stream: u32,
        stopping: bool,
        now_ns: u64,
    ) -> Action {
        if !self.messages.allows(now_ns, SECOND_NS, MESSAGES_PER_SECOND) {
            return Action::Deny(Denial::Flood);
        }
        let action = match message {
            Ok(Message::Hello { version: theirs }) if theirs != VERSION => {
                Err(Denial::Meaningless(WireError::Version { ours: VERSION, theirs }))
            }
            Ok(Message::Hello { .. }) => self.open(user, limits, next_stream, stopping, now_ns),
            Ok(Message::Replace { stream, .. }) => self.replace(stream, user, limits, now_ns),
            Ok(Message::Release { stream }) => self.release(stream, user),
            Ok(Message::Watch { from }) => Ok(Action::Report { from }),
            Ok(_) => Err(Denial::NotForUs),
            Err(error) => Err(Denial::Meaningless(error)),
        };
        action.unwrap_or_else(Action::Deny)
    }

    fn open(
        &mut self,
        user: &mut User,
        limits: &UserLimits,
        number: u32,
        stopping: bool,
        now_ns: u64,
    ) -> Result<Action, Denial> {
        if stopping {
            return Err(Denial::Stopping);
        }
        if self.awaits_grant() {
            return Err(Denial::Unread);
        }
        if user.streams >= limits.streams {
            return Err(Denial::Streams(limits.streams));
        }
        if !user.opens.allows(now_ns, MINUTE_NS, limits.opens_per_minute) {
            return Err(Denial::Opens(limits.opens_per_minute));
        }
        user.streams += 1;
        self.streams.push(Stream { number, waits: true });
        Ok(Action::Open { stream: number })
    }

    /// Returns true if the client may still have to receive a grant: then another would add to the
    /// descriptors in flight.
    fn awaits_grant(&self) -> bool {
        self.unread_grant || self.streams.iter().any(|stream| stream.waits)
    }

    fn replace(
        &mut self,
        number: u32,
        user: &mut User,
        limits: &UserLimits,
        now_ns: u64,
    ) -> Result<Action, Denial> {
        let place = self.streams.iter().position(|stream| stream.number == number);
        let place = place.ok_or(Denial::NotYours(number))?;
        if self.streams[place].waits {
            return Err(Denial::Waiting(number));
        }
        if self.awaits_grant() {
            return Err(Denial::Unread);
        }
        if !user.replacements.allows(now_ns, MINUTE_NS, limits.replacements_per_minute) {
            return Err(Denial::Replacements(limits.replacements_per_minute));
        }
        self.streams[place].waits = true;
        Ok(Action::Replace { stream: number })
    }

    fn release(&mut self, number: u32, user: &mut User) -> Result<Action, Denial> {
        let place = self.streams.iter().position(|stream| stream.number == number);
        self.streams.swap_remove(place.ok_or(Denial::NotYours(number))?);
        user.streams = user.streams.saturating_sub(1);
        Ok(Action::Release { stream: number })
    }

    /// Records that stream `number` got its worker, and that a grant is now unread. Does nothing if the stream
    /// was released.
    pub fn granted(&mut self, number: u32) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.number == number) {
            stream.waits = false;
            self.unread_grant = true;
        }
    }

    /// Records that the client has received all messages sent to it so far.
    pub fn read_all(&mut self) {
        self.unread_grant = false;
    }

    /// Returns true if a grant was sent since the last [`Client::read_all`].
    pub fn has_unread_grant(&self) -> bool {
        self.unread_grant
    }

    /// Ends all streams of the connection, here and in `user`. Returns their numbers.
    pub fn end_streams(&mut self, user: &mut User) -> Vec<u32> {
        user.streams = user.streams.saturating_sub(self.streams.len() as u32);
        std::mem::take(&mut self.streams).into_iter().map(|stream| stream.number).collect()
    }

    /// Ends stream `number`, because no worker could be started for it. Does nothing if the stream
    /// was released.
    pub fn failed(&mut self, number: u32, user: &mut User) {
        // The client may have released the stream in the meantime.
        let _ = self.release(number, user);
    }

    /// Iterates over the numbers of the connection's streams.
    pub fn streams(&self) -> impl Iterator<Item = u32> {
        self.streams.iter().map(|stream| stream.number)
    }

    /// Returns true if the connection has no stream.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }
}
