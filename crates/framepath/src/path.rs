// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path syntax with the built-in sources, stages, sinks and links.

pub use framepath_model::path::*;

use crate::registry::Registry;

/// Reads a path of built-in elements; [`Definitions::parse`] reads one of others.
///
/// # Errors
/// The first error, with the place of the word and the words that would
/// be right there; [`PathError::render`] prints it under the text.
pub fn parse(text: &str) -> Result<Path, PathError> {
    Registry::built_in().definitions().parse(text)
}

/// [`parse`] for a path that need not end in a sink.
///
/// # Errors
/// As [`parse`].
///
/// ```
/// use framepath::path;
///
/// assert_eq!(path::parse_open("file clip.mp4 ! decode")?.hops.len(), 2);
/// assert!(path::parse("file clip.mp4 ! decode").is_err());
/// # Ok::<(), framepath::PathError>(())
/// ```
pub fn parse_open(text: &str) -> Result<Path, PathError> {
    Registry::built_in().definitions().parse_open(text)
}

/// [`parse`] for the rest of a path behind its source.
///
/// # Errors
/// As [`parse`].
///
/// ```
/// use framepath::path;
///
/// assert_eq!(path::parse_rest("decode ! queue ! null")?.hops.len(), 3);
/// assert_eq!(path::parse_rest("decode ! kueue").unwrap_err().span, 9..14);
/// # Ok::<(), framepath::PathError>(())
/// ```
pub fn parse_rest(text: &str) -> Result<Path, PathError> {
    Registry::built_in().definitions().parse_rest(text)
}

/// Reads a single stage.
///
/// # Errors
/// As [`parse`]. Text that is no stage is an error too.
pub fn parse_stage(text: &str) -> Result<Hop, PathError> {
    Registry::built_in().definitions().parse_stage(text)
}
