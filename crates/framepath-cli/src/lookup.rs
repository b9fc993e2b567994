// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of the binary, the test clips and the built peers.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Returns the path of this binary. Fails if the system does not report the path.
pub(crate) fn framepath() -> anyhow::Result<PathBuf> {
    env::current_exe().context("finding this program's own file")
}

/// Returns the folder of the committed clips: `given`, without a check that the folder exists. Without
/// `given`, returns the folder `clips` in the current folder, or else in the checkout whose
/// `target/PROFILE/` holds the binary; if neither exists, returns the relative path `clips`.
pub(crate) fn clips(given: Option<&Path>) -> PathBuf {
    if let Some(given) = given {
        return given.to_owned();
    }
    let here = PathBuf::from("clips");
    if here.is_dir() {
        return here;
    }
    let of_checkout = target().and_then(|target| Some(target.parent()?.join("clips")));
    of_checkout.filter(|clips| clips.is_dir()).unwrap_or(here)
}

/// Returns the folder of the built peers (programs that the lab compares with framepath): `peers` beside
/// the folder of this binary, which is `target/peers` for a binary in `target/PROFILE/`. If the binary's
/// path is unknown, returns the relative path `target/peers`. The folder may be missing.
pub(crate) fn peers() -> PathBuf {
    target().unwrap_or_else(|| PathBuf::from("target")).join("peers")
}

/// Returns the folder above the folder of this binary, which is `target` for a binary in
/// `target/PROFILE/`. Returns `None` if the binary's path is unknown or has fewer than two folders.
fn target() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.parent()?.parent()?.to_owned())
}
