// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands, one file each.

mod bare;
mod compare;
mod completions;
mod diff;
mod doctor;
mod fixture;
mod gate;
mod handoff;
mod lab;
mod meta;
mod plugins;
mod report;
mod run;
mod serve;
mod stages;
mod top;

use crate::ending::Ending;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Run a path and show where its frames' time went
    Run(run::Run),
    /// Run experiments; ends with a report that opens in a browser
    Lab(lab::Lab),
    /// Compare two paths, or any two commands, in interleaved pairs
    Compare(compare::Compare),
    /// Hold summaries of the lab against budgets
    Gate(gate::Gate),
    /// Put runs of the lab, also of several machines, side by side
    Report(report::Report),
    /// What this machine offers, and what each missing thing would unlock
    Doctor(doctor::Doctor),
    /// What a path can be made of: sources, stages, links, sinks
    #[command(visible_alias = "path")]
    Stages(stages::Stages),
    /// The frei0r plug-ins of this machine, and their parameters
    Plugins(plugins::Plugins),
    /// Give sandboxed workers to every program of this user
    Serve(serve::Serve),
    /// Show a service live: streams, frames per second, CPU, latency, crashes
    Top(top::Top),
    /// Send a picture through the kernel's measuring node, or its reference
    #[command(hide = true)]
    Fixture(fixture::Fixture),
    /// What differs between two grey pictures
    #[command(hide = true)]
    Diff(diff::Diff),
    /// The measuring node's record of each frame, as CSV
    #[command(hide = true)]
    Meta(meta::Meta),
    /// Completions for a shell, to be sourced
    Completions(completions::Completions),
    /// Decode a file with the codec library alone: the floor of lab `decode`
    #[command(hide = true)]
    Bare(bare::Bare),
    /// Hand frames over from a worker: contender `process` of lab `handoff`
    #[command(hide = true)]
    Handoff(handoff::Handoff),
    /// Load one plug-in and say what it is, for `plugins`
    #[command(hide = true)]
    PluginInfo(plugins::PluginInfo),
}

impl Command {
    /// Its name, for messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Command::Run(_) => "run",
            Command::Lab(_) => "lab",
            Command::Compare(_) => "compare",
            Command::Gate(_) => "gate",
            Command::Report(_) => "report",
            Command::Doctor(_) => "doctor",
            Command::Stages(_) => "stages",
            Command::Serve(_) => "serve",
            Command::Top(_) => "top",
            Command::Fixture(_) => "fixture",
            Command::Diff(_) => "diff",
            Command::Meta(_) => "meta",
            Command::Completions(_) => "completions",
            Command::Plugins(_) => "plugins",
            Command::Bare(_) => "bare",
            Command::Handoff(_) => "handoff",
            Command::PluginInfo(_) => "plugin-info",
        }
    }

    /// Does it.
    pub(crate) fn run(self) -> anyhow::Result<Ending> {
        match self {
            Command::Run(run) => run.run(),
            Command::Lab(lab) => lab.run(),
            Command::Compare(compare) => compare.run(),
            Command::Gate(gate) => gate.run(),
            Command::Report(report) => report.run(),
            Command::Doctor(doctor) => doctor.run(),
            Command::Stages(stages) => stages.run(),
            Command::Serve(serve) => serve.run(),
            Command::Top(top) => top.run(),
            Command::Fixture(fixture) => fixture.run(),
            Command::Diff(diff) => diff.run(),
            Command::Meta(meta) => meta.run(),
            Command::Completions(completions) => completions.run(),
            Command::Plugins(plugins) => plugins.run(),
            Command::Bare(bare) => bare.run(),
            Command::Handoff(handoff) => handoff.run(),
            Command::PluginInfo(info) => info.run(),
        }
    }
}
