// SPDX-License-Identifier: MIT OR Apache-2.0
//! Communication between two processes: rings of cells, packet bytes and bells in one
//! shared memfd, and a socket for one-time messages and file descriptors.
//!
//! One side is the *caller* (it sends packets and receives frames), the other the
//! *worker*. Neither side trusts the other: everything in the shared area is an atomic
//! word that is read once, checked, and only then used. A peer that breaks the rules
//! causes a [`Breach`], never undefined behaviour. The frames' pixels are not in this
//! area but in pools (`pool::foreign`).
//!
//! The words of a cell are defined in `framepath_model::wire`.

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

/// The peer broke the rules of the shared area; its data is no longer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other process broke the rules of shared memory: {0}")]
pub struct Breach(pub &'static str);
