// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath plugins` lists the frei0r plug-ins; the hidden `framepath plugin-info` loads one and
//! describes it.

use std::env;
use std::fmt::Write;
use std::path::PathBuf;
use std::process;

use anyhow::Context;
use framepath::plugins::{self, Description, PluginEntry};
use framepath_model::shown::shown;

use crate::exit_status::{ExitStatus, UsageError};
use crate::output_file::OutputFile;
use crate::terminal::{self, TextTarget};

const EXAMPLES: &str = "\
Examples:
  framepath plugins             all frei0r plug-ins of this machine
  framepath plugins glow        one plug-in, with its parameters
  framepath run 'test ! plugin frei0r:glow blur=0.3 ! null'

This command loads each plug-in in its own process, without a sandbox: the plug-in's
code runs with your rights. FREI0R_PATH, a list of folders separated by `:`, replaces the usual
folders of plug-ins.

Exit code: 0; 1 if the named plug-in cannot be loaded, 2 if there is no such plug-in.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PluginsArgs {
    /// Show only this plug-in, with its parameters; the prefix `frei0r:` may be omitted [default: list all]
    name: Option<String>,

    /// Write the descriptions as JSON, besides the text; `-` is standard output, in place of the text
    /// [default: write none]
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

impl PluginsArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let found = match &self.name {
            Some(name) => {
                let name = name.strip_prefix("frei0r:").unwrap_or(name);
                vec![plugins::find(name).map_err(|error| UsageError(error.to_string()))?]
            }
            None => plugins::list(),
        };
        let json = OutputFile::option(self.json.as_deref())?;
        let binary = env::current_exe().context("finding this program's own file")?;
        let entries: Vec<PluginEntry> = found
            .iter()
            .map(|found| {
                let mut child = process::Command::new(&binary);
                child.arg("plugin-info").arg("--");
                plugins::ask(found, child)
            })
            .collect();
        if !json.as_ref().is_some_and(OutputFile::is_stdout) {
            let text = match (&self.name, &entries[..]) {
                (Some(_), [entry]) => one(entry),
                _ => all(&entries),
            };
            TextTarget::Output.print(&text)?;
        }
        if let Some(json) = json {
            json.json(serde_json::to_string_pretty(&entries))?;
        }
        let failed = self.name.is_some() && entries.iter().any(|entry| entry.error.is_some());
        Ok(if failed { ExitStatus::Failed } else { ExitStatus::Done })
    }
}

fn all(entries: &[PluginEntry]) -> String {
    let mut text = String::new();
    let width = entries.iter().map(|entry| entry.name.chars().count()).max().unwrap_or(0);
    for entry in entries {
        let (kind, line) = match (&entry.description, &entry.error) {
            (Some(description), _) => (description.kind.as_str(), first_line(description)),
            (None, error) => ("-", error.clone().unwrap_or_default()),
        };
        let (name, line) = (shown(&entry.name), shown(&line));
        let _ = writeln!(text, "{name:width$}  {kind:6}  {line}");
    }
    let folders: Vec<String> = plugins::folders().iter().map(|folder| folder.display().to_string()).collect();
    let _ = match entries.len() {
        0 => writeln!(
            text,
            "no frei0r plug-in in {} (Debian and Ubuntu: apt install frei0r-plugins)",
            folders.join(", ")
        ),
        count => writeln!(
            text,
            "\n{count} frei0r plug-ins; filters and sources run as a stage: `plugin frei0r:NAME`"
        ),
    };
    text
}

fn first_line(description: &Description) -> String {
    match description.explanation.lines().next() {
        Some(first) => first.trim().to_owned(),
        None => description.title.clone(),
    }
}

fn one(entry: &PluginEntry) -> String {
    let (name, file) = (shown(&entry.name), shown(&entry.file));
    let Some(description) = &entry.description else {
        return format!("{name}  {file}\n    {}\n", shown(entry.error.as_deref().unwrap_or_default()));
    };
    let mut text = format!(
        "frei0r:{name}  {} {}: {}\n",
        description.kind,
        description.version,
        shown(&description.title)
    );
    for line in [&description.explanation, &description.author].into_iter().filter(|line| !line.is_empty()) {
        let _ = writeln!(text, "    {}", shown(line));
    }
    let _ = writeln!(text, "    {}, {file}", description.color_model);
    if description.params.is_empty() {
        text.push_str("\nno parameters\n");
    }
    for param in &description.params {
        let _ = writeln!(text, "\n{}={}", shown(&param.name), param.kind);
        let _ = writeln!(text, "    {}; default `{}`", param.takes, shown(&param.default));
        let words = match param.explanation.as_str() {
            "" => param.title.clone(),
            explanation => format!("{}: {explanation}", param.title),
        };
        let _ = writeln!(text, "    {}", shown(&words));
    }
    text
}

/// Arguments of `plugin-info`, which loads one plug-in and prints its description, or the reason why it
/// cannot be loaded, with exit code 0 in both cases. The command `plugins` runs `plugin-info` as a child
/// process for each plug-in.
#[derive(clap::Args)]
pub(crate) struct PluginInfoArgs {
    /// The plug-in's shared library
    file: PathBuf,
}

impl PluginInfoArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        terminal::print(plugins::answer(plugins::describe(&self.file)).as_bytes())?;
        Ok(ExitStatus::Done)
    }
}
