// SPDX-License-Identifier: MIT OR Apache-2.0
//! A set of declarations: the names that paths can use.

use super::ast::{Hop, Path};
use super::definition::{DefaultValue, Definition, DefinitionKind};
use super::parser::{Begin, Grammar, PathEnd};
use super::value::listed;
use super::{PathError, nearest};

/// Set of the sources, stages, sinks, links and tees that paths can name.
#[derive(Debug, Clone, Default)]
pub struct Definitions {
    /// Declarations in the order in which they were added.
    list: Vec<&'static Definition>,
}

/// Reason why a declaration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// An earlier declaration in the same set has this name.
    #[error("`{0}` is already declared; use another name")]
    NameTaken(&'static str),
    /// The name of the declared hop is not a lower-case word of ASCII letters, digits and `_` that
    /// starts with a letter.
    #[error("`{0}` is not a valid name; use lower-case letters, digits and `_`, with a letter first")]
    Name(&'static str),
    /// The constructor for the declared name makes another kind of hop than the declaration says.
    /// [`Definitions::add`] does not check this; the program's registry does.
    #[error("`{0}` is declared as another kind of hop than its constructor makes; declare it as that kind")]
    Kind(&'static str),
    /// The declaration of an argument is invalid: its name, its place among the arguments, its
    /// default, or an argument that it excludes or needs.
    #[error("argument `{arg}` of `{definition}`: {what}")]
    Arg {
        /// Name of the declaration.
        definition: &'static str,
        /// Name of the argument.
        arg: &'static str,
        /// Description of the error, and the correction.
        what: &'static str,
    },
}

impl Definitions {
    /// Adds a declaration, so that paths can name it.
    ///
    /// # Errors
    /// The name is taken, or the declaration of the hop or of one of its arguments is invalid.
    pub fn add(&mut self, definition: &'static Definition) -> Result<(), DefinitionError> {
        if self.find(definition.name).is_some() {
            return Err(DefinitionError::NameTaken(definition.name));
        }
        check(definition)?;
        self.list.push(definition);
        Ok(())
    }

    /// Iterates over all declarations, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &'static Definition> + Clone + '_ {
        self.list.iter().copied()
    }

    /// Returns the declaration named `name`; `None` if there is none.
    pub fn find(&self, name: &str) -> Option<&'static Definition> {
        self.iter().find(|definition| definition.name == name)
    }

    /// Returns the names of all declarations of the given kinds, in the order in which they were
    /// added.
    pub fn names(&self, kinds: &[DefinitionKind]) -> Vec<&'static str> {
        self.iter().filter(|one| kinds.contains(&one.kind)).map(|one| one.name).collect()
    }

    /// Lists the names of all declarations of the given kinds as in a sentence: `` `a`, `b` or `c`
    /// ``.
    pub(super) fn known(&self, kinds: &[DefinitionKind]) -> String {
        listed(&self.names(kinds))
    }

    /// Guesses the declared name that the user meant by `name`: the name of the same hop in another
    /// program, else the nearest name among `fitting` kinds, else the nearest name of all. `None`
    /// if none is similar.
    pub(super) fn meant(&self, name: &str, fitting: &[DefinitionKind]) -> Option<&'static str> {
        let elsewhere = self.iter().find(|one| one.known_as.contains(&name)).map(|one| one.name);
        elsewhere
            .or_else(|| nearest(name, self.names(fitting)))
            .or_else(|| nearest(name, self.iter().map(|one| one.name)))
    }

    /// Reads a whole path, from a source to a sink, or to a tee whose branches end in sinks.
    ///
    /// # Errors
    /// The first error, with the position of the word and a correction. [`PathError::render`]
    /// prints it under the text.
    pub fn parse(&self, text: &str) -> Result<Path, PathError> {
        Grammar { known: self, begin: Begin::Source, end: PathEnd::Sink }.parse(text)
    }

    /// Reads a path that need not end in a sink, for a program that itself takes the frames or
    /// packets of the last hop. Of the branches of a tee, only the last may lack a sink.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_open(&self, text: &str) -> Result<Path, PathError> {
        Grammar { known: self, begin: Begin::Source, end: PathEnd::Any }.parse(text)
    }

    /// Reads the rest of a path after its source: stages, links, a tee, and an optional sink. Of
    /// the branches of a tee, only the last may lack a sink.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_rest(&self, text: &str) -> Result<Path, PathError> {
        Grammar { known: self, begin: Begin::Behind, end: PathEnd::Any }.parse(text)
    }

    /// Reads a single stage in the form that [`Hop`] prints, for a worker that receives the stage
    /// to run.
    ///
    /// # Errors
    /// As [`parse`](Self::parse); a text that is not one stage is an error too.
    pub fn parse_stage(&self, text: &str) -> Result<Hop, PathError> {
        let path = self.parse_rest(text)?;
        match <[Hop; 1]>::try_from(path.hops) {
            Ok([hop]) if hop.def.kind == DefinitionKind::Stage => Ok(hop),
            _ => Err(PathError::new(
                0..text.len(),
                "this is not one stage",
                format!("expected here: a stage, {}", self.known(&[DefinitionKind::Stage])),
            )),
        }
    }
}

