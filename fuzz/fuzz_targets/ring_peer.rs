// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of both ends of the shared area, while a peer writes arbitrary bytes
//! into it. No end panics or accesses memory outside the area. An impossible claim is a
//! protocol error.
//!
//! No thread sleeps here, so an arbitrary value of a bell causes at most a needless
//! wake-up.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use framepath_os::crossing::{
    CellReader, CellWriter, PacketArea, SharedArea, SharedBytes, SharedPackets, Sizes, completions,
    submissions,
};
use libfuzzer_sys::fuzz_target;

const CELLS: u32 = 4;
const PACKET_BYTES: u64 = 8192;
/// Distance from one position, bell or counter to the next, bytes: a pair of cache
/// lines.
const LINE: u64 = 128;
/// Number of lines for positions, bells and counters, at the start of the area.
const LINES: u64 = 16;
/// Number of 8-byte words before the packets: from the first line to the end of the
/// last cell.
const WORDS: u64 = (LINE * LINES + 512 + 4096 * 4 + 2 * CELLS as u64 * 64) / 8;
/// Number of zeroed bytes after every packet.
const PADDING: usize = 64;
const STEP: usize = 6;

/// Ends of both rings and of the packets, as one process has them.
struct Side {
    writers: [CellWriter; 2],
    readers: [CellReader; 2],
    packets: PacketArea,
    shared: Arc<SharedPackets>,
    held: Vec<SharedBytes>,
}

impl Side {
    fn new(area: Arc<SharedArea>) -> Side {
        let (to_worker, from_caller) = submissions(&area);
        let (to_caller, from_worker) = completions(&area);
        Side {
            writers: [to_worker, to_caller],
            readers: [from_caller, from_worker],
            packets: PacketArea::new(area.clone()),
            shared: SharedPackets::new(area),
            held: Vec::new(),
        }
    }

    fn step(&mut self, what: u8, ring: usize, number: u32) {
        match what % 8 {
            0 => {
                let room = self.writers[ring].room();
                assert!(room.is_err() || room.is_ok_and(|room| room <= u64::from(CELLS)));
                // The peer does not write at this time.
                let pushed = self.writers[ring].push(&[u64::from(number); 8]);
                assert_eq!(pushed, room.map(|room| room > 0));
            }
            1 => {
                let there = self.readers[ring].available();
                assert!(there.is_err() || there.is_ok_and(|there| there <= u64::from(CELLS)));
                match self.readers[ring].pop() {
                    Ok(cell) => assert_eq!(there, Ok(u64::from(cell.is_some()).max(there.unwrap_or(0)))),
                    Err(breach) => assert_eq!(there, Err(breach)),
                }
            }
            2 => {
                let bytes = vec![7; number as usize % (PACKET_BYTES as usize + PADDING)];
                if let Ok(Some(offset)) = self.packets.push(&bytes) {
                    assert!(offset as usize + bytes.len() + PADDING <= PACKET_BYTES as usize);
                }
            }
            3 => {
                let _ = self.packets.has_news();
            }
            4 => {
                // Usually near the valid range, sometimes far outside.
                let (offset, len) = match ring {
                    0 => (u64::from(number >> 16), number & 0x3fff),
                    _ => (u64::from(number) << 32 | 0xffff, number),
                };
                let inside = offset.checked_add(u64::from(len) + PADDING as u64);
                let inside = inside.is_some_and(|end| end <= PACKET_BYTES);
                let packet = self.shared.packet(offset, len);
                assert_eq!(packet.is_ok(), inside);
                self.held.extend(packet);
            }
            5 if !self.held.is_empty() => {
                let index = number as usize % self.held.len();
                drop(self.held.swap_remove(index));
            }
            6 => {
                let kept = self.shared.kept(number >> (ring * 16));
                assert!(kept.is_err() || kept.is_ok_and(|kept| kept.len() <= PACKET_BYTES as usize));
            }
            _ => {
                let _ = (self.writers[ring].len(), self.writers[ring].bell().sleeps());
            }
        }
    }
}

// The bytes of a step: operation, place, number.
fuzz_target!(|steps: &[u8]| {
    let sizes = Sizes { cells: CELLS, packet_bytes: PACKET_BYTES };
    let ours = Arc::new(SharedArea::new(sizes).expect("memory"));
    let same = || ours.fd().try_clone_to_owned().expect("a descriptor");
    let theirs = Arc::new(SharedArea::open(same(), sizes).expect("it is sealed"));
    let peer = File::from(same());
    let mut sides = [Side::new(ours.clone()), Side::new(theirs)];
    for step in steps.chunks_exact(STEP) {
        let (what, place) = (step[0], step[1]);
        let number = u32::from_le_bytes([step[2], step[3], step[4], step[5]]);
        match what >> 4 {
            // A position, bell or counter, near its valid range or arbitrary.
            0..4 => {
                let word = if place & 1 == 0 { u64::from(number & 7) } else { u64::from(number) << 32 };
                let word = if place & 2 == 0 { word } else { word.wrapping_neg() };
                let at = u64::from(place >> 4) % LINES * LINE;
                peer.write_all_at(&word.to_ne_bytes(), at).expect("not sealed");
            }
            // An arbitrary word before the packets.
            4 => {
                let at = u64::from(number >> 8) % WORDS * 8;
                peer.write_all_at(&[place; 8], at).expect("not sealed");
            }
            _ => sides[usize::from(place & 1)].step(what, usize::from(place >> 1 & 1), number),
        }
    }
});
