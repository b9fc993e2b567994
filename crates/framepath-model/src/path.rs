// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path syntax: `file clip.ivf ! decode ! queue depth=4 ! null`.
//!
//! Words are split on blanks; a `!` that stands alone ends a hop. Quotes and
//! backslashes work as in a shell, so a file name may hold blanks, `!` or `=`.
//! `key=value` is an option; every other word is positional. [`table`] is the
//! one list of what is known; parsing, errors, help and the canonical form all
//! read it.
//!
//! Parsing touches nothing outside its text, never panics, and does work that
//! is bounded by [`MAX_TEXT`].

mod ast;
mod error;
mod name;
mod nearest;
mod parser;
pub mod table;
mod value;
mod words;

pub use ast::{Hop, Path};
pub use error::PathError;
pub use name::plain_name;
pub use nearest::nearest;
pub use table::{Arg, Default, HOSTING, Kind, StageDef};
pub use value::{Value, ValueKind};
pub use words::{join, quote, shell_words};

/// The longest path text that is read, in bytes.
pub const MAX_TEXT: usize = 64 * 1024;

/// What [`Hop::count`] gives for `auto` (`threads=auto`, `pool=auto`).
pub const AUTO: u64 = 0;

/// What [`Hop::count`] gives for `inf` (`loop=inf`).
pub const INFINITE: u64 = u64::MAX;

/// Reads a path.
///
/// # Errors
///
/// The first thing that is wrong, with the place of the word and what would
/// be right there; [`PathError::render`] prints it under the text.
pub fn parse(text: &str) -> Result<Path, PathError> {
    parser::parse(text, parser::End::Sink)
}

/// Reads a path that need not end in a sink, for a program that takes the frames
/// or packets of the last hop itself.
///
/// # Errors
///
/// As [`parse`].
///
/// ```
/// use framepath_model::path;
///
/// assert_eq!(path::parse_open("file clip.mp4 ! decode").unwrap().hops.len(), 2);
/// assert!(path::parse("file clip.mp4 ! decode").is_err());
/// ```
pub fn parse_open(text: &str) -> Result<Path, PathError> {
    parser::parse(text, parser::End::Any)
}

/// Reads the rest of a path, behind its source: stages, links, and a sink where it has
/// one.
///
/// # Errors
///
/// As [`parse`], with places in `text`.
///
/// ```
/// use framepath_model::path;
///
/// assert_eq!(path::parse_rest("decode ! queue ! null").unwrap().hops.len(), 3);
/// assert_eq!(path::parse_rest("decode ! kueue").unwrap_err().span, 9..14);
/// ```
pub fn parse_rest(text: &str) -> Result<Path, PathError> {
    parser::parse_rest(text)
}

/// Reads one stage alone, as [`Hop`] prints it: for a worker that is told what
/// to run.
///
/// # Errors
///
/// As [`parse`]; what is no stage is an error too.
pub fn parse_stage(text: &str) -> Result<Hop, PathError> {
    parser::parse_stage(text)
}
