// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program or library as a file for this computer's processor.
//!
//! A program can map any file. So the number and size of all parts that are read are limited, and no work is for each pair of
//! them: neither for each symbol and byte of its name, nor for each symbol and segment.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;

use object::elf::{
    self, DT_NEEDED, Dyn64, FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_INTERP, PT_LOAD, ProgramHeader64, Rela64,
    SHT_DYNAMIC, SHT_DYNSYM, SHT_RELA, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, SectionHeader64, Sym64,
};
use object::pod::{Pod, slice_from_bytes};
use object::read::SectionIndex;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, ReadCache, ReadRef};

/// This computer's processor.
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = elf::EM_AARCH64;

/// Kinds of relocations by which the loader fills in a function's address.
#[cfg(target_arch = "x86_64")]
const ADDRESSES: [u32; 2] = [elf::R_X86_64_GLOB_DAT, elf::R_X86_64_JUMP_SLOT];
#[cfg(target_arch = "aarch64")]
const ADDRESSES: [u32; 2] = [elf::R_AARCH64_GLOB_DAT, elf::R_AARCH64_JUMP_SLOT];

/// Smallest page, bytes.
const PAGE: u64 = 4096;

/// Encodings of the table of functions: offsets of four bytes, relative to their place, and to the table.
const TABLE_ENCODINGS: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// Bytes of the header in front of the table of functions, and of one of its entries.
const TABLE_HEADER: u64 = 12;
const TABLE_ENTRY: u64 = 8;

/// Most bytes of a section that is read: that of symbols, or of their names.
const MOST_BYTES: u64 = 64 << 20;
/// Most sections and segments of a file that is read.
const MOST_SECTIONS: u16 = 4096;
const MOST_SEGMENTS: u16 = 256;
/// Most libraries that a file needs, and the longest name of one, bytes.
const MOST_NEEDED: usize = 4096;
const LONGEST_NAME: usize = 255;
/// Most places of addresses of other files' functions.
const MOST_SLOTS: usize = 16;

/// Program or library. Addresses are those of the file itself, before it is mapped.
pub(crate) struct ElfFile<'a> {
    file: &'a ReadCache<&'a File>,
    /// Bytes of contents that may still be read.
    left: Cell<u64>,
    pub(crate) endian: Endianness,
    header: &'a FileHeader64<Endianness>,
    segments: &'a [ProgramHeader64<Endianness>],
    pub(crate) sections: SectionTable<'a, FileHeader64<Endianness>, &'a ReadCache<&'a File>>,
}

/// Section of texts, each with a zero behind it.
#[derive(Clone, Copy)]
pub(crate) struct Texts<'a>(&'a [u8]);

impl<'a> Texts<'a> {
    /// Returns which of `names` is at a place; `None` if it is another text.
    pub(crate) fn one_of<'n>(self, at: u32, names: &[&'n str]) -> Option<&'n str> {
        let rest = self.0.get(at as usize..)?;
        let is_it =
            |name: &&&str| rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0));
        names.iter().find(is_it).copied()
    }

    /// Returns the text at a place; `None` if it is longer than [`LONGEST_NAME`].
    fn short(self, at: u32) -> Option<&'a [u8]> {
        let rest = self.0.get(at as usize..)?;
        let end = rest.iter().take(LONGEST_NAME + 1).position(|byte| *byte == 0)?;
        Some(&rest[..end])
    }
}

