// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that packets take which are kept for a replay.
//!
//! A book keeps the packets since the last random access point. A stream without such
//! points, or one that says so, would be kept whole.

use framepath_model::replay::Book;

use super::input::{Sent, WorkerInput};

/// Packets that are kept whatever their size: those in the ring, which has a bound in
/// bytes, too, and more than a decoder holds back.
const KEPT: usize = 96;
/// Bytes of memory that a packet takes beside its own bytes: its `AVPacket` and its
/// buffer, and its entry in the book, whose capacity doubles (780 and twice 200).
const OVERHEAD: u64 = 1200;
/// Bytes of new packets between two looks at all that are kept.
pub(super) const LOOK_BYTES: u64 = 2 << 20;
/// Bytes that are kept: a quarter of the worker's memory, between these.
const LEAST: u64 = 16 << 20;
const MOST: u64 = 256 << 20;

/// Bytes that a packet takes; 0 of frames, which are not kept.
pub(super) fn bytes_of(input: Option<&WorkerInput>) -> u64 {
    match input {
        Some(WorkerInput::Packet(packet)) => packet.content_bytes() as u64 + OVERHEAD,
        _ => 0,
    }
}

/// Forgets the oldest packets where those that are kept take more than the share of a
/// worker with `memory_bytes`.
pub(super) fn limit(book: &mut Book<Sent>, memory_bytes: u64) {
    let most = (memory_bytes / 4).clamp(LEAST, MOST);
    let sizes: Vec<u64> = book.packets().map(|sent| bytes_of(sent.input.as_ref())).collect();
    if sizes.iter().sum::<u64>() <= most {
        return;
    }
    let newest = sizes.iter().rev().scan(0, |sum, bytes| {
        *sum += bytes;
        Some(*sum)
    });
    let keep = newest.take_while(|sum| *sum <= most / 4 * 3).count();
    book.forget(keep.max(KEPT), |sent| sent.input = None);
}
