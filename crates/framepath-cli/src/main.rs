// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `framepath`: reads the arguments, runs one command, and prints its results or writes
//! them to the files that options name. The other crates compute the results.
#![forbid(unsafe_code)]

mod analysis_watch;
mod command;
mod diagnostics;
mod exit_status;
#[cfg(feature = "lab")]
mod lookup;
mod output_file;
mod progress;
#[cfg(feature = "lab")]
mod run_folder;
mod terminal;
mod traced;

use std::process::ExitCode;

use clap::Parser;

const EXAMPLES: [&str; 5] = [
    "run 'file clip.mp4 ! decode ! null'          the cost of decoding, cause by cause",
    "run 'file clip.mp4 ! decode ! framemd5 -'    the MD5 of every frame",
    "trace -- ffmpeg -i clip.mp4 -f null -        the times of a program's threads",
    "serve & framepath top                        a service for every program, and its state",
    "stages                                       the parts of a path; stages NAME: options",
];

/// Examples of the commands that the feature `lab` adds.
const LAB_EXAMPLES: [&str; 3] = [
    "compare 'test ! null' 'test ! queue ! null'  the cost of a thread boundary",
    "lab                                          the quick set of experiments, 90 s",
    "doctor                                       the capabilities of this machine",
];

const KERNEL_TESTS: &str =
    "The commands fixture, diff and meta test the measuring node of the kernel module.";

fn examples() -> String {
    let of_lab = if cfg!(feature = "lab") { &LAB_EXAMPLES[..] } else { &[] };
    let lines = EXAMPLES.iter().chain(of_lab).map(|line| format!("  framepath {line}\n"));
    format!("Examples:\n{}\n{KERNEL_TESTS}", lines.collect::<String>())
}

/// Moves video frames between stages at the lowest known cost, and shows where
/// every microsecond, copy and wake-up of each frame went.
#[derive(Parser)]
#[command(name = "framepath", version, after_help = examples(), max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: command::Command,

    /// Log events to standard error: files, workers, connections; -vv also logs hops, decoders and pools
    /// [default: the level in FRAMEPATH_LOG; without it, errors for `serve`, and nothing for the others]
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
}

fn main() -> ExitCode {
    framepath::silence_ffmpeg();
    framepath::worker::init();
    // Fails for no signal's number.
    let _ = framepath_os::process::signal::survive_file_limit();
    match Arguments::try_parse() {
        Ok(arguments) => {
            let name = arguments.command.name();
            let reporting = diagnostics::install(arguments.verbose, arguments.command.log_level());
            let outcome = reporting.map_err(Into::into).and_then(|()| arguments.command.run());
            let code = exit_status::code(name, outcome);
            // Ends the spare workers and waits for them, so that their CPU time counts as this
            // command's.
            framepath::host::dismiss_spares();
            code
        }
        Err(error) => exit_status::from_usage_error(&error),
    }
}

/// Returns the definition of the command line: all commands and options. The completion scripts, the
/// completed words and the error of an unknown command use this definition.
fn arguments() -> clap::Command {
    <Arguments as clap::CommandFactory>::command()
}
