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
  framepath stages                                       what a path can be made of

For tests of the kernel module's measuring node: framepath fixture, diff, meta.";

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
    framepath::worker::init();
    match Arguments::try_parse() {
        Ok(arguments) => {
            let name = arguments.command.name();
            let code = ending::code(name, arguments.command.run());
            // Waits for the workers that are left, so that their CPU time counts
            // as this command's.
            framepath::host::dismiss_spares();
            code
        }
        Err(error) => ending::of_arguments(&error),
    }
}

/// The whole command line, as completions and `help` need it.
fn arguments() -> clap::Command {
    <Arguments as clap::CommandFactory>::command()
}
