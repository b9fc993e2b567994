// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a hop may be: the declaration of a source, stage, sink or link and of its
//! arguments.

use std::fmt::Write;

use super::hosting::Hosts;
use super::value::ValueKind;

/// What a hop may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Only gives: the first hop of every path.
    Source,
    /// Takes and gives.
    Stage,
    /// Only takes: the last hop of every path.
    Sink,
    /// How a frame passes on; `!` alone is a direct call.
    Link,
    /// Gives every item to several branches, which stand behind it in parentheses.
    Tee,
}

impl Kind {
    /// The kind as a noun with its article.
    pub fn noun(self) -> &'static str {
        match self {
            Kind::Source => "a source",
            Kind::Stage => "a stage",
            Kind::Sink => "a sink",
            Kind::Link => "a link",
            Kind::Tee => "a tee",
        }
    }
}

/// What an argument is when it is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// It must be given.
    Required,
    /// This text, read as if it had been given.
    Is(&'static str),
    /// No value; in words, what that means.
    Unset(&'static str),
}

/// One argument: an option `name=value`, or a word by its place.
#[derive(Debug, Clone, Copy)]
pub struct Arg {
    /// Its name, lower case.
    pub name: &'static str,
    /// Given by its place and not by its name.
    pub positional: bool,
    /// Type and range.
    pub kind: ValueKind,
    /// When it is not given.
    pub default: DefaultValue,
    /// Names of options that cannot be given together with this one.
    pub excludes: &'static [&'static str],
    /// The name of an option that must be given with this one.
    pub needs: Option<&'static str>,
    /// Names that other programs have for it, for the question what was meant.
    pub known_as: &'static [&'static str],
    /// One line.
    pub help: &'static str,
}

impl Arg {
    /// An option, `name=value`.
    pub const fn option(
        name: &'static str,
        kind: ValueKind,
        default: DefaultValue,
        help: &'static str,
    ) -> Arg {
        Arg { name, positional: false, kind, default, excludes: &[], needs: None, known_as: &[], help }
    }

    /// A word that is given by its place, always.
    pub const fn word(name: &'static str, kind: ValueKind, help: &'static str) -> Arg {
        Arg { positional: true, ..Arg::option(name, kind, DefaultValue::Required, help) }
    }

    /// Cannot be given together with these options.
    #[must_use]
    pub const fn excluding(self, options: &'static [&'static str]) -> Arg {
        Arg { excludes: options, ..self }
    }

    /// Can be given together with this option only.
    #[must_use]
    pub const fn needing(self, option: &'static str) -> Arg {
        Arg { needs: Some(option), ..self }
    }

    /// Other programs have these names for it.
    #[must_use]
    pub const fn known_as(self, names: &'static [&'static str]) -> Arg {
        Arg { known_as: names, ..self }
    }

    /// The argument as help writes it: `depth=N`, or `PATH` for a positional.
    pub fn usage(&self) -> String {
        match self.positional {
            true => match self.kind {
                ValueKind::Choice { now } => now.join("|"),
                _ => self.name.to_uppercase(),
            },
            false => format!("{}={}", self.name, self.kind.shape()),
        }
    }

    /// Type, range and default in words, for help and errors.
    pub fn wants(&self) -> String {
        let default = match self.default {
            DefaultValue::Required => String::new(),
            DefaultValue::Is(text) => format!("; default {text}"),
            DefaultValue::Unset(meaning) => format!("; default {meaning}"),
        };
        format!("{}{default}", self.kind.wants())
    }
}

