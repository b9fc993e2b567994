// SPDX-License-Identifier: MIT OR Apache-2.0
//! The known word nearest to an unknown one.

/// Maximum number of characters of a word that is compared; longer words have no nearest word.
/// Nobody mistypes a known word by that much, and the limit bounds the work.
const LONGEST: usize = 40;

/// Returns the word of `known` nearest to `word`, whose case does not matter. At most a third of
/// the characters of the longer word may differ, but one always may, except in a word of one
/// character. Returns `None` if no word is so similar, or if `word` is empty or longer than 40
/// characters.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: String = word.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    let typed_chars = typed.chars().count();
    if typed.is_empty() || typed_chars > LONGEST {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let chars = candidate.chars().count();
        let allowed = (typed_chars.max(chars) / 3).max(1);
        // Insertions, deletions, substitutions, and swaps of two neighbours.
        let far = strsim::osa_distance(&typed, candidate);
        // A single letter is one edit from every other letter: that is no similarity.
        if far <= allowed && far < chars && best.is_none_or(|(b, _)| far < b) {
            best = Some((far, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [&str; 4] = ["file", "decode", "threshold", "null"];

    #[test]
    fn finds_what_was_meant() {
        for (typed, meant) in [
            ("treshold", Some("threshold")),
            ("DECODE", Some("decode")),
            ("decdoe", Some("decode")),
            ("nul", Some("null")),
            ("flie", Some("file")),
            ("x264enc", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(typed, STAGES), meant, "{typed}");
        }
    }

    #[test]
    fn a_very_long_word_is_near_nothing() {
        assert_eq!(nearest(&"decode".repeat(10_000), STAGES), None);
    }
}
