// SPDX-License-Identifier: MIT OR Apache-2.0
//! V4L2 nodes: cameras, stateful decoders, memory-to-memory devices, and the memory that they
//! share with the CPU.
//!
//! Device memory is foreign memory: a driver may write it at any time. So no Rust reference to it is made,
//! and its frames are those of a [`ForeignPool`](crate::memory::pool::ForeignPool).
//!
//! ```text
//! CaptureBuffers ──dequeue──▶ Frame ──last handle gone──▶ queued again
//! ```

mod abi;
pub mod attach;
mod call;
mod capture;
mod colors;
mod decoding;
mod error;
mod fourcc;
mod heap;
mod meta;
mod node;
mod output;
mod queue;
mod region;

pub(crate) use abi::OF_DECODING;
pub use capture::{CaptureBuffers, Delivered, Io};
pub use colors::V4l2Colors;
pub use decoding::DecoderEvent;
pub use error::V4l2Error;
pub use fourcc::Fourcc;
pub(crate) use heap::sync as sync_dmabuf;
pub use heap::{DeviceFrame, DevicePool, Heap};
pub use meta::{META_NODE, MetaReader, MetaRecord, measuring};
pub use node::{ControlValue, FormatOffer, Node, NodeRole, QueueFormat, Ready, Rect, find_node};
pub use output::{InPlace, OutputBuffers, ReturnedOutputs};
pub use queue::{Dequeued, Direction, QueuedMemory};
pub(crate) use region::CpuAccess;
pub use region::Region;

/// Adds all declarations of this module that are mirrored from C headers to `facts`.
pub(crate) fn list_layout(facts: &mut crate::c_layout::Facts) {
    abi::layout::list(facts);
    fourcc::list_layout(facts);
    heap::list_layout(facts);
    meta::list_layout(facts);
}
