// SPDX-License-Identifier: MIT OR Apache-2.0
//! One side of `framepath compare`: its parser and its run.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use framepath::PathError;
use framepath::path;

use super::traced_side::{self, TracedSideRun};
use crate::LOST;
use crate::error::LabError;
use crate::measure::Measured;
use crate::process::Program;

/// One side of a comparison: a path or a command.
#[derive(Clone, Debug)]
pub enum ComparedSide {
    /// A path, run by `framepath run` in its own process, without a ledger.
    Path(path::Path),
    /// Any command, run without a shell.
    Command(Program),
}

/// Reason why the arguments of `framepath compare` are not two valid sides.
#[derive(Debug, thiserror::Error)]
pub enum SideError {
    /// An invalid path; [`PathError::render`] shows the wrong word.
    #[error("{error}")]
    Path {
        /// The path as typed.
        text: String,
        /// The error in the path.
        error: PathError,
    },
    /// The number of sides is not two.
    #[error(
        "expected two sides, found {found}; give two paths, each in quotes, or two commands after `--`: \
         compare 'test ! null' 'test ! queue ! null'; compare -- 'COMMAND A' 'COMMAND B'"
    )]
    Count {
        /// Number of sides given; if there are more than two paths, the number of paths alone.
        found: usize,
    },
    /// There is no path, and the words after the first `--` look like one unquoted command, or several unquoted
    /// commands without another `--` between them: more than two words, or two words of which the second
    /// begins with `-`.
    #[error(
        "expected two commands after `--`, found {found} words; quote each command: compare -- {quoted} 'OTHER \
         COMMAND'; or put `--` between two commands: compare -- {plain} -- OTHER COMMAND"
    )]
    Unquoted {
        /// Number of words given.
        found: usize,
        /// The words as one quoted command.
        quoted: String,
        /// The words as typed.
        plain: String,
    },
    /// A side that is a command in one word and cannot be split into words: an unclosed quote, or a backslash at the
    /// end.
    #[error("cannot split command `{command}`: {error}; {}", error.help)]
    Words {
        /// The command as typed.
        command: String,
        /// Position and description of the error in the command.
        error: PathError,
    },
    /// An empty command.
    #[error("a command is empty; expected a program and its arguments")]
    Empty,
}

/// Parses the two sides: two paths, one path and one command, or two commands. `commands` are the
/// words after `--` on the command line, none for two paths.
///
/// Without a path, the words after `--` are two commands. Either each command is one word, split as in a
/// shell (`'ls -l' 'ls'`), or the commands are separated by another `--` (`ls -l -- ls`). After one path the
/// words are one command; a single word is split as in a shell.
///
/// # Errors
/// The arguments are not two sides, or a side is invalid.
pub fn sides(paths: &[String], commands: &[String]) -> Result<[ComparedSide; 2], SideError> {
    // More than two paths are most likely the words of one unquoted path. An error about the number of
    // sides is clearer than one about the first word alone.
    if paths.len() > 2 {
        return Err(SideError::Count { found: paths.len() });
    }
    let mut sides: Vec<ComparedSide> = Vec::new();
    for text in paths {
        let path = path::parse(text).map_err(|error| SideError::Path { text: text.clone(), error })?;
        sides.push(ComparedSide::Path(path));
    }
    if commands.iter().any(|word| word == "--") || (paths.len() == 1 && commands.len() > 1) {
        for words in commands.split(|word| word == "--") {
            sides.push(command(words)?);
        }
    } else if paths.is_empty() && looks_unquoted(commands) {
        let plain = path::join(commands);
        return Err(SideError::Unquoted { found: commands.len(), quoted: path::quote(&plain), plain });
    } else {
        for text in commands {
            let words =
                path::shell_words(text).map_err(|error| SideError::Words { command: text.clone(), error })?;
            sides.push(command(&words)?);
        }
    }
    sides.try_into().map_err(|sides: Vec<ComparedSide>| SideError::Count { found: sides.len() })
}

/// Returns true if the words after `--` are not two quoted commands, but most likely the words of one
/// command: more than two words, or an option (`-l`) as the second.
fn looks_unquoted(words: &[String]) -> bool {
    words.len() > 2 || words.get(1).is_some_and(|word| word.starts_with('-'))
}

