// SPDX-License-Identifier: MIT OR Apache-2.0
//! A parsed path: its hops, and their arguments by name.

use std::fmt;
use std::ops::Range;

use super::definition::{DefaultValue, Definition};
use super::value::{Value, ValueKind};
use super::words::quote;

/// Parsed path: a source, then stages and links, then a sink or a tee; or the part of a path that
/// the reading function accepts. Two paths are equal if they have the same hops with the same given
/// values, in any spelling, and the same undeclared options in the same order. An argument that was
/// not given differs from its default given explicitly.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// Hops in order. The first hop is a source, unless
    /// [`Definitions::parse_rest`](super::Definitions::parse_rest) read the path. The last hop is a
    /// sink or a tee, unless that function or
    /// [`Definitions::parse_open`](super::Definitions::parse_open) read the path.
    pub hops: Vec<Hop>,
}

impl Path {
    /// Iterates over all hops, including those of branches, in the order of the text.
    pub fn all_hops(&self) -> impl Iterator<Item = &Hop> {
        all_hops(&self.hops)
    }
}

/// Iterates over `hops` and the hops of their branches, in the order of the text.
pub fn all_hops(hops: &[Hop]) -> impl Iterator<Item = &Hop> {
    let mut left: Vec<&Hop> = hops.iter().rev().collect();
    std::iter::from_fn(move || {
        let hop = left.pop()?;
        left.extend(hop.branches.iter().flatten().rev());
        Some(hop)
    })
}

/// Source, stage, sink, link or tee of a path, with its arguments.
///
/// The getters take a declared name ([`Definition::all_args`]) and return the default if the
/// argument was not given. A name or type that is not declared, or an argument that has neither a
/// value nor a default, is a bug in the program: a debug build panics, a release build returns zero
/// or an empty value. Only `bytes`, `roi` and `text` accept an argument without a value.
#[derive(Debug, Clone)]
pub struct Hop {
    /// Declaration of the hop.
    pub def: &'static Definition,
    /// Position in the text that was read, in bytes, including arguments and branches.
    pub span: Range<usize>,
    /// Branches of a tee, at least two, each with at least one hop. Empty for all other hops.
    pub branches: Vec<Vec<Hop>>,
    /// Values in the order of [`Definition::all_args`]; `None` for arguments that were not given.
    pub(super) given: Vec<Option<GivenValue>>,
    /// Undeclared options, which only an open stage takes, in the order of the text.
    pub(super) open: Vec<OpenOption>,
    /// Notes about old spellings in the text, one line each.
    pub(super) renamed: Vec<String>,
}

/// Undeclared option of an open stage.
#[derive(Debug, Clone)]
pub(super) struct OpenOption {
    /// Name in the form of [`plain_name`](super::plain_name).
    pub name: String,
    /// Value as text, without its quoting.
    pub value: String,
    /// Position of the value in the text that was read, in bytes.
    pub span: Range<usize>,
}

/// Value of an argument, and the position of the value in the text.
#[derive(Debug, Clone)]
pub(super) struct GivenValue {
    pub value: Value,
    /// Position in the text that was read, in bytes.
    pub span: Range<usize>,
}

impl PartialEq for Hop {
    fn eq(&self, other: &Hop) -> bool {
        let values = |hop: &Hop| -> Vec<Option<Value>> {
            hop.given.iter().map(|given| given.as_ref().map(|g| g.value.clone())).collect()
        };
        self.def.name == other.def.name
            && values(self) == values(other)
            && self.open().eq(other.open())
            && self.branches == other.branches
    }
}

