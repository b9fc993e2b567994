// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parser from words to a path. The parser reports the first error from the left.

use std::ops::Range;

use super::ast::{GivenValue, Hop, OpenOption, Path};
use super::definition::{Arg, DefaultValue, Definition, DefinitionKind};
use super::definitions::Definitions;
use super::error::quoted;
use super::old_spelling::old_spelling;
use super::value::listed;
use super::words::{self, PathMark, Word};
use super::{MAX_TEXT, PathError, nearest, plain_name};

/// Kind of hop with which a text begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// A source.
    Source,
    /// A stage, link, tee or sink, after a source that is not part of the text or after a tee.
    Behind,
    /// A link after a tee: the branch runs in a thread of its own.
    Thread,
}

/// Kind of hop with which a text ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PathEnd {
    /// A sink, or a tee whose branches end in sinks.
    Sink,
    /// Any hop: if it emits frames or packets, the program that reads the path takes them.
    Any,
}

/// Rules for reading the text of a path or branch.
#[derive(Clone, Copy)]
pub(super) struct Grammar<'a> {
    pub(super) known: &'a Definitions,
    pub(super) begin: Begin,
    pub(super) end: PathEnd,
}

impl Grammar<'_> {
    pub(super) fn parse(self, text: &str) -> Result<Path, PathError> {
        if text.len() > MAX_TEXT {
            return Err(PathError::new(
                0..0,
                format!("the path is {} bytes long", text.len()),
                format!("a path has at most {MAX_TEXT} bytes"),
            ));
        }
        let words = words::split(text)?;
        if words.is_empty() {
            return Err(PathError::new(text.len()..text.len(), "the path is empty", self.expectation()));
        }
        Ok(Path { hops: self.read_hops(&words, text, 0)? })
    }

    /// Reads all of `words`, which are inside `depth` pairs of parentheses, as hops. Fails with the
    /// first error.
    pub(super) fn read_hops(self, words: &[Word], text: &str, depth: usize) -> Result<Vec<Hop>, PathError> {
        let mut hops: Vec<Hop> = Vec::new();
        let mut rest = words;
        loop {
            let end = rest.iter().position(|word| word.mark.is_some()).unwrap_or(rest.len());
            let (hop_words, after) = rest.split_at(end);
            let mut hop = self.read_hop(hop_words, after.first(), &hops, text)?;
            let after = self.read_branches(&mut hop, after, text, depth)?;
            hops.push(hop);
            match after.split_first() {
                Some((_, following)) => rest = following,
                None => return Ok(hops),
            }
        }
    }

    /// Returns the help for an empty text: the hops with which it may begin.
    fn expectation(self) -> String {
        match self.begin {
            Begin::Source => format!(
                "a path starts with a source ({}) and ends in a sink ({}), such as `test ! null`",
                self.known.known(&[DefinitionKind::Source]),
                self.known.known(&[DefinitionKind::Sink])
            ),
            Begin::Behind => {
                self.at_position(&[DefinitionKind::Sink, DefinitionKind::Stage, DefinitionKind::Link])
            }
            Begin::Thread => self.at_position(&[DefinitionKind::Link]),
        }
    }

    /// Reads one hop from `words`, which end before `separator`, or at the end of the text if it is
    /// `None`. `before` are the hops to the left. Does not read the branches of a tee. Fails if
    /// there is no word, if the hop is not known or does not fit the place, if it is a link after a
    /// link, or if an argument is wrong.
    fn read_hop(
        self,
        words: &[Word],
        separator: Option<&Word>,
        before: &[Hop],
        text: &str,
    ) -> Result<Hop, PathError> {
        let mark = separator.and_then(|word| word.mark);
        // A `)` here closes nothing; reading the hop reports the error.
        let is_last = matches!(mark, None | Some(PathMark::Close));
        let place = Position {
            is_first: before.is_empty() && self.begin == Begin::Source,
            is_threads_first: before.is_empty() && self.begin == Begin::Thread,
            is_last,
            needs_sink: is_last && self.end == PathEnd::Sink,
        };
        let fitting: &[DefinitionKind] = match (place.is_first, place.is_last) {
            (true, _) => &[DefinitionKind::Source],
            _ if place.is_threads_first => &[DefinitionKind::Link],
            _ if mark == Some(PathMark::Open) => &[DefinitionKind::Tee],
            (false, true) if place.needs_sink => &[DefinitionKind::Sink],
            (false, true) => &[DefinitionKind::Sink, DefinitionKind::Stage, DefinitionKind::Link],
            (false, false) => &[DefinitionKind::Stage, DefinitionKind::Link],
        };
        let Some((first, arguments)) = words.split_first() else {
            let (span, message) = match separator {
                Some(paren) if mark != Some(PathMark::Next) => {
                    (paren.span.clone(), "nothing stands before this parenthesis")
                }
                Some(bang) if before.is_empty() => (bang.span.clone(), "nothing stands before this `!`"),
                Some(bang) => (bang.span.clone(), "nothing stands between this `!` and the one before"),
                None => (text.len()..text.len(), "nothing stands after the last `!`"),
            };
            return Err(PathError::new(span, message, self.at_position(fitting)));
        };
        let def = self.known.find(&first.text).ok_or_else(|| self.unknown_stage(first, fitting))?;
        self.check_place(def, first, fitting, place)?;
        if def.kind == DefinitionKind::Link
            && before.last().is_some_and(|hop| hop.def.kind == DefinitionKind::Link)
        {
            let help = "one link is enough; between two there must be a stage";
            return Err(PathError::new(
                first.span.clone(),
                "two links stand next to each other",
                format!("{help}, {}", self.known.known(&[DefinitionKind::Stage])),
            ));
        }
        let arguments = self.read_arguments(def, first, arguments)?;
        let end = words.last().map_or(first.span.end, |word| word.span.end);
        let Arguments { given, open, renamed } = arguments;
        Ok(Hop { def, span: first.span.start..end, branches: Vec::new(), given, open, renamed })
    }

    /// Returns the help that names the hops of the `fitting` kinds.
    fn at_position(self, fitting: &[DefinitionKind]) -> String {
        let known = |kind| self.known.known(&[kind]);
        match fitting {
            [DefinitionKind::Source] => format!("expected here: a source, {}", known(DefinitionKind::Source)),
            [DefinitionKind::Link] => format!(
                "expected here: a link, {}; it gives the branch a thread of its own, which only the last \
                 branch can do without",
                known(DefinitionKind::Link)
            ),
            [DefinitionKind::Tee] => {
                format!("parentheses follow only a tee, {}", known(DefinitionKind::Tee))
            }
            [DefinitionKind::Sink] => {
                format!("expected here: a sink, {}; `null` discards all frames", known(DefinitionKind::Sink))
            }
            [DefinitionKind::Sink, ..] => format!(
                "expected here: a stage, {}, a link, {}, or a sink, {}",
                known(DefinitionKind::Stage),
                known(DefinitionKind::Link),
                known(DefinitionKind::Sink)
            ),
            _ => format!(
                "expected here: a stage, {}, or a link, {}",
                known(DefinitionKind::Stage),
                known(DefinitionKind::Link)
            ),
        }
    }

    fn unknown_stage(self, word: &Word, fitting: &[DefinitionKind]) -> PathError {
        let name = &word.text;
        let help = self.at_position(fitting);
        if word.equals.is_some() {
            return PathError::new(
                word.span.clone(),
                format!("{} is an option without a stage before it", quoted(name)),
                help,
            );
        }
        if name.len() > 1 && name.contains('!') {
            return PathError::new(
                word.span.clone(),
                format!("{} is not a stage, source, sink, link or tee", quoted(name)),
                "a `!` between two hops needs a blank on either side",
            );
        }
        if name.len() > 1 && (name.starts_with('(') || name.ends_with(')')) {
            return PathError::new(
                word.span.clone(),
                format!("{} is not a stage, source, sink, link or tee", quoted(name)),
                "a parenthesis needs a blank on either side",
            );
        }
        PathError::new(
            word.span.clone(),
            format!("{} is not a stage, source, sink, link or tee", quoted(name)),
            // A name that fits the place is the better guess; any other name still helps.
            with_guess(self.known.meant(name, fitting), help),
        )
    }

    /// Checks that a source is first and a sink is last, that a path which needs a sink ends in a sink
    /// or a tee, and that a branch which needs a thread begins with a link. Fails otherwise.
    fn check_place(
        self,
        def: &Definition,
        word: &Word,
        fitting: &[DefinitionKind],
        place: Position,
    ) -> Result<(), PathError> {
        let name = quoted(def.name);
        let noun = def.kind.noun();
        let wrong = |message: String, help: String| Err(PathError::new(word.span.clone(), message, help));
        let add_sink = || {
            format!(
                "add one behind it, such as `! null`; sinks: {}",
                self.known.known(&[DefinitionKind::Sink])
            )
        };
        if place.is_first && def.kind != DefinitionKind::Source {
            let help = self.at_position(&[DefinitionKind::Source]);
            return wrong(format!("a path starts with a source; {name} is {noun}"), help);
        }
        if place.is_threads_first && def.kind != DefinitionKind::Link {
            let help = self.at_position(&[DefinitionKind::Link]);
            return wrong(format!("this branch begins with a link; {name} is {noun}"), help);
        }
        if place.needs_sink
            && (place.is_first || !matches!(def.kind, DefinitionKind::Sink | DefinitionKind::Tee))
        {
            return wrong(format!("a path ends in a sink; {name} is {noun}"), add_sink());
        }
        if !place.is_first && def.kind == DefinitionKind::Source {
            return wrong(
                format!("{name} is a source; only the first hop can be one"),
                self.at_position(fitting),
            );
        }
        if !place.is_last && def.kind == DefinitionKind::Sink {
            return wrong(
                format!("{name} is a sink; only the last hop can be one"),
                self.at_position(fitting),
            );
        }
        Ok(())
    }

    fn read_arguments(
        self,
        def: &'static Definition,
        name: &Word,
        words: &[Word],
    ) -> Result<Arguments, PathError> {
        let mut read =
            Arguments { given: vec![None; def.all_args().count()], open: Vec::new(), renamed: Vec::new() };
        for word in words {
            let positional_left =
                def.all_args().zip(&read.given).any(|(arg, given)| arg.positional && given.is_none());
            if let Some(option) = open_option(def, word, positional_left)? {
                if read.open.iter().any(|other| other.name == option.name) {
                    return Err(given_twice(word, &option.name));
                }
                read.open.push(option);
                continue;
            }
            if let Some(new) = old_spelling(def, &word.text) {
                for (option, text) in &new.options {
                    let (place, arg) = def.arg(option).expect("the new spelling is declared");
                    read.take(place, arg, text, word, word.span.clone())?;
                }
                read.renamed.push(new.note);
                continue;
            }
            let (place, arg, text, span) = match word.equals {
                Some(equals) => {
                    let key = &word.text[..equals.in_word];
                    let (place, arg) = def
                        .arg(key)
                        .filter(|(_, arg)| !arg.positional)
                        .ok_or_else(|| unknown_option(def, key, word, equals.in_text))?;
                    let value = equals.in_text + 1..word.span.end;
                    // The `=` has no value after it, so the whole word is marked.
                    let span = if value.is_empty() { word.span.clone() } else { value };
                    (place, arg, &word.text[equals.in_word + 1..], span)
                }
                None => {
                    let mut places = def.all_args().enumerate();
                    let (place, arg) = places
                        .find(|(place, arg)| arg.positional && read.given[*place].is_none())
                        .ok_or_else(|| self.one_word_too_many(def, word))?;
                    (place, arg, &word.text[..], word.span.clone())
                }
            };
            read.take(place, arg, text, word, span)?;
        }
        check_together(def, name, &read.given)?;
        Ok(read)
    }

    fn one_word_too_many(self, def: &Definition, word: &Word) -> PathError {
        let options = options_of(def);
        let required = def.all_args().find(|a| !a.positional && a.default == DefaultValue::Required);
        let help = if let Some(arg) = required {
            match arg.kind.read(&word.text) {
                Ok(value) => format!("write it with its name: `{}={}`", arg.name, arg.kind.print(&value)),
                Err(_) => format!("`{}` is {}", arg.usage(), arg.wants()),
            }
        } else if self.known.find(&word.text).is_some() {
            format!("put a `!` before {} to start the next hop", quoted(&word.text))
        } else if let Some(option) = nearest(&word.text, options.iter().copied()) {
            let usage = def.arg(option).map_or(String::new(), |(_, arg)| arg.usage());
            format!("an option has a value: `{usage}`")
        } else {
            match def.all_args().any(|arg| arg.positional) {
                true => format!("usage: `{}`", def.usage()),
                false => options_help(def),
            }
        };
        PathError::new(
            word.span.clone(),
            format!("`{}` does not take the word {}", def.name, quoted(&word.text)),
            help,
        )
    }
}

