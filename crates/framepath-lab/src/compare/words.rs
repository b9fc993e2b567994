// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits a command into words with quotes and backslashes as in a shell, and
//! nothing else of a shell: no variables, no patterns, no pipes.

/// A quote that is opened and never closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this {0} is never closed")]
pub struct OpenQuote(pub char);

/// The words of `text`.
pub(super) fn split(text: &str) -> Result<Vec<String>, OpenQuote> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\'' | '"' => quoted(&mut chars, c, word.get_or_insert_default())?,
            '\\' => match chars.next() {
                // A backslash at the end of a line joins the lines.
                Some('\n') => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
                None => word.get_or_insert_default().push('\\'),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Reads up to the closing `quote`; the opening one is taken.
fn quoted(chars: &mut std::str::Chars<'_>, quote: char, into: &mut String) -> Result<(), OpenQuote> {
    while let Some(c) = chars.next() {
        if c == quote {
            return Ok(());
        }
        if c == '\\' && quote == '"' {
            match chars.next() {
                Some(escaped @ ('"' | '\\')) => into.push(escaped),
                Some(other) => into.extend(['\\', other]),
                None => break,
            }
            continue;
        }
        into.push(c);
    }
    Err(OpenQuote(quote))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_would() {
        for (text, expected) in [
            ("", vec![]),
            ("  ls   -l ", vec!["ls", "-l"]),
            ("ffmpeg -i 'my clip.mp4' -f null -", vec!["ffmpeg", "-i", "my clip.mp4", "-f", "null", "-"]),
            (r#"a "b \"c\" \d" e\ f"#, vec!["a", r#"b "c" \d"#, "e f"]),
            ("a '' b", vec!["a", "", "b"]),
            ("a=b'c'd", vec!["a=bcd"]),
            ("a \\\n b", vec!["a", "b"]),
        ] {
            assert_eq!(split(text).unwrap(), expected, "{text}");
        }
        assert_eq!(split("a \"b"), Err(OpenQuote('"')));
        assert_eq!(split("a \"b\\"), Err(OpenQuote('"')));
    }
}
