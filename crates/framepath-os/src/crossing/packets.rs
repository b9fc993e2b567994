// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet bytes in the shared area: written once by the caller, read where
//! they lie by the worker's decoder.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::area::AreaWord;
use super::{Bell, Breach, PooledPackets, SharedArea};
use crate::measure::meter;
use crate::sync::atomics::Ordering;

/// Zeroed bytes behind every packet: bitstream readers look that far ahead
/// (libavcodec's AV_INPUT_BUFFER_PADDING_SIZE).
const PADDING: usize = 64;
/// Packets begin on cache lines.
const ALIGN: usize = 64;

/// The caller's end: memory for packets. One thread at a time.
#[derive(Debug)]
pub struct PacketArea {
    area: Arc<SharedArea>,
    /// First byte and end of packets the worker may still read, oldest first.
    live: VecDeque<(usize, usize)>,
    /// Packets whose memory was taken back.
    taken_back: u64,
    /// Bytes at the start that stay (data that is sent once).
    kept: usize,
}

impl PacketArea {
    /// Makes an end that uses all of `area`'s packet bytes, which are free.
    pub fn new(area: Arc<SharedArea>) -> PacketArea {
        PacketArea { area, live: VecDeque::new(), taken_back: 0, kept: 0 }
    }

    /// Puts bytes at the start that stay for good, before the first packet. `false` where
    /// they do not fit, or where packets or such bytes are inside already.
    pub fn keep(&mut self, bytes: &[u8]) -> bool {
        let fits = self.live.is_empty() && self.kept == 0 && room(bytes.len()) <= self.capacity();
        if fits {
            // SAFETY: the slice is readable, and the area is not part of it.
            unsafe { write(&self.area, 0, bytes.as_ptr(), bytes.len()) };
            self.kept = room(bytes.len());
        }
        fits
    }

    /// Returns the size of the largest packet that ever fits, bytes.
    pub fn largest(&self) -> usize {
        (self.capacity() - self.kept).saturating_sub(PADDING + ALIGN)
    }

    /// Copies a packet in, counted by the meter; returns its offset, or `None` where
    /// there is no room until the worker releases packets.
    ///
    /// # Errors
    /// The worker claims to have released more than it got.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<u64>, Breach> {
        // SAFETY: the slice is readable, and this area is not part of it.
        unsafe { self.push_raw(bytes.as_ptr(), bytes.len()) }
    }

    /// [`PacketArea::push`] of bytes that another process may change meanwhile.
    ///
    /// # Errors
    /// As [`PacketArea::push`].
    ///
    /// # Safety
    /// `len` bytes at `from` are readable, and lie outside this area.
    pub unsafe fn push_raw(&mut self, from: *const u8, len: usize) -> Result<Option<u64>, Breach> {
        self.reclaim()?;
        let Some(offset) = self.place(room(len)) else { return Ok(None) };
        self.live.push_back((offset, offset + room(len)));
        // SAFETY: the caller's contract.
        meter::copy(len, || unsafe { write(&self.area, offset, from, len) });
        Ok(Some(offset as u64))
    }

    /// True if the worker has released packets since the last look.
    ///
    /// # Errors
    /// As [`PacketArea::push`].
    pub fn has_news(&self) -> Result<bool, Breach> {
        Ok(self.released()? != self.taken_back)
    }

    fn released(&self) -> Result<u64, Breach> {
        // Acquire: pairs with the Release in `SharedPackets::release`; the
        // decoder's last reads come before our next writes.
        let released = self.area.word(AreaWord::PacketsReleased).load(Ordering::Acquire);
        match released.checked_sub(self.taken_back) {
            Some(news) if news <= self.live.len() as u64 => Ok(released),
            _ => Err(Breach("packets let go of that were never given")),
        }
    }

    fn reclaim(&mut self) -> Result<(), Breach> {
        let released = self.released()?;
        self.live.drain(..(released - self.taken_back) as usize);
        self.taken_back = released;
        Ok(())
    }

    /// Finds room for `bytes` bytes: at the start when nothing is inside, so that a path
    /// which keeps up uses the same few warm pages; else behind the newest packet, or in
    /// front of the oldest.
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

