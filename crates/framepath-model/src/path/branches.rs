// SPDX-License-Identifier: MIT OR Apache-2.0
//! The branches of a tee: `( HOP ! HOP ) ( HOP ! HOP )`.

use super::PathError;
use super::ast::Hop;
use super::definition::DefinitionKind;
use super::parser::{Begin, Grammar, PathEnd};
use super::words::{PathMark, Word};

/// Maximum number of nested tees around a hop. The limit bounds the parser's recursion.
const MOST_DEPTH: usize = 8;

impl Grammar<'_> {
    /// Reads the branches of `hop` into `hop` if it is a tee. `words` begin after the hop's
    /// arguments, inside `depth` pairs of parentheses. Returns the remaining words: none, or a `!`
    /// and the next hop. Fails if a tee has fewer than two branches, if a branch has an error, if
    /// tees are nested too deep, or if the words do not fit.
    pub(super) fn read_branches<'a>(
        self,
        hop: &mut Hop,
        words: &'a [Word],
        text: &str,
        depth: usize,
    ) -> Result<&'a [Word], PathError> {
        let mark = words.first().and_then(|word| word.mark);
        match (hop.def.kind == DefinitionKind::Tee, mark) {
            (false, None | Some(PathMark::Next)) => return Ok(words),
            (true, Some(PathMark::Open)) => {}
            (true, _) => {
                let message = format!("`{}` has no branches", hop.name());
                return Err(PathError::new(hop.span.clone(), message, usage(hop)));
            }
            (false, Some(PathMark::Open)) => {
                let message = format!("`{}` is {} and has no branches", hop.name(), hop.def.kind.noun());
                let help = "parentheses follow only a `tee`; quote a parenthesis that is part of a name";
                return Err(PathError::new(words[0].span.clone(), message, help));
            }
            (false, Some(PathMark::Close)) => return Err(closes_nothing(&words[0])),
        }
        if depth == MOST_DEPTH {
            let message = format!("tees are nested more than {MOST_DEPTH} deep");
            return Err(PathError::new(hop.span.clone(), message, "put the branches into one `tee`"));
        }
        let mut rest = words;
        while let Some((open, inside)) =
            rest.split_first().filter(|(word, _)| word.mark == Some(PathMark::Open))
        {
            let Some(length) = length_to_close(inside) else {
                let help = "close it with a `)`, with a blank on either side";
                return Err(PathError::new(open.span.clone(), "this `(` is never closed", help));
            };
            let (branch, after) = (&inside[..length], &inside[length + 1..]);
            let close = &inside[length];
            if branch.is_empty() {
                let span = open.span.start..close.span.end;
                return Err(PathError::new(span, "this branch is empty", usage(hop)));
            }
            let is_last = after.first().is_none_or(|word| word.mark != Some(PathMark::Open));
            let grammar = match is_last {
                // Only the end of the last branch may be left open.
                true => Grammar { begin: Begin::Behind, ..self },
                false => Grammar { begin: Begin::Thread, end: PathEnd::Sink, ..self },
            };
            hop.branches.push(grammar.read_hops(branch, text, depth + 1)?);
            hop.span.end = close.span.end;
            rest = after;
        }
        match (rest.first(), &hop.branches[..]) {
            (_, [_]) => {
                let help = format!("a tee has at least two; {}", usage(hop));
                Err(PathError::new(hop.span.clone(), "there is only one branch", help))
            }
            (None, _) => Ok(rest),
            (Some(word), _) if word.mark == Some(PathMark::Close) => Err(closes_nothing(word)),
            (Some(word), _) => Err(PathError::new(
                word.span.start..text.len(),
                "nothing can follow the branches of a tee",
                "put these hops into the last branch",
            )),
        }
    }
}

fn usage(hop: &Hop) -> String {
    format!("such as `{} ( queue ! null ) ( null )`", hop.name())
}

fn closes_nothing(word: &Word) -> PathError {
    let help = "remove it, or quote it if it is part of a name";
    PathError::new(word.span.clone(), "this `)` closes nothing", help)
}

/// Returns the number of words before the `)` that closes the `(` in front of `words`; `None` if it
/// is missing.
fn length_to_close(words: &[Word]) -> Option<usize> {
    let mut inner = 0;
    words.iter().position(|word| match word.mark {
        Some(PathMark::Open) => {
            inner += 1;
            false
        }
        Some(PathMark::Close) if inner > 0 => {
            inner -= 1;
            false
        }
        Some(PathMark::Close) => true,
        _ => false,
    })
}
