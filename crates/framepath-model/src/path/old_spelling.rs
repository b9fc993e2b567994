// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options as they were written in earlier versions: they still work, and say what
//! they are called now.

use super::definition::Definition;
use super::words::quote;

/// What an old spelling is called now.
pub(super) struct NewSpelling {
    /// Options and their values.
    pub(super) options: Vec<(&'static str, String)>,
    /// A line for the user.
    pub(super) note: String,
}

/// `word` in today's words, where it is an old spelling: `host=device:PATH` is
/// `api=v4l2m2m device=PATH` for what has an `api`, else `device=PATH`.
pub(super) fn old_spelling(def: &Definition, word: &str) -> Option<NewSpelling> {
    let node = word.strip_prefix("host=device:").filter(|node| !node.is_empty())?;
    def.arg("device").filter(|(_, arg)| !arg.positional)?;
    let mut options = vec![("device", node.to_owned())];
    if def.arg("api").is_some() {
        options.insert(0, ("api", "v4l2m2m".to_owned()));
    }
    let now: Vec<String> = options.iter().map(|(name, value)| format!("{name}={}", quote(value))).collect();
    let note = format!("{}: host=device:PATH is an old spelling of {}", def.name, now.join(" "));
    Some(NewSpelling { options, note })
}
