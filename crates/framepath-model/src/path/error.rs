// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors in a path, with position and correction.

use std::ops::Range;

/// The first error in a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PathError {
    /// Position of the wrong word, in bytes of the text that was read. If something is missing at
    /// the end, the position is empty and at the end of the text.
    pub span: Range<usize>,
    /// Description of the error, with the word.
    pub message: String,
    /// Correction.
    pub help: String,
}

/// Maximum number of characters shown on either side of the word.
const AROUND: usize = 60;

/// Maximum number of characters shown of the word itself.
const WIDEST: usize = 80;

impl PathError {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> PathError {
        PathError { span, message: message.into(), help: help.into() }
    }

    /// Prints the path on one line, `^` under the wrong word, the message and the
    /// help; `text` is the text that was read. Ends without a line break.
    pub fn render(&self, text: &str) -> String {
        let start = floor_boundary(text, self.span.start);
        let end = floor_boundary(text, self.span.end).max(start);
        let before: Vec<char> = text[..start].chars().map(shown).collect();
        let word: Vec<char> = text[start..end].chars().map(shown).collect();
        let after = text[end..].chars().map(shown);

        let mut line = String::from("  ");
        let mut skipped = before.len().saturating_sub(AROUND);
        if skipped > 0 {
            // The ellipsis takes the place of one character.
            skipped += 1;
            line.push('…');
        }
        line.extend(&before[skipped..]);
        let column = line.chars().count();
        let width = word.len().min(WIDEST);
        line.extend(&word[..width]);
        if width < word.len() {
            line.push('…');
        } else {
            let rest: Vec<char> = after.take(AROUND + 1).collect();
            line.extend(&rest[..rest.len().min(AROUND)]);
            if rest.len() > AROUND {
                line.push('…');
            }
        }
        format!(
            "{}\n{}{}\n{}\n{}",
            line.trim_end(),
            " ".repeat(column),
            "^".repeat(width.max(1)),
            self.message,
            self.help
        )
    }
}

/// Replaces a character for display, one for one, so that columns stay aligned.
fn shown(c: char) -> char {
    match c {
        '\t' | '\n' | '\r' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// Returns the last character boundary at or before `at`: a caller may render with another text
/// than the one that was read.
fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Quotes a word for a message, cut if it is long.
pub(super) fn quoted(word: &str) -> String {
    let mut text: String = word.chars().take(WIDEST).map(shown).collect();
    if text.len() < word.len() && word.chars().count() > WIDEST {
        text.push('…');
    }
    format!("`{text}`")
}
