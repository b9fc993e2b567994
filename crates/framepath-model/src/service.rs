// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions of the service about a client's messages: pure, so that tests need
//! no socket for a conversation.
//!
//! A *client* is a connection, a *user* is all clients with the same uid. Limits
//! apply to a user: another connection does not raise them.

use crate::wire::{Message, VERSION, WireError};

/// Most messages of one connection in a second; one more ends the connection. Watching
/// a thousand streams twice a second stays below.
pub const MESSAGES_PER_SECOND: u32 = 2500;

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

/// Limits of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLimits {
    /// Connections at a time.
    pub connections: u32,
    /// Streams at a time.
    pub streams: u32,
    /// Workers a minute, for new streams.
    pub opens_per_minute: u32,
    /// Workers a minute, as replacements.
    pub replacements_per_minute: u32,
}

impl Default for UserLimits {
    fn default() -> UserLimits {
        UserLimits { connections: 128, streams: 64, opens_per_minute: 2400, replacements_per_minute: 600 }
    }
}

/// Counter of events in a period; it restarts when the period is over.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since_ns: u64,
    count: u32,
}

impl Window {
    /// Counts one event; returns true if there were at most `most` in `length_ns`.
    fn allows(&mut self, now_ns: u64, length_ns: u64, most: u32) -> bool {
        if now_ns.saturating_sub(self.since_ns) >= length_ns {
            *self = Window { since_ns: now_ns, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= most
    }

    fn is_over(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.since_ns) >= MINUTE_NS
    }
}

/// Resources in use by one user.
#[derive(Clone, Debug, Default)]
pub struct User {
    connections: u32,
    streams: u32,
    opens: Window,
    replacements: Window,
}

/// Reason for which a client is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// Too many connections.
    #[error("this user has {0} connections already, the most that --connections allows")]
    Connections(u32),
    /// Too many streams.
    #[error("this user has {0} streams already, the most that --streams allows")]
    Streams(u32),
    /// Too many new streams in a minute.
    #[error("this user opened {0} streams in a minute, the most that --opens-per-minute allows")]
    Opens(u32),
    /// Too many replacements in a minute.
    #[error("this user had {0} workers replaced in a minute, the most that --replacements-per-minute allows")]
    Replacements(u32),
    /// The user is not allowed to use the service.
    #[error("user {0} may not use this service: --allow-uid or --allow-gid lets others in than its own user")]
    User(u32),
    /// The service is stopping.
    #[error("the service is stopping and opens no stream")]
    Stopping,
    /// The client has no stream with this number.
    #[error("stream {0} is not one of this connection's")]
    NotYours(u32),
    /// A worker for the stream was requested and not yet granted.
    #[error("stream {0} is waiting for a worker already")]
    Waiting(u32),
    /// A message that only the service sends, or only workers and callers.
    #[error("this is no message for the service")]
    NotForUs,
    /// Too many messages.
    #[error("more than {MESSAGES_PER_SECOND} messages in a second")]
    Flood,
    /// An invalid message.
    #[error("this has no meaning: {0}")]
    Meaningless(WireError),
}

impl Denial {
    /// Returns true if the connection ends with this denial: no correct client sends such a
    /// message, or continues after it.
    pub fn ends_connection(&self) -> bool {
        !matches!(self, Denial::Streams(_) | Denial::Opens(_) | Denial::Replacements(_) | Denial::Stopping)
    }
}

/// Action that the service takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give this new stream a worker.
    Open {
        /// Its number.
        stream: u32,
    },
    /// End the stream's worker, and give it another.
    Replace {
        /// Its number.
        stream: u32,
    },
    /// End the stream and its worker.
    Release {
        /// Its number.
        stream: u32,
    },
    /// Report the first stream from this number on.
    Report {
        /// The number.
        from: u32,
    },
    /// Send the denial; end the connection if [`Denial::ends_connection`].
    Deny(Denial),
}

impl User {
    /// Counts a new connection, if it is allowed; each needs a later
    /// [`User::disconnect`].
    ///
    /// # Errors
    /// The user has as many as are allowed.
    pub fn connect(&mut self, limits: &UserLimits) -> Result<(), Denial> {
        if self.connections >= limits.connections {
            return Err(Denial::Connections(limits.connections));
        }
        self.connections += 1;
        Ok(())
    }

    /// Records the end of a connection, and with it of the client's streams.
    pub fn disconnect(&mut self, client: &Client) {
        self.connections = self.connections.saturating_sub(1);
        self.streams = self.streams.saturating_sub(client.streams.len() as u32);
    }

    /// Returns true if nothing about this user has to be remembered.
    pub fn is_forgettable(&self, now_ns: u64) -> bool {
        self.connections == 0 && self.opens.is_over(now_ns) && self.replacements.is_over(now_ns)
    }
}

/// A stream of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stream {
    number: u32,
    /// A worker was asked for and not yet granted.
    waits: bool,
}

/// One connection.
#[derive(Clone, Debug, Default)]
pub struct Client {
    streams: Vec<Stream>,
    messages: Window,
}

impl Client {
    /// Decides about a message of the client at `now_ns`.
    /// `next_stream` is the number that a new stream gets. While the service
    /// is `stopping`, no stream is opened.
    pub fn on_message(
        &mut self,
        said: Result<Message, WireError>,
        user: &mut User,
        limits: &UserLimits,
        next_stream: u32,
        stopping: bool,
        now_ns: u64,
    ) -> Action {
        if !self.messages.allows(now_ns, SECOND_NS, MESSAGES_PER_SECOND) {
            return Action::Deny(Denial::Flood);
        }
        let action = match said {
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

    fn replace(
        &mut self,
        number: u32,
        user: &mut User,
        limits: &UserLimits,
        now_ns: u64,
    ) -> Result<Action, Denial> {
        let stream = self.streams.iter_mut().find(|stream| stream.number == number);
        let stream = stream.ok_or(Denial::NotYours(number))?;
        if stream.waits {
            return Err(Denial::Waiting(number));
        }
        if !user.replacements.allows(now_ns, MINUTE_NS, limits.replacements_per_minute) {
            return Err(Denial::Replacements(limits.replacements_per_minute));
        }
        stream.waits = true;
        Ok(Action::Replace { stream: number })
    }

    fn release(&mut self, number: u32, user: &mut User) -> Result<Action, Denial> {
        let place = self.streams.iter().position(|stream| stream.number == number);
        self.streams.swap_remove(place.ok_or(Denial::NotYours(number))?);
        user.streams = user.streams.saturating_sub(1);
        Ok(Action::Release { stream: number })
    }

    /// Records that stream `number` got its worker.
    pub fn granted(&mut self, number: u32) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.number == number) {
            stream.waits = false;
        }
    }

    /// Ends stream `number`, because no worker could be made for it.
    pub fn failed(&mut self, number: u32, user: &mut User) {
        // The client may have released it meanwhile.
        let _ = self.release(number, user);
    }

    /// Iterates over the numbers of its streams.
    pub fn streams(&self) -> impl Iterator<Item = u32> {
        self.streams.iter().map(|stream| stream.number)
    }

    /// Returns true if the connection has no stream.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }
}
