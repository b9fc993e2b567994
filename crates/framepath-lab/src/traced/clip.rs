// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clip whose pictures show their numbers, so that a program can tell which one it has.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::process::Program;

const WIDTH: usize = 320;
const HEIGHT: usize = 192;
/// Side of the square that shows one bit of the number; the first row of the picture has sixteen.
const SIDE: usize = WIDTH / 16;

/// Clip in a folder of the caller.
#[derive(Clone, Debug)]
pub struct NumberedClip {
    /// The file.
    pub path: PathBuf,
}

impl NumberedClip {
    /// Encodes `frames` pictures, 25 per second, into `folder`, as the ffmpeg tool does with the words `encoder`, into
    /// the file `name`.
    ///
    /// # Errors
    /// [`LabError::Missing`] without the ffmpeg tool, or if the tool fails, for example because it lacks the encoder;
    /// [`LabError::Interrupted`]; [`LabError::Io`].
    pub fn encode(
        folder: &Path,
        name: &str,
        frames: u32,
        encoder: &[&str],
    ) -> Result<NumberedClip, LabError> {
        let raw = folder.join(format!("{name}.yuv"));
        write_pictures(&raw, frames).map_err(LabError::io("writing numbered pictures"))?;
        let (path, size) = (folder.join(name), format!("{WIDTH}x{HEIGHT}"));
        let input =
            ["-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", &size, "-r", "25", "-i"];
        let words = input.map(OsString::from).into_iter().chain([raw.clone().into()]);
        let words = words.chain(encoder.iter().map(OsString::from)).chain([path.clone().into()]);
        let ran = Program::new("ffmpeg", words).run(false);
        // A file that cannot be removed does no harm.
        let _ = fs::remove_file(&raw);
        match ran {
            Ok(_) => Ok(NumberedClip { path }),
            Err(error @ LabError::Command { .. }) => Err(LabError::Missing(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Copies the packets into the file `name` of `folder`, without their times if the format has none.
    ///
    /// # Errors
    /// As for [`NumberedClip::encode`].
    pub fn packets_in(&self, folder: &Path, name: &str) -> Result<NumberedClip, LabError> {
        let path = folder.join(name);
        let words: [OsString; 8] = [
            "-v".into(),
            "error".into(),
            "-y".into(),
            "-i".into(),
            self.path.clone().into(),
            "-c".into(),
            "copy".into(),
            path.clone().into(),
        ];
        Program::new("ffmpeg", words).run(false)?;
        Ok(NumberedClip { path })
    }

    /// Returns the numbers that the pictures of the raw YUV420P file `bytes` show.
    pub fn numbers_in(bytes: &[u8]) -> Vec<u32> {
        let picture = WIDTH * HEIGHT * 3 / 2;
        let bit = |picture: &[u8], bit: usize| picture[SIDE / 2 * WIDTH + bit * SIDE + SIDE / 2] > 127;
        let number = |picture: &[u8]| (0..16).map(|at| u32::from(bit(picture, at)) << at).sum();
        bytes.chunks_exact(picture).map(number).collect()
    }
}

/// Writes raw YUV420P pictures: squares for the bits of the number above a moving pattern.
fn write_pictures(path: &Path, frames: u32) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(fs::File::create(path)?);
    let grey = vec![128; WIDTH * HEIGHT / 2];
    for number in 0..frames {
        let pixel = |row: usize, column: usize| match row < SIDE {
            true if (number >> (column / SIDE)) & 1 == 1 => 235,
            true => 16,
            false => (row + 2 * column + 3 * number as usize) as u8,
        };
        let picture: Vec<u8> = (0..WIDTH * HEIGHT).map(|index| pixel(index / WIDTH, index % WIDTH)).collect();
        file.write_all(&picture)?;
        file.write_all(&grey)?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_show_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        write_pictures(&path, 9).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(NumberedClip::numbers_in(&bytes), (0..9).collect::<Vec<_>>());
    }
}
