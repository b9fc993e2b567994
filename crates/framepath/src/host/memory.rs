// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a worker's pools: the worker requests the memory, and the caller creates and sends it.
//!
//! A worker can neither create a memfd nor send a descriptor. So a worker cannot use up its user's limit of
//! descriptors in flight, which would stop all other workers of that user. The caller also knows all memory
//! that a worker's pools hold, mapped or not.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use framepath_model::format::Layout;
use framepath_model::stream::FrameMeta;
use framepath_model::wire::Message;
use framepath_os::crossing::Socket;
use framepath_os::memory::commit;
use framepath_os::memory::pool::{ForeignPool, Frame, GrantedMemory, Returns};
use framepath_os::process::sandbox::ResourceLimits;

use super::HostError;
use super::export::{Exporter, locked};
use super::message_io::recv;

/// Maximum number of grants without an announced pool. A further grant removes the oldest.
const UNANNOUNCED: usize = 8;

/// A message, with its descriptor if it has one.
pub(super) type Reply = (Message, Option<OwnedFd>);

/// The worker's side: receives the caller's messages about memory, for pools of both directions.
///
/// The caller announces the pool of an input frame just before it submits the first frame of the pool. Such a
/// message may arrive before the answer to a request for memory, so one type handles both.
pub(super) struct MemoryClient {
    socket: Arc<Socket>,
    exporter: Arc<Mutex<Exporter>>,
    /// True once the stream is open. From then on, the caller reads the socket only when a cell of the ring
    /// announces a message.
    opened: AtomicBool,
    /// Held by the thread that receives messages; during a whole request, so that the next answer belongs to
    /// this request.
    requesting: Mutex<()>,
    /// Pools of input frames, by number. A pool is mapped as soon as its message is read, because a worker
    /// has too few descriptors to keep them for later.
    inputs: Mutex<HashMap<u16, ForeignPool>>,
}

/// Return of input frames by the worker, which does nothing: the caller releases an input frame when its
/// output, or the report that there is none, arrives.
struct IgnoredReturns;

impl Returns for IgnoredReturns {
    fn give_back(&self, _: u32) {}
}

impl MemoryClient {
    pub(super) fn new(socket: Arc<Socket>, exporter: Arc<Mutex<Exporter>>) -> Arc<MemoryClient> {
        let (opened, requesting, inputs) = (AtomicBool::new(false), Mutex::new(()), Mutex::default());
        Arc::new(MemoryClient { socket, exporter, opened, requesting, inputs })
    }

    /// Records that the stream is open. From now on a request also writes a cell, so that the caller reads
    /// the socket.
    pub(super) fn opened(&self) {
        // Relaxed: the thread that opens the stream starts the threads that request memory later.
        self.opened.store(true, Ordering::Relaxed);
    }

    /// Requests memory of `bytes` bytes from the caller, and waits for the memory. Callable on any thread.
    ///
    /// # Errors
    /// The caller denied the request, closed the connection or broke the rules; an input pool that was
    /// announced meanwhile cannot be mapped; or the socket failed.
    pub(super) fn request(&self, bytes: u64) -> Result<GrantedMemory, String> {
        let failed = |error: HostError| error.to_string();
        let _requesting = self.requesting.lock().unwrap_or_else(PoisonError::into_inner);
        // The exporter's lock is released before the wait for the caller.
        locked(&self.exporter).want_memory(bytes, self.opened.load(Ordering::Relaxed)).map_err(failed)?;
        loop {
            match self.receive().map_err(failed)? {
                Some((Message::Memory { number }, Some(fd))) => return Ok(GrantedMemory { number, fd }),
                Some((Message::Denied { text }, _)) => return Err(text),
                Some((Message::InputPool { .. }, _)) => {}
                _ => return Err("the caller sent an unexpected message instead of memory".to_owned()),
            }
        }
    }

