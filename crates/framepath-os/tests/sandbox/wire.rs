// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts with file descriptors over the socket between test and worker.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Makes a socket and returns both of its ends.
pub fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

/// Sends `text` and copies of `fds`, at most four. Without descriptors, uses a system call that the
/// sandbox allows.
pub fn send(socket: BorrowedFd<'_>, text: &str, fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    if fds.is_empty() {
        return rustix::net::send(socket, text.as_bytes(), SendFlags::NOSIGNAL).map(drop);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
    }
    sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// Receives the next message: its text and descriptors. The text is empty if the other end is closed.
pub fn receive(socket: BorrowedFd<'_>) -> rustix::io::Result<(String, Vec<OwnedFd>)> {
    let mut text = vec![0; 1 << 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    text.truncate(got.bytes);
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok((String::from_utf8_lossy(&text).into_owned(), fds))
}
