// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pipe whose first bytes this process has read, refilled for a worker.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use framepath_codec::MediaFile;
use framepath_os::process::cancel;

/// Number of bytes that are copied at a time.
const CHUNK: usize = 64 * 1024;

/// Returns a file that begins with `first`, and continues with the rest of `pipe`. A thread copies the bytes
/// until the pipe or the reader ends, or the run is canceled.
pub(super) fn refilled(first: Vec<u8>, pipe: MediaFile) -> io::Result<MediaFile> {
    let (reader, mut writer) = UnixStream::pair()?;
    let name = pipe.name().to_owned();
    let source = std::fs::File::from(pipe.as_fd().try_clone_to_owned()?);
    let copy = move || {
        // An error means that the reader has ended, or the pipe cannot be read. The reader then sees the end.
        let _ = copy_all(&first, &source, &mut writer);
    };
    thread::Builder::new().name("fp-refill".to_owned()).spawn(copy)?;
    Ok(MediaFile::from_fd(OwnedFd::from(reader), name, false))
}

fn copy_all(first: &[u8], source: &std::fs::File, writer: &mut UnixStream) -> io::Result<()> {
    writer.write_all(first)?;
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

    #[test]
    fn the_bytes_that_were_read_come_first() {
        let (end, mut start) = UnixStream::pair().unwrap();
        start.write_all(b" and the rest").unwrap();
        drop(start);
        let pipe = MediaFile::from_fd(OwnedFd::from(end), "pipe".to_owned(), false);
        let whole = refilled(b"the first bytes".to_vec(), pipe).unwrap();
        assert_eq!((whole.name(), whole.is_seekable()), ("pipe", false));
        let mut text = String::new();
        std::fs::File::from(whole.as_fd().try_clone_to_owned().unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "the first bytes and the rest");
    }
}
