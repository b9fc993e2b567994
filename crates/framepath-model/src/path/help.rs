// SPDX-License-Identifier: MIT OR Apache-2.0
//! Help pages: all declarations, and one declaration with its arguments.

use std::fmt::Write;

use super::definition::{Arg, DefaultValue, Definition, DefinitionKind};
use super::definitions::Definitions;
use super::hosting::Hosts;

impl Definitions {
    /// Lists all declarations by kind, one line each, as the text of a help page.
    pub fn listing(&self) -> String {
        let width = self.iter().map(|one| head(one).len()).max().unwrap_or(0);
        let mut text = String::new();
        let mut part = |heading: &str, belongs: &dyn Fn(&Definition) -> bool| {
            let blank = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{blank}{heading}");
            for one in self.iter().filter(|one| belongs(one)) {
                let _ = writeln!(text, "  {:width$}  {}", head(one), one.help);
            }
        };
        for (kind, heading) in [
            (DefinitionKind::Source, "Sources, the first word of a path:"),
            (DefinitionKind::Stage, "Stages, between:"),
            (DefinitionKind::Link, "Links, between (a bare ! is a direct call):"),
            (DefinitionKind::Tee, "For several branches, each with a sink:"),
            (DefinitionKind::Sink, "Sinks, at the end:"),
        ] {
            part(heading, &|one| one.kind == kind && !one.for_tests);
        }
        part("For measurements and tests:", &|one| one.for_tests);
        text
    }
}

/// Returns the name with the required arguments, for a line of the list; for a tee, the name with
/// `(...) (...)`.
fn head(definition: &Definition) -> String {
    if definition.kind == DefinitionKind::Tee {
        return format!("{} (...) (...)", definition.name);
    }
    let required = definition.all_args().filter(|arg| arg.default == DefaultValue::Required);
    required.fold(definition.name.to_owned(), |text, arg| match arg.positional {
        true => format!("{text} {}", arg.usage()),
        false => format!("{text} {}=...", arg.name),
    })
}

impl Definition {
    /// Describes the hop and all its arguments, as the text of a help page. The arguments for
    /// workers come last, because they are nearly the same for all hops that have them.
    pub fn description(&self) -> String {
        let line = |arg: &Arg| {
            let required = if arg.default == DefaultValue::Required { "; required" } else { "" };
            format!("    {}: {} ({}{required})\n", arg.name, arg.help, arg.wants())
        };
        let mut text = format!("{}\n    {}: {}\n", self.usage(), self.kind.noun(), self.help);
        text.extend(self.own.iter().map(line));
        if let Some(open) = self.open {
            let _ = writeln!(text, "    PARAM: {open}");
        }
        if self.kind == DefinitionKind::Tee {
            text.push_str(
                "    BRANCH: stages, links and a sink; all but the last begin with a link, which decides what\n    \
                 happens when the branch is slow: `tee ( queue ! y4m a.y4m ) ( queue leaky=downstream ! play )`\n",
            );
        }
        let hosting = self.hosts.args();
        if self.hosts == Hosts::Process {
            text.push_str("\n  for the worker, in which this always runs:\n");
            text.extend(hosting.iter().map(line));
        } else if !hosting.is_empty() {
            text.push_str("\n  for a worker, nearly the same for every hop with host=:\n");
            text.extend(hosting.iter().map(line));
        }
        text
    }
}
