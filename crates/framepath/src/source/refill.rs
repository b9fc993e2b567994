// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that this process reads for a demuxer in a worker: the rest of a pipe whose first bytes were read, or
//! the files of an image sequence, one after the other.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;

use framepath_codec::MediaFile;
use framepath_os::process::cancel;

/// Number of bytes that are copied at a time.
const CHUNK: usize = 64 * 1024;

/// Highest number at which an image sequence may begin, as in FFmpeg.
const LAST_START: u64 = 4;

/// Returns a file that begins with `first`, and continues with the rest of `pipe`. A thread copies the bytes
/// until the pipe or the reader ends, or the run is canceled.
pub(super) fn refilled(first: Vec<u8>, pipe: MediaFile) -> io::Result<MediaFile> {
    let source = File::from(pipe.as_fd().try_clone_to_owned()?);
    fed(pipe.name(), move |writer| {
        writer.write_all(&first)?;
        copy_all(&source, writer)
    })
}

/// Pattern of the names of an image sequence: a number between two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    before: String,
    /// Minimum number of digits.
    digits: usize,
    after: String,
}

impl Sequence {
    /// Reads a pattern such as `shot-%03d.png`; `None` if `path` has no `%d` or `%0Nd`.
    pub(super) fn of(path: &str) -> Option<Sequence> {
        let (before, rest) = path.split_once('%')?;
        let (digits, after) = rest.split_once('d')?;
        let digits = if digits.is_empty() { 0 } else { digits.strip_prefix('0')?.parse().ok()? };
        Some(Sequence { before: before.to_owned(), digits, after: after.to_owned() })
    }

    fn file(&self, number: u64) -> PathBuf {
        format!("{}{number:0digits$}{}", self.before, self.after, digits = self.digits).into()
    }

    /// Returns a stream of the bytes of all files, in the order of their numbers, from the first that exists to
    /// the last before a gap. The first must have a number up to 4; the stream has its name, because libavformat
    /// regards a pattern as a playlist.
    ///
    /// # Errors
    /// There is no such file.
    pub(super) fn open(self) -> io::Result<MediaFile> {
        let start = (0..=LAST_START).find(|number| self.file(*number).is_file());
        let start = start.ok_or_else(|| {
            let first = self.file(0);
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("no file {} or with a number up to {LAST_START}", first.display()),
            )
        })?;
        let name = self.file(start).display().to_string();
        fed(&name, move |writer| {
            let files = (start..).map(|number| self.file(number)).take_while(|file| file.is_file());
            for file in files {
                copy_all(&cancel::open(&file)?, writer)?;
            }
            Ok(())
        })
    }
}

/// Returns a file whose bytes a thread writes by `feed`. The reader sees an error of `feed` as the end.
fn fed(
    name: &str,
    feed: impl FnOnce(&mut UnixStream) -> io::Result<()> + Send + 'static,
) -> io::Result<MediaFile> {
    let (reader, mut writer) = UnixStream::pair()?;
    let run = move || {
        if let Err(error) = feed(&mut writer) {
            log::debug!("the demuxer's input ends: {error}");
        }
    };
    thread::Builder::new().name("fp-refill".to_owned()).spawn(run)?;
    Ok(MediaFile::from_fd(OwnedFd::from(reader), name.to_owned(), false))
}

fn copy_all(source: &File, writer: &mut UnixStream) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match cancel::read(source, &mut buffer)? {
            0 => return Ok(()),
            count => writer.write_all(&buffer[..count])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn text_of(file: &MediaFile) -> String {
        let mut text = String::new();
        File::from(file.as_fd().try_clone_to_owned().unwrap()).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn the_bytes_that_were_read_come_first() {
        let (end, mut start) = UnixStream::pair().unwrap();
        start.write_all(b" and the rest").unwrap();
        drop(start);
        let pipe = MediaFile::from_fd(OwnedFd::from(end), "pipe".to_owned(), false);
        let whole = refilled(b"the first bytes".to_vec(), pipe).unwrap();
        assert_eq!((whole.name(), whole.is_seekable()), ("pipe", false));
        assert_eq!(text_of(&whole), "the first bytes and the rest");
    }

    #[test]
    fn a_sequence_ends_at_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        for number in [2, 3, 4, 6] {
            std::fs::write(folder.path().join(format!("f{number:03}.x")), format!("{number} ")).unwrap();
        }
        let pattern = folder.path().join("f%03d.x").display().to_string();
        let sequence = Sequence::of(&pattern).unwrap();
        assert_eq!(text_of(&sequence.open().unwrap()), "2 3 4 ");
        let none = Sequence::of(&folder.path().join("g%d.x").display().to_string()).unwrap();
        assert!(none.open().unwrap_err().to_string().contains("g0.x"));
        for plain in ["film.mp4", "100%.mp4", "%s.png", "%3d.png"] {
            assert_eq!(Sequence::of(plain), None);
        }
    }
}
