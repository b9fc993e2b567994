// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options in the spelling of earlier versions. Such options still work, with a note about the
//! present spelling.

use super::definition::Definition;
use super::words::quote;

/// Present form of an old spelling.
pub(super) struct NewSpelling {
    /// Names of the present options, with their values.
    pub(super) options: Vec<(&'static str, String)>,
    /// Note for the user about the present spelling, one line.
    pub(super) note: String,
}

/// Translates `word` if it is an old spelling: `host=device:PATH` becomes `api=v4l2m2m device=PATH`
/// for a hop with an option `api`, else `device=PATH`. Returns `None` for every other word, and if
/// the hop has no option `device`.
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