    /// Returns the input frame in slot `slot` of pool `pool`. Waits for the pool's announcement, which
    /// the caller sends before it uses the pool's number. Any thread may call it.
    ///
    /// # Errors
    /// The caller broke the rules or is gone, the pool cannot be mapped ([`HostError::Failed`] without memory), or
    /// the socket failed.
    pub(super) fn input(
        &self,
        pool: u16,
        slot: u32,
        layout: &Layout,
        meta: FrameMeta,
    ) -> Result<Frame, HostError> {
        let invalid = || HostError::NotOpened { what: "the worker received an invalid input pool" };
        loop {
            if let Some(known) = self.inputs().get(&pool) {
                return known.frame(slot, layout, meta).map_err(|_| invalid());
            }
            // Checked again under the lock: a request of another thread may have read the announcement.
            let _requesting = self.requesting.lock().unwrap_or_else(PoisonError::into_inner);
            if self.inputs().contains_key(&pool) {
                continue;
            }
            let Some((Message::InputPool { .. }, _)) = self.receive()? else {
                return Err(invalid());
            };
        }
    }

    /// Receives the next message; `None` if the caller has closed the connection. Adds the pool if the
    /// message announces an input pool.
    fn receive(&self) -> Result<Option<Reply>, HostError> {
        let reply = recv(&self.socket)?;
        reply.map(|reply| self.add_input(reply)).transpose()
    }

    /// Maps the pool if the message announces an input pool. Returns the message, without the descriptor of
    /// a mapped pool.
    ///
    /// # Errors
    /// The memory is not as announced, or cannot be mapped. [`HostError::Failed`] without memory for the mapping.
    pub(super) fn add_input(&self, (message, fd): Reply) -> Result<Reply, HostError> {
        let Message::InputPool { pool, slots, slot_bytes } = message else { return Ok((message, fd)) };
        let invalid = || HostError::NotOpened { what: "the worker received an invalid input pool" };
        let slot_bytes = usize::try_from(slot_bytes).map_err(|_| invalid())?;
        let foreign =
            ForeignPool::new(fd.ok_or_else(invalid)?, slot_bytes, slots, 0, Arc::new(IgnoredReturns));
        let mut foreign = foreign.map_err(|error| match error.is_lack() {
            true => HostError::Failed { text: format!("map the input frames: {error}; raise memory=") },
            false => invalid(),
        })?;
        // Closed because a worker has few descriptors; the mapping stays.
        foreign.close();
        self.inputs().insert(pool, foreign);
        Ok((message, None))
    }

