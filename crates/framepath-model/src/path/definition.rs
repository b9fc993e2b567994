// SPDX-License-Identifier: MIT OR Apache-2.0
//! Declaration of a source, stage, sink, link or tee and of its arguments.

use std::fmt::Write;

use super::hosting::Hosts;
use super::value::ValueKind;

/// Kind of a hop, which determines its place in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DefinitionKind {
    /// Emits frames or packets and takes none: the first hop of every path.
    Source,
    /// Takes and emits frames or packets.
    Stage,
    /// Takes frames or packets and emits none: the last hop of a path or branch.
    Sink,
    /// Passes frames or packets from the hop before to the hop after, such as `queue`. A bare `!`
    /// is a direct call and no hop.
    Link,
    /// Sends every frame or packet to several branches, which follow it in parentheses.
    Tee,
}

impl DefinitionKind {
    /// Returns the kind as a noun with its article, such as `a source`.
    pub fn noun(self) -> &'static str {
        match self {
            DefinitionKind::Source => "a source",
            DefinitionKind::Stage => "a stage",
            DefinitionKind::Sink => "a sink",
            DefinitionKind::Link => "a link",
            DefinitionKind::Tee => "a tee",
        }
    }
}

/// Value that an argument has if it is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// The argument must be given.
    Required,
    /// Default value, as a user would write it in a path.
    Is(&'static str),
    /// No value; the text describes the effect, for help.
    Unset(&'static str),
}

/// Declaration of an argument: an option `name=value`, or a positional word.
#[derive(Debug, Clone, Copy)]
pub struct Arg {
    /// Name of the argument: lower-case ASCII letters, digits and `_`, with a letter first.
    pub name: &'static str,
    /// True if the argument is given by its position and not by its name.
    pub positional: bool,
    /// Type and range of the value.
    pub kind: ValueKind,
    /// Value of the argument if it is not given.
    pub default: DefaultValue,
    /// Names of options that cannot be given together with this one.
    pub excludes: &'static [&'static str],
    /// Name of an option that must be given together with this one; `None` if there is none.
    pub needs: Option<&'static str>,
    /// Names of the argument in other programs. An error about such a name suggests this argument.
    pub known_as: &'static [&'static str],
    /// Help text, one line.
    pub help: &'static str,
}

impl Arg {
    /// Creates an option, `name=value`.
    pub const fn option(
        name: &'static str,
        kind: ValueKind,
        default: DefaultValue,
        help: &'static str,
    ) -> Arg {
        Arg { name, positional: false, kind, default, excludes: &[], needs: None, known_as: &[], help }
    }

    /// Creates a required argument that is given by its position.
    pub const fn word(name: &'static str, kind: ValueKind, help: &'static str) -> Arg {
        Arg { positional: true, ..Arg::option(name, kind, DefaultValue::Required, help) }
    }

    /// Sets the options that cannot be given together with this one.
    #[must_use]
    pub const fn excluding(self, options: &'static [&'static str]) -> Arg {
        Arg { excludes: options, ..self }
    }

    /// Sets the option that must be given together with this one.
    #[must_use]
    pub const fn needing(self, option: &'static str) -> Arg {
        Arg { needs: Some(option), ..self }
    }

    /// Sets the names of the argument in other programs, for suggestions in errors.
    #[must_use]
    pub const fn known_as(self, names: &'static [&'static str]) -> Arg {
        Arg { known_as: names, ..self }
    }

    /// Returns the argument as help writes it: `depth=N` for an option, `PATH` for a positional
    /// argument, `a|b` for a positional choice of at most three words.
    pub fn usage(&self) -> String {
        match self.positional {
            true => match self.kind {
                ValueKind::Choice { now } if now.len() <= 3 => now.join("|"),
                _ => self.name.to_uppercase(),
            },
            false => format!("{}={}", self.name, self.kind.shape()),
        }
    }

    /// Describes type, unit, range and default of the argument, for help and errors.
    pub fn wants(&self) -> String {
        let default = match self.default {
            DefaultValue::Required => String::new(),
            DefaultValue::Is(text) => format!("; default {text}"),
            DefaultValue::Unset(meaning) => format!("; default {meaning}"),
        };
        format!("{}{default}", self.kind.wants())
    }
}

