// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoding into buffers that the caller provides, for example those of a V4L2 client.
//!
//! The worker's side requests and maps the buffers. The caller's side is a trait, which the provider of the
//! buffers implements.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use framepath_codec::{DecodeProvider, ProviderRef};
use framepath_model::buffer_request::{BufferRequest, ProvidedFormat};
use framepath_model::wire::Message;
use framepath_os::crossing::Socket;
use framepath_os::memory::pool::{GiveBack, Pool, Returns};

use super::HostError;
use super::export::{Exporter, locked};
use super::message_io::recv;

/// The caller's buffers for one pool of a worker.
pub struct ProvidedBuffers {
    /// Descriptors of the buffers, dmabufs or memfds. Their order gives each buffer its index, from 0.
    pub buffers: Vec<OwnedFd>,
    /// Format of the planes that the worker has to write into the buffers.
    pub lent: ProvidedFormat,
}

/// Provider of the memory that a stream's workers decode into.
pub trait BufferProvider: Send + Sync {
    /// Returns buffers that satisfy `request`. May block without limit. The collect end of the stream calls
    /// this function, in its thread, for the first frame of each worker, and again for a frame that needs
    /// other memory.
    ///
    /// # Errors
    /// There are no such buffers. The text is the reason; the stream then fails with this text.
    fn provide(&self, request: &BufferRequest) -> Result<ProvidedBuffers, String>;

    /// Receives the slots of the buffers that [`provide`](BufferProvider::provide) returned last, once the
    /// worker has reported that it has mapped these buffers. From then on the slots can be released to the
    /// worker. The collect end calls this function in the same thread as `provide`.
    fn mapped(&self, slots: ProvidedSlots);
}

/// Slots of provided buffers. The caller releases buffers to the worker through this value.
pub struct ProvidedSlots {
    pub(super) returns: Arc<dyn Returns>,
    pub(super) first: u32,
}

impl ProvidedSlots {
    /// Releases buffer `index` (from 0, in the order of [`ProvidedBuffers::buffers`]) to the worker, which
    /// may then write it. Call it once for each buffer, while no frame is in the buffer. Later, dropping a
    /// frame releases the frame's buffer.
    pub fn release(&self, index: u32) {
        self.returns.give_back(self.first + index);
    }
}

/// The worker's side: requests the caller's buffers and maps them.
pub(super) struct Borrower {
    pub(super) socket: Arc<Socket>,
    pub(super) exporter: Arc<Mutex<Exporter>>,
    pub(super) give_back: &'static GiveBack,
}

impl Borrower {
    /// Makes the provider of the worker's decoder. The provider is leaked, because the process has no other
    /// stream.
    pub(super) fn into_provider(
        socket: Arc<Socket>,
        exporter: Arc<Mutex<Exporter>>,
        give_back: &'static GiveBack,
    ) -> ProviderRef {
        ProviderRef(Box::leak(Box::new(Borrower { socket, exporter, give_back })))
    }
}

impl DecodeProvider for Borrower {
    fn provide(&self, request: &BufferRequest) -> Result<(Pool, ProvidedFormat), String> {
        let failed = |error: HostError| error.to_string();
        // The lock is released before the wait for the caller.
        locked(&self.exporter).request_buffers(request).map_err(failed)?;
        let (lent, count) = match recv(&self.socket).map_err(failed)? {
            Some((Message::ProvideBuffers { lent, buffers }, _)) => (lent, buffers),
            Some((Message::Denied { text }, _)) => return Err(text),
            _ => return Err("the caller sent an unexpected message instead of buffers".to_owned()),
        };
        // Each buffer is mapped and closed before the next: a worker has few descriptors.
        let buffer = |expected| match recv(&self.socket).map_err(failed)? {
            Some((Message::Buffer { index }, Some(fd))) if index == expected => Ok(fd),
            _ => Err("the caller sent an unexpected message instead of a buffer".to_owned()),
        };
        let pool = Pool::from_buffers(count, request.bytes(lent) as usize, self.give_back, buffer);
        let pool = pool.map_err(|error| error.to_string())?;
        locked(&self.exporter).announce_pool(&pool).map_err(failed)?;
        Ok((pool, lent))
    }
}
