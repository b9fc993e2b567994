// SPDX-License-Identifier: MIT OR Apache-2.0
//! Touches arguments, standard output and the files that options name: words
//! in, tables out. What it prints is computed in the crates below.
#![forbid(unsafe_code)]

mod command;
mod ending;
mod files;
mod folder;
mod place;
mod progress;
mod screen;

use std::process::ExitCode;

use clap::Parser;

const EXAMPLES: &str = "\
Examples:
  framepath run 'file clip.mp4 ! decode ! null'          what decoding costs, cause by cause
  framepath run 'file clip.mp4 ! decode ! framemd5 -'    the MD5 of every frame
  framepath compare 'test ! null' 'test ! queue ! null'  what a thread boundary costs
  framepath serve & framepath top                        workers for every program, shown live
  framepath lab                                          the quick set of experiments, 90 s
  framepath doctor                                       what this machine offers
  framepath stages                                       what a path can be made of";

/// Moves video frames between stages at the lowest known cost, and shows where
/// every microsecond, copy and wake-up of each frame went.
#[derive(Parser)]
#[command(name = "framepath", version, after_help = EXAMPLES, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: command::Command,
}

fn main() -> ExitCode {
    framepath::silence_ffmpeg();
    // Before anything makes a thread: afterwards it could not be forked. Where
    // it fails workers are started as programs, which costs more.
    let _nursery = wants_workers().then(framepath::host::prepare);
    match Arguments::try_parse() {
        Ok(arguments) => {
            let name = arguments.command.name();
            ending::code(name, arguments.command.run())
        }
        Err(error) => ending::of_arguments(&error),
    }
}

/// Whether a path on the command line, or of the lab, may run a stage in a
/// process.
fn wants_workers() -> bool {
    std::env::args_os().skip(1).any(|word| word == "lab" || word.to_string_lossy().contains("host="))
}

/// The whole command line, as completions and `help` need it.
fn arguments() -> clap::Command {
    <Arguments as clap::CommandFactory>::command()
}
