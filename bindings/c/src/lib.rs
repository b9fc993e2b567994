// SPDX-License-Identifier: MIT OR Apache-2.0
//! C library of framepath: `libframepath.so`, `framepath.h`.
//!
//! Handles are pointers that a function returned and that one function ends. Any thread may use a handle, one at a time for
//! `framepath_frames`. Texts are UTF-8 and end in a zero. A function that can fail takes the address of a `framepath_error *`, which may
//! be null; on failure the caller gets an error there, which it ends. No function ends the process or prints.

mod error;
mod frame;
mod frames;
mod handle;
mod run;

pub use error::*;
pub use frame::*;
pub use frames::*;
pub use run::*;
