// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies of x86_64: a file for the two roles of decoders (and a loaded plug-in), one for the network role
//! and one for loading a plug-in.

use super::policy::{Policies, Policy};

mod decode;
mod network;
mod plugin;

/// System call policies of all roles on x86_64.
pub(super) const POLICIES: Policies = Policies {
    decode: Policy { tables: &[decode::DECODE] },
    decode_by_device: Policy { tables: &[decode::DECODE, decode::BY_DEVICE] },
    plugin_loading: Policy { tables: &[decode::DECODE, plugin::LOADING] },
    plugin: Policy { tables: &[decode::DECODE] },
    network: Policy { tables: &[decode::DECODE, network::NETWORK] },
};
