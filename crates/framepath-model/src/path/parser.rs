// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words into a path; everything that can be wrong is found here, from left
//! to right.

use super::ast::{Given, Hop, OpenOption, Path};
use super::error::quoted;
use super::table::{self, Arg, Default, FOREIGN, Kind, StageDef, known};
use super::value::listed;
use super::words::{self, Word};
use super::{MAX_TEXT, PathError, nearest, plain_name};

/// Where a path may end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// In a sink.
    Sink,
    /// Anywhere: the program that reads the path takes the items.
    Any,
}

pub(super) fn parse(text: &str, may_end: End) -> Result<Path, PathError> {
    if text.len() > MAX_TEXT {
        return Err(PathError::new(
            0..0,
            format!("the path is {} bytes long", text.len()),
            format!("a path has at most {MAX_TEXT} bytes"),
        ));
    }
    let words = words::split(text)?;
    if words.is_empty() {
        return Err(PathError::new(
            text.len()..text.len(),
            "the path is empty",
            format!(
                "a path starts with a source ({}) and ends in a sink ({}), such as \
                 `test ! null`",
                known(&[Kind::Source]),
                known(&[Kind::Sink])
            ),
        ));
    }
    let mut hops: Vec<Hop> = Vec::new();
    let mut rest = &words[..];
    loop {
        let end = rest.iter().position(|word| word.is_separator).unwrap_or(rest.len());
        let (hop_words, after) = rest.split_at(end);
        hops.push(read_hop(hop_words, after.first(), &hops, text, may_end)?);
        match after.split_first() {
            Some((_, following)) => rest = following,
            None => break,
        }
    }
    Ok(Path { hops })
}

pub(super) fn parse_rest(text: &str) -> Result<Path, PathError> {
    const SOURCE: &str = "test ! ";
    let moved = |span: std::ops::Range<usize>| {
        span.start.saturating_sub(SOURCE.len())..span.end.saturating_sub(SOURCE.len())
    };
    let mut path = parse(&format!("{SOURCE}{text}"), End::Any)
        .map_err(|error| PathError { span: moved(error.span.clone()), ..error })?;
    path.hops.remove(0);
    for hop in &mut path.hops {
        hop.span = moved(hop.span.clone());
        for given in hop.given.iter_mut().flatten() {
            given.span = moved(given.span.clone());
        }
        for option in &mut hop.open {
            option.span = moved(option.span.clone());
        }
    }
    Ok(path)
}

pub(super) fn parse_stage(text: &str) -> Result<Hop, PathError> {
    // A path is the one grammar; what surrounds the stage is of no account.
    let path = parse(&format!("test ! {text} ! null"), End::Sink)?;
    match <[Hop; 3]>::try_from(path.hops) {
        Ok([_, hop, _]) if hop.def.kind == Kind::Stage => Ok(hop),
        _ => Err(PathError::new(0..text.len(), "this is not one stage", right_here(&[Kind::Stage]))),
    }
}

/// Reads one hop: the words up to `separator`, or to the end where it is
/// `None`; `before` are the hops to the left of it.
fn read_hop(
    words: &[Word],
    separator: Option<&Word>,
    before: &[Hop],
    text: &str,
    may_end: End,
) -> Result<Hop, PathError> {
    let is_first = before.is_empty();
    let is_last = separator.is_none();
    let fitting: &[Kind] = match (is_first, is_last) {
        (true, _) => &[Kind::Source],
        (false, true) if may_end == End::Any => &[Kind::Sink, Kind::Stage, Kind::Link],
        (false, true) => &[Kind::Sink],
        (false, false) => &[Kind::Stage, Kind::Link],
    };
    let Some((first, arguments)) = words.split_first() else {
        let (span, message) = match separator {
            Some(bang) if is_first => (bang.span.clone(), "nothing stands before this `!`"),
            Some(bang) => (bang.span.clone(), "nothing stands between this `!` and the one before"),
            None => (text.len()..text.len(), "nothing stands after the last `!`"),
        };
        return Err(PathError::new(span, message, right_here(fitting)));
    };
    let def = table::find(&first.text).ok_or_else(|| unknown_stage(first, fitting))?;
    check_place(def, first, fitting, is_first, is_last, may_end, before)?;
    let (given, open) = read_arguments(def, first, arguments)?;
    let end = words.last().map_or(first.span.end, |word| word.span.end);
    Ok(Hop { def, span: first.span.start..end, given, open })
}

