// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the workspace's own tests; may touch files, processes and the command that cargo
//! built. A dev-dependency only, never published.
//!
//! [`harness`] is for tests that may find at run time that this machine cannot run them.

#![forbid(unsafe_code)]

mod checkout;
mod command;
pub mod conformance;
mod deadline;
mod ffmpeg;
pub mod harness;
pub mod pipeline;
pub mod service;

pub use checkout::{clip, clips, in_checkout, program};
pub use command::{CommandOutput, finish, framepath, run, wait};
pub use deadline::{until, within_deadline};
pub use ffmpeg::{ffmpeg, ffmpeg_output, md5_lines};
