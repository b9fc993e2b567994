// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program or library as a file for this computer's processor.

use std::io;
use std::ops::Range;

use object::Endianness;
use object::elf::{
    self, FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD, ProgramHeader64, SHT_DYNSYM, SHT_RELA,
};
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader, SectionTable, Sym};

/// This computer's processor.
#[cfg(target_arch = "x86_64")]
pub(crate) const MACHINE: u16 = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
pub(crate) const MACHINE: u16 = elf::EM_AARCH64;

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

/// Program or library. Addresses are those of the file itself, before it is mapped.
pub(crate) struct ElfFile<'a> {
    bytes: &'a [u8],
    endian: Endianness,
    segments: &'a [ProgramHeader64<Endianness>],
    sections: SectionTable<'a, FileHeader64<Endianness>>,
}

impl<'a> ElfFile<'a> {
    /// Reads the headers of a file.
    ///
    /// # Errors
    /// It is damaged, or it is not an ELF file for this computer.
    pub(crate) fn parse(bytes: &'a [u8]) -> io::Result<ElfFile<'a>> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let header = FileHeader64::<Endianness>::parse(bytes).map_err(invalid)?;
        let endian = header.endian().map_err(invalid)?;
        if header.e_machine(endian) != MACHINE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is a program for another processor"));
        }
        let segments = header.program_headers(endian, bytes).map_err(invalid)?;
        let sections = header.sections(endian, bytes).map_err(invalid)?;
        Ok(ElfFile { bytes, endian, segments, sections })
    }

    /// Returns the offset in the file of the byte at an address.
    pub(crate) fn offset(&self, address: u64) -> Option<u64> {
        let endian = self.endian;
        let loaded = self.segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
        let mut behind = loaded.filter_map(|segment| {
            let at =
                address.checked_sub(segment.p_vaddr(endian)).filter(|at| *at < segment.p_filesz(endian))?;
            segment.p_offset(endian).checked_add(at)
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

    /// Returns the addresses at which the file, once it is mapped, has the addresses of the functions `names` of other files.
    pub(crate) fn slots(&self, names: &[&str]) -> Vec<u64> {
        let endian = self.endian;
        let mut slots = Vec::new();
        let Ok(symbols) = self.sections.symbols(endian, self.bytes, SHT_DYNSYM) else { return slots };
        for section in self.sections.iter().filter(|section| section.sh_type(endian) == SHT_RELA) {
            let Ok(Some((relocations, _))) = section.rela(endian, self.bytes) else { continue };
            for relocation in
                relocations.iter().filter(|entry| ADDRESSES.contains(&entry.r_type(endian, false)))
            {
                let Some(index) = relocation.symbol(endian, false) else { continue };
                let name = symbols.symbol(index).and_then(|symbol| symbol.name(endian, symbols.strings()));
                if name.is_ok_and(|name| names.iter().any(|wanted| wanted.as_bytes() == name)) {
                    slots.push(relocation.r_offset.get(endian));
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
        let (table, base) = (header.data(endian, self.bytes).ok()?, header.p_vaddr(endian));
        if table.first_chunk() != Some(&TABLE_ENCODINGS) {
            return None;
        }
        let word = |bytes: &[u8], at: u64| {
            let bytes = bytes.get(usize::try_from(at).ok()?..)?.first_chunk()?;
            Some(i32::from_ne_bytes(*bytes))
        };
        // First instruction, and entry in the section .eh_frame.
        let entry = |n: u64| {
            let at = TABLE_HEADER + TABLE_ENTRY * n;
            let address = |at| Some(base.wrapping_add_signed(word(table, at)?.into()));
            Some((address(at)?, address(at + 4)?))
        };
        let (mut from, mut to) = (0, u64::from(word(table, 8)?.unsigned_abs()));
        while from < to {
            let middle = from + (to - from) / 2;
            match entry(middle)?.0 <= address {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        let (start, description) = entry(from.checked_sub(1)?)?;
        // Length, distance to the common part, first instruction; then the function's length.
        let bytes = word(self.bytes, self.offset(description)?.checked_add(12)?)?;
        let function = start..start.checked_add(bytes.unsigned_abs().into())?;
        function.contains(&address).then_some(function)
    }
}
