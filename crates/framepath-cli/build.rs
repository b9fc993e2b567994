// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps libSDL2 out of the libraries that the command is linked with (feature `play`).
//!
//! `framepath_os::display::sdl` defines the functions of SDL that the command calls, so the
//! linker needs no library for them. These definitions alone are not sufficient, because
//! sdl2-sys still passes `-lSDL2` to the linker:
//!
//! - GNU ld decides about `--as-needed` before it removes unused sections. The crate
//!   `sdl2` refers to hundreds of functions there, and libSDL2 becomes a dependency.
//!   (LLD, the default of newer compilers, decides afterwards.)
//! - Either linker exports a definition that a library on its command line has too,
//!   and exported symbols take the place of those in libraries that are loaded later.
//!
//! Therefore `-lSDL2` finds an empty archive here. A function that is called and that
//! `framepath_os::display::sdl` does not define is an undefined symbol: the linker names it.

use std::env;
use std::fs;
use std::path::PathBuf;

/// Content of the file `libSDL2.a`: an archive without members.
const EMPTY_ARCHIVE: &[u8] = b"!<arch>\n";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_PLAY").is_none() {
        return;
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let archive = folder.join("libSDL2.a");
    fs::write(&archive, EMPTY_ARCHIVE).unwrap_or_else(|error| panic!("{}: {error}", archive.display()));
    println!("cargo::rustc-link-search=native={}", folder.display());
}
