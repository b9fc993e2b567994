// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removal of all capabilities.

use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// Drops the calling thread's capabilities from all of its sets.
///
/// Shrinking the bounding set needs CAP_SETPCAP. In a thread without this capability the bounding set stays
/// unchanged, which is safe: the set only limits the capabilities gained by an execve, and with no_new_privs an
/// execve gains none.
pub(super) fn drop_all() -> io::Result<()> {
    if capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            // An error means that the kernel does not know the capability.
            if let Ok(true) = capability_is_in_bounding_set(capability) {
                remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    // The ambient set is empty if the inheritable set is empty, which is cleared next.
    let _ = clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}