/// Position of a hop in a path or branch.
#[derive(Clone, Copy)]
struct Position {
    is_first: bool,
    /// True for the first hop of a branch that runs in a thread of its own.
    is_threads_first: bool,
    is_last: bool,
    needs_sink: bool,
}

/// Arguments of a hop that the parser has read so far.
struct Arguments {
    /// Values in the order of [`Definition::all_args`]; `None` for arguments not read so far.
    given: Vec<Option<GivenValue>>,
    open: Vec<OpenOption>,
    /// Notes about old spellings in the words, one line each.
    renamed: Vec<String>,
}

impl Arguments {
    /// Stores `text` as the value of `arg`, the argument with index `place`. `word` is the whole
    /// word, `span` the position of the value. Fails if the argument was given before or the value
    /// is invalid.
    fn take(
        &mut self,
        place: usize,
        arg: &Arg,
        text: &str,
        word: &Word,
        span: Range<usize>,
    ) -> Result<(), PathError> {
        if self.given[place].is_some() {
            return Err(given_twice(word, arg.name));
        }
        let value = arg.kind.read(text).map_err(|refused| {
            let shown = match (text.is_empty(), arg.positional) {
                (true, _) => format!("the value of `{}`", arg.name),
                (false, true) => quoted(text),
                (false, false) => quoted(&format!("{}={text}", arg.name)),
            };
            let meant = refused.meant.map(|meant| match arg.positional {
                true => meant,
                false => format!("{}={meant}", arg.name),
            });
            PathError::new(
                span.clone(),
                format!("{shown} {}", refused.why),
                with_guess(meant.as_deref(), format!("`{}` is {}", arg.name, arg.wants())),
            )
        })?;
        self.given[place] = Some(GivenValue { value, span });
        Ok(())
    }
}

