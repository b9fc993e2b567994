// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger for people and for other programs.

pub mod csv;
pub mod machine;
pub mod meta;
pub mod summary;
pub mod text;
pub mod trace;

use framepath_model::path::{Kind, Path};

/// True where a sink of the path writes to standard output, which then takes no summary.
pub fn takes_stdout(path: &Path) -> bool {
    let mut sinks = path.all_hops().filter(|hop| hop.def.kind == Kind::Sink);
    sinks.any(|sink| sink.def.arg("file").is_some() && sink.text("file") == "-")
}
