// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures and numbers that this crate mirrors from C headers, only for `tests/c_layout.rs`.
//! See `docs/decisions/0021-c-layout.md`.

use crate::c_layout::{Fact, Facts};

/// Returns the facts about all mirrored C headers, to compare with a C compiler.
pub fn facts() -> Vec<Fact> {
    let mut facts = Facts::default();
    crate::v4l2::attach::layout::list(&mut facts);
    crate::v4l2::list_layout(&mut facts);
    facts.0
}