fn invalid(error: object::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Returns the entries of a section.
fn entries<T: Pod>(bytes: &[u8]) -> &[T] {
    slice_from_bytes(bytes, bytes.len() / size_of::<T>()).map_or(&[][..], |(entries, _)| entries)
}

impl<'a> ElfFile<'a> {
    /// Reads the headers of a file.
    ///
    /// # Errors
    /// The file cannot be read, or it is not an ELF file for this computer.
    pub(crate) fn parse(file: &'a ReadCache<&'a File>) -> io::Result<ElfFile<'a>> {
        let unusable = |text| Err(io::Error::new(io::ErrorKind::InvalidData, text));
        let header = FileHeader64::<Endianness>::parse(file).map_err(invalid)?;
        let endian = header.endian().map_err(invalid)?;
        if header.e_machine(endian) != MACHINE {
            return unusable("it is a program for another processor");
        }
        // No sections mean that their number is elsewhere, and has no limit.
        if header.e_phnum.get(endian) > MOST_SEGMENTS
            || !(1..=MOST_SECTIONS).contains(&header.e_shnum.get(endian))
        {
            return unusable("it has too many segments, or too many or no sections");
        }
        let segments = header.program_headers(endian, file).map_err(invalid)?;
        let sections = header.sections(endian, file).map_err(invalid)?;
        Ok(ElfFile { file, left: Cell::new(2 * MOST_BYTES), endian, header, segments, sections })
    }

    /// Returns true for a program without a loader: it has its libraries inside.
    pub(crate) fn is_static(&self) -> bool {
        let endian = self.endian;
        let is_program = self.header.e_entry(endian) != 0;
        is_program && self.segments.iter().all(|segment| segment.p_type(endian) != PT_INTERP)
    }

    /// Returns the content of a section; empty if it has more than `most` bytes, or if all contents so far have used up the limit of
    /// a file.
    pub(crate) fn content(&self, section: &SectionHeader64<Endianness>, most: u64) -> &'a [u8] {
        let bytes = section.sh_size(self.endian);
        match self.take(bytes, most) {
            true => section.data(self.endian, self.file).unwrap_or_default(),
            false => &[],
        }
    }

    /// Returns true if these bytes may be read, of `most` at once.
    fn take(&self, bytes: u64, most: u64) -> bool {
        let left = self.left.get().checked_sub(bytes).filter(|_| bytes <= most);
        left.inspect(|left| self.left.set(*left)).is_some()
    }

    /// Returns the section that `section` names as that of its texts.
    fn texts(&self, section: &SectionHeader64<Endianness>) -> Texts<'a> {
        let index = SectionIndex(section.sh_link(self.endian) as usize);
        Texts(self.sections.section(index).map_or(&[][..], |texts| self.content(texts, MOST_BYTES)))
    }

    fn of_type(&self, types: &[u32]) -> impl Iterator<Item = &'a SectionHeader64<Endianness>> {
        let is_wanted =
            |section: &&SectionHeader64<Endianness>| types.contains(&section.sh_type(self.endian));
        self.sections.iter().filter(is_wanted)
    }

    /// Calls `take` for each function of the file's two lists of symbols, with the texts, the place of its name in them, and its
    /// address.
    pub(crate) fn functions(&self, mut take: impl FnMut(Texts<'a>, u32, u64)) {
        let endian = self.endian;
        for section in [SHT_DYNSYM, SHT_SYMTAB].iter().filter_map(|kind| self.of_type(&[*kind]).next()) {
            let texts = self.texts(section);
            for symbol in entries::<Sym64<Endianness>>(self.content(section, MOST_BYTES)) {
                if matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC) && symbol.st_shndx(endian) != 0 {
                    take(texts, symbol.st_name(endian), symbol.st_value(endian));
                }
            }
        }
    }

    /// Returns the names of the libraries that the file needs, without those that are too long or too many.
    pub(crate) fn needed(&self) -> Vec<String> {
        let endian = self.endian;
        let Some(section) = self.of_type(&[SHT_DYNAMIC]).next() else { return Vec::new() };
        let texts = self.texts(section);
        let needed = entries::<Dyn64<Endianness>>(self.content(section, MOST_BYTES)).iter();
        let needed = needed.filter(|entry| entry.tag32(endian) == Some(DT_NEEDED)).take(MOST_NEEDED);
        let names = needed.filter_map(|entry| texts.short(entry.val32(endian)?));
        names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    /// Returns the offset in the file of the byte at an address, and the number of bytes from there on.
    pub(crate) fn offset(&self, address: u64) -> Option<(u64, u64)> {
        let endian = self.endian;
        let loaded = self.segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
        let mut behind = loaded.filter_map(|segment| {
            let at = address.checked_sub(segment.p_vaddr(endian))?;
            let rest = segment.p_filesz(endian).checked_sub(at).filter(|rest| *rest > 0)?;
            Some((segment.p_offset(endian).checked_add(at)?, rest))
        });
        behind.next()
    }

    /// Returns the address of the byte of code at an offset in the file.
    pub(crate) fn code_address(&self, offset: u64) -> Option<u64> {
        let endian = self.endian;
        let is_code = |segment: &&ProgramHeader64<Endianness>| {
            segment.p_type(endian) == PT_LOAD && segment.p_flags(endian) & PF_X != 0
        };
        let mut behind = self.segments.iter().filter(is_code).filter_map(|segment| {
            // Whole pages are mapped.
            let before = segment.p_offset(endian) % PAGE;
            let at = offset.checked_sub(segment.p_offset(endian) - before)?;
            let address = segment.p_vaddr(endian).wrapping_sub(before).wrapping_add(at);
            (at < segment.p_filesz(endian).saturating_add(before)).then_some(address)
        });
        behind.next()
    }

    /// Returns the addresses at which the file, once it is mapped, has the addresses of the functions `names` of other files:
    /// the first [`MOST_SLOTS`].
    pub(crate) fn slots(&self, names: &[&str]) -> Vec<u64> {
        let endian = self.endian;
        let mut slots: Vec<u64> = Vec::new();
        let Some(table) = self.of_type(&[SHT_DYNSYM]).next() else { return slots };
        let texts = self.texts(table);
        let symbols = entries::<Sym64<Endianness>>(self.content(table, MOST_BYTES));
        for section in self.of_type(&[SHT_RELA]) {
            let relocations = entries::<Rela64<Endianness>>(self.content(section, MOST_BYTES));
            for entry in relocations.iter().filter(|entry| ADDRESSES.contains(&entry.r_type(endian, false))) {
                let symbol = symbols.get(entry.r_sym(endian, false) as usize);
                let is_wanted =
                    symbol.is_some_and(|symbol| texts.one_of(symbol.st_name(endian), names).is_some());
                let slot = entry.r_offset.get(endian);
                if is_wanted && !slots.contains(&slot) {
                    slots.push(slot);
                    if slots.len() == MOST_SLOTS {
                        return slots;
                    }
                }
            }
        }
        slots
    }

    /// Returns the addresses of the function that has an instruction at `address`, by the table for unwinding; `None` if the
    /// table is missing, has another encoding than usual, or does not know it.
    pub(crate) fn function_at(&self, address: u64) -> Option<Range<u64>> {
        let endian = self.endian;
        let header = self.segments.iter().find(|segment| segment.p_type(endian) == PT_GNU_EH_FRAME)?;
        if !self.take(header.p_filesz(endian), MOST_BYTES) {
            return None;
        }
        let (table, base) = (header.data(endian, self.file).ok()?, header.p_vaddr(endian));
        if table.first_chunk() != Some(&TABLE_ENCODINGS) {
            return None;
        }
        let word = |at: u64| {
            let bytes = table.get(usize::try_from(at).ok()?..)?.first_chunk()?;
            Some(i32::from_ne_bytes(*bytes))
        };
        // First instruction, and entry in the section .eh_frame.
        let entry = |n: u64| {
            let at = TABLE_HEADER + TABLE_ENTRY * n;
            let address = |at| Some(base.wrapping_add_signed(word(at)?.into()));
            Some((address(at)?, address(at + 4)?))
        };
        let (mut from, mut to) = (0, u64::from(word(8)?.unsigned_abs()));
        while from < to {
            let middle = from + (to - from) / 2;
            match entry(middle)?.0 <= address {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        let (start, description) = entry(from.checked_sub(1)?)?;
        // Length, distance to the common part, first instruction; then the function's length.
        let at = self.offset(description)?.0.checked_add(12)?;
        let bytes = u32::from_ne_bytes(*self.file.read_bytes_at(at, 4).ok()?.first_chunk()?);
        // A negative one is as good as none.
        let function = start..start.checked_add(u64::from(bytes & 0x7fff_ffff))?;
        function.contains(&address).then_some(function)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Header of a section: type, content, number of the section of its texts.
    type Section = (u32, Vec<u8>, u32);

    /// Calls `check` with a file of these sections behind the first, empty one; the file says that it has `segments` segments.
    fn with_file(sections: &[Section], segments: u16, check: impl FnOnce(io::Result<ElfFile<'_>>)) {
        let mut bytes = vec![0; 64 + 56];
        let mut headers = vec![0; 64];
        for (kind, content, link) in sections {
            let mut header = Vec::new();
            header.extend([0, *kind].into_iter().flat_map(u32::to_le_bytes));
            let words = [0, 0, bytes.len() as u64, content.len() as u64];
            header.extend(words.into_iter().flat_map(u64::to_le_bytes));
            header.extend([*link, 0].into_iter().flat_map(u32::to_le_bytes));
            header.resize(64, 0);
            headers.extend(header);
            bytes.extend(content);
        }
        let start = [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 9]].concat();
        let fields = [3, MACHINE, 1, 0].into_iter().flat_map(u16::to_le_bytes);
        let places = [1, 64, bytes.len() as u64].into_iter().flat_map(u64::to_le_bytes);
        let counts = [0, 0, 64, 56, segments, 64, sections.len() as u16 + 1, 1];
        let header: Vec<u8> = start
            .into_iter()
            .chain(fields)
            .chain(places)
            .chain(counts.into_iter().flat_map(u16::to_le_bytes))
            .collect();
        bytes[..64].copy_from_slice(&header);
        bytes.extend(headers);
        let path =
            std::env::temp_dir().join(format!("framepath-elf-{}-{:p}", std::process::id(), &raw const bytes));
        fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        check(ElfFile::parse(&ReadCache::new(&file)));
    }

    /// Symbol of a function whose name is at `name`; `section` is 0 for that of another file.
    fn symbol(name: u32, section: u16) -> Vec<u8> {
        let mut bytes = name.to_le_bytes().to_vec();
        bytes.extend([0x12, 0]);
        bytes.extend(section.to_le_bytes());
        bytes.extend([0x100u64, 0].into_iter().flat_map(u64::to_le_bytes));
        bytes
    }

    #[test]
    fn names_are_compared_whole_and_long_ones_are_not_read() {
        let texts = [b"\0av_read_frame\0av_read\0".as_slice(), &vec![b'a'; 1 << 20], b"\0"].concat();
        let long = texts.len() as u32 - (1 << 20) - 1;
        let symbols = [1, 15, 4, long, u32::MAX].map(|name| symbol(name, 1)).concat();
        let needed: Vec<u8> = [1u64, 15, 1, long.into()].into_iter().flat_map(u64::to_le_bytes).collect();
        let sections = [(3, texts, 0), (SHT_DYNSYM, symbols, 1), (SHT_DYNAMIC, needed, 1)];
        with_file(&sections, 1, |elf| {
            let elf = elf.unwrap();
            let mut found = Vec::new();
            elf.functions(|texts, name, address| {
                found.extend(texts.one_of(name, &["av_read", "av_read_frame"]).map(|name| (name, address)));
            });
            assert_eq!(found, [("av_read_frame", 0x100), ("av_read", 0x100)]);
            assert_eq!(elf.needed(), ["av_read"]);
        });
    }

    #[test]
    fn the_numbers_of_parts_are_limited() {
        let needed: Vec<u8> = [1u64, 1].into_iter().cycle().take(20_000).flat_map(u64::to_le_bytes).collect();
        let relocation = |slot: u64| {
            let kind = u64::from(ADDRESSES[0]);
            [slot, kind, 0].into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
        };
        // The same place many times, and more places than any library has.
        let slots = [vec![0; 1000], (0..1000).map(|n| 8 * n).collect()].concat();
        let slots: Vec<u8> = slots.into_iter().flat_map(relocation).collect();
        let sections = [
            (3, b"\0memcpy\0".to_vec(), 0),
            (SHT_DYNSYM, symbol(1, 0), 1),
            (SHT_DYNAMIC, needed, 1),
            (SHT_RELA, slots, 2),
        ];
        with_file(&sections, 1, |elf| {
            let elf = elf.unwrap();
            assert_eq!(elf.needed().len(), MOST_NEEDED);
            let wanted: Vec<u64> = (0..MOST_SLOTS as u64).map(|n| 8 * n).collect();
            assert_eq!(elf.slots(&["memcpy"]), wanted);
        });
        with_file(&sections, MOST_SEGMENTS + 1, |elf| assert!(elf.is_err()));
        let many = vec![(3, Vec::new(), 0); usize::from(MOST_SECTIONS)];
        with_file(&many, 1, |elf| assert!(elf.is_err()));
    }

    #[test]
    fn the_contents_of_a_file_are_limited_together() {
        let sections = vec![(3, vec![0; 1000], 0)];
        with_file(&sections, 1, |elf| {
            let elf = elf.unwrap();
            let section = elf.sections.section(SectionIndex(1)).unwrap();
            let whole = 2 * MOST_BYTES / 1000;
            let read = (0..whole + 10).filter(|_| !elf.content(section, MOST_BYTES).is_empty()).count();
            assert_eq!(read as u64, whole);
            assert_eq!(elf.content(section, 999), b"");
        });
    }
}
