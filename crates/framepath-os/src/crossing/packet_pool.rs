// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet bytes in the shared area, written by the worker and released by the caller in any
//! order: the packets of a demuxer.
//!
//! The caller may keep a packet for a whole group of pictures, to submit it again after a
//! decoder's death, and release its neighbours long before. So each packet has an id, and is
//! released by the same words as frames ([`crate::memory::pool::GiveBackWords`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::packets::{SharedBytes, checked, kept, room, write};
use super::{Bell, Breach, SharedArea};
use crate::measure::meter;
use crate::memory::pool::GiveBackWords;

/// Number of packet ids, and so the maximum number of packets that the reader can hold at a time: 4096.
pub const PACKET_IDS: u32 = crate::memory::pool::GIVE_BACK_SLOTS;

/// Writing end of the packet bytes, for packets that the reader releases in any order. Used by one
/// thread at a time.
///
/// The first half of the memory is for packets that the reader may keep. If the first half is full or
/// fragmented, or half of the ids are in use, the packet goes to the second half, and the reader has to
/// copy and release it immediately ([`Placed::transit`]). So a reader that keeps packets until others have
/// arrived never waits forever.
#[derive(Debug)]
pub struct PacketPool {
    area: Arc<SharedArea>,
    stay: Extents,
    transit: Extents,
    /// Memory of the packets that were pushed and whose release was not yet collected, by id; `None` for an
    /// unused id.
    held: Vec<Option<Held>>,
    /// Ids that no packet has now; the last one is used next.
    ids: Vec<u32>,
    largest: usize,
}

/// Memory of one packet that the reader holds: offset and size in bytes, padding included, and true in
/// `transit` if the memory is in the second half.
#[derive(Clone, Copy, Debug)]
struct Held {
    offset: usize,
    bytes: usize,
    transit: bool,
}

/// Position and id of a packet in the area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Offset of the packet's first byte from the start of the area's packet bytes, in bytes.
    pub offset: u64,
    /// Number under which the reader releases the packet; below [`PACKET_IDS`].
    pub id: u32,
    /// True if the packet is in the second half of the memory, so that the reader has to copy and release it
    /// immediately.
    pub transit: bool,
}

impl PacketPool {
    /// Creates the writing end of all of `area`'s packet bytes. Copies `first` to the start, where it
    /// stays permanently. Returns `None` if `first` and its padding do not fit into the first half.
    pub fn new(area: Arc<SharedArea>, first: &[u8]) -> Option<PacketPool> {
        let capacity = area.sizes().packet_bytes as usize;
        let middle = capacity / 2;
        let used = if first.is_empty() { 0 } else { room(first.len()) };
        if used > middle {
            return None;
        }
        if !first.is_empty() {
            // SAFETY: the slice is readable, and the area is not part of it.
            unsafe { write(&area, 0, first.as_ptr(), first.len()) };
        }
        Some(PacketPool {
            area,
            stay: Extents::new(used, middle),
            transit: Extents::new(middle, capacity),
            held: vec![None; PACKET_IDS as usize],
            // Uses the lowest id first, so that a path that keeps up uses few words.
            ids: (0..PACKET_IDS).rev().collect(),
            largest: (capacity - middle).saturating_sub(room(0)),
        })
    }

