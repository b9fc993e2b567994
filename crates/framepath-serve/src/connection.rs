// SPDX-License-Identifier: MIT OR Apache-2.0
//! One client's connection: what it says, and what it has not yet taken.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use framepath_model::service::Client;
use framepath_model::wire::{MESSAGE_BYTES, Message, WireError};
use framepath_os::clock::now_ns;
use framepath_os::crossing::{Peer, Socket};

/// A client.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    pub(super) peer: Peer,
    pub(super) client: Client,
    /// Messages that found no room. While there are any the client is not
    /// listened to, so that there are never more than it has streams.
    waiting: VecDeque<(Message, Option<OwnedFd>)>,
    patience_ns: u64,
    /// When it must have said its first word, or taken one of those that wait.
    /// Its end of the socket does not show who is behind and gone: it is open
    /// where the client sent it here itself, in a message that is not read.
    until_ns: Option<u64>,
}

/// Event of a client.
#[derive(Debug)]
pub(super) enum Heard {
    /// The client sent this message.
    Word(Result<Message, WireError>),
    /// No event after all.
    Nothing,
    /// The client is gone.
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
        connection.wait_for_it();
        connection
    }

    /// It has to do something from now on.
    fn wait_for_it(&mut self) {
        self.until_ns = Some(now_ns().saturating_add(self.patience_ns));
    }

    /// The next thing it says.
    pub(super) fn hear(&mut self) -> Heard {
        // One byte more, so that a record that is too long does not pass.
        let mut bytes = [0; MESSAGE_BYTES + 1];
        match self.socket.try_receive(&mut bytes) {
            // An empty record looks like the end, and is taken for it.
            Ok(Some(0)) | Err(_) => Heard::Gone,
            Ok(Some(len)) => {
                self.until_ns = None;
                Heard::Word(Message::decode(&bytes[..len]))
            }
            Ok(None) => Heard::Nothing,
        }
    }

    /// Says `message`, now or when there is room.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) fn say(&mut self, message: Message, fd: Option<OwnedFd>) -> io::Result<()> {
        self.waiting.push_back((message, fd));
        if self.waiting.len() == 1 {
            self.wait_for_it();
        }
        self.flush()
    }

    /// Says what has been waiting, as far as there is room.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some((message, fd)) = self.waiting.front() {
            let mut bytes = [0; MESSAGE_BYTES];
            message.encode(&mut bytes);
            if !self.socket.try_send(&bytes, fd.as_ref().map(|fd| fd.as_fd()))? {
                return Ok(());
            }
            self.waiting.pop_front();
            self.wait_for_it();
        }
        self.until_ns = None;
        Ok(())
    }

    /// True if messages to the client wait to be sent.
    pub(super) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When it must have said something, or taken what was said.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.until_ns
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The socket, for a client that is only to read its last message.
    pub(super) fn into_socket(self) -> Socket {
        self.socket
    }
}
