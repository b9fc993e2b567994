// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small clips made by the `ffmpeg` tool, and their pictures as decoded by the tool and by this
//! crate.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Output;

use framepath_codec::{
    CodecError, Decoder, DecoderOptions, DecoderOutput, DecoderThreads, Demuxer, OutputFormat as Format,
};
use framepath_os::memory::pool::Frame;
use framepath_testkit::{ffmpeg, ffmpeg_output, md5_lines};
use tempfile::TempDir;

pub const FRAMES: usize = 20;

/// A folder of clips, removed at the end of the test.
pub struct Clips {
    folder: TempDir,
}

impl Clips {
    pub fn new() -> Clips {
        Clips { folder: TempDir::new().expect("a temporary folder") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Encodes [`FRAMES`] frames of the moving test pattern as the file `name`, with the size
    /// `size` and the `ffmpeg` tool's `options`. Returns the path of the file.
    pub fn make(&self, name: &str, size: &str, options: &str) -> PathBuf {
        let path = self.path(name);
        let source = format!("testsrc2=size={size}:rate=25,noise=alls=6:allf=t");
        let mut words = vec!["-f", "lavfi", "-i", &source];
        let frames = FRAMES.to_string();
        words.extend(["-frames:v", &frames]);
        words.extend(options.split_whitespace());
        let path_word = path.to_str().expect("a plain path");
        words.push(path_word);
        ffmpeg(&words);
        path
    }
}

/// Returns the MD5 hashes of the pictures in the pixel format `format`, as the `ffmpeg` tool
/// decodes them.
pub fn reference(path: &Path, format: &str) -> Vec<String> {
    let output = ffmpeg_framemd5(path, format);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ffmpeg on {}: {text}", path.display());
    framemd5_hashes(output)
}

/// Returns the hashes as `reference` does, for a damaged file, which the tool decodes as well as
/// possible.
pub fn reference_of_damaged(path: &Path, format: &str) -> Vec<String> {
    framemd5_hashes(ffmpeg_framemd5(path, format))
}

fn ffmpeg_framemd5(path: &Path, format: &str) -> Output {
    let path = path.to_str().expect("a plain path");
    let hashes = ["-map", "0:v:0", "-fps_mode", "passthrough", "-pix_fmt", format, "-f", "framemd5", "-"];
    ffmpeg_output(&[&["-i", path], &hashes[..]].concat())
}

fn framemd5_hashes(output: Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout).expect("framemd5 is text");
    md5_lines(&text).iter().map(|line| line.rsplit(',').next().expect("a hash").trim().to_owned()).collect()
}

/// Returns the presentation times of the pictures, in ticks of the stream's time base, as read by
/// the `ffmpeg` tool.
pub fn reference_times(path: &Path) -> Vec<i64> {
    let path = path.to_str().expect("a plain path");
    let words = [
        "-i",
        path,
        "-map",
        "0:v:0",
        "-fps_mode",
        "passthrough",
        "-copyts",
        "-enc_time_base",
        "-1",
        "-f",
        "framemd5",
        "-",
    ];
    let text = String::from_utf8(ffmpeg(&words)).expect("framemd5 is text");
    md5_lines(&text)
        .iter()
        .map(|line| line.split(',').nth(2).expect("a time").trim().parse().expect("a number"))
        .collect()
}

/// Returns the MD5 hash of a frame's visible pixels, in the order of raw files.
pub fn hash(frame: &Frame) -> String {
    let mut context = md5::Context::new();
    for (index, plane) in frame.layout().planes().iter().enumerate() {
        for y in 0..plane.rows {
            frame.row(index, y).visit(|bytes| context.consume(bytes));
        }
    }
    format!("{:x}", context.finalize())
}

pub fn options(threads: u32, output: Format) -> DecoderOptions {
    DecoderOptions { threads: DecoderThreads::Count(threads), output, ..DecoderOptions::default() }
}

/// Decodes all of `path` and passes each frame to `sink`. Packets get 100, 101, ... as their `seq`,
/// and seven times this number as their `birth_ns`.
/// Returns the first error of the file or the decoder.
pub fn decode(path: &Path, options: &DecoderOptions, mut sink: impl FnMut(Frame)) -> Result<(), CodecError> {
    let mut demuxer = Demuxer::open(path)?;
    let mut decoder = Decoder::open(demuxer.info(), options)?;
    let mut seq = 100;
    loop {
        // Packets that were read before an error of the file are decoded and output first.
        let end = match demuxer.read() {
            Ok(Some(mut packet)) => {
                packet.meta_mut().seq = seq;
                packet.meta_mut().birth_ns = seq * 7;
                seq += 1;
                decoder.send(packet)?;
                Ok(())
            }
            Ok(None) => decoder.drain(),
            Err(error) => decoder.drain().and(Err(error)),
        };
        loop {
            match decoder.receive()? {
                DecoderOutput::Frame(frame) => sink(frame),
                DecoderOutput::Undecoded { error, .. } => return Err(error),
                DecoderOutput::NeedsPacket => break,
                DecoderOutput::End => return end,
            }
        }
    }
}

pub fn hashes(path: &Path, options: &DecoderOptions) -> Vec<String> {
    let mut all = Vec::new();
    decode(path, options, |frame| all.push(hash(&frame))).unwrap_or_else(|error| panic!("{error}"));
    all
}
