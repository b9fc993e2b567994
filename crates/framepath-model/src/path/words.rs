// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits a path's text into words, with quotes and backslashes as in a shell.

use std::ops::Range;

use super::PathError;

/// One word of a path's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// The word without its quoting.
    pub text: String,
    /// Position in the path's text, quotes included, in bytes.
    pub span: Range<usize>,
    /// Position of the `=` in `key=value`; `None` if the word has none, or if the key is quoted or
    /// not a plain identifier.
    pub equals: Option<Equals>,
    /// Mark, if the word is an unquoted `!`, `(` or `)` by itself; else `None`.
    pub mark: Option<PathMark>,
}

/// Word that structures a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathMark {
    /// `!`, between two hops.
    Next,
    /// `(`, before a branch.
    Open,
    /// `)`, after a branch.
    Close,
}

impl PathMark {
    fn of(word: &str) -> Option<PathMark> {
        match word {
            "!" => Some(PathMark::Next),
            "(" => Some(PathMark::Open),
            ")" => Some(PathMark::Close),
            _ => None,
        }
    }
}

/// Position of an option's `=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Equals {
    /// Offset in [`Word::text`], in bytes.
    pub in_word: usize,
    /// Offset in the path's text, in bytes.
    pub in_text: usize,
}

/// Returns true for the characters that separate words: space, tab, line feed and carriage return.
/// A file name may contain other blanks without quotes.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// Returns true if a key can be an option's name: an ASCII letter, then letters, digits, `_`, `-`.
fn is_identifier(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Splits a command or path into words as a shell would, and removes their quotes and backslashes.
/// There are no variables, patterns or pipes.
///
/// # Errors
/// A quote that is never closed, or a backslash with nothing after it.
pub fn shell_words(text: &str) -> Result<Vec<String>, PathError> {
    Ok(split(text)?.into_iter().map(|word| word.text).collect())
}

/// Splits `text` into its words, without quotes and backslashes. Fails on a quote that is never
/// closed, and on a backslash at the end.
pub(super) fn split(text: &str) -> Result<Vec<Word>, PathError> {
    let mut words = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some(&(start, c)) = chars.peek() {
        if is_blank(c) {
            chars.next();
            continue;
        }
        let mut word = Word { text: String::new(), span: start..start, equals: None, mark: None };
        let mut quoted = false;
        while let Some(&(at, c)) = chars.peek() {
            if is_blank(c) {
                break;
            }
            chars.next();
            match c {
                '\'' | '"' => {
                    quoted = true;
                    read_quoted(&mut chars, c, at, &mut word.text)?;
                }
                '\\' => match chars.next() {
                    // A backslash at the end of a line joins the lines.
                    Some((_, '\n')) => {}
                    Some((_, escaped)) => {
                        quoted = true;
                        word.text.push(escaped);
                    }
                    None => {
                        return Err(PathError::new(
                            at..at + 1,
                            "a backslash with nothing after it",
                            "a backslash takes the next character as it is; write `\\\\` for a \
                             backslash itself",
                        ));
                    }
                },
                '=' if !quoted && word.equals.is_none() && is_identifier(&word.text) => {
                    word.equals = Some(Equals { in_word: word.text.len(), in_text: at });
                    word.text.push('=');
                }
                _ => word.text.push(c),
            }
        }
        word.span.end = chars.peek().map_or(text.len(), |&(at, _)| at);
        word.mark = if quoted { None } else { PathMark::of(&word.text) };
        // An escaped line end alone makes no word.
        if quoted || !word.text.is_empty() {
            words.push(word);
        }
    }
    Ok(words)
}

/// Appends the characters up to the closing `quote` to `into`. The opening quote, at byte `open`,
/// is already consumed. Fails if the quote is never closed.
fn read_quoted(
    chars: &mut std::iter::Peekable<std::str::CharIndices<'_>>,
    quote: char,
    open: usize,
    into: &mut String,
) -> Result<(), PathError> {
    while let Some((_, c)) = chars.next() {
        if c == quote {
            return Ok(());
        }
        if c == '\\' && quote == '"' {
            match chars.peek() {
                Some(&(_, escaped @ ('"' | '\\'))) => {
                    chars.next();
                    into.push(escaped);
                    continue;
                }
                Some(&(_, '\n')) => {
                    chars.next();
                    continue;
                }
                _ => {}
            }
        }
        into.push(c);
    }
    Err(PathError::new(
        open..open + 1,
        format!("this {quote} is never closed"),
        format!("close it with another {quote}, or write \\{quote} for the character itself"),
    ))
}

/// Quotes `word` so that it is read back as one positional word.
///
/// ```
/// use framepath_model::path::{quote, shell_words};
///
/// let name = "holiday ! \"1\".mp4";
/// assert_eq!(quote(name), "'holiday ! \"1\".mp4'");
/// ```
pub fn quote(word: &str) -> String {
    let plain = !word.is_empty()
        && PathMark::of(word).is_none()
        && !word.chars().any(|c| is_blank(c) || matches!(c, '\'' | '"' | '\\' | '='));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Joins words that a shell has already split, such as a program's arguments, into one path text. Quotes
/// blanks, quotes and backslashes, so that they stay in their word. A word that is only `!`, `(` or `)`
/// keeps its meaning, and so does `key=value`; inside a longer word these marks are ordinary characters.
pub fn join<S: AsRef<str>>(words: &[S]) -> String {
    let mut text = String::new();
    for word in words {
        if !text.is_empty() {
            text.push(' ');
        }
        let word = word.as_ref();
        match word.split_once('=') {
            _ if PathMark::of(word).is_some() => text.push_str(word),
            Some((key, value)) if is_identifier(key) => {
                text.push_str(key);
                text.push('=');
                if !value.is_empty() {
                    text.push_str(&quote(value));
                }
            }
            _ => text.push_str(&quote(word)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        split(text).unwrap().into_iter().map(|w| w.text).collect()
    }

    #[test]
    fn words_are_split_as_a_shell_would() {
        for (text, expected) in [
            ("", vec![]),
            (" \t\n ", vec![]),
            ("file a.ivf ! null", vec!["file", "a.ivf", "!", "null"]),
            ("file 'my clip!.mp4'", vec!["file", "my clip!.mp4"]),
            (r#"file "a \"b\" c" x"#, vec!["file", r#"a "b" c"#, "x"]),
            (r"file a\ b\!c", vec!["file", "a b!c"]),
            (r#"a"b c"'d e'f"#, vec!["ab cd ef"]),
            ("file ''", vec!["file", ""]),
            ("test ! \\\n  null", vec!["test", "!", "null"]),
            (r#""a\n""#, vec![r"a\n"]),
        ] {
            assert_eq!(texts(text), expected, "{text}");
        }
    }

    #[test]
    fn only_a_mark_that_stands_alone_and_unquoted_counts() {
        let marks = |text| split(text).unwrap().iter().filter_map(|w| w.mark).collect::<Vec<_>>();
        assert_eq!(marks("a ! b ( c )"), [PathMark::Next, PathMark::Open, PathMark::Close]);
        assert_eq!(marks(r#"a '!' "!" \! b!c (d) '(' \)"#), []);
    }

    #[test]
    fn an_option_has_a_plain_key() {
        let word = |text| split(text).unwrap().remove(0);
        assert_eq!(word("depth=4").equals, Some(Equals { in_word: 5, in_text: 5 }));
        assert_eq!(word("x='a=b c'").equals, Some(Equals { in_word: 1, in_text: 1 }));
        for text in ["'a=b'", "a\\=b", "./a=b", "=b", "9=b"] {
            assert_eq!(word(text).equals, None, "{text}");
        }
    }

    #[test]
    fn an_open_quote_is_pointed_at() {
        assert_eq!(split("file 'abc").unwrap_err().span, 5..6);
        assert_eq!(split("file \"abc'").unwrap_err().span, 5..6);
        assert_eq!(split("file abc\\").unwrap_err().span, 8..9);
    }

    #[test]
    fn joined_words_come_back() {
        let words = ["file", "my clip='x'.mp4", "loop=2", "!", "x=", "a\\b", "", "\u{a0}"];
        assert_eq!(texts(&join(&words)), words);
        for mark in ["!", "(", ")"] {
            let words = split(&join(&[mark])).unwrap();
            assert_eq!((words.len(), words[0].mark), (1, PathMark::of(mark)));
            assert_eq!(split(&quote(mark)).unwrap()[0].mark, None);
        }
    }
}
