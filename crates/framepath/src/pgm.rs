// SPDX-License-Identifier: MIT OR Apache-2.0
//! Grey pictures in files, and the difference of two of them.
//!
//! The format is pgm(5), binary (P5), with one picture of 8 bits.

use std::fs;
use std::io;
use std::path::Path;

/// Largest width and height in pixels that a picture may have, as for `size=` in paths.
const MAX_SIDE: usize = 16_384;

/// A grey picture of 8 bits, rows without padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgmPicture {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// The `width * height` pixels, row by row from the top; 0 is black.
    pub pixels: Vec<u8>,
}

/// Reason why a picture cannot be read or written, or two cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PictureError {
    /// The file cannot be read or written.
    #[error("{file}: {error}")]
    Io {
        /// Path of the file.
        file: String,
        /// Error that the system returned.
        error: io::Error,
    },
    /// The file is not a complete binary PGM picture of 8 bits, or a side is not 1 to 16,384 pixels.
    #[error("{file}: not a binary PGM picture of 8 bits: {what}")]
    Format {
        /// Path of the file.
        file: String,
        /// Problem of the file's contents.
        what: &'static str,
    },
    /// The pictures are of different sizes.
    #[error("the pictures have {}x{} and {}x{} pixels; expected the same size", a.0, a.1, b.0, b.1)]
    Size {
        /// Width and height of the first picture in pixels.
        a: (usize, usize),
        /// Width and height of the second picture in pixels.
        b: (usize, usize),
    },
}

/// Difference of two pictures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Picture whose pixels are the absolute differences of the two pictures' pixels.
    pub picture: PgmPicture,
    /// Number of pixels that differ.
    pub differing: usize,
    /// Largest absolute difference of a pixel; 0 if the pictures are equal.
    pub largest: u8,
}

impl PgmPicture {
    /// Reads a picture from `file`. Ignores bytes after the picture.
    ///
    /// # Errors
    /// [`PictureError::Io`], [`PictureError::Format`].
    pub fn open(file: &Path) -> Result<PgmPicture, PictureError> {
        let name = file.display().to_string();
        match fs::read(file) {
            Ok(bytes) => {
                PgmPicture::from_bytes(&bytes).map_err(|what| PictureError::Format { file: name, what })
            }
            Err(error) => Err(PictureError::Io { file: name, error }),
        }
    }

    /// Parses the bytes of a file. An error is a text that describes the problem.
    fn from_bytes(bytes: &[u8]) -> Result<PgmPicture, &'static str> {
        let mut rest = bytes.strip_prefix(b"P5").ok_or("the file does not begin with P5")?;
        let mut number = || -> Result<usize, &'static str> {
            let unfinished = "the header is incomplete";
            loop {
                rest = match rest.first().ok_or(unfinished)? {
                    b'#' => {
                        let end = rest.iter().position(|b| *b == b'\n').ok_or(unfinished)?;
                        &rest[end..]
                    }
                    byte if byte.is_ascii_whitespace() => &rest[1..],
                    _ => break,
                };
            }
            let digits = rest.iter().position(|b| !b.is_ascii_digit()).ok_or(unfinished)?;
            if digits == 0 || digits > 5 {
                return Err("the header has an invalid number");
            }
            let value = rest[..digits].iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
            rest = &rest[digits..];
            Ok(value)
        };
        let (width, height, most) = (number()?, number()?, number()?);
        if most != 255 {
            return Err("the largest value is not 255");
        }
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return Err("the size is out of range");
        }
        // A single blank ends the header.
        let pixels = rest.get(1..).ok_or("there are no pixels")?;
        match pixels.get(..width * height) {
            Some(pixels) => Ok(PgmPicture { width, height, pixels: pixels.to_vec() }),
            None => Err("there are fewer pixels than the header declares"),
        }
    }

    /// Writes the picture to `file`, and replaces an existing file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), PictureError> {
        let mut bytes = format!("P5\n{} {}\n255\n", self.width, self.height).into_bytes();
        bytes.extend(&self.pixels);
        fs::write(file, bytes).map_err(|error| PictureError::Io { file: file.display().to_string(), error })
    }

    /// Compares this picture with `other`, pixel by pixel.
    ///
    /// # Errors
    /// The pictures have different sizes.
    pub fn difference(&self, other: &PgmPicture) -> Result<Difference, PictureError> {
        let (a, b) = ((self.width, self.height), (other.width, other.height));
        if a != b {
            return Err(PictureError::Size { a, b });
        }
        let pixels: Vec<u8> = self.pixels.iter().zip(&other.pixels).map(|(a, b)| a.abs_diff(*b)).collect();
        Ok(Difference {
            differing: pixels.iter().filter(|pixel| **pixel != 0).count(),
            largest: pixels.iter().copied().max().unwrap_or(0),
            picture: PgmPicture { width: self.width, height: self.height, pixels },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pgm");
        // Pixels that look like blanks and comments stay pixels.
        let picture = PgmPicture { width: 3, height: 2, pixels: b"\n #1\t\xff".to_vec() };
        picture.write(&file).unwrap();
        assert_eq!(PgmPicture::open(&file).unwrap(), picture);
    }

    #[test]
    fn heads_may_have_comments_and_others_are_refused() {
        let read = PgmPicture::from_bytes;
        assert_eq!(read(b"P5 # one\n# two\n2\t1 255\nab").unwrap().pixels, b"ab");
        let bad: [&[u8]; 11] = [
            b"",
            b"P2\n1 1\n255\n0",
            b"P5",
            b"P5\n1",
            b"P5\n1 1\n255",
            b"P5\n1 1\n65535\nab",
            b"P5\n0 1\n255\n",
            b"P5\n2 1\n255\na",
            b"P5\n-1 1\n255\na",
            b"P5\n99999 99999\n255\na",
            b"P5\n123456 1\n255\na",
        ];
        for bytes in bad {
            assert!(read(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_difference_is_counted_and_drawn() {
        let a = PgmPicture { width: 2, height: 2, pixels: vec![0, 10, 255, 7] };
        let b = PgmPicture { pixels: vec![0, 12, 0, 7], ..a.clone() };
        let difference = a.difference(&b).unwrap();
        assert_eq!((difference.differing, difference.largest), (2, 255));
        assert_eq!(difference.picture.pixels, [0, 2, 255, 0]);
        assert_eq!(a.difference(&a).unwrap().differing, 0);
        let other = PgmPicture { width: 4, height: 1, pixels: vec![0; 4] };
        assert!(matches!(a.difference(&other), Err(PictureError::Size { .. })));
    }
}