/// Declaration of a source, stage, sink, link or tee. Parsing, errors, help and completion use it.
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
    /// Name of the hop in paths: lower-case ASCII letters, digits and `_`, with a letter first.
    pub name: &'static str,
    /// Kind of the hop, which determines its place in a path.
    pub kind: DefinitionKind,
    /// Help text about the hop, one line.
    pub help: &'static str,
    /// Own arguments: positional arguments in order, then options.
    pub own: &'static [Arg],
    /// Hosts where the hop can run. With every value but [`Hosts::Inline`], the hop also has
    /// arguments for workers.
    pub hosts: Hosts,
    /// Description of the undeclared options that the hop accepts as text; `None` if the hop
    /// accepts none. Only the code that runs the stage knows these options.
    pub open: Option<&'static str>,
    /// Names of the hop in other programs. An error about such a name suggests this hop.
    pub known_as: &'static [&'static str],
    /// True if only measurements and tests need the hop: help lists it separately.
    pub for_tests: bool,
}

impl Definition {
    /// Declares a source without arguments that runs inline; `help` is its help text, one line.
    pub const fn source(name: &'static str, help: &'static str) -> Definition {
        Definition::new(name, DefinitionKind::Source, help)
    }

    /// Declares a stage without arguments that runs inline; `help` is its help text, one line.
    pub const fn stage(name: &'static str, help: &'static str) -> Definition {
        Definition::new(name, DefinitionKind::Stage, help)
    }

    /// Declares a sink without arguments; `help` is its help text, one line.
    pub const fn sink(name: &'static str, help: &'static str) -> Definition {
        Definition::new(name, DefinitionKind::Sink, help)
    }

    /// Declares a link without arguments; `help` is its help text, one line.
    pub const fn link(name: &'static str, help: &'static str) -> Definition {
        Definition::new(name, DefinitionKind::Link, help)
    }

    /// Declares a tee without arguments; `help` is its help text, one line.
    pub const fn tee(name: &'static str, help: &'static str) -> Definition {
        Definition::new(name, DefinitionKind::Tee, help)
    }

    const fn new(name: &'static str, kind: DefinitionKind, help: &'static str) -> Definition {
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

    /// Sets the arguments: positional arguments in order, then options.
    #[must_use]
    pub const fn args(self, own: &'static [Arg]) -> Definition {
        Definition { own, ..self }
    }

    /// Sets the hosts where the hop can run.
    #[must_use]
    pub const fn hosts(self, hosts: Hosts) -> Definition {
        Definition { hosts, ..self }
    }

    /// Makes the hop accept undeclared options as text; `what` describes them in help.
    #[must_use]
    pub const fn open(self, what: &'static str) -> Definition {
        Definition { open: Some(what), ..self }
    }

    /// Sets the names of the hop in other programs, for suggestions in errors.
    #[must_use]
    pub const fn known_as(self, names: &'static [&'static str]) -> Definition {
        Definition { known_as: names, ..self }
    }

    /// Marks the hop as needed only by measurements and tests, so that help lists it separately.
    #[must_use]
    pub const fn for_tests(self) -> Definition {
        Definition { for_tests: true, ..self }
    }

    /// Iterates over all arguments of the hop: its own, then those for workers.
    pub fn all_args(&self) -> impl Iterator<Item = &'static Arg> + Clone + use<> {
        self.own.iter().chain(self.hosts.args())
    }

    /// Returns the argument named `name` with its index in [`Definition::all_args`]; `None` if the
    /// hop has no such argument.
    pub fn arg(&self, name: &str) -> Option<(usize, &'static Arg)> {
        self.all_args().enumerate().find(|(_, arg)| arg.name == name)
    }

    /// Returns the hop as help writes it: `file PATH [loop=N|inf]`.
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
        if self.kind == DefinitionKind::Tee {
            usage.push_str(" ( BRANCH ) ( BRANCH )...");
        }
        usage
    }
}
