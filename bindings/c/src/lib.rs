// SPDX-License-Identifier: MIT OR Apache-2.0
//! C library of framepath: `libframepath.so`, `framepath.h`.
//!
//! Handles are pointers that a function returned and that one function ends. Any thread may use a handle, one at a time for `framepath_path`,
//! `framepath_frames` and a frame that is written. Texts are UTF-8 and end in a zero. A function that can fail takes the address of a
//! `framepath_error *`, which may be null; on failure the caller gets an error there, which it ends. No function ends the process or prints.

mod callback;
mod error;
mod frame;
mod frames;
mod handle;
mod path;
mod report;
mod run;

pub use callback::{framepath_sink, framepath_stage};
pub use error::*;
pub use frame::*;
pub use frames::*;
pub use path::*;
pub use report::*;
pub use run::*;

/// Returns the version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn framepath_version() -> *const std::ffi::c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
