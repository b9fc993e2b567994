// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path syntax: `file clip.ivf ! decode ! queue depth=4 ! null`.
//!
//! Words are separated by blanks; a `!` by itself ends a hop. Quotes and backslashes work as in a
//! shell, so a file name may contain blanks, `!` or `=`. `key=value` is an option if `key` is not
//! quoted, begins with a letter, and has only letters, digits, `_` and `-` (all ASCII); every other
//! word is positional. (A stage with undeclared options also takes options with other keys.) `tee`,
//! as the last hop, has branches in parentheses: `test ! tee ( queue ! y4m a.y4m ) ( queue ! null
//! )`. Each source, stage, sink, link and tee has a [`Definition`]. A set of them, [`Definitions`],
//! parses paths; errors, help and the canonical form use the same declarations.
//!
//! Parsing does no I/O and never panics. Its work is bounded by [`MAX_TEXT`].

mod ast;
mod branches;
mod complete;
mod definition;
mod definitions;
mod error;
mod help;
mod hosting;
mod name;
mod nearest;
mod old_spelling;
mod parser;
mod value;
mod words;

pub use ast::{Hop, Path, all_hops};
pub use definition::{Arg, DefaultValue, Definition, DefinitionKind};
pub use definitions::{DefinitionError, Definitions};
pub use error::PathError;
pub use hosting::Hosts;
pub use name::plain_name;
pub use nearest::{nearest, nearest_few};
pub use value::{Value, ValueKind};
pub use words::{join, quote, shell_words};

/// Maximum length of the text of a path, bytes; a longer text is an error.
pub const MAX_TEXT: usize = 64 * 1024;

/// Value that [`Hop::count`] returns for `auto`, as in `threads=auto`.
pub const AUTO: u64 = 0;

/// Value that [`Hop::count`] returns for `inf`, as in `loop=inf`.
pub const INFINITE: u64 = u64::MAX;
