// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command's text output, files and exit codes.

mod advice;
mod bad_input;
mod clips;
mod comparing;
mod damage;
mod diagnostics;
mod encode;
mod figures;
mod formats;
mod handoff;
mod hops;
mod interrupt;
mod memory;
mod paths;
mod pictures;
mod play;
mod players;
mod plugins;
mod trace;
mod words;
mod workers;
