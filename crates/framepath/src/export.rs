// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exports of a run's report: text, an HTML page, JSON, CSV and Perfetto traces; and advice that follows from
//! the report.

pub mod advice;
pub mod csv;
pub mod files;
pub mod machine;
pub mod meta;
pub mod page;
pub mod summary;
pub mod text;
pub mod trace;

use framepath_model::path::{DefinitionKind, Path};

/// True if a sink of the path writes to standard output; then no summary can be printed there.
pub fn takes_stdout(path: &Path) -> bool {
    let mut sinks = path.all_hops().filter(|hop| hop.def.kind == DefinitionKind::Sink);
    sinks.any(|sink| sink.def.arg("file").is_some() && sink.text("file") == "-")
}
