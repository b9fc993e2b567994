// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets the SONAME: the major and the minor version, as long as the major one is 0. cargo-c sets the same one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_CAPI").is_none() {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libframepath.so.0.1");
    }
}
