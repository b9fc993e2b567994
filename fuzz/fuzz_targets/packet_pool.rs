// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of both ends of a demuxer's packet pool, while a peer writes arbitrary
//! bytes into the shared area. No end panics or accesses memory outside the area. An
//! impossible claim is a protocol error.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use framepath_os::crossing::{PACKET_IDS, PacketPool, PooledPackets, SharedArea, SharedBytes, Sizes};
use libfuzzer_sys::fuzz_target;

const CELLS: u32 = 2;
const PACKET_BYTES: u64 = 16384;
/// Number of zeroed bytes after every packet.
const PADDING: u64 = 64;
/// Number of 8-byte words before the cells: 16 cache lines of positions, bells and
/// counters, then a bit and a count for each packet id.
const WORDS: u64 = (128 * 16 + 512 + 4096 * 4) / 8;
const STEP: usize = 6;

// The bytes of a step: operation, operand, number.
fuzz_target!(|steps: &[u8]| {
    let sizes = Sizes { cells: CELLS, packet_bytes: PACKET_BYTES };
    let ours = Arc::new(SharedArea::new(sizes).expect("memory"));
    let same = || ours.fd().try_clone_to_owned().expect("a descriptor");
    let theirs = Arc::new(SharedArea::open(same(), sizes).expect("it is sealed"));
    let peer = File::from(same());
    let mut pool = PacketPool::new(theirs, b"track").expect("it fits");
    let packets = PooledPackets::new(ours.clone());
    let mut held: Vec<SharedBytes> = Vec::new();
    for step in steps.chunks_exact(STEP) {
        let number = u32::from_le_bytes([step[2], step[3], step[4], step[5]]);
        match step[0] % 6 {
            0 => {
                let at = u64::from(number >> 8) % WORDS * 8;
                peer.write_all_at(&[step[1]; 8], at).expect("not sealed");
            }
            // An honest packet.
            1 | 2 => {
                let bytes = vec![step[1]; number as usize % (PACKET_BYTES as usize / 2)];
                let Ok(Some(placed)) = pool.push(&bytes) else { continue };
                let end = placed.offset + bytes.len() as u64 + PADDING;
                assert!(end <= PACKET_BYTES && placed.id < PACKET_IDS);
                held.extend(packets.packet(placed.offset, bytes.len() as u32, placed.id));
            }
            // An arbitrary claim of a packet.
            3 => {
                let (offset, len, id) = (u64::from(number >> 12), number & 0xfff, number >> 20);
                let inside = offset + u64::from(len) + PADDING <= PACKET_BYTES;
                let packet = packets.packet(offset, len, id);
                assert!(inside || packet.is_err());
                held.extend(packet);
            }
            4 if !held.is_empty() => drop(held.swap_remove(number as usize % held.len())),
            _ => {
                let kept = packets.kept(number >> step[1] % 32);
                assert!(kept.is_err() || kept.is_ok_and(|kept| kept.len() as u64 <= PACKET_BYTES));
            }
        }
    }
});
