// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion of a partial path, for tab completion.

use super::definition::{Arg, Definition, DefinitionKind};
use super::definitions::Definitions;
use super::value::ValueKind;
use super::words::{self, PathMark};

impl Definitions {
    /// Returns the words that can replace the last word of `text`; after a blank, the last word is
    /// empty. The words are names that fit the place, values of a positional argument, options
    /// (`depth=`), an option with each of its values (`leaky=no`), or the marks `!`, `(` and `)`.
    /// The result is empty if a file or another text is expected, or if the hop's name is not
    /// known; but inside a branch, it may have `)`. It is empty if a quote is open
    /// or the text ends with a backslash.
    ///
    /// ```
    /// # use framepath_model::path::{Arg, DefaultValue, Definition, Definitions, ValueKind};
    /// # static TEST: Definition = Definition::source("test", "frames");
    /// # static QUEUE: Definition = Definition::link("queue", "a thread boundary")
    /// #     .args(&[Arg::option("depth", ValueKind::count(1, 9), DefaultValue::Is("4"), "frames")]);
    /// # let mut definitions = Definitions::default();
    /// # definitions.add(&TEST)?;
    /// # definitions.add(&QUEUE)?;
    /// assert_eq!(definitions.complete("test ! que"), ["queue"]);
    /// assert_eq!(definitions.complete("test ! queue "), ["depth=", "!"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn complete(&self, text: &str) -> Vec<String> {
        let Ok(mut words) = words::split(text) else { return Vec::new() };
        let begun = !text.ends_with(|c: char| c.is_ascii_whitespace()) && !words.is_empty();
        let word = if begun { words.pop() } else { None };
        let start = word.as_ref().map_or("", |word| word.text.as_str());
        let hop = words.rsplit(|word| word.mark.is_some()).next().unwrap_or_default();
        let last_mark = words.iter().rev().find_map(|word| word.mark);
        let opened = words.iter().filter(|word| word.mark == Some(PathMark::Open)).count();
        let is_inside = opened > words.iter().filter(|word| word.mark == Some(PathMark::Close)).count();
        let mut candidates = match (hop.split_first(), last_mark) {
            (None, Some(PathMark::Close)) => vec!["(".to_owned()],
            (None, mark) => self.names_for(mark),
            (Some((name, given)), _) => match self.find(&name.text) {
                Some(definition) => options_for(definition, given, start),
                None => Vec::new(),
            },
        };
        if is_inside && last_mark.is_some_and(|mark| mark == PathMark::Close || !hop.is_empty()) {
            candidates.push(")".to_owned());
        }
        candidates.into_iter().filter(|candidate| candidate.starts_with(start)).collect()
    }

    fn names_for(&self, last_mark: Option<PathMark>) -> Vec<String> {
        let kinds: &[DefinitionKind] = match last_mark {
            None => &[DefinitionKind::Source],
            Some(_) => {
                &[DefinitionKind::Stage, DefinitionKind::Link, DefinitionKind::Sink, DefinitionKind::Tee]
            }
        };
        self.names(kinds).into_iter().map(str::to_owned).collect()
    }
}

/// Returns the words that can follow the arguments `given` of a hop: the values of a positional
/// argument, or options and a mark. If `start`, the beginning of the word, contains a `=`, returns
/// that option with each of its values; none if they cannot be listed.
fn options_for(definition: &Definition, given: &[words::Word], start: &str) -> Vec<String> {
    if let Some((name, _)) = start.split_once('=') {
        let values = definition.arg(name).map_or(Vec::new(), |(_, arg)| values(arg));
        return values.iter().map(|value| format!("{name}={value}")).collect();
    }
    let options = given.iter().filter_map(|word| word.equals.map(|equals| &word.text[..equals.in_word]));
    let options: Vec<&str> = options.collect();
    let mut positional = definition.all_args().filter(|arg| arg.positional);
    if let Some(due) = positional.nth(given.len() - options.len()) {
        return values(due);
    }
    let left = definition.all_args().filter(|arg| {
        let mut given = options.iter().filter_map(|name| definition.arg(name));
        let excluded =
            given.any(|(_, other)| other.excludes.contains(&arg.name) || arg.excludes.contains(&other.name));
        let lacks = arg.needs.is_some_and(|needed| !options.contains(&needed));
        !arg.positional && !options.contains(&arg.name) && !excluded && !lacks
    });
    let mut words: Vec<String> = left.map(|arg| format!("{}=", arg.name)).collect();
    words.extend(match definition.kind {
        DefinitionKind::Sink => None,
        DefinitionKind::Tee => Some("(".to_owned()),
        DefinitionKind::Source | DefinitionKind::Stage | DefinitionKind::Link => Some("!".to_owned()),
    });
    words
}

/// Returns the values of an argument that can be listed: the words of a choice, the word of a count
/// if it has one, `0` and `1` of a flag; empty for other types.
fn values(arg: &Arg) -> Vec<String> {
    match arg.kind {
        ValueKind::Choice { now } => now.iter().map(|&word| word.to_owned()).collect(),
        ValueKind::Count { word: Some((word, _)), .. } => vec![word.to_owned()],
        ValueKind::Flag => vec!["0".to_owned(), "1".to_owned()],
        _ => Vec::new(),
    }
}
