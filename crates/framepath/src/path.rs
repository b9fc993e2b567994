// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path syntax with the built-in sources, stages, sinks and links.

pub use framepath_model::path::*;

use crate::registry::Registry;

/// Parses a path of built-in elements. [`Definitions::parse`] parses a path of other elements.
///
/// # Errors
/// The first error, with the position of the wrong word and the words that are valid there.
/// [`PathError::render`] prints it under the text.
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

/// Parses the part of a path that follows the source. Unlike a path for [`parse`], it need not end in a sink.
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

/// Parses the text of a single stage: a name and its arguments, without `!`.
///
/// # Errors
/// As [`parse`]. Text of a source, a sink, a link or several hops is an error too.
pub fn parse_stage(text: &str) -> Result<Hop, PathError> {
    Registry::built_in().definitions().parse_stage(text)
}
