// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath fixture`: sends one picture through the measuring node, or through the
//! same stage in user space.

use anyhow::Context;
use framepath::{Options, export, path};
use framepath_os::process::signal;

use super::run::unreadable;
use crate::exit_status::ExitStatus;
use crate::terminal::TextTarget;

const EXAMPLES: &str = "\
Examples:
  framepath fixture ramp.pgm --reference --level 100 --out reference
  framepath fixture ramp.pgm --device /dev/video2 --level 100 --out kernel
  framepath diff reference/frame-000000.pgm kernel/frame-000000.pgm difference.pgm
  framepath fixture ramp.pgm --device /dev/video2 --in-place --frames 600

Each frame is one counted copy of the picture into the memory of --heap.

Exit code: 0 if every frame was processed, 1 if a stage failed, 2 if an argument is
invalid, 130 after SIGINT (Ctrl-C) or SIGTERM.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("where").required(true))]
pub(crate) struct FixtureArgs {
    /// The picture: binary PGM of 8 bits
    file: String,

    /// Device file of the measuring node of framepath.ko, such as /dev/video2. Either this option or
    /// --reference is required
    #[arg(long, value_name = "NODE", group = "where")]
    device: Option<String>,

    /// Run the same stage in user space, without a device; `framepath diff` compares the results. Either this
    /// option or --device is required
    #[arg(long, group = "where")]
    reference: bool,

    /// Memory of the frames: a dma-heap's device file, `udmabuf`, or `pages` (no dmabuf)
    /// [default: the system's dma-heap, or udmabuf where there is none; pages with --reference]
    #[arg(long, value_name = "HEAP")]
    heap: Option<String>,

    /// With --device: buffer type of the device's input, mmap (copies the frame), dmabuf or userptr (no copy)
    /// [default: dmabuf for frames in a dmabuf, else mmap]
    #[arg(long, value_name = "IO", requires = "device", conflicts_with = "reference")]
    io: Option<String>,

    /// Threshold, 0 to 255: pixels at or above it become white, the others black
    #[arg(long, value_name = "N", default_value = "128")]
    level: String,

    /// Region to process: X,Y,WIDTH,HEIGHT in pixels, clamped to the picture [default: the whole picture]
    #[arg(long, value_name = "X,Y,W,H")]
    roi: Option<String>,

    /// With --device: the device's algorithm, threshold, or none to leave the pixels unchanged
    /// [default: threshold]
    #[arg(long, value_name = "NAME", requires = "device", conflicts_with = "reference")]
    algo: Option<String>,

    /// With --device: let the device write its result into the input frame, which must be a dmabuf (see --heap)
    /// [default: into another buffer]
    #[arg(long, requires = "device", conflicts_with = "reference")]
    in_place: bool,

    /// With --device: let the device add the CRC-32 of each result to its record of the frame (see
    /// `framepath meta`) [default: no CRC-32]
    #[arg(long, requires = "device", conflicts_with = "reference")]
    crc32: bool,

    /// Number of frames, all from the same picture; 0 runs until Ctrl-C or SIGTERM
    #[arg(long, value_name = "N", default_value = "1")]
    frames: String,

    /// Folder for the results: frame-000000.pgm, frame-000001.pgm, ... [default: drop the results]
    #[arg(long, value_name = "DIR")]
    out: Option<String>,
}

impl FixtureArgs {
    /// Returns the words of the path that these arguments describe.
    fn words(&self) -> Vec<String> {
        let mut words = vec!["fixture".to_owned(), self.file.clone(), format!("frames={}", self.frames)];
        match &self.heap {
            Some(heap) => words.push(format!("heap={heap}")),
            // No device uses the reference's frames, so plain memory is enough.
            None if self.reference => words.push("heap=pages".to_owned()),
            None => {}
        }
        words.extend(["!".to_owned(), "threshold".to_owned(), format!("level={}", self.level)]);
        words.extend(self.roi.iter().map(|roi| format!("roi={roi}")));
        words.extend(self.device.iter().map(|node| format!("device={node}")));
        words.extend(self.io.iter().map(|io| format!("io={io}")));
        words.extend(self.algo.iter().map(|algo| format!("algo={algo}")));
        words.extend(self.in_place.then(|| "in_place=1".to_owned()));
        words.extend(self.crc32.then(|| "crc32=1".to_owned()));
        words.push("!".to_owned());
        match &self.out {
            Some(folder) => words.extend(["pgm".to_owned(), folder.clone()]),
            None => words.push("null".to_owned()),
        }
        words
    }

    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let text = path::join(&self.words());
        let path = path::parse(&text).map_err(|error| unreadable(&text, &error))?;
        signal::install().context("installing the handler of Ctrl-C")?;
        let mut report = framepath::run(&path, &Options::default())?;
        TextTarget::Output.print(&export::text::summary(&mut report))?;
        if let Some(error) = report.error {
            return Err(error.into());
        }
        Ok(if report.interrupted { ExitStatus::Interrupted } else { ExitStatus::Done })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        fixture: FixtureArgs,
    }

    fn path_of(line: &str) -> String {
        let words = ["x"].into_iter().chain(line.split(' '));
        let text = path::join(&Line::try_parse_from(words).unwrap().fixture.words());
        path::parse(&text).unwrap().to_string()
    }

    #[test]
    fn arguments_become_a_path() {
        assert_eq!(
            path_of("a.pgm --device /dev/video2 --level 9 --roi 1,2,3,4 --in-place --crc32 --out o"),
            "fixture a.pgm frames=1 ! threshold level=9 roi=1,2,3,4 device=/dev/video2 in_place=yes crc32=yes ! pgm o"
        );
        assert_eq!(
            path_of("a.pgm --reference --frames 7"),
            "fixture a.pgm frames=7 heap=pages ! threshold level=128 ! null"
        );
    }

    #[test]
    fn a_device_and_the_reference_exclude_each_other() {
        for line in ["a.pgm", "a.pgm --reference --device /dev/video0", "a.pgm --reference --in-place"] {
            assert!(Line::try_parse_from(["x"].into_iter().chain(line.split(' '))).is_err(), "{line}");
        }
    }
}