impl Hop {
    /// Returns the hop's declared name.
    pub fn name(&self) -> &'static str {
        self.def.name
    }

    /// Makes a hop without arguments: each has its default.
    pub fn with_defaults(def: &'static Definition) -> Hop {
        let given = def.all_args().map(|_| None).collect();
        Hop { def, span: 0..0, branches: Vec::new(), given, open: Vec::new(), renamed: Vec::new() }
    }

    /// Returns true if the hop's `host`, as given or by a fixed default, is another host than
    /// `inline`. False if `host` is not given and depends on the decoder, and if the hop has no
    /// `host`, even if it always runs in a worker ([`Hosts::Process`](super::Hosts::Process)).
    pub fn is_hosted(&self) -> bool {
        let named = self
            .def
            .arg("host")
            .is_some_and(|(_, arg)| self.is_set("host") || matches!(arg.default, DefaultValue::Is(_)));
        named && self.choice("host") != "inline"
    }

    /// Returns the hop as the worker that runs it reads it: without the arguments for workers, such
    /// as `host` and `watchdog`.
    pub fn without_hosting(&self) -> Hop {
        let mut hop = self.clone();
        hop.given[self.def.own.len()..].fill(None);
        hop
    }

    /// Returns the hop with `number` as the value of argument `name`, even if `number` is out of
    /// the argument's range. The hop is unchanged if it has no such argument, or if the argument is
    /// not a [`ValueKind::Count`].
    #[must_use]
    pub fn with_count(&self, name: &str, number: u64) -> Hop {
        let mut hop = self.clone();
        if let Some((place, arg)) = self.def.arg(name) {
            if matches!(arg.kind, ValueKind::Count { .. }) {
                hop.given[place] = Some(GivenValue { value: Value::Count(number), span: self.span.clone() });
            }
        }
        hop
    }

    /// Returns the hop with `word` as the value of argument `name`, even if `word` is not among the
    /// argument's words. The hop is unchanged if it has no such argument, or if the argument is not
    /// a [`ValueKind::Choice`].
    #[must_use]
    pub fn with_choice(&self, name: &str, word: &'static str) -> Hop {
        let mut hop = self.clone();
        if let Some((place, arg)) = self.def.arg(name) {
            if matches!(arg.kind, ValueKind::Choice { .. }) {
                hop.given[place] = Some(GivenValue { value: Value::Choice(word), span: self.span.clone() });
            }
        }
        hop
    }

    /// Returns a note for each old spelling in the text, one line each.
    pub fn renamed(&self) -> &[String] {
        &self.renamed
    }

    /// Iterates over the options that are not declared, in the order of the text: names in the
    /// form of [`plain_name`](super::plain_name), and values. Empty unless the stage is
    /// [open](Definition::open).
    pub fn open(&self) -> impl Iterator<Item = (&str, &str)> {
        self.open.iter().map(|option| (option.name.as_str(), option.value.as_str()))
    }

    /// Returns the position of the value of the undeclared option `name` in the text, in bytes;
    /// `None` if the option was not given.
    pub fn span_of_open(&self, name: &str) -> Option<Range<usize>> {
        self.open.iter().find(|option| option.name == name).map(|option| option.span.clone())
    }

    /// Returns true if argument `name` was given, false if it has its default or no value.
    pub fn is_set(&self, name: &str) -> bool {
        self.place(name).is_some_and(|place| self.given[place].is_some())
    }

    /// Returns the position of the value of argument `name` in the text, in bytes. If the argument
    /// was not given, returns the position of the hop.
    pub fn span_of(&self, name: &str) -> Range<usize> {
        match self.place(name).and_then(|place| self.given[place].as_ref()) {
            Some(given) => given.span.clone(),
            None => self.span.clone(),
        }
    }

    /// Returns the value of argument `name`, a count or a grey level. `auto` is
    /// [`AUTO`](super::AUTO), `inf` is [`INFINITE`](super::INFINITE).
    pub fn count(&self, name: &str) -> u64 {
        match self.value(name) {
            Some(Value::Count(n)) => n,
            other => mistyped(self.def, name, other.as_ref(), 0),
        }
    }

    /// Returns the value of argument `name`, a grey level from 0 to 255.
    pub fn level(&self, name: &str) -> u8 {
        u8::try_from(self.count(name)).unwrap_or(u8::MAX)
    }

    /// Returns the value of argument `name`, a size: width and height in pixels.
    pub fn size(&self, name: &str) -> (u32, u32) {
        match self.value(name) {
            Some(Value::Size(w, h)) => (w, h),
            other => mistyped(self.def, name, other.as_ref(), (0, 0)),
        }
    }

    /// Returns the value of argument `name`, a rate in Hz.
    pub fn rate(&self, name: &str) -> f64 {
        match self.value(name) {
            Some(Value::Rate(hz)) => hz,
            other => mistyped(self.def, name, other.as_ref(), 0.0),
        }
    }

    /// Returns the value of argument `name`, a time in nanoseconds.
    pub fn duration_ns(&self, name: &str) -> u64 {
        match self.value(name) {
            Some(Value::Duration(ns)) => ns,
            other => mistyped(self.def, name, other.as_ref(), 0),
        }
    }

    /// Returns the value of argument `name`, a number of bytes; `None` if the argument was not
    /// given and has no default.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Bytes(bytes)) => Some(bytes),
            None if self.place(name).is_some() => None,
            other => mistyped(self.def, name, other.as_ref(), None),
        }
    }

    /// Returns the value of argument `name`, a region as the user wrote it (not clamped to the
    /// picture): x, y, width and height in pixels. `None`, the whole frame, if the argument was not
    /// given and has no default.
    pub fn roi(&self, name: &str) -> Option<(u32, u32, u32, u32)> {
        match self.value(name) {
            Some(Value::Roi(x, y, w, h)) => Some((x, y, w, h)),
            None if self.place(name).is_some() => None,
            other => mistyped(self.def, name, other.as_ref(), None),
        }
    }

    /// Returns the value of argument `name`, the selected word of a choice.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.value(name) {
            Some(Value::Choice(word)) => word,
            other => mistyped(self.def, name, other.as_ref(), ""),
        }
    }

    /// Returns the value of argument `name`, a yes-or-no option: true for `yes` and `1`.
    pub fn flag(&self, name: &str) -> bool {
        match self.value(name) {
            Some(Value::Flag(yes)) => yes,
            other => mistyped(self.def, name, other.as_ref(), false),
        }
    }

    /// Returns the value of argument `name`, a text such as a file's name; empty if the argument
    /// was not given and has no default.
    pub fn text(&self, name: &str) -> &str {
        let Some(place) = self.place(name) else { return "" };
        let arg = self.def.all_args().nth(place).expect("a place is that of an argument");
        match (self.given[place].as_ref().map(|given| &given.value), arg.default) {
            (Some(Value::Text(text)), _) => text,
            (None, DefaultValue::Is(text)) if matches!(arg.kind, ValueKind::Text(_)) => text,
            (None, DefaultValue::Unset(_)) => "",
            (other, _) => mistyped(self.def, name, other, ""),
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        let place = self.def.arg(name).map(|(place, _)| place);
        debug_assert!(place.is_some(), "`{}` has no argument `{name}`", self.def.name);
        place
    }

    fn value(&self, name: &str) -> Option<Value> {
        let place = self.place(name)?;
        if let Some(given) = &self.given[place] {
            return Some(given.value.clone());
        }
        let arg = self.def.all_args().nth(place)?;
        match arg.default {
            DefaultValue::Is(text) => arg.kind.read(text).ok(),
            DefaultValue::Required | DefaultValue::Unset(_) => None,
        }
    }
}

