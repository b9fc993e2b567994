// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes the plug-in's version to the crate.

fn main() {
    gst_plugin_version_helper::info();
}
