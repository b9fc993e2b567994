// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of the binary, the clips and the peers.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Returns the path of this binary.
pub(crate) fn framepath() -> anyhow::Result<PathBuf> {
    env::current_exe().context("finding this program's own file")
}

/// Returns the folder of the committed clips: `given`, else `clips` in the current folder, else `clips`
/// in the checkout whose `target/PROFILE/` holds the binary.
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

/// Returns the folder of the built peers (programs that the lab compares with framepath):
/// `target/peers`, beside the `target/PROFILE/` of this binary.
pub(crate) fn peers() -> PathBuf {
    target().unwrap_or_else(|| PathBuf::from("target")).join("peers")
}

/// Returns the build folder `target`; `None` if this binary is not in a build folder.
fn target() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.parent()?.parent()?.to_owned())
}
