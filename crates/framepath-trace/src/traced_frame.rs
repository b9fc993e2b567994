// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frame of a program on FFmpeg's libraries, with the calls that had it.

/// One video frame on one way, from its packet on. Each call is an index in the list of spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TracedFrame {
    /// Process and decoder.
    pub(crate) decoder: (i32, u64),
    /// Call that read the packet; `None` if it is not known.
    pub(crate) read: Option<usize>,
    /// Call that gave the packet to the decoder.
    pub(crate) send: usize,
    /// Call with which a thread began to decode the frame; `None` if the decoder has buffers of its own.
    pub(crate) buffer: Option<usize>,
    /// Call that got the frame from the decoder.
    pub(crate) receive: Option<usize>,
    /// Calls that gave the frame to a graph of filters, and got it from there.
    pub(crate) filter: Option<(usize, Option<usize>)>,
    /// Calls that gave the frame to an encoder, and got its packet from there.
    pub(crate) encode: Option<(usize, Option<usize>)>,
    /// Call that wrote the packet.
    pub(crate) write: Option<usize>,
    /// Calls that put the frame into a texture, if there is one, and that showed it first.
    pub(crate) present: Option<(Option<usize>, usize)>,
}
