// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath meta`: writes the kernel module's record of each frame as CSV.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use framepath::export;
use framepath_os::process::{signal, standard_output};
use framepath_os::v4l2::{META_NODE, MetaReader};

use crate::exit_status::ExitStatus;
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  framepath meta                            (runs until Ctrl-C)
  framepath meta --csv meta.csv --frames 600 &
  framepath fixture ramp.pgm --device /dev/video2 --frames 600

The command receives the records made after its start. If it reads too slowly, the
kernel drops records; the last line on standard error counts the missed ones. The
column crc32 is filled with `threshold device=NODE crc32=1` or `fixture --crc32`.

Exit code: 0 after N records, or after Ctrl-C or SIGTERM without --frames; 1 if the
device cannot be read or a write fails; 130 if SIGINT (Ctrl-C) or SIGTERM came before
N records.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MetaArgs {
    /// Device file of the kernel module's records
    #[arg(long, value_name = "NODE", default_value = META_NODE)]
    device: PathBuf,

    /// File for the records, overwritten if it exists: a heading, then a line per frame; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    csv: String,

    /// Stop after N records [default: run until Ctrl-C or SIGTERM]
    #[arg(long, value_name = "N")]
    frames: Option<u64>,
}

/// Longest wait for a record before the next check for SIGINT (Ctrl-C) or SIGTERM.
const SLICE: Duration = Duration::from_millis(200);

impl MetaArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let reader = MetaReader::open(&self.device)?;
        let mut file = match self.csv.as_str() {
            "-" => None,
            name if standard_output::check_path(name.as_ref()).is_err() => None,
            name => Some(File::create(name).with_context(|| format!("writing `{name}`"))?),
        };
        let mut print = |bytes: &[u8]| match &mut file {
            Some(file) => file.write_all(bytes).with_context(|| format!("writing `{}`", self.csv)),
            None => terminal::print(bytes),
        };
        signal::install().context("installing the handler of Ctrl-C")?;
        let mut text = Vec::new();
        export::meta::header(&mut text)?;
        print(&text)?;
        let (mut records, mut count) = (Vec::new(), 0);
        let wanted = self.frames.unwrap_or(u64::MAX);
        while count < wanted && !signal::interrupted() {
            if !reader.wait(SLICE)? {
                continue;
            }
            reader.read(&mut records)?;
            records.truncate(usize::try_from(wanted - count).unwrap_or(usize::MAX));
            text.clear();
            export::meta::write(&records, &mut text)?;
            print(&text)?;
            count += records.len() as u64;
            records.clear();
        }
        terminal::note(&format!("framepath: meta: {count} records, {} missed", reader.missed()?));
        Ok(if count < wanted && self.frames.is_some() { ExitStatus::Interrupted } else { ExitStatus::Done })
    }
}
