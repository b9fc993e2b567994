// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that a thread of this process reads for a demuxer: the rest of a pipe whose first bytes were read, the
//! bytes of a pipe or device that a worker could also write, or the files of an image sequence, one after the
//! other.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use framepath_codec::MediaFile;
use framepath_os::process::cancel;

/// Number of bytes that are copied at a time.
const CHUNK: usize = 64 * 1024;

/// First bytes of a PNG file.
const PNG: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

/// Number of bytes at the end of a PNG file in which its last chunk is looked for: some programs append bytes.
const END_BYTES: u64 = 4096;

/// Highest number at which an image sequence may begin, as in FFmpeg.
const LAST_START: u64 = 4;

/// Handle of a thread that writes the bytes of a file for its demuxer: the error that ended the thread; `None`
/// if no error did.
#[derive(Clone, Debug, Default)]
pub(super) struct Feed(Arc<Mutex<Option<io::Error>>>);

impl Feed {
    /// Returns the error that ended the thread, in the first call only. Call it when the demuxer has reached
    /// the end of the bytes: without an error, they are complete.
    pub(super) fn check(&self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}

/// Returns `file` if another process that gets its descriptor can only read it; else the same file, opened for
/// reading, or the reading end of a connection through which a thread passes its bytes.
pub(super) fn read_only(file: MediaFile) -> io::Result<(MediaFile, Option<Feed>)> {
    if file.is_read_only()? {
        return Ok((file, None));
    }
    if file.is_seekable() {
        return Ok((file.reopened_to_read()?, None));
    }
    refilled(Vec::new(), file).map(|(file, feed)| (file, Some(feed)))
}

/// Returns a file that begins with `first`, and continues with the rest of `pipe`. A thread copies the bytes
/// until the pipe or the reader ends, a read or write fails, or a signal ends the program's runs.
pub(super) fn refilled(first: Vec<u8>, pipe: MediaFile) -> io::Result<(MediaFile, Feed)> {
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
    /// Minimum number of digits; zeros in front fill a shorter number.
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
    /// the last before a gap. The first must have a number up to 4. The stream has the name of the first file,
    /// because libavformat regards the name with the pattern as a playlist.
    ///
    /// # Errors
    /// No file has a number up to 4, or the thread that reads the files cannot be started. [`Feed::check`]
    /// has the errors of the files.
    pub(super) fn open(self) -> io::Result<(MediaFile, Feed)> {
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
            for file in (start..).map(|number| self.file(number)) {
                if fs::symlink_metadata(&file).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                    break;
                }
                copy_all(&open_picture(&file).map_err(|error| named(&file, &error))?, writer)?;
            }
            Ok(())
        })
    }
}

/// Returns a file with the name `name` whose bytes a thread writes by `feed`, and the handle of this thread. The
/// reader sees an error of `feed` as the end of the bytes.
fn fed(
    name: &str,
    feed: impl FnOnce(&mut UnixStream) -> io::Result<()> + Send + 'static,
) -> io::Result<(MediaFile, Feed)> {
    let (reader, mut writer) = UnixStream::pair()?;
    // The reader may belong to another process, which must not write.
    reader.shutdown(Shutdown::Write)?;
    let failure = Feed::default();
    let result = failure.clone();
    let run = move || {
        let is_of_reader = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        if let Err(error) =
            feed(&mut writer).or_else(|error| if is_of_reader(&error) { Ok(()) } else { Err(error) })
        {
            // Stored before the writer is dropped, because the reader then sees the end of the bytes.
            *result.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    };
    thread::Builder::new().name("fp-refill".to_owned()).spawn(run)?;
    Ok((MediaFile::from_fd(OwnedFd::from(reader), name.to_owned(), false), failure))
}

/// Opens a picture of a sequence.
///
/// # Errors
/// The file cannot be opened, is no regular file, or is empty; or it is a PNG file without its last chunk: its parser
/// would look for this chunk in the pictures behind it.
fn open_picture(path: &Path) -> io::Result<File> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    if !fs::metadata(path)?.is_file() {
        return Err(invalid("not a regular file"));
    }
    let file = cancel::open(path)?;
    let bytes = file.metadata()?.len();
    if bytes == 0 {
        return Err(invalid("empty file"));
    }
    let mut head = [0; PNG.len()];
    let mut end = vec![0; bytes.min(END_BYTES) as usize];
    if file.read_exact_at(&mut head, 0).is_ok() && head == *PNG {
        let behind = bytes - end.len() as u64;
        file.read_exact_at(&mut end, behind)?;
        if !end.windows(4).any(|four| four == b"IEND") {
            return Err(invalid("the picture is cut off"));
        }
    }
    Ok(file)
}

