// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet bytes in the shared area, written by the caller and read in place by the worker's decoder. The
//! worker releases packets in the order of submission, and the caller then reuses their memory.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::area::AreaWord;
use super::{Bell, Breach, PooledPackets, SharedArea};
use crate::measure::meter;
use crate::sync::atomics::Ordering;

/// Number of zeroed bytes after every packet, because bitstream readers read beyond its end
/// (libavcodec's AV_INPUT_BUFFER_PADDING_SIZE).
const PADDING: usize = 64;
/// Alignment of the first byte of each packet in the area, bytes: a cache line.
const ALIGN: usize = 64;

/// The caller's end of the packet bytes of a shared area: finds room for packets and writes them. Used
/// by one thread at a time.
#[derive(Debug)]
pub struct PacketArea {
    area: Arc<SharedArea>,
    /// Ranges of the packets that the worker may still read, oldest first: offsets of the first byte and
    /// of the end, padding included.
    live: VecDeque<(usize, usize)>,
    /// Number of packets, since the start, whose memory this end has made free again.
    taken_back: u64,
    /// Number of bytes at the start of the area that [`PacketArea::keep`] uses, padding included; 0
    /// before that call.
    kept: usize,
}

impl PacketArea {
    /// Creates an end that uses all of `area`'s packet bytes, which are free.
    pub fn new(area: Arc<SharedArea>) -> PacketArea {
        PacketArea { area, live: VecDeque::new(), taken_back: 0, kept: 0 }
    }

    /// Copies `bytes` to the start of the area, where they stay permanently. Call this before the first
    /// packet. Returns false, and copies nothing, if the bytes and their padding do not fit, if an earlier
    /// call succeeded, or if a packet in the area was not made free yet.
    pub fn keep(&mut self, bytes: &[u8]) -> bool {
        let fits = self.live.is_empty() && self.kept == 0 && room(bytes.len()) <= self.capacity();
        if fits {
            // SAFETY: the slice is readable, and the area is not part of it.
            unsafe { write(&self.area, 0, bytes.as_ptr(), bytes.len()) };
            self.kept = room(bytes.len());
        }
        fits
    }

    /// Returns a size, in bytes: every packet up to this size fits if the area has no other packets. A
    /// slightly larger packet may fit, too.
    pub fn largest(&self) -> usize {
        (self.capacity() - self.kept).saturating_sub(PADDING + ALIGN)
    }

    /// Makes the memory of released packets free again, and copies a packet into the area; the meter
    /// counts the copy. Returns the offset of its first byte, or `None` if there is no room until the
    /// worker releases packets. A packet up to [`PacketArea::largest`] fits when all others are released.
    ///
    /// # Errors
    /// The worker reports more released packets than were pushed, or fewer than it had reported when an
    /// earlier packet was pushed.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<u64>, Breach> {
        // SAFETY: the slice is readable, and this area is not part of it.
        unsafe { self.push_raw(bytes.as_ptr(), bytes.len()) }
    }

    /// Copies a packet as [`PacketArea::push`] does, from bytes that another process may change
    /// at the same time.
    ///
    /// # Errors
    /// As [`PacketArea::push`].
    ///
    /// # Safety
    /// `len` bytes at `from` are readable and outside this area.
    pub unsafe fn push_raw(&mut self, from: *const u8, len: usize) -> Result<Option<u64>, Breach> {
        self.reclaim()?;
        let Some(offset) = self.place(room(len)) else { return Ok(None) };
        self.live.push_back((offset, offset + room(len)));
        // SAFETY: the caller's contract.
        meter::copy(len, || unsafe { write(&self.area, offset, from, len) });
        Ok(Some(offset as u64))
    }

    /// Returns true if the worker has released packets whose memory [`PacketArea::push`] or
    /// [`PacketArea::push_raw`] has not made free yet.
    ///
    /// # Errors
    /// As [`PacketArea::push`].
    pub fn has_news(&self) -> Result<bool, Breach> {
        Ok(self.released()? != self.taken_back)
    }

    /// Returns the number of packets, since the start, that the worker has released. Fails if the worker
    /// reports more packets than were pushed, or fewer than `taken_back`.
    fn released(&self) -> Result<u64, Breach> {
        // Acquire: pairs with the Release in `SharedPackets::release`. The decoder's last reads
        // come before this end's next writes.
        let released = self.area.word(AreaWord::PacketsReleased).load(Ordering::Acquire);
        match released.checked_sub(self.taken_back) {
            Some(news) if news <= self.live.len() as u64 => Ok(released),
            _ => Err(Breach("more packets were released than sent")),
        }
    }

    /// Makes the memory of released packets free again. Fails as [`PacketArea::push`] does.
    fn reclaim(&mut self) -> Result<(), Breach> {
        let released = self.released()?;
        self.live.drain(..(released - self.taken_back) as usize);
        self.taken_back = released;
        Ok(())
    }

    /// Returns the offset of free room for `bytes` bytes, or `None` if there is none. In an area without
    /// packets the room is at the start (after the bytes of [`PacketArea::keep`]), so that a path that keeps
    /// up uses the same few warm pages. Otherwise the room is after the newest packet or before the oldest.
    fn place(&self, bytes: usize) -> Option<usize> {
        let (Some(&(oldest, _)), Some(&(_, end))) = (self.live.front(), self.live.back()) else {
            return (self.kept + bytes <= self.capacity()).then_some(self.kept);
        };
        let wrapped = end <= oldest;
        if wrapped {
            return (end + bytes <= oldest).then_some(end);
        }
        if end + bytes <= self.capacity() {
            return Some(end);
        }
        (self.kept + bytes <= oldest).then_some(self.kept)
    }

    fn capacity(&self) -> usize {
        self.area.sizes().packet_bytes as usize
    }
}