    /// Makes the memory of released packets free again, and copies a packet into the area; the meter
    /// counts the copy. Returns the packet's position and id, or `None` if there is no memory or no id until
    /// the reader releases packets; always `None` for a packet above [`PacketPool::largest`].
    ///
    /// # Errors
    /// The reader released a packet that it does not hold, or released a packet twice.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<Placed>, Breach> {
        self.collect()?;
        let needed = room(bytes.len());
        let may_stay = self.ids.len() > PACKET_IDS as usize / 2;
        let stays = if may_stay { self.stay.take(needed) } else { None };
        let transit = stays.is_none();
        let Some(offset) = stays.or_else(|| self.transit.take(needed)) else { return Ok(None) };
        let Some(id) = self.ids.pop() else {
            self.transit.free_range(offset, needed);
            return Ok(None);
        };
        self.held[id as usize] = Some(Held { offset, bytes: needed, transit });
        // SAFETY: the slice is readable, and the area is not part of it.
        meter::copy(bytes.len(), || unsafe { write(&self.area, offset, bytes.as_ptr(), bytes.len()) });
        Ok(Some(Placed { offset: offset as u64, id, transit }))
    }

    /// Copies a packet as [`PacketPool::push`] does; sleeps while there is no room. Never returns for a packet
    /// above [`PacketPool::largest`].
    ///
    /// # Errors
    /// As [`PacketPool::push`].
    pub fn push_waiting(&mut self, bytes: &[u8]) -> Result<Placed, Breach> {
        loop {
            match self.push(bytes)? {
                Some(placed) => return Ok(placed),
                None => self.wait(None),
            };
        }
    }

    /// Returns the size of the largest packet that fits into the empty second half, bytes. Such a packet
    /// fits as soon as the reader has released the packets in transit.
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Sleeps until the reader releases a packet; may return early. Does not sleep if the reader has
    /// released a packet that no [`PacketPool::push`] has collected yet. Returns false if `limit` has passed
    /// (`None`: no limit), and true otherwise.
    pub fn wait(&self, limit: Option<Duration>) -> bool {
        // Both this access and the reader's are read-modify-writes, so the later one sees the
        // earlier one: either the bit is seen here, or the reader sees the bell's flag.
        let released = || self.area.slot_summary().iter().any(|word| word.fetch_or(0, Ordering::AcqRel) != 0);
        Bell::for_slots(&self.area).sleep_unless(released, limit)
    }

    /// Makes the memory and the ids of the packets that the reader released free again. Fails if the reader
    /// released a packet that it does not hold, or released a packet twice.
    fn collect(&mut self) -> Result<(), Breach> {
        let area = self.area.clone();
        for (index, word) in area.slot_summary().iter().enumerate() {
            // Relaxed: a first check that saves the swap.
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // Acquire: pairs with the Release in `GiveBackWords::give_back`. The reader's last
            // reads come before the next writes.
            let mut bits = word.swap(0, Ordering::Acquire);
            while bits != 0 {
                let id = index as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                // Acquire: as above. The count is 0 if an earlier call found the count before its
                // bit.
                match area.slot_counts()[id as usize].swap(0, Ordering::Acquire) {
                    0 => {}
                    1 => self.release(id)?,
                    _ => return Err(Breach("a packet was released twice")),
                }
            }
        }
        Ok(())
    }

    /// Makes the memory and the id of packet `id` free again. Fails if the reader does not hold it.
    fn release(&mut self, id: u32) -> Result<(), Breach> {
        let held = self.held[id as usize].take();
        let Held { offset, bytes, transit } =
            held.ok_or(Breach("a packet was released that was never sent"))?;
        self.ids.push(id);
        let half = if transit { &mut self.transit } else { &mut self.stay };
        half.free_range(offset, bytes);
        Ok(())
    }
}

/// Free ranges of one half of the memory: a map from the offset of each range to its length, both in bytes.
/// Adjacent ranges are merged.
#[derive(Debug)]
struct Extents(BTreeMap<usize, usize>);

impl Extents {
    /// Makes the bytes from offset `from` to offset `to` free; no bytes if `from` is not below `to`.
    fn new(from: usize, to: usize) -> Extents {
        Extents((from < to).then_some((from, to - from)).into_iter().collect())
    }

    /// Takes `bytes` bytes from the free range with the lowest offset that is large enough. Returns their
    /// offset, or `None` if no range is large enough.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let (&offset, &free) = self.0.iter().find(|(_, free)| **free >= bytes)?;
        self.0.remove(&offset);
        if free > bytes {
            self.0.insert(offset + bytes, free - bytes);
        }
        Some(offset)
    }

    /// Makes `bytes` bytes at `offset` free again.
    fn free_range(&mut self, mut offset: usize, mut bytes: usize) {
        if let Some((&before, &free)) = self.0.range(..offset).next_back() {
            if before + free == offset {
                self.0.remove(&before);
                (offset, bytes) = (before, free + bytes);
            }
        }
        if let Some(free) = self.0.remove(&(offset + bytes)) {
            bytes += free;
        }
        self.0.insert(offset, bytes);
    }
}

