// SPDX-License-Identifier: MIT OR Apache-2.0
//! Communication between two processes: one shared memfd with rings of cells, packet bytes, bells and
//! words for returned slots, and a socket for rare messages and file descriptors. The module also has the
//! listening socket of a service, the page of a worker's counters, and threads that watch a connection.
//!
//! One side is the *caller*, whose path has the stage; the other side is the *worker*, which runs the
//! stage. Neither side trusts the other. Everything in the shared area except the packet bytes is an
//! atomic word that is read once, then checked, then used. A peer that violates the protocol never causes
//! undefined behaviour. A side that notices a violation gets a [`Breach`]; a violation that only delays or
//! falsifies data may stay unnoticed. The frames' pixels are not in this area but in pools
//! (`pool::foreign`).
//!
//! `framepath_model::wire` defines the words of a cell.

mod area;
mod cells;
#[cfg(not(loom))]
mod folder;
#[cfg(not(loom))]
mod listener;
#[cfg(not(loom))]
mod packet_pool;
#[cfg(not(loom))]
mod packets;
#[cfg(not(loom))]
mod page;
#[cfg(not(loom))]
mod peer;
#[cfg(not(loom))]
mod sealed;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
mod wait;
#[cfg(not(loom))]
mod watch;
#[cfg_attr(loom, allow(dead_code, reason = "the watcher itself is not modelled"))]
mod watcher_sleep;

pub use area::{AreaError, SharedArea, Sizes};
pub use cells::{Bell, CellReader, CellWriter, completions, submissions};
pub use framepath_model::wire::Cell;
#[cfg(not(loom))]
pub use listener::Listener;
#[cfg(not(loom))]
pub use packet_pool::{PACKET_IDS, PacketPool, Placed, PooledPackets};
#[cfg(not(loom))]
pub use packets::{PacketArea, SharedBytes, SharedPackets};
#[cfg(not(loom))]
pub use page::{PAGE_WORDS, Page};
#[cfg(not(loom))]
pub use peer::Peer;
#[cfg(not(loom))]
pub use socket::{Socket, is_crowded};
#[cfg(not(loom))]
pub use wait::{PollEvents, Wait, wait};
#[cfg(not(loom))]
pub use watch::{Watcher, at_end, watch};
pub use watcher_sleep::WatchResult;

/// Violation of the protocol by the peer, in the shared area or by a message on the socket; contains a
/// description of the violation. The side that detects the violation must not use the area's data any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other process violated the protocol: {0}")]
pub struct Breach(pub &'static str);
