// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arithmetic of the ledger: rows of frames and hops, causes, and their sum, a frame's
//! latency.

mod cause;
mod digest;
mod frames;
mod row;
mod span;
mod tree;

pub use cause::{CAUSES, Cause, Causes};
pub use digest::{Digest, HopDigest, Latency, digest};
pub use frames::{FrameTotal, frame_totals};
pub use row::{Row, flag};
pub use span::{Span, SpanPlace};
pub use tree::HopTree;