/// Reading end of the packet bytes that a [`PacketPool`] writes. Any thread may drop packets.
#[derive(Debug)]
pub struct PooledPackets {
    area: Arc<SharedArea>,
    /// Words with a bit per id; set while a handle ([`SharedBytes`]) to the packet with the id exists.
    live: Vec<AtomicU64>,
}

impl PooledPackets {
    /// Creates the reading end of `area`, without packets.
    pub fn new(area: Arc<SharedArea>) -> Arc<PooledPackets> {
        let live = (0..PACKET_IDS.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Arc::new(PooledPackets { area, live })
    }

    /// Makes the handle of the packet with this id: `len` bytes at `offset`.
    ///
    /// # Errors
    /// The packet is outside the area, the id is [`PACKET_IDS`] or more, or a packet with this id
    /// already exists.
    pub fn packet(self: &Arc<PooledPackets>, offset: u64, len: u32, id: u32) -> Result<SharedBytes, Breach> {
        let bytes = checked(&self.area, offset, len)?;
        let word = self.live.get(id as usize / 64).ok_or(Breach("a packet's id out of range"))?;
        let bit = 1 << (id % 64);
        // Relaxed, as in `release`: the bit protects nothing but itself. A writer that reuses the
        // id has seen the release, which follows the clearing of the bit.
        if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return Err(Breach("two packets of one id"));
        }
        Ok(SharedBytes::pooled(self.clone(), id, bytes, len as usize))
    }

    /// Returns a private copy of the first `len` packet bytes, which [`PacketPool::new`] wrote.
    ///
    /// # Errors
    /// `len` bytes and the padding after them exceed the area.
    pub fn kept(&self, len: u32) -> Result<Vec<u8>, Breach> {
        kept(&self.area, len)
    }

