// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptions of a pool's memory for other processes.

/// Description of a pool's memory, for another process that reads the memory.
#[derive(Debug)]
pub struct PoolMemory {
    /// Number of the pool ([`Frame::pool_id`](super::Frame::pool_id)), unique in the process that made this description.
    pub id: u64,
    /// Memfd with all slots; the first slot begins at byte 0.
    pub fd: std::os::fd::OwnedFd,
    /// Number of slots of the pool.
    pub slots: u32,
    /// Bytes from one slot to the next.
    pub slot_bytes: usize,
    /// Number of the pool's first slot among all slots of the [`GiveBack`](crate::memory::pool::GiveBack), as in
    /// [`Exported::slot`](super::Exported::slot); 0 if the pool is not shared. For a foreign pool, the number
    /// that the pool's owner reported.
    pub first_slot: u32,
}

/// Description of a pool in granted memory, for the process that granted it and reads the pool's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedPool {
    /// Number of the memory, from [`GrantedMemory::number`](crate::memory::pool::GrantedMemory::number).
    pub memory: u32,
    /// Number of slots of the pool.
    pub slots: u32,
    /// Bytes from one slot to the next.
    pub slot_bytes: usize,
    /// Number of the pool's first slot among all slots of the [`GiveBack`](crate::memory::pool::GiveBack), as in
    /// [`Exported::slot`](super::Exported::slot).
    pub first_slot: u32,
}
