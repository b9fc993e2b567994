// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of a stream in a file that the kernel module keeps with the stream. If a decoder program
//! (`framepath serve --device`) ends, the next decoder program reads these packets, and continues the
//! stream.
//!
//! The *epoch* is the number of the client's flushes (seeks) in this stream: packets of an earlier epoch
//! are not needed. A *key* is a packet where decoding can start.
//!
//! ```text
//! 0        magic, epoch, head, tail        (64 bits each)
//! 4096     a ring of entries, from head to tail, which count bytes and only grow
//! entry    seq, length|key<<32, mark (32 bytes), bytes
//! ```
//!
//! A decoder program can be killed between any two writes. So this module writes an entry first, then
//! the word `tail` that includes the entry; each word is written in one piece.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use framepath_os::v4l2::attach::PacketMark;

/// First word of a stash: the bytes `fpstash1`.
const MAGIC: u64 = 0x3168_7361_7473_7066;
/// Position of the ring in the file, bytes.
const RING: u64 = 4096;
/// Position of the epoch in the file, bytes.
const EPOCH_AT: u64 = 8;
/// Position of the head in the file, bytes.
const HEAD_AT: u64 = 16;
/// Position of the tail in the file, bytes.
const TAIL_AT: u64 = 24;
/// Size of the header in front of each packet, bytes.
const ENTRY: u64 = 48;

/// One packet in the stash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StashEntry {
    /// Number of the packet in the stream.
    pub(super) seq: u64,
    /// True if decoding can start here.
    pub(super) key: bool,
    /// Mark that the client gave to the packet, for the packet's frame.
    pub(super) mark: PacketMark,
    /// Payload of the packet, after the parameter sets that decoding from this packet on needs and that the
    /// payload lacks.
    pub(super) bytes: Vec<u8>,
}

/// Packets of one epoch that may have to be decoded again, in a file.
pub(super) struct Stash {
    file: File,
    /// Size of the ring in bytes.
    size: u64,
    /// Position of the oldest entry, bytes. Positions do not restart when the ring wraps: the entry is at
    /// `head % size` in the ring.
    head: u64,
    /// Position after the newest entry, counted as `head` is.
    tail: u64,
    /// Position and packet number of each key, oldest first.
    keys: Vec<(u64, u64)>,
}

impl Stash {
    /// Opens the stash in `file`. Returns the stash and its packets, oldest first. If they belong to
    /// another epoch than `epoch`, or the content is invalid, removes them and returns no packets.
    ///
    /// # Errors
    /// The file has no room for a packet, or cannot be read or written.
    pub(super) fn open(file: File, epoch: u32) -> io::Result<(Stash, Vec<StashEntry>)> {
        let size = file.metadata()?.len().checked_sub(RING).filter(|size| *size > ENTRY);
        let size = size.ok_or(io::ErrorKind::InvalidData)?;
        let mut stash = Stash { file, size, head: 0, tail: 0, keys: Vec::new() };
        let known = stash.word(0)? == MAGIC && stash.word(EPOCH_AT)? == u64::from(epoch);
        let (head, tail) = (stash.word(HEAD_AT)?, stash.word(TAIL_AT)?);
        if !known || tail < head || tail - head > size {
            stash.begin(epoch)?;
            return Ok((stash, Vec::new()));
        }
        (stash.head, stash.tail) = (head, tail);
        let entries = match stash.entries() {
            Ok(entries) => entries,
            // Invalid content is removed: decoding restarts at the next key.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                stash.begin(epoch)?;
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        Ok((stash, entries))
    }

    /// Reads all packets, oldest first, and finds the keys among them again.
    ///
    /// # Errors
    /// The file cannot be read; `InvalidData` if it has an impossible entry.
    pub(super) fn entries(&mut self) -> io::Result<Vec<StashEntry>> {
        self.keys.clear();
        let mut entries = Vec::new();
        let mut at = self.head;
        while at < self.tail {
            let (entry, next) = self.entry(at, self.tail)?.ok_or(io::ErrorKind::InvalidData)?;
            if entry.key {
                self.keys.push((at, entry.seq));
            }
            entries.push(entry);
            at = next;
        }
        Ok(entries)
    }

    /// Removes all packets, and writes the number `epoch`. Called after a flush, after a drain,
    /// when a packet begins a session that is no replay, and for a file with invalid content or another
    /// epoch.
    pub(super) fn begin(&mut self, epoch: u32) -> io::Result<()> {
        // Empties the ring first, so that after a kill in between the old epoch has no packets.
        self.set_word(HEAD_AT, self.tail)?;
        self.head = self.tail;
        self.keys.clear();
        self.set_word(TAIL_AT, self.tail)?;
        self.set_word(EPOCH_AT, epoch.into())?;
        self.set_word(0, MAGIC)
    }

    /// Adds a packet. If the ring has no room for the packet, removes all others first, even if the packet is
    /// then not added. A packet larger than the ring is not added; an empty stash takes only a packet where
    /// decoding can start.
    pub(super) fn append(&mut self, entry: &StashEntry) -> io::Result<()> {
        let length = entry.bytes.len() as u64;
        if self.tail - self.head + ENTRY + length > self.size {
            self.head = self.tail;
            self.keys.clear();
            self.set_word(HEAD_AT, self.head)?;
        }
        let begins = self.head == self.tail;
        if (begins && !entry.key) || ENTRY + length > self.size {
            return Ok(());
        }
        let mut head = [0; ENTRY as usize];
        head[..8].copy_from_slice(&entry.seq.to_le_bytes());
        head[8..16].copy_from_slice(&(length | u64::from(entry.key) << 32).to_le_bytes());
        head[16..].copy_from_slice(&entry.mark.to_bytes());
        self.write(self.tail, &head)?;
        framepath_os::measure::meter::copy(entry.bytes.len(), || {
            self.write(self.tail + ENTRY, &entry.bytes)
        })?;
        if entry.key {
            self.keys.push((self.tail, entry.seq));
        }
        self.tail += ENTRY + length;
        self.set_word(TAIL_AT, self.tail)
    }

    /// Drops the packets that are not needed once the client has the frame of packet `seq`. A key is a packet
    /// where decoding can start. Of the keys up to packet `seq`, the last two stay, with all packets after
    /// the first of these two; all earlier packets are dropped. Two keys stay, because pictures that follow a
    /// key may be shown before it and depend on the previous key.
    pub(super) fn delivered(&mut self, seq: u64) -> io::Result<()> {
        let passed = self.keys.iter().take_while(|(_, key)| *key <= seq).count();
        if passed >= 3 {
            self.keys.drain(..passed - 2);
            self.head = self.keys[0].0;
            self.set_word(HEAD_AT, self.head)?;
        }
        Ok(())
    }

    /// Reads the entry at position `at`. Returns the entry and the position after it; `None` if the entry is
    /// impossible or reaches beyond `tail`.
    fn entry(&self, at: u64, tail: u64) -> io::Result<Option<(StashEntry, u64)>> {
        let mut head = [0; ENTRY as usize];
        if tail - at < ENTRY {
            return Ok(None);
        }
        self.read(at, &mut head)?;
        let word = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("inside"));
        let (seq, length, key) = (word(0), word(8) & 0xffff_ffff, word(8) >> 32);
        if key > 1 || length > tail - at - ENTRY {
            return Ok(None);
        }
        let mark = PacketMark::from_bytes(head[16..].first_chunk().expect("inside"));
        let mut bytes = vec![0; length as usize];
        self.read(at + ENTRY, &mut bytes)?;
        Ok(Some((StashEntry { seq, key: key != 0, mark, bytes }, at + ENTRY + length)))
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let first = self.until_wrap(at, bytes.len());
        let (before, behind) = bytes.split_at_mut(first);
        self.file.read_exact_at(before, RING + at % self.size)?;
        self.file.read_exact_at(behind, RING)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (before, behind) = bytes.split_at(self.until_wrap(at, bytes.len()));
        self.file.write_all_at(before, RING + at % self.size)?;
        self.file.write_all_at(behind, RING)
    }

