// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath completions`.

use clap_complete::Shell;

use crate::ending::Ending;
use crate::screen;

const EXAMPLES: &str = "\
Examples:
  source <(framepath completions bash)
  framepath completions zsh > ~/.zfunc/_framepath
  framepath completions fish > ~/.config/fish/completions/framepath.fish";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<Ending> {
        // The generator cannot report a failed write, so it gets memory.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::arguments(), "framepath", &mut script);
        screen::print(&script)?;
        Ok(Ending::Done)
    }
}