    fn inputs(&self) -> MutexGuard<'_, HashMap<u16, ForeignPool>> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The caller's side: the grants of one worker. The memory that the caller keeps for the worker's pools
/// and frames is limited to `memory=`.
pub(super) struct Granter {
    /// Limit of the worker's address space (`memory=`), bytes. The same limit applies to all grants together.
    memory_bytes: u64,
    /// Number of the next grant.
    next: u32,
    /// Grants in which the worker has not announced a pool, with their numbers, oldest first; at most eight.
    unannounced: VecDeque<(u32, Grant)>,
    /// Bytes of all grants to the worker whose [`GrantShare`] was not dropped yet.
    alive: Arc<AtomicU64>,
}

/// Memory of one pool. The memory counts as granted until this value and all other holders of `share` are
/// dropped.
pub(super) struct Grant {
    pub(super) fd: OwnedFd,
    pub(super) share: Arc<GrantShare>,
}

/// Bytes of a grant, which count as granted until the last `Arc` of this value is dropped.
pub(super) struct GrantShare {
    bytes: u64,
    alive: Arc<AtomicU64>,
}

impl Drop for GrantShare {
    fn drop(&mut self) {
        // Relaxed, because the sum orders no other memory.
        self.alive.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Granter {
    pub(super) fn new(memory_bytes: u64) -> Granter {
        Granter { memory_bytes, next: 0, unannounced: VecDeque::new(), alive: Arc::default() }
    }

    /// True if a further grant of `bytes` bytes would exceed the limit.
    pub(super) fn is_full(&self, bytes: u64) -> bool {
        self.alive.load(Ordering::Relaxed).saturating_add(bytes) > self.memory_bytes
    }

    /// Allocates memory for the worker. Returns the answer, and the descriptor to attach. The answer is a
    /// denial, without a descriptor, if `bytes` exceeds a quarter of the limit, if all grants together would
    /// exceed the limit, or if this process lacks the memory or a descriptor. A new grant removes the oldest
    /// grant without an announced pool if there are eight such grants.
    pub(super) fn grant(&mut self, bytes: u64) -> (Message, Option<OwnedFd>) {
        let most = ResourceLimits::largest_grant(self.memory_bytes);
        let denied = |text| (Message::Denied { text }, None);
        if bytes > most {
            return denied(format!(
                "a pool of {bytes} bytes exceeds a quarter of memory= ({most} bytes); raise memory="
            ));
        }
        if self.is_full(bytes) {
            let most = self.memory_bytes;
            return denied(format!("the pools in use would exceed memory= ({most} bytes); raise memory="));
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

    /// Takes the grant with this number, in which the worker announces a pool. Returns `None` if there is no
    /// such grant, or if it was taken or removed before.
    pub(super) fn take(&mut self, number: u32) -> Option<Grant> {
        let at = self.unannounced.iter().position(|(known, _)| *known == number)?;
        self.unannounced.remove(at).map(|(_, grant)| grant)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use framepath_model::format::PixelFormat;
    use framepath_os::crossing::{SharedArea, Sizes, completions};
    use framepath_os::memory::pool::Pool;

    use super::super::message_io::send;
    use super::super::names::shared_memory;
    use super::*;

    /// Tests that input pools may be announced while the worker requests memory.
    #[test]
    fn input_pools_that_arrive_before_memory_are_kept() {
        let (caller, worker) = Socket::pair().unwrap();
        let worker = Arc::new(worker);
        let area = Arc::new(SharedArea::new(Sizes { cells: 8, packet_bytes: 0 }).unwrap());
        let exporter = Exporter::new(completions(&area).0, worker.clone(), None);
        let client = MemoryClient::new(worker, Arc::new(Mutex::new(exporter)));
        let layout = Layout::packed(PixelFormat::Grey, 16, 16).unwrap();
        let frame = |_| {
            let mut frame = Pool::new(layout.size, 1).unwrap().acquire().unwrap();
            frame.set_layout(&layout).unwrap();
            frame.freeze(FrameMeta::default())
        };
        let frames: Vec<Frame> = (0..3).map(frame).collect();
        let announce = |pool: u16| {
            let memory = shared_memory(&frames[usize::from(pool)]).unwrap();
            let slot_bytes = memory.slot_bytes as u64;
            let message = Message::InputPool { pool, slots: memory.slots, slot_bytes };
            send(&caller, &message, Some(memory.fd.as_fd())).unwrap();
        };
        let (answer, memory) = Granter::new(1 << 20).grant(4096);
        announce(0);
        announce(1);
        send(&caller, &answer, memory.as_ref().map(AsFd::as_fd)).unwrap();
        announce(2);
        assert_eq!(client.request(4096).unwrap().number, 0);
        for pool in [1, 0, 2] {
            assert!(client.input(pool, 0, &layout, FrameMeta::default()).is_ok(), "{pool}");
        }
        // An unexpected message is an error.
        send(&caller, &Message::RequestMemory { bytes: 1 }, None).unwrap();
        assert!(client.input(3, 0, &layout, FrameMeta::default()).is_err());
    }

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
    fn live_grants_never_exceed_the_memory() {
        let mut granter = Granter::new(1 << 20);
        let mut grants = Vec::new();
        for number in 0..4 {
            assert!(granter.grant(1 << 18).1.is_some());
            grants.push(granter.take(number).unwrap());
        }
        assert!(granter.is_full(1));
        assert!(matches!(granter.grant(1 << 18), (Message::Denied { .. }, None)));
        // A share keeps the whole grant counted.
        let share = grants[0].share.clone();
        grants.remove(0);
        assert!(granter.is_full(1 << 18));
        drop(share);
        assert!(granter.grant(1 << 18).1.is_some());
    }
}