fn with_guess(meant: Option<&str>, help: String) -> String {
    match meant {
        Some(meant) => format!("did you mean `{meant}`? {help}"),
        None => help,
    }
}

fn given_twice(word: &Word, name: &str) -> PathError {
    PathError::new(word.span.clone(), format!("`{name}` is given twice"), format!("give `{name}` once"))
}

/// Reads `word` as an undeclared option of an open stage. Names of such options may begin with a
/// digit or contain letters of any script. So every word with a `=` whose name is not declared is
/// such an option, unless a positional word is still expected and the name is quoted or no plain
/// identifier. Returns `None` for every other word. Fails if the name has no letter or digit, or the
/// value has a zero byte.
fn open_option(
    def: &Definition,
    word: &Word,
    positional_left: bool,
) -> Result<Option<OpenOption>, PathError> {
    if def.open.is_none() || (word.equals.is_none() && positional_left) {
        return Ok(None);
    }
    let Some((key, value)) = word.text.split_once('=') else { return Ok(None) };
    if def.arg(key).is_some() {
        return Ok(None);
    }
    let name = plain_name(key);
    let refuse = |what: String, help: &str| Err(PathError::new(word.span.clone(), what, help));
    if name.is_empty() {
        return refuse(format!("{} has no name before its `=`", quoted(&word.text)), "write `name=value`");
    }
    if value.contains('\0') {
        return refuse(format!("the value of `{name}` contains a zero byte"), "remove it");
    }
    // If the key was quoted, its length in the text is not known.
    let start = word.equals.map_or(word.span.start, |equals| equals.in_text + 1);
    let span = if start < word.span.end { start..word.span.end } else { word.span.clone() };
    Ok(Some(OpenOption { name, value: value.to_owned(), span }))
}

