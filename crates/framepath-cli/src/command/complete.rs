// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath complete`: prints words that can replace the word at the cursor. The completion scripts run
//! this command for the words that only the program knows: words of paths, stages, experiments.

use framepath::Registry;

use crate::exit_status::ExitStatus;
use crate::terminal::TextTarget;

#[derive(clap::Args)]
pub(crate) struct CompleteArgs {
    /// The word at the cursor, with its opening quote if it has one
    #[arg(allow_hyphen_values = true)]
    word: String,

    /// The command line up to the cursor
    #[arg(allow_hyphen_values = true)]
    line: String,
}

impl CompleteArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        for replacement in replacements(&self.word, &self.line) {
            TextTarget::Output.print(&format!("{replacement}\n"))?;
        }
        Ok(ExitStatus::Done)
    }
}

/// Returns the words that can replace `word`, the end of the command line `line`: names of stages after
/// `stages` and `path`, of experiments after `lab`, and words of a path after `run` and `compare`. Returns none
/// for another command, for an option's name, and after `run` and `compare` for an option's value.
fn replacements(word: &str, line: &str) -> Vec<String> {
    let definitions = Registry::built_in().definitions();
    let mut parts = line.trim_start().splitn(3, char::is_whitespace);
    let (_, command, rest) = (parts.next(), parts.next(), parts.next().unwrap_or_default().trim_start());
    let starting = |names: Vec<&str>| -> Vec<String> {
        names.into_iter().filter(|name| name.starts_with(word)).map(str::to_owned).collect()
    };
    match command {
        Some("stages" | "path") => starting(definitions.iter().map(|one| one.name).collect()),
        Some("lab") => starting(experiments()),
        Some(command @ ("run" | "compare")) if !word.starts_with('-') => {
            // If the word before is an option with a value, the word at the cursor is that value.
            let before = rest.strip_suffix(word).unwrap_or(rest).split_whitespace().last();
            if before.and_then(|word| word.strip_prefix("--")).is_some_and(|name| takes_value(command, name))
            {
                return Vec::new();
            }
            let quoted = word.strip_prefix(['"', '\'']);
            let path = quoted.map_or_else(|| unquoted(command, rest), str::to_owned);
            let written = path.rfind(char::is_whitespace).map_or(0, |blank| blank + 1);
            // A quoted path is one word for the shell, so each replacement repeats its beginning.
            let kept = match quoted {
                Some(_) => path[..written].to_owned(),
                None => String::new(),
            };
            // Bytes of the path's last word that the shell keeps, because some shells end words at `=`.
            let skipped = match quoted {
                Some(_) => 0,
                None => path[written..].len().saturating_sub(word.len()),
            };
            let candidates = definitions.complete(&path).into_iter();
            candidates.filter_map(|one| Some(format!("{kept}{}", one.get(skipped..)?))).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the names of the lab's experiments; none if this program was built without the feature
/// `lab`.
fn experiments() -> Vec<&'static str> {
    #[cfg(feature = "lab")]
    let names = framepath_lab::experiment::EXPERIMENTS.iter().map(|one| one.name).collect();
    #[cfg(not(feature = "lab"))]
    let names = Vec::new();
    names
}

/// Returns `words`, such as `test '!' null`, without quotes and backslashes of a shell, without words that
/// begin with `--`, and without the next word after an option of `command` that takes a value
/// (`--frames 10`).
fn unquoted(command: &str, words: &str) -> String {
    let mut value_follows = false;
    words
        .split_inclusive(char::is_whitespace)
        .filter(|word| {
            let is_value = std::mem::replace(&mut value_follows, false);
            let option = word.trim_end().strip_prefix("--");
            value_follows = option.is_some_and(|name| takes_value(command, name));
            !is_value && option.is_none()
        })
        .collect::<String>()
        .replace(['\'', '"', '\\'], "")
}

/// Returns true if the option `--NAME` of `command` has its value in the next word. Returns false if
/// `name` includes the value (`frames=10`), or if there is no such option or command.
fn takes_value(command: &str, name: &str) -> bool {
    let arguments = crate::arguments();
    let Some(command) = arguments.find_subcommand(command) else { return false };
    let option = command.get_arguments().find(|argument| argument.get_long() == Some(name));
    option.is_some_and(|option| option.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use super::replacements;

    #[test]
    fn path_words_are_completed_as_the_shell_splits_them() {
        let joined = |word: &str, line: &str| replacements(word, line).join("|");
        assert_eq!(joined("'test ! que", "framepath run 'test ! que"), "test ! queue");
        assert_eq!(joined("\"test ! queue le", "framepath run \"test ! queue le"), "test ! queue leaky=");
        assert_eq!(joined("que", "framepath run test '!' que"), "queue");
        // bash ends a word at `=`.
        assert_eq!(joined("u", "framepath run test ! queue leaky=u"), "upstream");
        assert_eq!(joined("leaky=u", "framepath run --quiet test ! queue leaky=u"), "leaky=upstream");
        // The value of an option is no word of the path.
        assert_eq!(joined("que", "framepath run --frames 10 test '!' que"), "queue");
        assert_eq!(joined("que", "framepath run --frames=10 --strict test '!' que"), "queue");
        assert_eq!(joined("tes", "framepath run --ledger times tes"), "test");
        assert_eq!(joined("1", "framepath run --frames 1"), "");
        assert_eq!(joined("--js", "framepath run --js"), "");
        assert_eq!(joined("thr", "framepath stages thr"), "threshold");
        assert_eq!(joined("", "framepath lab ").contains("decode"), cfg!(feature = "lab"));
        assert_eq!(joined("x", "framepath doctor x"), "");
    }
}
