// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger and the service for people and for other programs.

pub mod csv;
pub mod meta;
pub mod service;
pub mod text;
pub mod trace;
