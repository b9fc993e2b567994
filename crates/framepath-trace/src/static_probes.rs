// SPDX-License-Identifier: MIT OR Apache-2.0
//! Static probes that a file has in notes (USDT).
//!
//! Format: SystemTap's sys/sdt.h, "UserSpaceProbeImplementation": a note of type 3 and name `stapsdt` has the probe's address,
//! the address of the section `.stapsdt.base` when the file was linked, a semaphore, and three texts: provider, name, arguments.

use std::io;

use framepath_os::process::regular_file::RegularFile;
use object::elf::SHT_NOTE;
use object::read::ReadCache;
use object::read::elf::SectionHeader;
use object::{Endian, Endianness};

use crate::elf_file::ElfFile;

/// Most probes of a file.
const MOST: usize = 64;
/// Most bytes of notes that are read.
const MOST_BYTES: u64 = 1 << 20;

/// Type of the notes.
const PROBE: u32 = 3;

/// Static probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StaticProbe {
    pub(crate) name: String,
    /// Offset of its instruction in the file.
    pub(crate) offset: u64,
}

/// Returns the probes of `provider` in a file, each place once, and [`MOST`] at most. Reads the parts of the file that have them.
///
/// # Errors
/// The file cannot be read, or it is not an ELF file for this computer.
pub(crate) fn static_probes(file: &RegularFile, provider: &str) -> io::Result<Vec<StaticProbe>> {
    let file = ReadCache::new(file.file());
    let elf = ElfFile::parse(&file)?;
    let (endian, sections) = (elf.endian, &elf.sections);
    let Some((_, notes)) = sections.section_by_name(endian, b".note.stapsdt") else { return Ok(Vec::new()) };
    if notes.sh_type(endian) != SHT_NOTE {
        return Ok(Vec::new());
    }
    let base = sections.section_by_name(endian, b".stapsdt.base").map(|(_, base)| base.sh_addr(endian));
    let mut probes: Vec<StaticProbe> = Vec::new();
    let mut notes = elf.content(notes, MOST_BYTES);
    while let Some((note, rest)) = Note::next(notes, endian) {
        notes = rest;
        if note.provider != provider.as_bytes() {
            continue;
        }
        // A tool that has moved the file's sections has not changed the notes.
        let address = note.address.wrapping_add(base.map_or(0, |base| base.wrapping_sub(note.base)));
        if let Some((offset, _)) = elf.offset(address) {
            let probe = StaticProbe { name: String::from_utf8_lossy(note.name).into_owned(), offset };
            if probes.len() < MOST && !probes.contains(&probe) {
                probes.push(probe);
            }
        }
    }
    Ok(probes)
}

struct Note<'a> {
    address: u64,
    base: u64,
    provider: &'a [u8],
    name: &'a [u8],
}

impl<'a> Note<'a> {
    /// Returns the first probe in `notes`, and what comes behind it; `None` if there is none.
    fn next(mut notes: &'a [u8], endian: Endianness) -> Option<(Note<'a>, &'a [u8])> {
        loop {
            let word = |at: usize| Some(endian.read_u32_bytes(*notes.get(at..)?.first_chunk()?));
            let (name_bytes, text_bytes, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
            let behind_name = notes.get(12..)?.get(name_bytes.checked_next_multiple_of(4)?..)?;
            let name = notes.get(12..)?.get(..name_bytes)?;
            let text = behind_name.get(..text_bytes)?;
            notes = behind_name.get(text_bytes.checked_next_multiple_of(4)?..).unwrap_or_default();
            if let (b"stapsdt\0", PROBE) = (name, kind) {
                if let Some(note) = Note::of(text, endian) {
                    return Some((note, notes));
                }
            }
        }
    }

    fn of(text: &'a [u8], endian: Endianness) -> Option<Note<'a>> {
        let word = |at: usize| Some(endian.read_u64_bytes(*text.get(at..)?.first_chunk()?));
        let mut texts = text.get(24..)?.split(|byte| *byte == 0);
        Some(Note { address: word(0)?, base: word(8)?, provider: texts.next()?, name: texts.next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8; 8], kind: u32, text: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            [8, text.len() as u32, kind].into_iter().flat_map(u32::to_le_bytes).collect();
        bytes.extend(name);
        bytes.extend(text);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn probes_are_found_between_other_notes_and_broken_ones_end_the_search() {
        let words: Vec<u8> = [0x1234u64, 0x2000, 0].into_iter().flat_map(u64::to_le_bytes).collect();
        let text = [&words[..], b"framepath\0frame\x008@%rdi\0"].concat();
        let (other, short) = (note(b"stapsdx\0", 3, &text), note(b"stapsdt\0", 3, &text[..9]));
        let notes = [other, short, note(b"stapsdt\0", 3, &text)].concat();
        let (found, rest) = Note::next(&notes, Endianness::Little).unwrap();
        assert_eq!((found.address, found.base, found.name), (0x1234, 0x2000, &b"frame"[..]));
        assert_eq!((found.provider, rest), (&b"framepath"[..], &[][..]));
        for length in 0..notes.len() - 3 {
            assert!(Note::next(&notes[..length], Endianness::Little).is_none(), "{length}");
        }
        let huge = [0xff; 64];
        assert!(Note::next(&huge, Endianness::Little).is_none());
    }
}
