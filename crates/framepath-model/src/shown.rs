// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes foreign text (file names, texts of peers and workers) safe for a terminal. The result
//! contains no character that moves the cursor, changes a colour, begins a line or changes the
//! direction of text.

use std::borrow::Cow;

/// Returns `text` on one line: control characters, line ends and direction marks become escapes
/// (`\n`, `\u{1b}`).
///
/// ```
/// use framepath_model::shown::shown;
///
/// assert_eq!(shown("a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
/// assert_eq!(shown("é 日本 🙂"), "é 日本 🙂");
/// ```
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, false)
}

/// Escapes a text of several lines like [`shown`], but keeps line feeds and tabs.
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    escaped(text, true)
}

fn escaped(text: &str, lines: bool) -> Cow<'_, str> {
    let acts = |c: char| acts_on_terminals(c) && !(lines && matches!(c, '\n' | '\t'));
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// Returns true if `c` is a control character (C0, DEL, C1), ends a line or paragraph, or is one
/// of Unicode's direction marks, embeddings, overrides and isolates.
pub fn acts_on_terminals(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_the_rest_stays() {
        for (text, one, lines) in [
            ("plain `name` \"x\" 'y' \\", "plain `name` \"x\" 'y' \\", "plain `name` \"x\" 'y' \\"),
            ("a\nb\tc", "a\\nb\\tc", "a\nb\tc"),
            ("\r\x07\x7f\u{9b}31m", "\\r\\u{7}\\u{7f}\\u{9b}31m", "\\r\\u{7}\\u{7f}\\u{9b}31m"),
            ("x\u{202e}4pm.exe", "x\\u{202e}4pm.exe", "x\\u{202e}4pm.exe"),
            ("a\u{2028}b\u{2066}c", "a\\u{2028}b\\u{2066}c", "a\\u{2028}b\\u{2066}c"),
        ] {
            assert_eq!(shown(text), one);
            assert_eq!(shown_lines(text), lines);
        }
    }
}
