// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the workspace's own tests: touches files, processes and the command that cargo built.
//!
//! This crate is a dev-dependency only, and is never published.
//!
//! - [`clip`] and [`in_checkout`] find files of the checkout; [`program`] finds a program that cargo built.
//! - [`framepath()`] runs the command; [`finish`] and [`wait`] wait for a process with a time limit.
//! - [`until`] and [`holds_within`] wait for a condition, and [`within_deadline`] for a function, with a time limit.
//! - [`display`] starts an X server and a window manager.
//! - [`ffmpeg()`] runs the ffmpeg tool, the reference for pixels; [`ffprobe`] reads what a file declares.
//! - [`mp4`] changes files where the tool's options differ between its versions.
//! - [`mod@conformance`] is the suite that every link and host passes.
//! - [`harness`] is for tests that this machine may be unable to run: they are reported as ignored, with the reason.
//! - [`pipeline`] runs paths in the test's own process; [`service`] starts a `framepath serve` and clients of it.
//! - [`processes`] finds the processes of a run, and those that are stopped.

#![forbid(unsafe_code)]

mod checkout;
mod command;
pub mod conformance;
mod deadline;
pub mod display;
mod ffmpeg;
pub mod harness;
pub mod mp4;
pub mod pipeline;
pub mod processes;
pub mod service;

pub use checkout::{clip, clips, in_checkout, program};
pub use command::{CommandOutput, finish, framepath, run, wait};
pub use deadline::{holds_within, until, within_deadline};
pub use ffmpeg::{ffmpeg, ffmpeg_output, ffprobe, md5_lines};