/// Writes a packet, and zeroed padding behind it.
///
/// # Safety
/// `len` bytes at `from` are readable, and lie outside `area`.
pub(super) unsafe fn write(area: &SharedArea, offset: usize, from: *const u8, len: usize) {
    let fits = offset.checked_add(len).and_then(|end| end.checked_add(PADDING));
    assert!(fits.is_some_and(|end| end as u64 <= area.sizes().packet_bytes), "a packet outside its area");
    // SAFETY: inside the mapping (asserted); raw, since the peer may read or
    // write it at any time. The source is the caller's contract.
    unsafe {
        let to = area.packets().add(offset).as_ptr();
        std::ptr::copy_nonoverlapping(from, to, len);
        std::ptr::write_bytes(to.add(len), 0, PADDING);
    }
}

/// Returns the address of the first byte of a packet of `len` bytes at `offset`, with its
/// padding inside the area.
pub(super) fn checked(area: &SharedArea, offset: u64, len: u32) -> Result<NonNull<u8>, Breach> {
    let inside = u64::from(len)
        .checked_add(PADDING as u64)
        .and_then(|len| len.checked_add(offset))
        .is_some_and(|end| end <= area.sizes().packet_bytes);
    if !inside {
        return Err(Breach("a packet outside the area"));
    }
    // SAFETY: checked to lie inside the mapping.
    Ok(unsafe { area.packets().add(offset as usize) })
}

/// Returns a private copy of the first `len` bytes of the area's packets.
pub(super) fn kept(area: &SharedArea, len: u32) -> Result<Vec<u8>, Breach> {
    let from = checked(area, 0, len)?;
    let mut bytes = vec![0; len as usize];
    // SAFETY: `len` bytes inside the mapping (checked); raw, since the peer may
    // write them at any time.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
    Ok(bytes)
}

/// Returns the number of bytes that a packet of `len` takes.
pub(super) fn room(len: usize) -> usize {
    (len + PADDING).next_multiple_of(ALIGN)
}

/// The worker's end: packets that it still reads.
#[derive(Debug)]
pub struct SharedPackets {
    area: Arc<SharedArea>,
    held: Mutex<Held>,
    bell: Bell,
}

#[derive(Debug, Default)]
struct Held {
    /// Packets released in order; published.
    released: u64,
    /// Packets after those, in order; true for a released one.
    later: VecDeque<bool>,
}

impl SharedPackets {
    /// Makes an end that holds no packets.
    pub fn new(area: Arc<SharedArea>) -> Arc<SharedPackets> {
        let bell = Bell::for_packets(&area);
        Arc::new(SharedPackets { area, held: Mutex::default(), bell })
    }

    /// Makes the next packet, in the order of submission.
    ///
    /// # Errors
    /// It would lie outside the area.
    pub fn packet(self: &Arc<SharedPackets>, offset: u64, len: u32) -> Result<SharedBytes, Breach> {
        let bytes = checked(&self.area, offset, len)?;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.later.push_back(false);
        let number = held.released + held.later.len() as u64 - 1;
        Ok(SharedBytes { owner: Owner::Ordered(self.clone(), number), bytes, len: len as usize })
    }

    /// Returns a private copy of the first `len` bytes, which were put there to stay.
    ///
    /// # Errors
    /// More than the area has.
    pub fn kept(&self, len: u32) -> Result<Vec<u8>, Breach> {
        kept(&self.area, len)
    }

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

/// A packet where it lies in the shared area, followed by zeroed bytes. The caller could
/// change the bytes at any time: they are for parsers that expect the worst, and no slice
/// of them is made. Dropping it gives the memory back.
#[derive(Debug)]
pub struct SharedBytes {
    owner: Owner,
    bytes: NonNull<u8>,
    len: usize,
}

/// Where a packet's memory goes back to; keeps the mapping.
#[derive(Debug)]
enum Owner {
    /// In the order of submission; the packet's number.
    Ordered(Arc<SharedPackets>, u64),
    /// In any order; the packet's id.
    Pooled(Arc<PooledPackets>, u32),
}

// SAFETY: only hands out a raw pointer into a mapping that it keeps alive.
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

    /// True if the packet has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl SharedBytes {
    /// Makes a packet that goes back to `packets` by its id. `bytes` is valid for `len`
    /// bytes and padding while `packets` lives.
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
        /// Packets of any size, released in any order: held ones stay as they were
        /// written.
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
