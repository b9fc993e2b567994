// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath diff`: compares two grey pictures pixel by pixel.

use std::path::PathBuf;

use framepath::pgm::{PgmPicture, PictureError};
use framepath_model::shown::shown;

use crate::exit_status::{ExitStatus, UsageError};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  framepath diff reference.pgm kernel.pgm && echo equal
  framepath diff reference.pgm kernel.pgm difference.pgm

Exit code: 0 if all pixels are equal, 1 if not, 2 if the sizes differ or a file
cannot be read or written.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    /// First picture: binary PGM of 8 bits
    a: PathBuf,

    /// Second picture, of the same size
    b: PathBuf,

    /// Picture to write, with the absolute difference of each pixel [default: write none]
    out: Option<PathBuf>,
}

impl DiffArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        // Errors and differences have distinct exit codes, as with diff(1).
        let usage = |error: PictureError| UsageError(shown(&error.to_string()).into_owned());
        let a = PgmPicture::open(&self.a).map_err(usage)?;
        let b = PgmPicture::open(&self.b).map_err(usage)?;
        let difference = a.difference(&b).map_err(usage)?;
        if let Some(out) = &self.out {
            difference.picture.write(out).map_err(usage)?;
        }
        let (differing, all) = (difference.differing, a.pixels.len());
        let text = match differing {
            0 => format!("equal: {all} pixels\n"),
            _ => format!("{differing} of {all} pixels differ, by {} at most\n", difference.largest),
        };
        terminal::print(text.as_bytes())?;
        Ok(if differing == 0 { ExitStatus::Done } else { ExitStatus::Failed })
    }
}
