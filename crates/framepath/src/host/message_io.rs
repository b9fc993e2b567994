// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages over a socket.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use framepath_model::wire::{MESSAGE_BYTES, Message};
use framepath_os::crossing::{Socket, is_crowded};

use super::HostError;

/// Sends `message`, with `fd` attached. Any thread may call it.
///
/// # Errors
/// The socket failed, or too many descriptors of this user are in flight.
pub fn send(socket: &Socket, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<(), HostError> {
    let mut bytes = [0; MESSAGE_BYTES];
    message.encode(&mut bytes);
    socket.send(&bytes, fd).map_err(|source| {
        let operation = "writing to";
        match is_crowded(&source) {
            true => HostError::TooManyInFlight { operation },
            false => HostError::Socket { operation, source },
        }
    })
}

/// Receives the next message and its descriptor; `None` if the peer has closed the connection. Waits
/// without limit.
///
/// # Errors
/// The socket failed, or the message is invalid.
pub fn recv(socket: &Socket) -> Result<Option<(Message, Option<OwnedFd>)>, HostError> {
    // One byte longer than a message, so that `decode` rejects a record that is too long.
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let received = socket.receive(&mut bytes);
    let (len, fd) = received.map_err(|source| HostError::Socket { operation: "reading from", source })?;
    if len == 0 {
        return Ok(None);
    }
    Ok(Some((shown(Message::decode(&bytes[..len])?), fd)))
}

/// Returns the message with its text made safe for a terminal.
fn shown(message: Message) -> Message {
    let plain = |text: String| framepath_model::shown::shown(&text).into_owned();
    match message {
        Message::Refused { text } => Message::Refused { text: plain(text) },
        Message::Failed { text, seq } => Message::Failed { text: plain(text), seq },
        Message::Denied { text } => Message::Denied { text: plain(text) },
        other => other,
    }
}

/// Receives like [`recv`], with a time limit.
///
/// # Errors
/// As [`recv`]; [`HostError::NotOpened`] after the time limit.
pub fn recv_within(
    socket: &Socket,
    limit: Duration,
) -> Result<Option<(Message, Option<OwnedFd>)>, HostError> {
    let ready = socket.readable_within(limit);
    match ready.map_err(|source| HostError::Socket { operation: "waiting for", source })? {
        true => recv(socket),
        false => Err(HostError::NotOpened { what: "sent no message in time" }),
    }
}