fn command(words: &[String]) -> Result<ComparedSide, SideError> {
    let (program, args) = words.split_first().ok_or(SideError::Empty)?;
    Ok(ComparedSide::Command(Program::new(program, args)))
}

impl ComparedSide {
    /// Runs the side once, in a new process, and returns its figures. The number of frames is 0 for
    /// a command and for a path that writes to standard output. `framepath` is the binary that runs
    /// paths. Fails as [`Program::run`], and with [`LabError::Lost`] if a path loses packets or
    /// frames.
    pub(super) fn run(&self, framepath: &Path) -> Result<Measured, LabError> {
        let keeps_output = match self {
            ComparedSide::Command(_) => false,
            ComparedSide::Path(path) => !framepath::export::takes_stdout(path),
        };
        let finished = self.program(framepath).run(keeps_output).map_err(|error| self.lost(error))?;
        let frames = finished.stdout.trim().parse().unwrap_or(0);
        Ok(finished.measured(frames))
    }

    /// Runs the side once under the tracer. Fails as [`traced_side::trace`], and with [`LabError::Lost`] if a path loses
    /// packets or frames.
    pub(super) fn trace(&self, framepath: &Path) -> Result<TracedSideRun, LabError> {
        traced_side::trace(&self.program(framepath)).map_err(|error| self.lost(error))
    }

    /// Returns the program of the side's process.
    fn program(&self, framepath: &Path) -> Program {
        match self {
            ComparedSide::Command(program) => program.clone(),
            ComparedSide::Path(path) => {
                let text = path.to_string();
                let args = ["run", "--ledger", "off", "--quiet", "--count", "--", &text];
                Program::new(OsString::from(framepath), args)
            }
        }
    }

    /// Returns [`LabError::Lost`] for the error of a path that lost packets or frames, and `error` otherwise.
    fn lost(&self, error: LabError) -> LabError {
        match (self, error) {
            (ComparedSide::Path(path), LabError::Command { exit_code: Some(code), stderr, .. })
                if code == i32::from(LOST) =>
            {
                LabError::Lost(format!("{path}: {stderr}"))
            }
            (_, error) => error,
        }
    }
}

/// Formats the side as a user would type it, but without quotes around a path.
impl fmt::Display for ComparedSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ComparedSide::Path(path) => write!(f, "{path}"),
            ComparedSide::Command(program) => f.write_str(&program.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(paths: &[&str], commands: &[&str]) -> Result<Vec<String>, String> {
        let owned = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        sides(&owned(paths), &owned(commands))
            .map(|sides| sides.iter().map(ComparedSide::to_string).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn sides_are_paths_quoted_commands_or_separated_commands() {
        for (paths, commands, expected) in [
            (&["test ! null", "test ! queue ! null"][..], &[][..], ["test ! null", "test ! queue ! null"]),
            (&[], &["ls -l 'a b'", "ls"], ["ls -l 'a b'", "ls"]),
            (&[], &["ls", "-l", "--", "ls"], ["ls -l", "ls"]),
            (&["test ! null"], &["ls", "-l"], ["test ! null", "ls -l"]),
            (&["test ! null"], &["ls -l"], ["test ! null", "ls -l"]),
        ] {
            assert_eq!(texts(paths, commands).unwrap(), expected);
        }
    }

    #[test]
    fn invalid_sides_are_errors_with_a_reason() {
        for (paths, commands, expected) in [
            (&["test ! null"][..], &[][..], "expected two sides, found 1"),
            (&[], &["a"], "expected two sides, found 1"),
            (
                &[],
                &["ffmpeg", "-i", "a b.ivf", "-f", "null", "-"],
                "found 6 words; quote each command: compare -- 'ffmpeg -i '\\''a b.ivf'\\'' -f null -' 'OTHER",
            ),
            (&[], &["ls", "-l"], "put `--` between two commands: compare -- ls -l -- OTHER COMMAND"),
            (&[], &["a", "'b"], "cannot split command `'b`: this ' is never closed"),
            (&[], &["a", "--"], "a command is empty"),
            (&[], &["", "b"], "a command is empty"),
            (&["test ! nul", "test ! null"], &[], "nul"),
            (&["test", "!", "null", "test", "!", "null"], &[], "expected two sides, found 6"),
        ] {
            let error = texts(paths, commands).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
