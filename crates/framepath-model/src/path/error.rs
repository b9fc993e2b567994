// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors in a path, with position and correction.

use std::ops::Range;

/// First error in a path, with its position and a correction. `Display` writes only the message;
/// [`PathError::render`] shows position and correction too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PathError {
    /// Position of the wrong word, words or hop, in bytes of the text that was read. If the text is
    /// empty, or no hop follows the last `!` of the path or of a branch, the position is empty and
    /// at the end of the text. If the text is too long, the position is empty and at the start.
    pub span: Range<usize>,
    /// Description of the error, usually with the wrong word.
    pub message: String,
    /// Correction, such as the expected words or the nearest match.
    pub help: String,
}

/// Maximum number of characters that an error shows on either side of the wrong word.
const AROUND: usize = 60;

/// Maximum number of characters that an error shows of the wrong word itself.
const WIDEST: usize = 80;

impl PathError {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> PathError {
        PathError { span, message: message.into(), help: help.into() }
    }

    /// Returns the error in four lines: the path around the wrong word, `^` under that word, the
    /// message and the help. `text` is the text that was read. The result ends without a line
    /// break.
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

/// Replaces a tab, line feed or carriage return by a space, and another control character by
/// U+FFFD, so that columns stay aligned.
fn shown(c: char) -> char {
    match c {
        '\t' | '\n' | '\r' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// Returns the last character boundary of `text` at or before byte `at`: a caller may render with
/// another text than the one that was read.
fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Encloses a word in backquotes for a message. Cuts the word after 80 characters, and replaces
/// control characters as [`shown`] does.
pub(super) fn quoted(word: &str) -> String {
    let mut text: String = word.chars().take(WIDEST).map(shown).collect();
    if text.len() < word.len() && word.chars().count() > WIDEST {
        text.push('…');
    }
    format!("`{text}`")
}