/// Checks that every required argument is given, that every argument which a given argument needs
/// is given, and that no given arguments exclude each other; fails otherwise. `given` has the values
/// in the order of [`Definition::all_args`]. `name` is the hop's name in the text.
fn check_together(def: &Definition, name: &Word, given: &[Option<GivenValue>]) -> Result<(), PathError> {
    for (arg, given_arg) in def.all_args().zip(given) {
        let Some(given_arg) = given_arg else {
            if arg.default == DefaultValue::Required {
                return Err(PathError::new(
                    name.span.clone(),
                    format!("`{}` needs `{}`", def.name, arg.usage()),
                    format!("`{}` is {}", arg.name, arg.wants()),
                ));
            }
            continue;
        };
        if let Some(needed) = arg.needs {
            if def.arg(needed).is_some_and(|(place, _)| given[place].is_none()) {
                return Err(PathError::new(
                    given_arg.span.clone(),
                    format!("`{}` requires `{needed}`", arg.name),
                    def.arg(needed).map_or(String::new(), |(_, arg)| {
                        format!("`{needed}`: {}; `{needed}` is {}", arg.help, arg.wants())
                    }),
                ));
            }
        }
        for other in arg.excludes {
            if def.arg(other).is_some_and(|(place, _)| given[place].is_some()) {
                return Err(PathError::new(
                    given_arg.span.clone(),
                    format!("`{}` and `{other}` exclude each other", arg.name),
                    format!("leave one out; `{}`: {}", arg.name, arg.help),
                ));
            }
        }
    }
    Ok(())
}

