// SPDX-License-Identifier: MIT OR Apache-2.0
//! The known word nearest to an unknown one.

/// Maximum number of characters of a word for which a similar word is searched. The limit bounds
/// the work, and no known word is nearly as long.
const LONGEST: usize = 40;

/// Returns the word of `known` nearest to `word`, the first of them if several are equally near.
/// Case does not matter. The words may differ by a number of edits of at most a third of the
/// characters of the longer word, but at least by one edit; an edit inserts, deletes or replaces a
/// character, or swaps two neighbours. A known word of one character is near only if it is equal.
/// Returns `None` if no word is so similar, or if `word` is empty or longer than 40 characters.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    by_distance(word, known).into_iter().min_by_key(|(far, _)| *far).map(|(_, candidate)| candidate)
}

/// Returns at most `most` words of `known` that are near to `word`: first the words that
/// [`nearest`] would consider, nearest first; then those that contain `word` in the same case, if
/// `word` has more than one byte. Each word is returned once.
pub fn nearest_few<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    let mut near = by_distance(word, known.iter().copied());
    near.sort_by_key(|(far, _)| *far);
    let similar = near.into_iter().map(|(_, candidate)| candidate);
    let containing = known.iter().copied().filter(|one| word.len() > 1 && one.contains(word));
    let mut few: Vec<&str> = Vec::new();
    for candidate in similar.chain(containing) {
        if few.len() < most && !few.contains(&candidate) {
            few.push(candidate);
        }
    }
    few
}

/// Returns the words of `known` that are similar to `word`, as [`nearest`] describes, each with its
/// number of edits, in the order of `known`.
fn by_distance<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<(usize, &'a str)> {
    let typed: String = word.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    let typed_chars = typed.chars().count();
    if typed.is_empty() || typed_chars > LONGEST {
        return Vec::new();
    }
    let mut similar = Vec::new();
    for candidate in known {
        let chars = candidate.chars().count();
        let allowed = (typed_chars.max(chars) / 3).max(1);
        // Insertions, deletions, substitutions, and swaps of two neighbours.
        let far = strsim::osa_distance(&typed, &candidate.to_lowercase());
        // A single letter is one edit from every other letter: that is no similarity.
        if far <= allowed && far < chars {
            similar.push((far, candidate));
        }
    }
    similar
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
    fn several_near_words_begin_with_the_nearest() {
        let known = ["latency_us.p50", "latency_us.p95", "cpu_ms.median", "wall_ms.median"];
        assert_eq!(nearest_few("latency_us.p59", known, 2), ["latency_us.p50", "latency_us.p95"]);
        assert_eq!(nearest_few("median", known, 3), ["cpu_ms.median", "wall_ms.median"]);
        assert!(nearest_few("x", known, 3).is_empty());
    }
}
