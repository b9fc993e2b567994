// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads and processes that work on frames beside the threads of a path.

/// Kind of thread or process that works on frames beside the threads of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HelperKind {
    /// A frame thread of a decoder.
    DecoderThread,
    /// A worker process.
    Worker,
}

/// A thread or process that worked on frames of a hop beside the threads of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HelperInfo {
    /// Index of the hop in [`Report::hops`](crate::Report::hops).
    pub hop: u16,
    /// Kind of thread or process.
    pub kind: HelperKind,
    /// Id of the thread or process in the kernel; 0 if it is not visible to this program.
    pub id: u32,
}
