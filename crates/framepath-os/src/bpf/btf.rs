// SPDX-License-Identifier: MIT OR Apache-2.0
//! Offsets of the members of the running kernel's structs, from its type information (BTF).
//!
//! Format: Documentation/bpf/btf.rst of the kernel.

use std::fs;
use std::io;
use std::path::Path;

/// Type information of the running kernel.
pub const KERNEL: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_FUNCTION: u32 = 12;

/// Type information.
#[derive(Debug)]
pub struct Btf {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Btf {
    /// Reads the type information of the running kernel.
    ///
    /// # Errors
    /// The kernel has none (CONFIG_DEBUG_INFO_BTF), or the file is damaged.
    pub fn of_kernel() -> io::Result<Btf> {
        Btf::parse(&fs::read(Path::new(KERNEL))?)
    }

    fn parse(bytes: &[u8]) -> io::Result<Btf> {
        let part = |offset: usize, length: usize| {
            let header = word(bytes, 4)? as usize;
            let start = header.checked_add(word(bytes, offset)? as usize)?;
            bytes.get(start..start.checked_add(word(bytes, length)? as usize)?)
        };
        let is_btf = bytes.first_chunk().is_some_and(|magic| u16::from_ne_bytes(*magic) == MAGIC);
        match (is_btf, part(8, 12), part(16, 20)) {
            (true, Some(types), Some(strings)) => {
                Ok(Btf { types: types.to_owned(), strings: strings.to_owned() })
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Returns the number of the function `name`; `None` if there is none.
    pub fn function(&self, name: &str) -> Option<u32> {
        // The numbers begin with 1.
        self.types()
            .zip(1..)
            .find(|(kind, _)| kind.kind == KIND_FUNCTION && self.is_string(kind.name, name))
            .map(|found| found.1)
    }

    /// Returns the types in the order of their numbers.
    fn types(&self) -> impl Iterator<Item = BtfType> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (name, info) = (word(&self.types, at)?, word(&self.types, at + 4)?);
            let (count, kind) = ((info & 0xffff) as usize, info >> 24 & 0x1f);
            let first = at + 12;
            at = first + bytes_behind(kind, count)?;
            Some(BtfType { name, kind, count, first, has_bit_sizes: info >> 31 == 1 })
        })
    }

    /// Returns the offset of the members `members` of struct `name`, bytes, in their order; `None` if the struct or one
    /// of its direct members is missing.
    pub fn offsets<const N: usize>(&self, name: &str, members: [&str; N]) -> Option<[u32; N]> {
        let bits: Option<Vec<u32>> =
            members.into_iter().map(|member| self.bit_offset(name, member)).collect();
        bits?.into_iter().map(|bits| bits / 8).collect::<Vec<u32>>().try_into().ok()
    }

    /// Returns the offset of the member `member` of struct `name`, bits; `None` if the struct or its direct member is missing.
    pub fn bit_offset(&self, name: &str, member: &str) -> Option<u32> {
        let found = self.types().find(|kind| kind.kind == KIND_STRUCT && self.is_string(kind.name, name))?;
        let mut members = (0..found.count).map(|n| found.first + 12 * n);
        let at =
            members.find(|at| word(&self.types, *at).is_some_and(|text| self.is_string(text, member)))?;
        let bits = word(&self.types, at + 8)?;
        Some(if found.has_bit_sizes { bits & 0xff_ffff } else { bits })
    }

    fn is_string(&self, at: u32, text: &str) -> bool {
        let rest = self.strings.get(at as usize..).and_then(|rest| rest.strip_prefix(text.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// Head of a type.
struct BtfType {
    /// Place of its name among the texts.
    name: u32,
    kind: u32,
    /// Number of its members.
    count: usize,
    /// Place of the first member.
    first: usize,
    /// True if the offsets of the members have the sizes of bit fields in their upper byte.
    has_bit_sizes: bool,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the number of bytes behind the three words of a type; `None` for a kind that is not known.
fn bytes_behind(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // Integer, variable, tag of a declaration.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Struct, union, 64-bit enumeration, section.
        4 | 5 | 19 | 15 => 12 * count,
        // Enumeration, prototype of a function.
        6 | 13 => 8 * count,
        // Pointer, forward, typedef, qualifiers, function, float, tag of a type.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_struct_are_found_behind_other_types() {
        let strings = b"\0int\0task\0pid\0tgid\0";
        // An integer `int` of 32 bits, then a struct `task` with two members at 64 and 96 bits.
        let types: Vec<u32> = [1, 1 << 24, 4, 32]
            .into_iter()
            .chain([5, 4 << 24 | 2, 16])
            .chain([10, 1, 64, 14, 1, 96])
            .collect();
        let header =
            [0x18 << 16 << 8, 24, 0, types.len() as u32 * 4, types.len() as u32 * 4, strings.len() as u32];
        let mut bytes: Vec<u8> = header.iter().chain(&types).flat_map(|word| word.to_ne_bytes()).collect();
        bytes[..2].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes.extend(strings);
        let btf = Btf::parse(&bytes).unwrap();
        assert_eq!(btf.offsets("task", ["tgid", "pid"]), Some([12, 8]));
        assert_eq!(btf.offsets("task", ["ti"]), None);
        assert_eq!(btf.offsets("tas", ["pid"]), None);
        assert_eq!((btf.bit_offset("task", "pid"), btf.function("task")), (Some(64), None));
        // Each truncation is an error or knows nothing.
        for end in 0..bytes.len() {
            let known = Btf::parse(&bytes[..end]).ok().and_then(|btf| btf.offsets("task", ["tgid"]));
            assert_eq!(known, None, "{end}");
        }
    }
}