    /// Returns how many of `length` bytes at position `at` are before the end of the ring.
    fn until_wrap(&self, at: u64, length: usize) -> usize {
        usize::try_from(self.size - at % self.size).map_or(length, |left| left.min(length))
    }

    /// Reads the 64-bit word at byte `at` of the file.
    fn word(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn set_word(&self, at: u64, value: u64) -> io::Result<()> {
        self.file.write_all_at(&value.to_le_bytes(), at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seq: u64, key: bool, length: usize) -> StashEntry {
        let mark = PacketMark { timestamp: seq * 7, ..PacketMark::default() };
        StashEntry { seq, key, mark, bytes: vec![seq as u8; length] }
    }

    fn file(bytes: u64) -> File {
        let file = framepath_os::memory::memory_file("stash").unwrap();
        file.set_len(bytes).unwrap();
        file
    }

    #[test]
    fn the_next_decoder_finds_the_needed_packets_only() {
        let file = file(RING + 8000);
        let (mut stash, entries) = Stash::open(file.try_clone().unwrap(), 0).unwrap();
        assert_eq!(entries, []);
        let all: Vec<_> = (0..200).map(|seq| entry(seq, seq % 5 == 0, 100 + seq as usize)).collect();
        for entry in &all {
            stash.append(entry).unwrap();
            stash.delivered(entry.seq.saturating_sub(2)).unwrap();
            let (_, left) = Stash::open(file.try_clone().unwrap(), 0).unwrap();
            let first = left[0].seq as usize;
            assert!(left[0].key && left == all[first..=entry.seq as usize], "a row that begins at a key");
            assert!(entry.seq < 15 || entry.seq - left[0].seq <= 15);
        }
        let (_, other) = Stash::open(file, 1).unwrap();
        assert_eq!(other, [], "another epoch's");
    }

    #[test]
    fn without_room_nothing_is_kept_until_the_next_key() {
        let (mut stash, _) = Stash::open(file(RING + 1000), 0).unwrap();
        stash.append(&entry(0, true, 500)).unwrap();
        stash.append(&entry(1, false, 500)).unwrap();
        stash.append(&entry(2, false, 5)).unwrap();
        stash.append(&entry(3, true, 2000)).unwrap();
        assert_eq!(stash.head, stash.tail);
        stash.append(&entry(4, true, 800)).unwrap();
        let (_, left) = Stash::open(stash.file, 0).unwrap();
        assert_eq!(left, [entry(4, true, 800)]);
    }

    #[test]
    fn a_file_of_any_bytes_is_an_empty_stash() {
        let bad = file(RING + 1000);
        bad.write_all_at(&MAGIC.to_le_bytes(), 0).unwrap();
        bad.write_all_at(&u64::MAX.to_le_bytes(), TAIL_AT).unwrap();
        assert_eq!(Stash::open(bad, 0).unwrap().1, []);
        let bad = file(RING + 1000);
        for (at, word) in [(0, MAGIC), (TAIL_AT, 900), (RING + 8, 5 << 32)] {
            bad.write_all_at(&word.to_le_bytes(), at).unwrap();
        }
        assert_eq!(Stash::open(bad, 0).unwrap().1, []);
        assert!(Stash::open(file(10), 0).is_err());
    }
}