/// Returns `error` with the name of the file that it belongs to.
fn named(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("open {}: {error}", file.display()))
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
        let (whole, feed) = refilled(b"the first bytes".to_vec(), pipe).unwrap();
        assert_eq!((whole.name(), whole.is_seekable()), ("pipe", false));
        assert_eq!(text_of(&whole), "the first bytes and the rest");
        feed.check().unwrap();
    }

    #[test]
    fn an_error_of_a_later_file_is_kept() {
        let (file, feed) = fed("f", |writer| {
            writer.write_all(b"first")?;
            Err(io::ErrorKind::PermissionDenied.into())
        })
        .unwrap();
        assert_eq!(text_of(&file), "first");
        assert_eq!(feed.check().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_descriptor_for_a_worker_can_only_be_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"the bytes").unwrap();
        let media = MediaFile::from_fd(file.into(), "file".to_owned(), true);
        assert!(!media.is_read_only().unwrap());
        let (ready, feed) = read_only(media).unwrap();
        assert!(ready.is_read_only().unwrap() && feed.is_none());
        assert_eq!(text_of(&ready), "the bytes");
        // A socket has no mode: its bytes are passed on, through an end that cannot write.
        let (end, mut start) = UnixStream::pair().unwrap();
        start.write_all(b"more").unwrap();
        drop(start);
        let media = MediaFile::from_fd(OwnedFd::from(end), "socket".to_owned(), false);
        let (ready, feed) = read_only(media).unwrap();
        let mut end = UnixStream::from(ready.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(end.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(text_of(&ready), "more");
        feed.unwrap().check().unwrap();
    }

    #[test]
    fn a_sequence_ends_at_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        for number in [2, 3, 4, 6] {
            std::fs::write(folder.path().join(format!("f{number:03}.x")), format!("{number} ")).unwrap();
        }
        let pattern = folder.path().join("f%03d.x").display().to_string();
        let sequence = Sequence::of(&pattern).unwrap();
        assert_eq!(text_of(&sequence.open().unwrap().0), "2 3 4 ");
        let none = Sequence::of(&folder.path().join("g%d.x").display().to_string()).unwrap();
        assert!(none.open().unwrap_err().to_string().contains("g0.x"));
        // A file that exists and cannot be read is an error, and no gap.
        let sixth = folder.path().join("f005.x");
        let sequence = || Sequence::of(&pattern).unwrap().open().unwrap();
        std::fs::create_dir(&sixth).unwrap();
        let (file, feed) = sequence();
        assert_eq!(text_of(&file), "2 3 4 ");
        assert!(feed.check().unwrap_err().to_string().contains("f005.x: not a regular file"));
        std::fs::remove_dir(&sixth).unwrap();
        for (bytes, reason) in
            [(&b""[..], "empty file"), (b"\x89PNG\r\n\x1a\nIHDR", "the picture is cut off")]
        {
            std::fs::write(&sixth, bytes).unwrap();
            let (file, feed) = sequence();
            assert_eq!(text_of(&file), "2 3 4 ");
            assert!(feed.check().unwrap_err().to_string().contains(reason));
        }
        std::fs::write(&sixth, b"\x89PNG\r\n\x1a\n IEND 5 ").unwrap();
        let (file, feed) = sequence();
        File::from(file.as_fd().try_clone_to_owned().unwrap()).read_to_end(&mut Vec::new()).unwrap();
        feed.check().unwrap();
        for plain in ["film.mp4", "100%.mp4", "%s.png", "%3d.png"] {
            assert_eq!(Sequence::of(plain), None);
        }
    }
}
