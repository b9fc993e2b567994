// SPDX-License-Identifier: MIT OR Apache-2.0
//! Touches other people's programs, run folders and the progress bar on the terminal.
//! Experiments compare video paths in interleaved pairs.
#![forbid(unsafe_code)]

pub mod asked;
pub mod compare;
pub mod date;
mod descendants;
pub mod doctor;
mod error;
pub mod experiment;
pub mod gate;
pub mod handoff;
mod kept;
pub mod measure;
pub mod pairs;
pub mod plain;
pub mod process;
pub mod progress;
pub mod report;

/// Exit code of `framepath run` if packets or frames were lost.
pub const LOST: u8 = 3;

pub use error::LabError;
pub use framepath::export::machine::machine;
pub use kept::KeptLedger;
