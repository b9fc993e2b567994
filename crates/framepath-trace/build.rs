// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the library that is preloaded into traced programs. The crate contains its bytes.

use std::env;
use std::path::PathBuf;

/// Files of the library, in the folder `preload`.
const SOURCES: [&str; 4] = ["ffmpeg.c", "gstreamer.c", "next.c", "ring.c"];

/// Options of the compiler and the linker. The library has no dependency but libc: libdl is a part of it in glibc 2.34
/// and newer, and left out there.
const OPTIONS: [&str; 13] = [
    "-std=gnu11",
    "-O2",
    "-g0",
    "-Wall",
    "-Wextra",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    // All symbols are bound at the start: no search in a recorded call.
    "-Wl,-z,relro,-z,now",
    "-Wl,-soname,libframepath-preload.so",
    "-Wl,--as-needed",
    "-s",
    "-ldl",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=preload");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Finds the compiler of the target, and takes CC and CFLAGS into account.
    let compiler = cc::Build::new().warnings(false).get_compiler();
    let mut command = compiler.to_command();
    command.args(SOURCES.map(|name| format!("preload/{name}"))).args(OPTIONS);
    command.arg("-o").arg(folder.join("preload.so"));
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}; a C compiler is needed (apt install gcc libc6-dev)");
}