fn options_of(def: &Definition) -> Vec<&'static str> {
    def.all_args().filter(|arg| !arg.positional).map(|arg| arg.name).collect()
}

/// Lists the options with their shapes, for the help of an error.
fn options_help(def: &Definition) -> String {
    let options: Vec<String> = def.all_args().filter(|arg| !arg.positional).map(Arg::usage).collect();
    if options.is_empty() {
        return format!("`{}` has no options", def.name);
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    format!("expected here: {}", listed(&options))
}

fn unknown_option(def: &Definition, key: &str, word: &Word, equals: usize) -> PathError {
    let elsewhere = def.all_args().find(|arg| arg.known_as.contains(&key)).map(|arg| arg.name);
    let positional =
        def.all_args().find(|arg| arg.positional && matches!(arg.kind, super::ValueKind::Text(_)));
    let meant = elsewhere.or_else(|| nearest(key, options_of(def)));
    let help = match positional {
        Some(arg) if Some(arg.name) == meant || arg.name == key => {
            format!("`{}` takes it without a name: `{}`", def.name, def.usage())
        }
        Some(arg) => format!(
            "{}; quote the word if it is the {} itself",
            with_guess(meant, options_help(def)),
            arg.name
        ),
        None => with_guess(meant, options_help(def)),
    };
    PathError::new(word.span.start..equals, format!("`{}` has no option {}", def.name, quoted(key)), help)
}
