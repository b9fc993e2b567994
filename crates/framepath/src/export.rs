// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger in files other programs read.

pub mod csv;
pub mod text;
pub mod trace;
