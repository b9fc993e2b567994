// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands of the program. Each command and its arguments are in a file with the command's name;
//! `plugin-info` is in the file of `plugins`.

#[cfg(feature = "lab")]
mod asked;
mod bare;
#[cfg(feature = "lab")]
mod compare;
mod complete;
mod completions;
mod diff;
#[cfg(feature = "lab")]
mod doctor;
mod fixture;
#[cfg(feature = "lab")]
mod gate;
#[cfg(feature = "lab")]
mod handoff;
#[cfg(feature = "lab")]
mod lab;
mod meta;
mod plugins;
#[cfg(feature = "lab")]
mod relay;
#[cfg(feature = "lab")]
mod report;
mod run;
mod serve;
#[cfg(feature = "net")]
mod share;
mod stages;
mod top;
mod trace;
#[cfg(feature = "net")]
mod view;

use crate::exit_status::ExitStatus;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Run a path and show how its frames spent their time
    Run(run::RunArgs),
    /// Send this screen, or the frames of any path, to viewers, encrypted
    #[cfg(feature = "net")]
    Share(share::ShareArgs),
    /// Show what another computer shares
    #[cfg(feature = "net")]
    View(view::ViewArgs),
    /// Run experiments and write a report that opens in a browser
    #[cfg(feature = "lab")]
    Lab(lab::LabArgs),
    /// Compare two paths, two commands, or a path with a command, in interleaved pairs of runs
    #[cfg(feature = "lab")]
    Compare(compare::CompareArgs),
    /// Check summaries of the lab against budgets, or against an older run
    #[cfg(feature = "lab")]
    Gate(gate::GateArgs),
    /// Write runs of the lab, from one or several machines, side by side in one HTML file
    #[cfg(feature = "lab")]
    Report(report::ReportArgs),
    /// List the capabilities of this machine, and how to get the missing ones
    #[cfg(feature = "lab")]
    Doctor(doctor::DoctorArgs),
    /// List the parts of a path (sources, stages, links, sinks), or show one with its options
    #[command(visible_alias = "path")]
    Stages(stages::StagesArgs),
    /// List the frei0r plug-ins of this machine, or show one with its parameters
    Plugins(plugins::PluginsArgs),
    /// Run a service that gives sandboxed workers to the programs of this user, and of allowed users
    Serve(serve::ServeArgs),
    /// Show a running service, program or sender live: streams, frames per second, CPU, latency, crashes, viewers
    Top(top::TopArgs),
    /// Run any command, or watch a running process, and show when its threads ran and waited
    Trace(trace::TraceArgs),
    /// Send a picture through the kernel's measuring node, or through the same stage in user space
    #[command(hide = true)]
    Fixture(fixture::FixtureArgs),
    /// Compare two grey pictures pixel by pixel
    #[command(hide = true)]
    Diff(diff::DiffArgs),
    /// Write the measuring node's record of each frame as CSV
    #[command(hide = true)]
    Meta(meta::MetaArgs),
    /// Print the script with which a shell completes framepath's command lines
    Completions(completions::CompletionsArgs),
    /// Print the words that can complete a command line
    #[command(hide = true)]
    Complete(complete::CompleteArgs),
    /// Decode a file with the codec library alone: the lower bound in lab `decode`
    #[command(hide = true)]
    Bare(bare::BareArgs),
    /// Receive frames from a worker: contender `process` of lab `handoff`
    #[command(hide = true)]
    #[cfg(feature = "lab")]
    Handoff(handoff::HandoffArgs),
    /// Run a path and query another process for every frame: contender `process-uncached` of lab `rpc`
    #[command(hide = true)]
    #[cfg(feature = "lab")]
    Asked(asked::QuestionArgs),
    /// Pass packets between two virtual network devices, with losses: the network of lab `stream`
    #[command(hide = true)]
    #[cfg(feature = "lab")]
    Relay(relay::RelayArgs),
    /// Load one plug-in and print its description; `plugins` runs this command for each plug-in
    #[command(hide = true)]
    PluginInfo(plugins::PluginInfoArgs),
}

impl Command {
    /// Returns the command's name, such as `run`, for error messages; `stages` also for the alias `path`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Command::Run(_) => "run",
            #[cfg(feature = "net")]
            Command::Share(_) => "share",
            #[cfg(feature = "net")]
            Command::View(_) => "view",
            #[cfg(feature = "lab")]
            Command::Lab(_) => "lab",
            #[cfg(feature = "lab")]
            Command::Compare(_) => "compare",
            #[cfg(feature = "lab")]
            Command::Gate(_) => "gate",
            #[cfg(feature = "lab")]
            Command::Report(_) => "report",
            #[cfg(feature = "lab")]
            Command::Doctor(_) => "doctor",
            Command::Stages(_) => "stages",
            Command::Serve(_) => "serve",
            Command::Top(_) => "top",
            Command::Trace(_) => "trace",
            Command::Fixture(_) => "fixture",
            Command::Diff(_) => "diff",
            Command::Meta(_) => "meta",
            Command::Complete(_) => "complete",
            Command::Completions(_) => "completions",
            Command::Plugins(_) => "plugins",
            Command::Bare(_) => "bare",
            #[cfg(feature = "lab")]
            Command::Handoff(_) => "handoff",
            #[cfg(feature = "lab")]
            Command::Asked(_) => "asked",
            #[cfg(feature = "lab")]
            Command::Relay(_) => "relay",
            Command::PluginInfo(_) => "plugin-info",
        }
    }

    /// Returns the log level that applies if neither `-v` nor FRAMEPATH_LOG sets one: `error` for `serve`,
    /// so that the service's log has the reason why a worker died; `info` for `share`, so that the sharing
    /// person sees who watches; `off` for the other commands.
    pub(crate) fn log_level(&self) -> log::LevelFilter {
        match self {
            Command::Serve(_) => log::LevelFilter::Error,
            #[cfg(feature = "net")]
            Command::Share(_) => log::LevelFilter::Info,
            _ => log::LevelFilter::Off,
        }
    }

    /// Runs the command. Returns the exit status, or an error that has not been printed yet.
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        match self {
            Command::Run(run) => run.run(),
            #[cfg(feature = "net")]
            Command::Share(share) => share.run(),
            #[cfg(feature = "net")]
            Command::View(view) => view.run(),
            #[cfg(feature = "lab")]
            Command::Lab(lab) => lab.run(),
            #[cfg(feature = "lab")]
            Command::Compare(compare) => compare.run(),
            #[cfg(feature = "lab")]
            Command::Gate(gate) => gate.run(),
            #[cfg(feature = "lab")]
            Command::Report(report) => report.run(),
            #[cfg(feature = "lab")]
            Command::Doctor(doctor) => doctor.run(),
            Command::Stages(stages) => stages.run(),
            Command::Serve(serve) => serve.run(),
            Command::Top(top) => top.run(),
            Command::Trace(trace) => trace.run(),
            Command::Fixture(fixture) => fixture.run(),
            Command::Diff(diff) => diff.run(),
            Command::Meta(meta) => meta.run(),
            Command::Complete(complete) => complete.run(),
            Command::Completions(completions) => completions.run(),
            Command::Plugins(plugins) => plugins.run(),
            Command::Bare(bare) => bare.run(),
            #[cfg(feature = "lab")]
            Command::Handoff(handoff) => handoff.run(),
            #[cfg(feature = "lab")]
            Command::Asked(asked) => asked.run(),
            #[cfg(feature = "lab")]
            Command::Relay(relay) => relay.run(),
            Command::PluginInfo(info) => info.run(),
        }
    }
}