/// Returns `instead`, for a getter that does not fit the declared argument. Panics in a debug
/// build, because such a call is a bug.
fn mistyped<T>(def: &Definition, name: &str, value: Option<&Value>, instead: T) -> T {
    debug_assert!(false, "`{}` of `{}` is {value:?}, asked for as another type", name, def.name);
    instead
}

/// Writes the canonical form of the path: for each hop the positional arguments, the given options
/// in the order of their declaration, undeclared options, and branches. Parsing it yields an equal
/// path, unless quoting made it longer than [`MAX_TEXT`](super::MAX_TEXT).
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hops(&self.hops, f)
    }
}

fn write_hops(hops: &[Hop], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, hop) in hops.iter().enumerate() {
        if i > 0 {
            f.write_str(" ! ")?;
        }
        write!(f, "{hop}")?;
    }
    Ok(())
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.def.name)?;
        for (arg, given) in self.def.all_args().zip(&self.given) {
            let Some(given) = given else { continue };
            let text = quote(&arg.kind.print(&given.value));
            if arg.positional {
                write!(f, " {text}")?;
            } else {
                write!(f, " {}={text}", arg.name)?;
            }
        }
        for option in &self.open {
            write!(f, " {}={}", option.name, quote(&option.value))?;
        }
        for branch in &self.branches {
            f.write_str(" ( ")?;
            write_hops(branch, f)?;
            f.write_str(" )")?;
        }
        Ok(())
    }
}