/// The help that names what may stand in a place.
fn right_here(fitting: &[Kind]) -> String {
    match fitting {
        [Kind::Source] => format!("right here: a source, {}", known(fitting)),
        [Kind::Sink] => {
            format!("right here: a sink, {}; `null` throws everything away", known(fitting))
        }
        [Kind::Sink, ..] => format!(
            "right here: a stage, {}, a link, {}, or a sink, {}",
            known(&[Kind::Stage]),
            known(&[Kind::Link]),
            known(&[Kind::Sink])
        ),
        _ => format!("right here: a stage, {}, or a link, {}", known(&[Kind::Stage]), known(&[Kind::Link])),
    }
}

fn unknown_stage(word: &Word, fitting: &[Kind]) -> PathError {
    let name = &word.text;
    let help = right_here(fitting);
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
            format!("{} is not a stage or a link", quoted(name)),
            "a `!` between two hops needs a blank on either side",
        );
    }
    let foreign = FOREIGN
        .iter()
        .find(|(theirs, ours)| theirs == name && table::find(ours).is_some())
        .map(|(_, ours)| *ours);
    // What fits the place is the better guess; what does not fit still helps.
    let meant = foreign
        .or_else(|| nearest(name, table::names(fitting)))
        .or_else(|| nearest(name, table::STAGES.iter().map(|def| def.name)));
    PathError::new(
        word.span.clone(),
        format!("{} is not a stage or a link", quoted(name)),
        with_guess(meant, help),
    )
}

fn with_guess(meant: Option<&str>, help: String) -> String {
    match meant {
        Some(meant) => format!("did you mean `{meant}`? {help}"),
        None => help,
    }
}

/// A source is first, a sink is last, links stand between stages.
fn check_place(
    def: &StageDef,
    word: &Word,
    fitting: &[Kind],
    is_first: bool,
    is_last: bool,
    may_end: End,
    before: &[Hop],
) -> Result<(), PathError> {
    let name = quoted(def.name);
    let noun = def.kind.noun();
    let wrong = |message: String, help: String| Err(PathError::new(word.span.clone(), message, help));
    if is_first && def.kind != Kind::Source {
        return wrong(format!("a path starts with a source; {name} is {noun}"), right_here(&[Kind::Source]));
    }
    let needs_sink = is_last && may_end == End::Sink;
    if is_first && needs_sink {
        return Err(PathError::new(
            word.span.clone(),
            format!("a path ends in a sink; {name} is a source"),
            format!("add one behind it, such as `! null`; sinks: {}", known(&[Kind::Sink])),
        ));
    }
    if needs_sink && def.kind != Kind::Sink {
        return wrong(
            format!("a path ends in a sink; {name} is {noun}"),
            format!("add one behind it, such as `! null`; sinks: {}", known(&[Kind::Sink])),
        );
    }
    if !is_first && def.kind == Kind::Source {
        return wrong(format!("{name} is a source and stands first alone"), right_here(fitting));
    }
    if !is_last && def.kind == Kind::Sink {
        return wrong(format!("{name} is a sink and stands last alone"), right_here(fitting));
    }
    if def.kind == Kind::Link && before.last().is_some_and(|hop| hop.def.kind == Kind::Link) {
        return wrong(
            "two links stand next to each other".to_owned(),
            format!("one link is enough; between two there must be a stage, {}", known(&[Kind::Stage])),
        );
    }
    Ok(())
}

fn read_arguments(
    def: &'static StageDef,
    name: &Word,
    words: &[Word],
) -> Result<(Vec<Option<Given>>, Vec<OpenOption>), PathError> {
    let mut given: Vec<Option<Given>> = vec![None; def.args.len()];
    let mut open: Vec<OpenOption> = Vec::new();
    for word in words {
        let positional_left =
            def.args.iter().zip(&given).any(|(arg, given)| arg.positional && given.is_none());
        if let Some(option) = open_option(def, word, positional_left)? {
            if open.iter().any(|other| other.name == option.name) {
                return Err(given_twice(word, &option.name));
            }
            open.push(option);
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
                // Nothing after the `=`: the whole word is what can be seen.
                let span = if value.is_empty() { word.span.clone() } else { value };
                (place, arg, &word.text[equals.in_word + 1..], span)
            }
            None => {
                let (place, arg) = def
                    .args
                    .iter()
                    .enumerate()
                    .find(|(place, arg)| arg.positional && given[*place].is_none())
                    .ok_or_else(|| one_word_too_many(def, word))?;
                (place, arg, &word.text[..], word.span.clone())
            }
        };
        if given[place].is_some() {
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
        given[place] = Some(Given { value, span });
    }
    check_together(def, name, &given)?;
    Ok((given, open))
}