/// Returns true if `name` can be declared as the name of a hop or argument: lower-case ASCII
/// letters, digits and `_`, with a letter first.
fn is_name(name: &str) -> bool {
    let letters = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    name.bytes().next().is_some_and(|b| b.is_ascii_lowercase()) && name.bytes().all(letters)
}

fn check(definition: &'static Definition) -> Result<(), DefinitionError> {
    if !is_name(definition.name) {
        return Err(DefinitionError::Name(definition.name));
    }
    let args: Vec<_> = definition.all_args().collect();
    for (at, arg) in args.iter().enumerate() {
        let wrong = |what| Err(DefinitionError::Arg { definition: definition.name, arg: arg.name, what });
        if !is_name(arg.name) {
            return wrong(
                "the name is not valid; use lower-case letters, digits and `_`, with a letter first",
            );
        }
        if args[..at].iter().any(|other| other.name == arg.name) {
            return wrong("is declared twice; use another name");
        }
        if arg.positional && args[..at].iter().any(|other| !other.positional) {
            return wrong("is positional and follows an option; declare positional arguments first");
        }
        if arg.excludes.iter().chain(&arg.needs).any(|name| definition.arg(name).is_none()) {
            return wrong("excludes or needs an argument that is not declared; declare that argument too");
        }
        if let DefaultValue::Is(text) = arg.default {
            if arg.kind.read(text).is_err() {
                return wrong(
                    "has a default that is not a value of its type; correct the default or the type",
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Arg, ValueKind};
    use super::*;

    #[test]
    fn contradictory_definitions_are_refused() {
        static GOOD: Definition = Definition::stage("good", "");
        static CAPITAL: Definition = Definition::stage("Flip", "");
        static TWICE: Definition = Definition::stage("twice", "").args(&[
            Arg::option("a", ValueKind::Flag, DefaultValue::Is("0"), ""),
            Arg::option("a", ValueKind::Flag, DefaultValue::Is("0"), ""),
        ]);
        static LATE: Definition = Definition::stage("late", "").args(&[
            Arg::option("a", ValueKind::Flag, DefaultValue::Is("0"), ""),
            Arg::word("b", ValueKind::Flag, ""),
        ]);
        static UNREAD: Definition = Definition::stage("unread", "").args(&[Arg::option(
            "a",
            ValueKind::Flag,
            DefaultValue::Is("perhaps"),
            "",
        )]);
        static ALONE: Definition = Definition::stage("alone", "").args(&[Arg::option(
            "a",
            ValueKind::Flag,
            DefaultValue::Is("0"),
            "",
        )
        .needing("b")]);
        static HOST_TWICE: Definition = Definition::stage("host_twice", "")
            .args(&[Arg::option("host", ValueKind::Flag, DefaultValue::Is("0"), "")])
            .hosts(super::super::Hosts::Any);

        let mut definitions = Definitions::default();
        definitions.add(&GOOD).unwrap();
        assert_eq!(definitions.add(&GOOD), Err(DefinitionError::NameTaken("good")));
        assert_eq!(definitions.add(&CAPITAL), Err(DefinitionError::Name("Flip")));
        for (wrong, argument) in
            [(&TWICE, "a"), (&LATE, "b"), (&UNREAD, "a"), (&ALONE, "a"), (&HOST_TWICE, "host")]
        {
            let refused = definitions.add(wrong);
            assert!(
                matches!(refused, Err(DefinitionError::Arg { arg, .. }) if arg == argument),
                "{refused:?}"
            );
        }
        assert_eq!(definitions.names(&[DefinitionKind::Stage]), ["good"]);
    }
}
