// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath completions`: prints the completion script of a shell.

use anyhow::Context;
use clap_complete::Shell;

use crate::exit_status::ExitStatus;
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  source <(framepath completions bash)
  framepath completions zsh > ~/.zfunc/_framepath
  framepath completions fish > ~/.config/fish/completions/framepath.fish";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Shell that reads the script
    #[arg(value_enum)]
    shell: Shell,
}

/// Bash code appended to the generated script. The code runs framepath for words that only framepath
/// knows, such as names of stages; if there are none, the code calls the generated function.
const BASH: &str = r#"
_framepath_words() {
    local line=${COMP_LINE:0:COMP_POINT} cur=${COMP_WORDS[COMP_CWORD]}
    [[ $cur == '=' ]] && cur=
    mapfile -t COMPREPLY < <(framepath complete -- "$cur" "$line" 2>/dev/null)
    if ((${#COMPREPLY[@]})); then
        [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace
        return 0
    fi
    _framepath "$@"
}
complete -F _framepath_words -o nosort -o bashdefault -o default framepath
"#;

/// Function for zsh, inserted after the first line of the generated script. The function asks framepath
/// for words that only framepath knows. If there are none, the function calls the generated one.
const ZSH: &str = r#"
_framepath_words() {
    local -a words_of_path
    words_of_path=("${(@f)$(framepath complete -- "$QIPREFIX$PREFIX" "$LBUFFER" 2>/dev/null)}")
    if [[ -n $words_of_path[1] ]]; then
        compadd -S '' -- $words_of_path
        return 0
    fi
    _framepath_options "$@"
}
"#;

const FISH: &str = r#"
complete -c framepath -n "__fish_seen_subcommand_from run compare stages path lab" \
    -a "(framepath complete -- (commandline -ct) (commandline -c) 2>/dev/null)"
"#;

impl CompletionsArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        // The generator writes into memory, because it cannot report a failed write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::arguments(), "framepath", &mut script);
        let script = String::from_utf8(script).context("reading the generated completion script")?;
        let script = match self.shell {
            Shell::Bash => script + BASH,
            Shell::Zsh => zsh(&script),
            Shell::Fish => script + FISH,
            _ => script,
        };
        terminal::print(script.as_bytes())?;
        Ok(ExitStatus::Done)
    }
}

/// Returns the generated zsh script with the function of [`ZSH`] inserted after the first line, which
/// must stay first. Renames the script's main function, and makes zsh call the inserted one.
fn zsh(generated: &str) -> String {
    let (header, rest) = generated.split_once('\n').unwrap_or(("", generated));
    let rest = rest.replace("_framepath()", "_framepath_options()");
    let rest = rest.replace("    _framepath \"$@\"", "    _framepath_words \"$@\"");
    let rest = rest.replace("compdef _framepath framepath", "compdef _framepath_words framepath");
    format!("{header}\n{ZSH}{rest}")
}
