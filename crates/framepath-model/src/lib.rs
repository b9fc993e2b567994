// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure: touches no I/O, no clock, no thread, and holds no unsafe code.
//!
//! Units, picture formats and geometry, the arithmetic of the ledger, the path
//! syntax, the wire format and the replay of workers, statistics and the shape of
//! the lab's summaries.
#![forbid(unsafe_code)]

pub mod access_point;
pub mod access_unit;
pub mod buffer_request;
pub mod colors;
pub mod format;
pub mod ledger;
pub mod parameter_sets;
pub mod path;
pub mod replay;
pub mod service;
pub mod shown;
pub mod stats;
pub mod stream;
pub mod summary;
pub mod wire;
