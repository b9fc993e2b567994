// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath stages`: lists the stages of paths; `framepath help path` shows the same list.

use framepath::Registry;
use framepath::path::{Definitions, nearest};

use crate::exit_status::{ExitStatus, UsageError};
use crate::terminal::TextTarget;

/// Description of a path's syntax.
const SYNTAX: &str = "\
A path is a source, any stages and links, and a sink, separated by ` ! `:

  file clip.ivf ! decode ! null
  file clip.mp4 ! decode format=nv12 ! queue depth=4 ! framemd5 -

A bare `!` is a direct call; `queue` starts a thread. Options are key=value. Quote
words that contain blanks. Quote the whole path for `run`, because shells interpret
`!` themselves.";

/// Last line of the list: the command that shows one stage's options.
const ONE: &str = "`framepath stages NAME` shows all options of a stage.\n";

const EXAMPLES: &str = "\
Examples:
  framepath stages           the list of all stages
  framepath stages decode    one stage, with all its options";

#[derive(clap::Args)]
#[command(before_long_help = SYNTAX, after_help = EXAMPLES, after_long_help = after())]
pub(crate) struct StagesArgs {
    /// Show only this part of a path (source, stage, link or sink), with all its options [default: list all]
    #[arg(value_name = "STAGE")]
    stage: Option<String>,
}

/// Returns the end of the long help: the list of stages, so that `help path` shows the list too, and
/// the examples.
fn after() -> String {
    format!("{}\n{ONE}\n{EXAMPLES}", definitions().listing())
}

impl StagesArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let text = match self.stage {
            None => format!("{SYNTAX}\n\n{}\n{ONE}", definitions().listing()),
            Some(name) => one(&name)?,
        };
        TextTarget::Output.print(&text)?;
        Ok(ExitStatus::Done)
    }
}

fn definitions() -> &'static Definitions {
    Registry::built_in().definitions()
}

fn one(name: &str) -> Result<String, UsageError> {
    let Some(definition) = definitions().find(name) else {
        let names: Vec<&str> = definitions().iter().map(|one| one.name).collect();
        let hint = nearest(name, names.iter().copied())
            .map_or_else(String::new, |near| format!(" did you mean `{near}`?"));
        return Err(UsageError(format!("no stage `{name}`;{hint} the stages are {}", names.join(", "))));
    };
    Ok(definition.description())
}
