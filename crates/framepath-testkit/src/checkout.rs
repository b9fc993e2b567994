// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the checkout and of its build.

use std::path::PathBuf;

/// Returns the path of a file or folder of the checkout; `path` is relative to its root.
pub fn in_checkout(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns the folder of the committed clips.
pub fn clips() -> PathBuf {
    in_checkout("clips")
}

/// Returns the absolute path of the committed clip `name`, as text for a path. Panics if there is
/// no such clip.
pub fn clip(name: &str) -> String {
    let path = clips().join(name);
    let path = path.canonicalize().unwrap_or_else(|error| panic!("clip {}: {error}", path.display()));
    path.to_str().expect("the checkout's path is UTF-8").to_owned()
}

/// Returns the file of the command `framepath` of the same build, which is the worker program too.
/// Panics if the command was not built.
///
/// Cargo puts tests into `deps/` of the folder that has the programs. Cargo builds the command by
/// itself only for tests of the command's own crate.
pub fn program() -> PathBuf {
    let own = std::env::current_exe().expect("a test has a file");
    let program = own.ancestors().nth(2).expect("target/PROFILE/deps").join("framepath");
    assert!(program.is_file(), "no {}; cargo build -p framepath-cli, in this profile", program.display());
    program
}
