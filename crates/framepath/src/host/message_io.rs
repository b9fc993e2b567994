// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages over a socket, with their descriptors.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use framepath_model::wire::{MESSAGE_BYTES, Message};
use framepath_os::crossing::{Socket, is_crowded};

use super::HostError;

/// Sends `message`, with a descriptor where there is one.
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

/// Receives the next message; `None` if the other side is gone.
pub fn recv(socket: &Socket) -> Result<Option<(Message, Option<OwnedFd>)>, HostError> {
    // One byte more than a message, so that a record that is too long is not accepted.
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let heard = socket.receive(&mut bytes);
    let (len, fd) = heard.map_err(|source| HostError::Socket { operation: "reading from", source })?;
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

/// Receives like `hear`, with a time limit.
pub fn recv_within(
    socket: &Socket,
    limit: Duration,
) -> Result<Option<(Message, Option<OwnedFd>)>, HostError> {
    let ready = socket.readable_within(limit);
    match ready.map_err(|source| HostError::Socket { operation: "waiting for", source })? {
        true => recv(socket),
        false => Err(HostError::NotOpened { what: "said nothing" }),
    }
}
