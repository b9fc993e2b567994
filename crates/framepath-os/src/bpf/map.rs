// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hash map that programs and this process share.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{Attributes, Operation, call, call_for_descriptor};

/// Hash map whose keys are 8 bytes each. It has a maximum number of entries.
#[derive(Debug)]
pub struct ProgramMap {
    map: OwnedFd,
    value_words: usize,
}

/// Attributes of BPF_MAP_CREATE.
#[repr(C)]
#[derive(Default)]
pub(super) struct CreateMap {
    pub(super) map_type: u32,
    pub(super) key_bytes: u32,
    pub(super) value_bytes: u32,
    pub(super) entries: u32,
    pub(super) flags: u32,
    pub(super) inner: u32,
    pub(super) node: u32,
    pub(super) name: [u8; 16],
    pub(super) padding: u32,
}

// SAFETY: the beginning of the anonymous struct of BPF_MAP_CREATE, with a zero (map_ifindex) as its last word; no
// addresses.
unsafe impl Attributes for CreateMap {}

/// Attributes of BPF_MAP_LOOKUP_ELEM and BPF_MAP_UPDATE_ELEM.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: *const u64,
    value: *mut u64,
    flags: u64,
}

// SAFETY: the anonymous struct of BPF_MAP_*_ELEM. Values are made only in this file, with addresses that live as long as
// the call: of a key of 8 bytes, and of a value of the map's size, which `check` enforces.
unsafe impl Attributes for Element {}

const BPF_MAP_TYPE_HASH: u32 = 1;

impl ProgramMap {
    /// Makes a map for at most `entries` entries, whose values are `value_words` times 8 bytes.
    ///
    /// # Errors
    /// EPERM without the capabilities; ENOMEM.
    pub fn new(value_words: usize, entries: u32) -> io::Result<ProgramMap> {
        let attributes = CreateMap {
            map_type: BPF_MAP_TYPE_HASH,
            key_bytes: 8,
            value_bytes: 8 * value_words as u32,
            entries,
            ..CreateMap::default()
        };
        Ok(ProgramMap { map: call_for_descriptor(Operation::MapCreate, &attributes)?, value_words })
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// E2BIG if the map is full.
    ///
    /// # Panics
    /// The value has another number of words than those of the map.
    pub fn set(&self, key: u64, value: &[u64]) -> io::Result<()> {
        self.check(value.len());
        let element = Element { value: value.as_ptr().cast_mut(), ..self.element(&key) };
        call(Operation::MapUpdate, &element).map(drop)
    }

    /// Returns the value of `key`; `None` if it is not there.
    ///
    /// # Panics
    /// The values of the map have another number of words.
    pub fn get<const N: usize>(&self, key: u64) -> Option<[u64; N]> {
        self.check(N);
        let mut value = [0; N];
        let element = Element { value: value.as_mut_ptr(), ..self.element(&key) };
        call(Operation::MapLookup, &element).ok().map(|_| value)
    }

    /// The kernel reads or writes as many bytes as the map's values have.
    fn check(&self, words: usize) {
        assert_eq!(words, self.value_words, "a value has the size of the map's values");
    }

    fn element(&self, key: &u64) -> Element {
        let map = self.map.as_raw_fd() as u32;
        Element { map, padding: 0, key, value: std::ptr::null_mut(), flags: 0 }
    }
}

impl AsFd for ProgramMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
