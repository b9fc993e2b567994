// SPDX-License-Identifier: MIT OR Apache-2.0
//! The known word nearest to one that is not known.

/// Words longer than this, in characters, are not compared: nobody types a
/// known word wrong by that much, and the work stays bounded.
const LONGEST: usize = 40;

/// The one of `known` nearest to `word`, if any is near enough to be what was
/// meant: at most a third of the word's characters differ (at least one may).
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: Vec<char> = word.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    if typed.is_empty() || typed.len() > LONGEST {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let chars: Vec<char> = candidate.chars().collect();
        let allowed = (typed.len().max(chars.len()) / 3).max(1);
        let far = distance(&typed, &chars);
        // A single letter is one edit from every other: that is no likeness.
        if far <= allowed && far < chars.len() && best.is_none_or(|(b, _)| far < b) {
            best = Some((far, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Edits between two words: insertions, deletions, substitutions, and swaps
/// of two neighbours (the commonest slip of fingers), one each.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, cb) in b.iter().enumerate() {
            let mut cost = (last[j] + usize::from(ca != cb)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *ca == b[j - 1] && a[i - 1] == *cb {
                cost = cost.min(before[j - 1] + 1);
            }
            row[j + 1] = cost;
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
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

    #[test]
    fn a_swap_is_one_edit() {
        let chars = |s: &str| s.chars().collect::<Vec<_>>();
        assert_eq!(distance(&chars("ab"), &chars("ba")), 1);
        assert_eq!(distance(&chars("kitten"), &chars("sitting")), 3);
        assert_eq!(distance(&chars(""), &chars("abc")), 3);
    }
}