/// Copies the packet of `len` bytes at `from` to `offset` in the area, and zeroes the padding after it.
///
/// # Panics
/// The packet and its padding do not fit into the area at `offset`.
///
/// # Safety
/// `len` bytes at `from` are readable and outside `area`.
pub(super) unsafe fn write(area: &SharedArea, offset: usize, from: *const u8, len: usize) {
    let fits = offset.checked_add(len).and_then(|end| end.checked_add(PADDING));
    assert!(fits.is_some_and(|end| end as u64 <= area.sizes().packet_bytes), "a packet outside its area");
    // SAFETY: inside the mapping (asserted); raw, because the peer may read or write the bytes at
    // any time. The caller guarantees the source.
    unsafe {
        let to = area.packets().add(offset).as_ptr();
        std::ptr::copy_nonoverlapping(from, to, len);
        std::ptr::write_bytes(to.add(len), 0, PADDING);
    }
}

/// Returns the address of the first byte of a packet of `len` bytes at `offset`. Fails unless the
/// packet and its padding are inside the area's packet bytes.
pub(super) fn checked(area: &SharedArea, offset: u64, len: u32) -> Result<NonNull<u8>, Breach> {
    let inside = u64::from(len)
        .checked_add(PADDING as u64)
        .and_then(|len| len.checked_add(offset))
        .is_some_and(|end| end <= area.sizes().packet_bytes);
    if !inside {
        return Err(Breach("packet outside the area"));
    }
    // SAFETY: checked to be inside the mapping.
    Ok(unsafe { area.packets().add(offset as usize) })
}

/// Returns a private copy of the first `len` packet bytes of the area. Fails if `len` and the padding
/// exceed the area.
pub(super) fn kept(area: &SharedArea, len: u32) -> Result<Vec<u8>, Breach> {
    let from = checked(area, 0, len)?;
    let mut bytes = vec![0; len as usize];
    // SAFETY: `len` bytes inside the mapping (checked); raw, because the peer may write them at
    // any time.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
    Ok(bytes)
}

/// Returns the number of bytes that a packet of `len` bytes takes in the area: `len` and the padding, rounded
/// up to a multiple of [`ALIGN`].
pub(super) fn room(len: usize) -> usize {
    (len + PADDING).next_multiple_of(ALIGN)
}

/// The worker's end of the packet bytes of a shared area. Records the packets that the worker still
/// reads, and releases packets to the caller in the order of submission.
#[derive(Debug)]
pub struct SharedPackets {
    area: Arc<SharedArea>,
    held: Mutex<Held>,
    bell: Bell,
}

/// Packets of which the worker made a handle, and which are not yet released to the caller.
#[derive(Debug, Default)]
struct Held {
    /// Number of packets, since the start, that were released to the caller, in the order of submission;
    /// the caller sees this number.
    released: u64,
    /// One value for each packet after the released ones, in the order of submission: true if the packet's
    /// handle was dropped, so that the packet only waits for the release of an earlier packet.
    later: VecDeque<bool>,
}

impl SharedPackets {
    /// Creates the worker's end of `area`, without packets.
    pub fn new(area: Arc<SharedArea>) -> Arc<SharedPackets> {
        let bell = Bell::for_packets(&area);
        Arc::new(SharedPackets { area, held: Mutex::default(), bell })
    }

    /// Makes the handle of the packet of `len` bytes at `offset`. The caller of this function makes the
    /// handles in the order of submission, because packets are released in this order.
    ///
    /// # Errors
    /// The packet would be outside the area.
    pub fn packet(self: &Arc<SharedPackets>, offset: u64, len: u32) -> Result<SharedBytes, Breach> {
        let bytes = checked(&self.area, offset, len)?;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.later.push_back(false);
        let number = held.released + held.later.len() as u64 - 1;
        Ok(SharedBytes { owner: Owner::Ordered(self.clone(), number), bytes, len: len as usize })
    }

