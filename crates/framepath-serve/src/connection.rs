// SPDX-License-Identifier: MIT OR Apache-2.0
//! One client's connection: receives the client's messages, and keeps messages to the client until the
//! socket has room.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use framepath_model::service::Client;
use framepath_model::wire::{MESSAGE_BYTES, Message, WireError};
use framepath_os::crossing::{Peer, Socket};
use framepath_os::time::now_ns;

/// Maximum number of a client's messages that are dropped at the end of its connection. A socket with the usual
/// limit of memory (`net.core.wmem_max`) has room for about half as many empty records.
const DROPPED: usize = 1024;

/// A client's connection, with the messages that the service has not yet sent to the client.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    pub(super) peer: Peer,
    pub(super) client: Client,
    /// Messages that wait for room in the socket, each with its descriptor if it has one. While any
    /// wait, the service does not read from the client. So at most one message for each of the
    /// client's streams, and one answer, wait.
    waiting: VecDeque<(Message, Option<OwnedFd>)>,
    /// Time limit for the client to send its first message, and to read a waiting message,
    /// nanoseconds.
    patience_ns: u64,
    /// CLOCK_MONOTONIC deadline, nanoseconds, for the client's first message or for reading a
    /// waiting message; `None` if neither is due. The deadline also removes a client that has
    /// exited, but whose end of the socket stays open because the client had sent that end to the
    /// service in a message that is still unread.
    until_ns: Option<u64>,
}

/// Result of receiving from a client.
#[derive(Debug)]
pub(super) enum ClientEvent {
    /// The client sent a message; the error if the message is invalid.
    Message(Result<Message, WireError>),
    /// No message of the client waits to be received.
    Nothing,
    /// The client has closed the connection or has sent an empty record, or the connection failed.
    Gone,
}

impl Connection {
    pub(super) fn new(socket: Socket, peer: Peer, patience: Duration) -> Connection {
        let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        let mut connection = Connection {
            socket,
            peer,
            client: Client::default(),
            waiting: VecDeque::new(),
            patience_ns,
            until_ns: None,
        };
        connection.start_timeout();
        connection
    }

    /// Starts the client's time limit from the present time.
    fn start_timeout(&mut self) {
        self.until_ns = Some(now_ns().saturating_add(self.patience_ns));
    }

    /// Receives the client's next message, without waiting. A message, also an
    /// invalid one, ends the client's time limit, and the connection's state then includes whether the client has
    /// received its last grant.
    pub(super) fn recv(&mut self) -> ClientEvent {
        // One byte longer than a message, so that `decode` rejects a record that is too long.
        let mut bytes = [0; MESSAGE_BYTES + 1];
        match self.socket.try_receive(&mut bytes) {
            // An empty record looks like the end of the connection.
            Ok(Some(0)) | Err(_) => ClientEvent::Gone,
            Ok(Some(len)) => {
                self.until_ns = None;
                self.has_unread_grant();
                ClientEvent::Message(Message::decode(&bytes[..len]))
            }
            Ok(None) => ClientEvent::Nothing,
        }
    }

    /// Sends `message` with the descriptor `fd`, or keeps both until the socket has room.
    ///
    /// # Errors
    /// The client is gone, or too many descriptors wait in sockets (ETOOMANYREFS).
    pub(super) fn send(&mut self, message: Message, fd: Option<OwnedFd>) -> io::Result<()> {
        self.waiting.push_back((message, fd));
        if self.waiting.len() == 1 {
            self.start_timeout();
        }
        self.flush()
    }

    /// Sends the waiting messages until the socket has no more room.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some((message, fd)) = self.waiting.front() {
            let mut bytes = [0; MESSAGE_BYTES];
            message.encode(&mut bytes);
            if !self.socket.try_send(&bytes, fd.as_ref().map(|fd| fd.as_fd()))? {
                return Ok(());
            }
            self.waiting.pop_front();
            self.start_timeout();
        }
        self.until_ns = None;
        Ok(())
    }

    /// Returns true if the client may have a grant that it has not received: one was sent, and since then the
    /// socket has not been found empty.
    pub(super) fn has_unread_grant(&mut self) -> bool {
        // Queries the kernel only after a grant.
        if self.client.has_unread_grant() && self.is_all_read() {
            self.client.read_all();
        }
        self.client.has_unread_grant()
    }

    fn is_all_read(&self) -> bool {
        self.socket.unread_bytes().is_ok_and(|bytes| bytes == 0)
    }

    /// Ends the connection in both directions, and drops the messages that wait to be sent, and those of the
    /// client that were not received: a descriptor in one of them could keep the client's end open. The client can
    /// still receive what was sent.
    pub(super) fn end(&mut self) {
        self.waiting.clear();
        self.socket.shut();
        let mut bytes = [0; 1];
        for _ in 0..DROPPED {
            // After the end, an empty queue reads like an empty record.
            if !matches!(self.socket.try_receive(&mut bytes), Ok(Some(_))) {
                break;
            }
        }
    }

    /// Returns true if messages to the client wait to be sent.
    pub(super) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the client's deadline, CLOCK_MONOTONIC nanoseconds; `None` if the client has no time limit
    /// now.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.until_ns
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the client's socket, for closing it after the client has read the last message. Messages that
    /// still wait are dropped.
    pub(super) fn into_socket(self) -> Socket {
        self.socket
    }
}
