// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath stages`, also `framepath help path`.

use framepath::Registry;
use framepath::path::{Definitions, nearest};

use crate::exit_status::{ExitStatus, UsageError};
use crate::terminal::TextTarget;

/// Description of a path's syntax.
const SYNTAX: &str = "\
A path is a source, stages and links, and a sink, with ` ! ` between them:

  file clip.ivf ! decode ! null
  file clip.mp4 ! decode format=nv12 ! queue depth=4 ! framemd5 -

A bare `!` is a direct call; `queue` starts a thread. Options are key=value. Words
with blanks stand in quotes. Give `run` the whole path in one pair of quotes, since
shells have their own idea of `!`.";

/// Hint at the other help.
const ONE: &str = "`framepath stages NAME` shows all options of one.\n";

const EXAMPLES: &str = "\
Examples:
  framepath stages           all of them
  framepath stages decode    one of them";

#[derive(clap::Args)]
#[command(before_long_help = SYNTAX, after_help = EXAMPLES, after_long_help = after())]
pub(crate) struct StagesArgs {
    /// Show this one alone
    #[arg(value_name = "STAGE")]
    stage: Option<String>,
}

/// Returns the list for the long help, so that `help path` has it too.
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
        return Err(UsageError(format!("no stage `{name}`;{hint} there are {}", names.join(", "))));
    };
    Ok(definition.description())
}
