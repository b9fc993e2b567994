// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a worker's pools: the caller makes it, because a worker can
//! neither make files nor send descriptors.
//!
//! So no worker can fill its user's share of descriptors in flight, which would
//! stop every other worker of that user, and what a worker holds without having
//! it mapped is known: it was granted.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use framepath_model::wire::Message;
use framepath_os::commit;
use framepath_os::crossing::Socket;
use framepath_os::pool::GrantedMemory;
use framepath_os::sandbox::Limits;

use super::HostError;
use super::export::{Exporter, locked};
use super::say::hear;

/// Memories that were granted and have no pool announced in them yet; the
/// oldest is forgotten beyond.
const UNANNOUNCED: usize = 8;

/// A message that answers a request of the worker.
pub(super) type Reply = (Message, Option<OwnedFd>);

/// The worker's side.
pub(super) struct MemoryClient {
    socket: Arc<Socket>,
    exporter: Arc<Mutex<Exporter>>,
    /// The caller looks at the ring from now on, and no more at the socket alone.
    opened: AtomicBool,
    /// Where another thread reads the socket: what it passes on. Held for a
    /// whole request, so that answers come in the order of requests.
    replies: Mutex<Option<Receiver<Reply>>>,
}

impl MemoryClient {
    pub(super) fn new(socket: Arc<Socket>, exporter: Arc<Mutex<Exporter>>) -> Arc<MemoryClient> {
        let (opened, replies) = (AtomicBool::new(false), Mutex::new(None));
        Arc::new(MemoryClient { socket, exporter, opened, replies })
    }

    /// The caller was told that the stream is open.
    pub(super) fn opened(&self) {
        // Relaxed: one thread opens the stream, and starts those that ask later.
        self.opened.store(true, Ordering::Relaxed);
    }

    /// Another thread reads the socket from now on, and passes replies on.
    pub(super) fn forward(&self) -> Sender<Reply> {
        let (sender, receiver) = channel();
        *self.replies.lock().unwrap_or_else(PoisonError::into_inner) = Some(receiver);
        sender
    }

    /// Memory of `bytes` bytes. Any thread.
    pub(super) fn request(&self, bytes: u64) -> Result<GrantedMemory, String> {
        let failed = |error: HostError| error.to_string();
        let replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        // The exporter's lock is not kept while the caller thinks.
        locked(&self.exporter).want_memory(bytes, self.opened.load(Ordering::Relaxed)).map_err(failed)?;
        let reply = match &*replies {
            Some(replies) => replies.recv().ok(),
            None => hear(&self.socket).map_err(failed)?,
        };
        match reply {
            Some((Message::Memory { number }, Some(fd))) => Ok(GrantedMemory { number, fd }),
            Some((Message::Denied { text }, _)) => Err(text),
            _ => Err("the caller sent something else than memory".to_owned()),
        }
    }
}

/// The caller's side: what one worker was granted. All that the caller itself
/// keeps, for pools and for frames that are still read, is at most `memory=`.
pub(super) struct Granter {
    /// Address space of the worker, bytes.
    memory_bytes: u64,
    next: u32,
    unannounced: VecDeque<(u32, Grant)>,
    /// Bytes of all grants that are alive.
    alive: Arc<AtomicU64>,
}

/// Memory of one pool. It counts until this and all its shares are dropped.
pub(super) struct Grant {
    pub(super) fd: OwnedFd,
    pub(super) share: Arc<GrantShare>,
}

/// Keeps a grant counted.
pub(super) struct GrantShare {
    bytes: u64,
    alive: Arc<AtomicU64>,
}

impl Drop for GrantShare {
    fn drop(&mut self) {
        // Relaxed: a sum, which orders nothing.
        self.alive.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Granter {
    pub(super) fn new(memory_bytes: u64) -> Granter {
        Granter { memory_bytes, next: 0, unannounced: VecDeque::new(), alive: Arc::default() }
    }

    /// Whether a grant of so many bytes would be one too many while the old ones live.
    pub(super) fn is_full(&self, bytes: u64) -> bool {
        self.alive.load(Ordering::Relaxed).saturating_add(bytes) > self.memory_bytes
    }

    /// Makes memory for the worker; the answer, and the descriptor to attach.
    /// A worker that wants too much is told so.
    pub(super) fn grant(&mut self, bytes: u64) -> (Message, Option<OwnedFd>) {
        let most = Limits::largest_grant(self.memory_bytes);
        let denied = |text| (Message::Denied { text }, None);
        if bytes > most {
            return denied(format!(
                "a pool of {bytes} bytes is more than a quarter of memory= ({most} bytes)"
            ));
        }
        if self.is_full(bytes) {
            let most = self.memory_bytes;
            return denied(format!("pools of more than memory= ({most} bytes) are in use at a time"));
        }
        let granted = commit::grant(bytes).map_err(|(call, errno)| format!("{call}: {errno}"));
        let granted = granted.and_then(|fd| Ok((fd.try_clone().map_err(|error| error.to_string())?, fd)));
        let (kept, sent) = match granted {
            Ok(both) => both,
            Err(text) => return denied(text),
        };
        let number = self.next;
        self.next = number.wrapping_add(1);
        if self.unannounced.len() == UNANNOUNCED {
            self.unannounced.pop_front();
        }
        self.alive.fetch_add(bytes, Ordering::Relaxed);
        let share = Arc::new(GrantShare { bytes, alive: self.alive.clone() });
        self.unannounced.push_back((number, Grant { fd: kept, share }));
        (Message::Memory { number }, Some(sent))
    }

    /// The memory that the worker announces a pool in; once for each.
    pub(super) fn take(&mut self, number: u32) -> Option<Grant> {
        let at = self.unannounced.iter().position(|(known, _)| *known == number)?;
        self.unannounced.remove(at).map(|(_, grant)| grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_memory_is_granted_and_each_grant_announced_once() {
        let mut granter = Granter::new(1 << 20);
        assert!(matches!(granter.grant((1 << 18) + 1), (Message::Denied { .. }, None)));
        for expected in 0..UNANNOUNCED as u32 + 1 {
            let (message, fd) = granter.grant(1 << 16);
            assert_eq!((message, fd.is_some()), (Message::Memory { number: expected }, true));
        }
        assert!(granter.take(0).is_none(), "the oldest is forgotten");
        let memory = std::fs::File::from(granter.take(5).unwrap().fd);
        assert_eq!(memory.metadata().unwrap().len(), 1 << 16);
        assert!(granter.take(5).is_none() && granter.take(77).is_none());
    }

    #[test]
    fn what_lives_at_a_time_is_no_more_than_the_memory() {
        let mut granter = Granter::new(1 << 20);
        let mut grants = Vec::new();
        for number in 0..4 {
            assert!(granter.grant(1 << 18).1.is_some());
            grants.push(granter.take(number).unwrap());
        }
        assert!(granter.is_full(1));
        assert!(matches!(granter.grant(1 << 18), (Message::Denied { .. }, None)));
        // A share counts as the whole.
        let share = grants[0].share.clone();
        grants.remove(0);
        assert!(granter.is_full(1 << 18));
        drop(share);
        assert!(granter.grant(1 << 18).1.is_some());
    }
}
