// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages over a socket, with their descriptors.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use framepath_model::wire::{MESSAGE_BYTES, Message};
use framepath_os::crossing::{Breach, Socket, is_crowded};

use super::HostError;

/// Sends `message`, with `fd` attached if there is one. Waits while the socket is full; with `fd` also up to
/// 10 s while too many descriptors of this user are in unread messages. Any thread may call it.
///
/// # Errors
/// The socket failed, the grace period of a signal ended during the wait, or too many descriptors of this
/// user are in messages that were not received.
pub fn send(socket: &Socket, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<(), HostError> {
    let mut bytes = [0; MESSAGE_BYTES];
    message.encode(&mut bytes);
    socket.send(&bytes, fd).map_err(|source| {
        let operation = "send a message to another framepath process";
        match is_crowded(&source) {
            true => HostError::TooManyInFlight { operation },
            false => HostError::Socket { operation, source },
        }
    })
}

/// Most memory that an unread message takes in the kernel, bytes: 1 KiB of message, and bookkeeping.
const UNREAD_MESSAGE: u32 = 4096;

/// Limit on the kernel memory of the messages that a worker has not read when it makes a request, as a number
/// of messages of the largest size. Each announced input pool raises the limit by one such message.
const UNREAD_MESSAGES: u32 = 4;

/// Checks that a worker that makes a request has received the answers to nearly all earlier requests. The
/// messages to the worker that are unread may take the memory of [`UNREAD_MESSAGES`] of the largest messages
/// and of as many more as `announced` returns, the number of announced input pools. Each answer can hold a
/// descriptor, and the kernel limits the descriptors in unread messages of one user: a worker that only asks
/// would use them up.
///
/// # Errors
/// The worker broke the rules, or the socket failed.
pub(super) fn check_answers_received(socket: &Socket, announced: impl Fn() -> u32) -> Result<(), HostError> {
    let unread = socket.unread_bytes();
    let unread = unread
        .map_err(|source| HostError::Socket { operation: "check the worker's unread messages", source })?;
    // Announcements are counted after the look at the socket, so that each one that was unread then is
    // counted.
    let messages = UNREAD_MESSAGES.saturating_add(announced());
    if unread > messages.saturating_mul(UNREAD_MESSAGE) {
        return Err(Breach("it requests memory without receiving the last answers").into());
    }
    Ok(())
}

/// Receives the next message and its descriptor; `None` if the peer has closed the connection. Waits
/// without limit. Makes the texts of errors safe for a terminal.
///
/// # Errors
/// The socket failed, the grace period of a signal ended during the wait, or the message is invalid or of
/// another version of the wire format.
pub fn recv(socket: &Socket) -> Result<Option<(Message, Option<OwnedFd>)>, HostError> {
    // One byte longer than a message, so that `decode` rejects a record that is too long.
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let (len, fd) = match socket.receive(&mut bytes) {
        // The peer has ended without having read all messages.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        received => received.map_err(|source| HostError::Socket {
            operation: "receive a message from another framepath process",
            source,
        })?,
    };
    if len == 0 {
        return Ok(None);
    }
    Ok(Some((shown(Message::decode(&bytes[..len])?), fd)))
}

/// Returns the message, with the text of an error made safe for a terminal.
fn shown(message: Message) -> Message {
    let plain = |text: String| framepath_model::shown::shown(&text).into_owned();
    match message {
        Message::Refused { text } => Message::Refused { text: plain(text) },
        Message::Failed { text, seq } => Message::Failed { text: plain(text), seq },
        Message::Denied { text } => Message::Denied { text: plain(text) },
        other => other,
    }
}

/// Receives the next message and its descriptor; `None` if the peer has closed the connection. Waits at
/// most for `limit`; a signal starts this time anew.
///
/// # Errors
/// As `recv`; [`HostError::NotOpened`] after the time limit.
pub fn recv_within(
    socket: &Socket,
    limit: Duration,
) -> Result<Option<(Message, Option<OwnedFd>)>, HostError> {
    let ready = socket.readable_within(limit);
    match ready.map_err(|source| HostError::Socket {
        operation: "wait for a message from another framepath process",
        source,
    })? {
        true => recv(socket),
        false => Err(HostError::NotOpened {
            what: "no message from the worker, the zygote or the service in time",
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_peer_that_ends_without_having_read_has_closed_the_connection() {
        let (caller, peer) = Socket::pair().unwrap();
        send(&caller, &Message::Page, None).unwrap();
        drop(peer);
        assert!(recv(&caller).unwrap().is_none());
    }

    #[test]
    fn a_worker_that_requests_without_receiving_is_refused() {
        let (caller, worker) = Socket::pair().unwrap();
        let null = File::open("/dev/null").unwrap();
        let answer = || {
            send(&caller, &Message::Memory { number: 0 }, Some(null.as_fd())).unwrap();
            check_answers_received(&caller, || 0)
        };
        let answers = 2 + (0..20).take_while(|_| answer().is_ok()).count();
        assert!((4..=16).contains(&answers), "{answers} answers");
        // An announcement may be unread; an answer that was received does not count.
        check_answers_received(&caller, || answers as u32).unwrap();
        for _ in 0..answers - 1 {
            recv(&worker).unwrap();
        }
        check_answers_received(&caller, || 0).unwrap();
    }
}