/// The declaration of a source, stage, sink or link: parsing, errors, help and
/// completion read it.
///
/// ```
/// use framepath_model::path::{Arg, DefaultValue, Definition, Definitions, Hosts, ValueKind};
///
/// static MIRROR: Definition = Definition::stage("mirror", "turns frames around")
///     .args(&[Arg::option("axis", ValueKind::choice(&["x", "y"]), DefaultValue::Is("y"), "the axis")])
///     .hosts(Hosts::Any);
///
/// let mut definitions = Definitions::default();
/// definitions.add(&MIRROR)?;
/// let hop = definitions.parse_stage("mirror axis=x host=process")?;
/// assert_eq!(hop.choice("axis"), "x");
/// assert!(hop.is_hosted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    /// The word that names it.
    pub name: &'static str,
    /// Where it may stand.
    pub kind: Kind,
    /// One line.
    pub help: &'static str,
    /// Its own arguments. Positional ones first, in their order; then options.
    pub own: &'static [Arg],
    /// Where it can run, which brings the arguments of workers.
    pub hosts: Hosts,
    /// Options that are not declared are taken too, as text: in words, what
    /// they are. Who runs the stage knows them, the declaration does not.
    pub open: Option<&'static str>,
    /// Names that other programs have for it, for the question what was meant.
    pub known_as: &'static [&'static str],
    /// Measurements and tests need it, users do not: it has a place of its own in help.
    pub for_tests: bool,
}

impl Definition {
    /// A source.
    pub const fn source(name: &'static str, help: &'static str) -> Definition {
        Definition::new(name, Kind::Source, help)
    }

    /// A stage.
    pub const fn stage(name: &'static str, help: &'static str) -> Definition {
        Definition::new(name, Kind::Stage, help)
    }

    /// A sink.
    pub const fn sink(name: &'static str, help: &'static str) -> Definition {
        Definition::new(name, Kind::Sink, help)
    }

    /// A link.
    pub const fn link(name: &'static str, help: &'static str) -> Definition {
        Definition::new(name, Kind::Link, help)
    }

    /// A tee.
    pub const fn tee(name: &'static str, help: &'static str) -> Definition {
        Definition::new(name, Kind::Tee, help)
    }

    const fn new(name: &'static str, kind: Kind, help: &'static str) -> Definition {
        Definition {
            name,
            kind,
            help,
            own: &[],
            hosts: Hosts::Inline,
            open: None,
            known_as: &[],
            for_tests: false,
        }
    }

    /// With these arguments: positional ones first, in their order; then options.
    #[must_use]
    pub const fn args(self, own: &'static [Arg]) -> Definition {
        Definition { own, ..self }
    }

    /// It can run in these places.
    #[must_use]
    pub const fn hosts(self, hosts: Hosts) -> Definition {
        Definition { hosts, ..self }
    }

    /// Options that are not declared are taken as text; `what` they are, in words.
    #[must_use]
    pub const fn open(self, what: &'static str) -> Definition {
        Definition { open: Some(what), ..self }
    }

    /// Other programs have these names for it.
    #[must_use]
    pub const fn known_as(self, names: &'static [&'static str]) -> Definition {
        Definition { known_as: names, ..self }
    }

    /// Measurements and tests need it, users do not.
    #[must_use]
    pub const fn for_tests(self) -> Definition {
        Definition { for_tests: true, ..self }
    }

    /// All arguments: its own, then those of workers.
    pub fn all_args(&self) -> impl Iterator<Item = &'static Arg> + Clone + use<> {
        self.own.iter().chain(self.hosts.args())
    }

    /// The argument of that name, with its place in [`Definition::all_args`].
    pub fn arg(&self, name: &str) -> Option<(usize, &'static Arg)> {
        self.all_args().enumerate().find(|(_, arg)| arg.name == name)
    }

    /// The hop as help writes it: `file PATH [loop=N|inf]`.
    pub fn usage(&self) -> String {
        let mut usage = self.name.to_owned();
        for arg in self.all_args() {
            let _ = match arg.default {
                DefaultValue::Required => write!(usage, " {}", arg.usage()),
                _ => write!(usage, " [{}]", arg.usage()),
            };
        }
        if self.open.is_some() {
            usage.push_str(" [PARAM=VALUE...]");
        }
        if self.kind == Kind::Tee {
            usage.push_str(" ( BRANCH ) ( BRANCH )...");
        }
        usage
    }
}
