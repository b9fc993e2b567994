// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of frames: pools, usually in sealed memfds, and mappings of other processes' memory.

#[cfg(not(loom))]
pub mod commit;
pub(crate) mod mapping;
pub mod pool;
pub(crate) mod return_stack;

/// Creates an empty memfd, readable and writable, closed on exec, without seals. `name` only shows in
/// /proc.
///
/// # Errors
/// From memfd_create(2).
#[cfg(not(loom))]
pub fn memory_file(name: &str) -> std::io::Result<std::fs::File> {
    let fd = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(std::fs::File::from(fd))
}
