// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hash map that programs and this process share.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{Attributes, Operation, call, call_for_descriptor};

/// Hash map whose keys and values are 8 bytes each. It has a maximum number of entries.
#[derive(Debug)]
pub struct HashMap64(OwnedFd);

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

/// Attributes of BPF_MAP_UPDATE_ELEM and BPF_MAP_DELETE_ELEM.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: *const u64,
    value: *const u64,
    flags: u64,
}

// SAFETY: the anonymous struct of BPF_MAP_*_ELEM. Values are made only in this file, with addresses of 8 bytes that
// live as long as the call, and for maps with entries of this size.
unsafe impl Attributes for Element {}

const BPF_MAP_TYPE_HASH: u32 = 1;

impl HashMap64 {
    /// Makes a map for at most `entries` entries.
    ///
    /// # Errors
    /// EPERM without the capabilities; ENOMEM.
    pub fn new(entries: u32) -> io::Result<HashMap64> {
        let attributes = CreateMap {
            map_type: BPF_MAP_TYPE_HASH,
            key_bytes: 8,
            value_bytes: 8,
            entries,
            ..CreateMap::default()
        };
        Ok(HashMap64(call_for_descriptor(Operation::MapCreate, &attributes)?))
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// E2BIG if the map is full.
    pub fn set(&self, key: u64, value: u64) -> io::Result<()> {
        call(Operation::MapUpdate, &self.element(&key, &value)).map(drop)
    }

    /// Removes `key` if it is there.
    pub fn remove(&self, key: u64) {
        // Fails only if the key is not there.
        let _ = call(Operation::MapDelete, &self.element(&key, &0));
    }

    fn element(&self, key: &u64, value: &u64) -> Element {
        Element { map: self.0.as_raw_fd() as u32, padding: 0, key, value, flags: 0 }
    }
}

impl AsFd for HashMap64 {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
