// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger for people and for other programs.

pub mod csv;
pub mod text;
pub mod trace;
