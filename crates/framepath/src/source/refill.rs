// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that a thread of this process reads for a demuxer: the rest of a pipe whose first bytes were read, the
//! bytes of a pipe or device that a worker could also write, or the files of an image sequence, one after the
//! other.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use framepath_codec::{MediaFile, write_chunk};
use framepath_os::process::cancel;

/// Number of bytes that are copied at a time.
const CHUNK: usize = 64 * 1024;

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
    // The end of a sequence's connection was made in this module, and cannot write.
    if file.is_sequence() || file.is_read_only()? {
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
    let (reader, feed) = fed(move |writer| {
        writer.write_all(&first)?;
        copy_all(&source, writer)
    })?;
    Ok((MediaFile::from_fd(reader, pipe.name().to_owned(), false), feed))
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

    /// Returns an image sequence ([`MediaFile::pictures`]) of all files, in the order of their numbers, from the
    /// first that exists to the last before a gap. The first must have a number up to 4. The sequence has the name of
    /// the first file, because libavformat regards the name with the pattern as a playlist.
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
        let (reader, feed) = fed(move |writer| {
            for file in (start..).map(|number| self.file(number)) {
                if fs::symlink_metadata(&file).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                    break;
                }
                copy_picture(&file, writer)?;
            }
            Ok(())
        })?;
        Ok((MediaFile::pictures(reader, name), feed))
    }
}

/// Returns the reading end of a connection whose bytes a thread writes by `feed`, and the handle of this thread.
/// The reader sees an error of `feed` as the end of the bytes.
fn fed(feed: impl FnOnce(&mut UnixStream) -> io::Result<()> + Send + 'static) -> io::Result<(OwnedFd, Feed)> {
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
    Ok((OwnedFd::from(reader), failure))
}

/// Writes the chunks of `path`, a file of a sequence.
///
/// # Errors
/// The file cannot be read, or is no regular file; or a write failed.
fn copy_picture(path: &Path, writer: &mut UnixStream) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("open {}: {error}", path.display()));
    if !fs::metadata(path).map_err(named)?.is_file() {
        return Err(named(io::Error::new(io::ErrorKind::InvalidData, "not a regular file")));
    }
    let file = cancel::open(path).map_err(named)?;
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = cancel::read(&file, &mut buffer)?;
        write_chunk(writer, &buffer[..count])?;
        if count == 0 {
            return Ok(());
        }
    }
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
    use std::io::{Read, Seek, SeekFrom};

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
        let (reader, feed) = fed(|writer| {
            writer.write_all(b"first")?;
            Err(io::ErrorKind::PermissionDenied.into())
        })
        .unwrap();
        assert_eq!(io::read_to_string(File::from(reader)).unwrap(), "first");
        assert_eq!(feed.check().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_descriptor_for_a_worker_can_only_be_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"read before, the bytes").unwrap();
        file.seek(SeekFrom::Start(13)).unwrap();
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
            std::fs::write(folder.path().join(format!("f{number:03}.x")), number.to_string()).unwrap();
        }
        let pattern = folder.path().join("f%03d.x").display().to_string();
        let sequence = Sequence::of(&pattern).unwrap();
        // Each file is one chunk, and an empty chunk ends it.
        let three = ["2", "3", "4"].map(|text| format!("\u{1}\0\0\0{text}\0\0\0\0")).concat();
        assert_eq!(text_of(&sequence.open().unwrap().0), three);
        let none = Sequence::of(&folder.path().join("g%d.x").display().to_string()).unwrap();
        assert!(none.open().unwrap_err().to_string().contains("g0.x"));
        // A file that exists and cannot be read is an error, and no gap.
        let sixth = folder.path().join("f005.x");
        let sequence = || Sequence::of(&pattern).unwrap().open().unwrap();
        std::fs::create_dir(&sixth).unwrap();
        let (file, feed) = sequence();
        assert_eq!(text_of(&file), three);
        assert!(feed.check().unwrap_err().to_string().contains("f005.x: not a regular file"));
        std::fs::remove_dir(&sixth).unwrap();
        std::fs::write(&sixth, "").unwrap();
        let (file, feed) = sequence();
        assert_eq!(text_of(&file), format!("{three}\0\0\0\0\u{1}\0\0\x006\0\0\0\0"));
        feed.check().unwrap();
        for plain in ["film.mp4", "100%.mp4", "%s.png", "%3d.png"] {
            assert_eq!(Sequence::of(plain), None);
        }
    }
}
