// SPDX-License-Identifier: MIT OR Apache-2.0
//! Built-in sinks: stages at the end of a path, without output.

pub(crate) mod framemd5;
pub(crate) mod function;
pub(crate) mod mux;
pub(crate) mod null;
pub(crate) mod output;
pub(crate) mod pgm;
pub(crate) mod play;
pub(crate) mod png;
pub(crate) mod raw;
pub(crate) mod send;
pub(crate) mod unheld;
pub(crate) mod y4m;