    /// Releases packet `id` to the writer, and wakes the writer if it sleeps. Called once for each handle of
    /// [`PooledPackets::packet`], when the handle is dropped.
    pub(super) fn release(&self, id: u32) {
        self.live[id as usize / 64].fetch_and(!(1 << (id % 64)), Ordering::Relaxed);
        let area = &self.area;
        if let Some(words) = GiveBackWords::new(area.slot_bell(), area.slot_summary(), area.slot_counts()) {
            // `give_back` has a Release: a writer that reuses the id sees the cleared bit.
            words.give_back(id);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use proptest::prelude::*;

    use super::super::Sizes;
    use super::*;

    fn ends(packet_bytes: u64, first: &[u8]) -> (PacketPool, Arc<PooledPackets>) {
        let area = Arc::new(SharedArea::new(Sizes { cells: 2, packet_bytes }).unwrap());
        (PacketPool::new(area.clone(), first).unwrap(), PooledPackets::new(area))
    }

    fn read(bytes: &SharedBytes) -> Vec<u8> {
        // SAFETY: no other thread writes while the test reads.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }.to_vec()
    }

    #[test]
    fn a_packet_that_stays_does_not_keep_its_neighbours() {
        let (mut pool, packets) = ends(2 * 4096, b"track");
        assert_eq!(packets.kept(5).unwrap(), b"track");
        let placed = pool.push(b"stays").unwrap().unwrap();
        let stays = packets.packet(placed.offset, 5, placed.id).unwrap();
        for _ in 0..1000 {
            let placed = pool.push(&[7; 3000]).unwrap().unwrap();
            assert!(!placed.transit);
            let packet = packets.packet(placed.offset, 3000, placed.id).unwrap();
            assert_eq!(read(&packet), [7; 3000]);
        }
        assert_eq!(read(&stays), b"stays");
    }

    #[test]
    fn a_reader_that_keeps_all_it_may_still_gets_the_largest_packet() {
        let (mut pool, packets) = ends(2 * 4096, b"");
        let mut kept = Vec::new();
        for n in 0..1000u32 {
            let bytes = vec![n as u8; if n % 10 == 9 { pool.largest() } else { 50 }];
            let placed = pool.push(&bytes).unwrap().unwrap();
            let packet = packets.packet(placed.offset, bytes.len() as u32, placed.id).unwrap();
            assert_eq!(read(&packet), bytes);
            if !placed.transit {
                kept.push((packet, bytes));
            }
        }
        assert!(kept.len() > 20);
        assert!(kept.iter().all(|(packet, bytes)| read(packet) == *bytes));
    }

    #[test]
    fn ids_are_left_for_packets_in_transit() {
        let (mut pool, packets) = ends(4 << 20, b"");
        let mut kept = Vec::new();
        for _ in 0..2 * PACKET_IDS {
            let placed = pool.push(b"x").unwrap().unwrap();
            let packet = packets.packet(placed.offset, 1, placed.id).unwrap();
            if !placed.transit {
                kept.push(packet);
            }
        }
        assert_eq!(kept.len(), PACKET_IDS as usize / 2);
    }

    #[test]
    fn the_reader_believes_no_offset_and_no_id() {
        let (_, packets) = ends(4096, b"");
        assert!(packets.packet(4096 - 64, 1, 0).is_err());
        assert!(packets.packet(u64::MAX, u32::MAX, 0).is_err());
        assert!(packets.packet(0, 1, PACKET_IDS).is_err());
        let one = packets.packet(0, 1, 3).unwrap();
        assert!(packets.packet(64, 1, 3).is_err());
        drop(one);
        assert!(packets.packet(64, 1, 3).is_ok());
        assert!(packets.kept(4096).is_err());
    }

    #[test]
    fn the_writer_believes_no_release() {
        let (mut pool, packets) = ends(4096, b"");
        let area = packets.area.clone();
        let words = || GiveBackWords::new(area.slot_bell(), area.slot_summary(), area.slot_counts()).unwrap();
        words().give_back(9);
        assert!(pool.push(b"x").is_err());
        let placed = pool.push(b"x").unwrap().unwrap();
        words().give_back(placed.id);
        words().give_back(placed.id);
        assert!(pool.push(b"x").is_err());
    }

    #[test]
    fn a_writer_without_room_wakes_when_a_packet_is_released() {
        let (mut pool, packets) = ends(2 * 4096, b"");
        let mut packet = || {
            let Placed { offset, id, .. } = pool.push(&[1; 4000]).unwrap().unwrap();
            packets.packet(offset, 4000, id).unwrap()
        };
        let (_stays, packet) = (packet(), packet());
        assert_eq!(pool.push(&[2; 4000]), Ok(None));
        let writer = std::thread::spawn(move || {
            loop {
                match pool.push(&[2; 4000]).unwrap() {
                    Some(place) => return place,
                    None => assert!(pool.wait(None)),
                }
            }
        });
        drop(packet);
        let Placed { offset, id, transit } = writer.join().unwrap();
        assert!(transit);
        assert_eq!(read(&packets.packet(offset, 4000, id).unwrap()), [2; 4000]);
    }

    proptest! {
        /// Packets of any size, released in any order: held packets keep their bytes, and all
        /// memory becomes free.
        #[test]
        fn held_packets_are_never_overwritten(steps: Vec<(u16, u8, bool)>) {
            let (mut pool, packets) = ends(3 * 4096, b"head");
            let largest = pool.largest();
            let mut held: Vec<(SharedBytes, u8)> = Vec::new();
            for (len, pick, put) in steps {
                if put {
                    let bytes = vec![pick; usize::from(len % 5000)];
                    match pool.push(&bytes).unwrap() {
                        Some(Placed { offset, id, .. }) => {
                            held.push((packets.packet(offset, bytes.len() as u32, id).unwrap(), pick));
                        }
                        None => prop_assert!(!held.is_empty()),
                    }
                } else if !held.is_empty() {
                    held.remove(usize::from(pick) % held.len());
                }
                for (packet, value) in &held {
                    prop_assert!(read(packet).iter().all(|byte| byte == value));
                }
            }
            held.clear();
            prop_assert_eq!(packets.kept(4).unwrap(), b"head");
            prop_assert!(pool.push(&vec![1; largest]).unwrap().is_some_and(|placed| placed.transit));
        }
    }
}