fn given_twice(word: &Word, name: &str) -> PathError {
    PathError::new(word.span.clone(), format!("`{name}` is given twice"), format!("give `{name}` once"))
}

/// The word as an option of an open stage that is not in its table. Names of
/// others may begin with a digit or hold letters of any script, so that where
/// no positional word is due every word with a `=` is one.
fn open_option(def: &StageDef, word: &Word, positional_left: bool) -> Result<Option<OpenOption>, PathError> {
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
        return refuse(format!("the value of `{name}` holds a zero byte"), "leave it out");
    }
    // Where the key was quoted its length in the text is not known.
    let start = word.equals.map_or(word.span.start, |equals| equals.in_text + 1);
    let span = if start < word.span.end { start..word.span.end } else { word.span.clone() };
    Ok(Some(OpenOption { name, value: value.to_owned(), span }))
}

/// What must be there is there, and nothing that excludes another.
fn check_together(def: &StageDef, name: &Word, given: &[Option<Given>]) -> Result<(), PathError> {
    for (arg, given_arg) in def.args.iter().zip(given) {
        let Some(given_arg) = given_arg else {
            if arg.default == Default::Required {
                return Err(PathError::new(
                    name.span.clone(),
                    format!("`{}` needs `{}`", def.name, arg.usage()),
                    format!("`{}` is {}", arg.name, arg.wants()),
                ));
            }
            continue;
        };
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

fn options_of(def: &StageDef) -> Vec<&'static str> {
    def.args.iter().filter(|arg| !arg.positional).map(|arg| arg.name).collect()
}

/// The options as a list with their shapes, for help.
fn options_help(def: &StageDef) -> String {
    let options: Vec<String> = def.args.iter().filter(|arg| !arg.positional).map(Arg::usage).collect();
    if options.is_empty() {
        return format!("`{}` has no options", def.name);
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    format!("right here: {}", listed(&options))
}

fn unknown_option(def: &StageDef, key: &str, word: &Word, equals: usize) -> PathError {
    let foreign = FOREIGN
        .iter()
        .find(|(theirs, ours)| *theirs == key && def.arg(ours).is_some())
        .map(|(_, ours)| *ours);
    let positional =
        def.args.iter().find(|arg| arg.positional && matches!(arg.kind, super::ValueKind::Text(_)));
    let meant = foreign.or_else(|| nearest(key, options_of(def)));
    let help = match positional {
        Some(arg) if Some(arg.name) == meant || arg.name == key => {
            format!("`{}` takes it without a name: `{}`", def.name, def.usage())
        }
        Some(arg) => format!(
            "{}; quote the word when it is the {} itself",
            with_guess(meant, options_help(def)),
            arg.name
        ),
        None => with_guess(meant, options_help(def)),
    };
    PathError::new(word.span.start..equals, format!("`{}` has no option {}", def.name, quoted(key)), help)
}

fn one_word_too_many(def: &StageDef, word: &Word) -> PathError {
    let options = options_of(def);
    let required = def.args.iter().find(|a| !a.positional && a.default == Default::Required);
    let help = if let Some(arg) = required {
        match arg.kind.read(&word.text) {
            Ok(value) => format!("write it with its name: `{}={}`", arg.name, arg.kind.print(&value)),
            Err(_) => format!("`{}` is {}", arg.usage(), arg.wants()),
        }
    } else if table::find(&word.text).is_some() {
        format!("put a `!` before {} to start the next hop", quoted(&word.text))
    } else if let Some(option) = nearest(&word.text, options.iter().copied()) {
        let usage = def.arg(option).map_or(String::new(), |(_, arg)| arg.usage());
        format!("an option has a value: `{usage}`")
    } else {
        match def.args.iter().any(|arg| arg.positional) {
            true => format!("as a whole: `{}`", def.usage()),
            false => options_help(def),
        }
    };
    PathError::new(
        word.span.clone(),
        format!("`{}` does not take the word {}", def.name, quoted(&word.text)),
        help,
    )
}