    /// Returns a private copy of the first `len` packet bytes, which [`PacketArea::keep`] wrote.
    ///
    /// # Errors
    /// `len` bytes and the padding after them exceed the area.
    pub fn kept(&self, len: u32) -> Result<Vec<u8>, Breach> {
        kept(&self.area, len)
    }

    /// Records that the worker no longer reads packet `number`, counted from 0. Releases to the caller all
    /// packets up to the first one that the worker still reads, and rings the caller's bell, even if no packet
    /// was released.
    fn release(&self, number: u64) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let index = (number - held.released) as usize;
        held.later[index] = true;
        while held.later.front() == Some(&true) {
            held.later.pop_front();
            held.released += 1;
        }
        // Release: pairs with the Acquire in `PacketArea::released`.
        self.area.word(AreaWord::PacketsReleased).store(held.released, Ordering::Release);
        drop(held);
        self.bell.ring();
    }
}

/// Reader's handle of a packet in the shared area. The packet is followed by 64 bytes that an honest writer
/// has zeroed. The writing process may change all these bytes at any time, so only parsers of untrusted bytes
/// may read them, and no slice of them is made. Dropping the handle releases the packet's memory to the
/// writer.
#[derive(Debug)]
pub struct SharedBytes {
    owner: Owner,
    bytes: NonNull<u8>,
    len: usize,
}

/// Reading end through which a dropped packet is released; keeps the mapping alive.
#[derive(Debug)]
enum Owner {
    /// End that releases in the order of submission, and the packet's number in this order, from 0.
    Ordered(Arc<SharedPackets>, u64),
    /// End that releases in any order, and the packet's id.
    Pooled(Arc<PooledPackets>, u32),
}

// SAFETY: the type only provides a raw pointer into a mapping that it keeps alive.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// Returns the address of the first byte; valid while `self` lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.bytes.as_ptr()
    }

    /// Returns the number of bytes of the packet, padding not counted.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the packet has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl SharedBytes {
    /// Makes a packet that is released to `packets` by its id. `bytes` is valid for `len` bytes
    /// and padding while `packets` lives.
    pub(super) fn pooled(
        packets: Arc<PooledPackets>,
        id: u32,
        bytes: NonNull<u8>,
        len: usize,
    ) -> SharedBytes {
        SharedBytes { owner: Owner::Pooled(packets, id), bytes, len }
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        match &self.owner {
            Owner::Ordered(packets, number) => packets.release(*number),
            Owner::Pooled(packets, id) => packets.release(*id),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Sizes;
    use super::*;

    fn ends(packet_bytes: u64) -> (PacketArea, Arc<SharedPackets>) {
        let area = Arc::new(SharedArea::new(Sizes { cells: 2, packet_bytes }).unwrap());
        (PacketArea::new(area.clone()), SharedPackets::new(area))
    }

    fn read(bytes: &SharedBytes) -> Vec<u8> {
        // SAFETY: no other thread writes while the test reads.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len() + PADDING) }.to_vec()
    }

    #[test]
    fn a_path_that_keeps_up_uses_the_same_bytes() {
        let (mut area, packets) = ends(4096);
        assert!(area.keep(b"headers"));
        assert_eq!(packets.kept(7).unwrap(), b"headers");
        for _ in 0..100 {
            let offset = area.push(b"packet").unwrap().unwrap();
            assert_eq!(offset, 128);
            let packet = packets.packet(offset, 6).unwrap();
            assert_eq!(read(&packet), [b"packet".as_slice(), &[0; PADDING]].concat());
        }
    }

    #[test]
    fn offsets_outside_are_a_breach() {
        let (area, packets) = ends(4096);
        assert!(packets.packet(4096 - 64, 1).is_err());
        assert!(packets.packet(u64::MAX, u32::MAX).is_err());
        assert!(packets.kept(4096).is_err());
        packets.area.word(AreaWord::PacketsReleased).store(1, Ordering::Relaxed);
        assert!(area.has_news().is_err());
    }

    proptest! {
        /// Packets of any size, released in any order: packets that are not yet released keep their
        /// bytes and their zeroed padding.
        #[test]
        fn held_packets_are_never_overwritten(steps: Vec<(u16, u8, bool)>) {
            let (mut area, packets) = ends(3 * 4096);
            let mut held: Vec<(SharedBytes, u8)> = Vec::new();
            for (len, pick, put) in steps {
                if put {
                    let bytes = vec![pick; usize::from(len % 5000)];
                    match area.push(&bytes).unwrap() {
                        Some(offset) => held.push((packets.packet(offset, bytes.len() as u32).unwrap(), pick)),
                        None => prop_assert!(!held.is_empty()),
                    }
                } else if !held.is_empty() {
                    held.remove(usize::from(pick) % held.len());
                }
                for (packet, value) in &held {
                    let (pixels, padding) = (read(packet), [0; PADDING]);
                    prop_assert!(pixels[..packet.len()].iter().all(|b| b == value));
                    prop_assert_eq!(&pixels[packet.len()..], padding.as_slice());
                }
            }
        }
    }
}
