// SPDX-License-Identifier: MIT OR Apache-2.0
//! File input of libavformat. The time of [`MediaFile::open`] and of every read is recorded as
//! blocked.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use ffmpeg_sys_next as ff;
use framepath_os::measure::meter;
use framepath_os::process::cancel;
use framepath_os::process::signal;

use crate::byte_client::ByteClient;
use crate::network_input::has_too_many_redirects;
use crate::{CodecError, shortage};

/// Size of the buffer through which libavformat reads the input, bytes: few calls for a 1080p
/// stream, and small compared with a decoded picture. Larger reads of libavformat bypass the
/// buffer.
const BUFFER_BYTES: usize = 256 * 1024;

/// Maximum number of bytes that [`MediaFile::keep_bytes`] keeps. Three times as many as libavformat examines to
/// recognize a stream; without a limit, a pipe of zeros would fill the memory.
const MOST_KEPT: usize = 16 << 20;

/// Input of a demuxer in this process or another: a media file that is open for reading, or a
/// socket on which the demuxer requests the file's bytes.
#[derive(Debug)]
pub struct MediaFile {
    file: File,
    /// True if `file` is a socket on which a demuxer requests the bytes from another process.
    requested: bool,
    /// Size of an input whose bytes are requested; `None` if it is not known, and for files.
    size: Option<u64>,
    /// True if `file` has the files of an image sequence, in chunks ([`write_chunk`](crate::write_chunk)).
    sequence: bool,
    name: String,
    seekable: bool,
    /// Receiver of a copy of the bytes that a demuxer reads; `None` without a call of
    /// [`keep_bytes`](MediaFile::keep_bytes).
    read_bytes: Option<ReadBytes>,
}

impl MediaFile {
    /// Opens `path`. Rejects directories and empty files here, because later errors would not
    /// name the reason.
    ///
    /// # Errors
    /// [`CodecError::Io`], [`CodecError::IsDirectory`], [`CodecError::Empty`].
    pub fn open(path: &Path) -> Result<MediaFile, CodecError> {
        let name = path.display().to_string();
        let failed =
            |operation| move |source| CodecError::Io { file: path.display().to_string(), operation, source };
        let mut file = meter::blocked(|| cancel::open(path)).map_err(failed("open"))?;
        let metadata = file.metadata().map_err(failed("stat"))?;
        if metadata.is_dir() {
            return Err(CodecError::IsDirectory { file: name });
        }
        // A file of /proc reports the size 0 and has bytes.
        if metadata.is_file() && metadata.len() == 0 {
            if meter::blocked(|| cancel::read(&file, &mut [0])).map_err(failed("read"))? == 0 {
                return Err(CodecError::Empty { file: name });
            }
            file.rewind().map_err(failed("rewind"))?;
        }
        Ok(MediaFile::new(file, name, metadata.is_file()))
    }

    /// Opens standard input; reading begins at its present position, also if it is a regular file.
    ///
    /// # Errors
    /// Standard input is closed, or there are no descriptors left.
    pub fn standard_input() -> io::Result<MediaFile> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let seekable = file.metadata()?.is_file();
        Ok(MediaFile::new(file, "standard input".to_owned(), seekable))
    }

    /// Returns true if the descriptor gives another process no right but to read the file: it was opened for
    /// reading only, and is no socket.
    ///
    /// # Errors
    /// From fcntl(2) or fstat(2).
    pub fn is_read_only(&self) -> io::Result<bool> {
        // SAFETY: reads the flags of a descriptor that lives as long as `self`.
        let flags = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETFL) };
        if flags < 0 {
            return Err(io::Error::last_os_error());
        }
        let is_socket = self.file.metadata()?.file_type().is_socket();
        Ok(flags & libc::O_ACCMODE == libc::O_RDONLY && !is_socket)
    }

    /// Opens the same regular file for reading only, at the present position, through `/proc/self/fd`.
    ///
    /// # Errors
    /// From open(2), for example if the user may not read the file, or `/proc` is missing.
    /// ECANCELED if a signal ends the program during the call.
    pub fn reopened_to_read(&self) -> io::Result<MediaFile> {
        let mut file = cancel::open(Path::new(&format!("/proc/self/fd/{}", self.file.as_raw_fd())))?;
        file.seek(SeekFrom::Start(self.position()?))?;
        Ok(MediaFile::new(file, self.name.clone(), self.seekable))
    }

    /// Creates the input from the open file or pipe `fd`, for example one that another process
    /// opened. `name` is for errors, and its extension is a hint for the container. `seekable` has
    /// to be true only for a regular file.
    pub fn from_fd(fd: OwnedFd, name: String, seekable: bool) -> MediaFile {
        MediaFile::new(File::from(fd), name, seekable)
    }

    /// Creates an input whose bytes another process reads: a demuxer requests them on `socket`
    /// ([`framepath_model::wire::ByteRequest`]). `size` is the number of bytes, if it is known. `name` and
    /// `seekable` are as for [`from_fd`](MediaFile::from_fd).
    pub fn by_requests(socket: OwnedFd, name: String, seekable: bool, size: Option<u64>) -> MediaFile {
        MediaFile { requested: true, size, ..MediaFile::new(File::from(socket), name, seekable) }
    }

    /// Creates the input from `fd`, a pipe or socket with the files of an image sequence, each in the chunks
    /// of [`write_chunk`](crate::write_chunk). `name` is for errors.
    pub fn pictures(fd: OwnedFd, name: String) -> MediaFile {
        MediaFile { sequence: true, ..MediaFile::new(File::from(fd), name, false) }
    }

    fn new(file: File, name: String, seekable: bool) -> MediaFile {
        MediaFile { file, requested: false, size: None, sequence: false, name, seekable, read_bytes: None }
    }

    /// Returns another handle to the open file, which shares the position. The new handle keeps no
    /// bytes ([`keep_bytes`](MediaFile::keep_bytes)).
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn try_clone(&self) -> io::Result<MediaFile> {
        Ok(MediaFile {
            requested: self.requested,
            size: self.size,
            sequence: self.sequence,
            ..MediaFile::new(self.file.try_clone()?, self.name.clone(), self.seekable)
        })
    }

    /// Returns the position of the next read, bytes from the file's start. The stream of a demuxer begins at the
    /// position at which the demuxer gets the file, which is not 0 if a reader of standard input has read before.
    ///
    /// # Errors
    /// The file is not seekable, or its bytes are requested.
    pub fn position(&self) -> io::Result<u64> {
        (&self.file).stream_position()
    }

    /// Moves the file to `position`, for all handles.
    ///
    /// # Errors
    /// As [`position`](MediaFile::position).
    pub fn set_position(&mut self, position: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(position)).map(drop)
    }

    /// Makes a demuxer that reads from this handle keep a copy of the bytes, until the copy is
    /// taken from the returned [`ReadBytes`]. If the copy would exceed 16 MiB, the demuxer drops
    /// all of it. Another call returns a handle to the same copy.
    pub fn keep_bytes(&mut self) -> ReadBytes {
        self.read_bytes.get_or_insert_with(|| ReadBytes(Arc::new(Mutex::new(Some(Vec::new()))))).clone()
    }

    /// Returns the file's name for errors: the path as specified by the user, `standard input`, or
    /// the name given to [`from_fd`](MediaFile::from_fd) or
    /// [`by_requests`](MediaFile::by_requests).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the file can be read again from its start: it is a regular file, not a pipe
    /// or a device.
    pub fn is_seekable(&self) -> bool {
        self.seekable
    }

    /// Returns true if the input is an image sequence: it was created by [`pictures`](MediaFile::pictures).
    pub fn is_sequence(&self) -> bool {
        self.sequence
    }

    /// Returns the file, for a demuxer that reads the chunks of an image sequence itself.
    pub(crate) fn into_file(self) -> File {
        self.file
    }
}

/// Copy of the bytes that a demuxer has read from a file, so that another demuxer can read the same
/// pipe from its start. Clones share the copy.
#[derive(Clone, Debug)]
pub struct ReadBytes(Arc<Mutex<Option<Vec<u8>>>>);

impl ReadBytes {
    /// Ends the copying, and returns the bytes so far; `None` if they were too many to be kept, or were taken
    /// before.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *kept {
            Some(so_far) if so_far.len() + bytes.len() <= MOST_KEPT => so_far.extend_from_slice(bytes),
            _ => *kept = None,
        }
    }
}

impl AsFd for MediaFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Bytes of an input, with the position of the next read.
enum Bytes {
    /// Bytes of an open file, from `start` on. Positions count from `start`; it is 0 for a pipe or a device.
    File { file: File, start: u64 },
    /// Bytes that another process reads.
    Requested(ByteClient),
    /// Bytes in memory.
    Memory(Cursor<Vec<u8>>),
}

impl Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Bytes::File { file, .. } => cancel::read(file, buffer),
            Bytes::Requested(client) => client.read(buffer),
            Bytes::Memory(bytes) => bytes.read(buffer),
        }
    }

    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Bytes::File { file, start } => {
                let to = match to {
                    SeekFrom::Start(offset) => SeekFrom::Start(start.saturating_add(offset)),
                    relative => relative,
                };
                file.seek(to)?.checked_sub(*start).ok_or_else(|| io::ErrorKind::InvalidInput.into())
            }
            Bytes::Requested(client) => client.seek(to),
            Bytes::Memory(bytes) => bytes.seek(to),
        }
    }

    /// Returns the file's size by seeking to its end and back, because a sandbox allows no other way.
    fn size(&mut self) -> io::Result<u64> {
        let position = self.seek(SeekFrom::Current(0))?;
        let size = self.seek(SeekFrom::End(0))?;
        self.seek(SeekFrom::Start(position))?;
        Ok(size)
    }
}

/// Bytes and error that the callbacks of one `AVIOContext` share. Boxed, so that its address does
/// not change.
struct Reader {
    bytes: Bytes,
    /// Receiver of a copy of the bytes; `None` without a call of [`MediaFile::keep_bytes`].
    read_bytes: Option<ReadBytes>,
    /// Last error of a read; `None` if no read failed since the error was taken, or since the last
    /// [`rewind`](ContainerInput::rewind). Kept here, because libav passes on only the error's
    /// number, or nothing. Errors of seeks are not kept.
    error: Option<io::Error>,
}

/// Open file, or bytes requested from another process, and the `AVIOContext` that reads them.
pub(crate) struct ContainerInput {
    context: NonNull<ff::AVIOContext>,
    reader: NonNull<Reader>,
    /// True if the file can be read again from its start: it is a regular file, not a pipe or a
    /// device.
    pub(crate) seekable: bool,
}

// SAFETY: only this value owns the context and the reader, and neither is tied to the thread that
// made it.
unsafe impl Send for ContainerInput {}

impl ContainerInput {
    /// Creates the I/O context that reads `file`. The current position is the start of the stream. Fails without
    /// memory, or if a seekable file has no position.
    pub(crate) fn new(file: MediaFile) -> Result<ContainerInput, CodecError> {
        let start = if file.seekable && !file.requested { file.position() } else { Ok(0) };
        let start =
            start.map_err(|source| CodecError::Io { file: file.name.clone(), operation: "open", source })?;
        let MediaFile { file, requested, size, sequence: _, name, seekable, read_bytes } = file;
        let bytes = match requested {
            true => Bytes::Requested(ByteClient::new(OwnedFd::from(file).into(), size)),
            false => Bytes::File { file, start },
        };
        ContainerInput::reading(Reader { bytes, read_bytes, error: None }, name, seekable)
    }

    /// Creates the I/O context that reads `bytes`. `name` is for errors. Fails only without memory.
    pub(crate) fn of_bytes(bytes: Vec<u8>, name: String) -> Result<ContainerInput, CodecError> {
        let bytes = Bytes::Memory(Cursor::new(bytes));
        ContainerInput::reading(Reader { bytes, read_bytes: None, error: None }, name, true)
    }

    fn reading(reader: Reader, name: String, seekable: bool) -> Result<ContainerInput, CodecError> {
        let no_memory =
            || CodecError::Io { file: name, operation: "open", source: io::ErrorKind::OutOfMemory.into() };

        let reader = Box::into_raw(Box::new(reader));
        // SAFETY: the buffer is from av_malloc, as avio_alloc_context requires, and belongs to
        // the context afterwards. On failure the buffer and the reader are still ours to free.
        // The callbacks get `reader`, which `ContainerInput` keeps alive longer than the context.
        unsafe {
            let buffer = ff::av_malloc(BUFFER_BYTES).cast::<u8>();
            let context = if buffer.is_null() {
                std::ptr::null_mut()
            } else {
                ff::avio_alloc_context(
                    buffer,
                    BUFFER_BYTES as c_int,
                    0,
                    reader.cast(),
                    Some(read),
                    None,
                    seekable.then_some(seek as SeekCallback),
                )
            };
            match NonNull::new(context) {
                Some(context) => {
                    Ok(ContainerInput { context, reader: NonNull::new_unchecked(reader), seekable })
                }
                None => {
                    ff::av_free(buffer.cast());
                    drop(Box::from_raw(reader));
                    Err(no_memory())
                }
            }
        }
    }

    /// Returns the context for `AVFormatContext::pb`; valid while `self` lives.
    pub(crate) fn as_ptr(&self) -> *mut ff::AVIOContext {
        self.context.as_ptr()
    }

    /// Moves the file back to the stream's first byte, and clears the context's buffer and the kept error.
    /// Fails if the file is not seekable.
    pub(crate) fn rewind(&mut self) -> io::Result<()> {
        // SAFETY: the reader lives as long as `self`, and its callbacks run
        // only inside calls that borrow `self` mutably.
        let reader = unsafe { self.reader.as_mut() };
        reader.error = None;
        reader.bytes.seek(SeekFrom::Start(0))?;
        let context = self.context.as_ptr();
        // SAFETY: the context is valid. Its buffer is cleared by hand, because avio_seek would
        // keep a position inside it.
        unsafe {
            (*context).buf_ptr = (*context).buffer;
            (*context).buf_end = (*context).buffer;
            (*context).pos = 0;
            (*context).eof_reached = 0;
            (*context).error = 0;
        }
        Ok(())
    }

    /// Returns true if a read since the last seek or rewind has reached the end of the file, or has
    /// failed.
    pub(crate) fn is_at_end(&self) -> bool {
        // SAFETY: the context is valid.
        unsafe { (*self.context.as_ptr()).eof_reached != 0 }
    }

    /// Takes the error of the last failed read of the file, which libav may have hidden behind a success or
    /// the end of the file; `None` if no read failed since the last call or rewind.
    pub(crate) fn take_error(&mut self) -> Option<io::Error> {
        // SAFETY: as in `rewind`.
        unsafe { self.reader.as_mut() }.error.take()
    }
}

impl Drop for ContainerInput {
    fn drop(&mut self) {
        let mut context = self.context.as_ptr();
        // SAFETY: nothing uses the context any more, because the demuxer is closed first. libav
        // may have replaced the buffer, so the current buffer is freed, then the context, then
        // the reader.
        unsafe {
            ff::av_freep((&raw mut (*context).buffer).cast());
            ff::avio_context_free(&mut context);
            drop(Box::from_raw(self.reader.as_ptr()));
        }
    }
}

/// Callback that ends libavformat's own waits and searches after SIGINT or SIGTERM to this process,
/// when the run of the calling thread was requested to stop, or after too many redirections of an RTSP server.
pub(crate) const INTERRUPT: ff::AVIOInterruptCB =
    ff::AVIOInterruptCB { callback: Some(interrupted), opaque: std::ptr::null_mut() };

unsafe extern "C" fn interrupted(_: *mut c_void) -> c_int {
    c_int::from(signal::interrupted() || has_too_many_redirects())
}

type SeekCallback = unsafe extern "C" fn(*mut c_void, i64, c_int) -> i64;

fn errno(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Callback of the I/O context: reads up to `size` bytes into `buffer`. Returns their number, or a
/// negative error code: `AVERROR_EOF` at the end of the file, ECANCELED after a signal or a stop
/// request. Keeps the error in the [`Reader`]. No path in it panics, so nothing unwinds into C.
unsafe extern "C" fn read(opaque: *mut c_void, buffer: *mut u8, size: c_int) -> c_int {
    // SAFETY: `opaque` is the reader passed to avio_alloc_context. libav calls back only within a
    // call of ours, which borrows the input exclusively.
    let reader = unsafe { &mut *opaque.cast::<Reader>() };
    let Ok(length) = usize::try_from(size) else { return ff::AVERROR(libc::EINVAL) };
    // SAFETY: libav owns `size` writable bytes at `buffer`. They may be uninitialised; the read
    // only writes them.
    let buffer = unsafe { slice::from_raw_parts_mut(buffer, length) };
    // Checked before each read, because reads of a regular file are never interrupted, and libavformat may read a
    // whole file in one call.
    let next = || if signal::interrupted() { Err(cancel::canceled()) } else { reader.bytes.read(buffer) };
    match shortage::keep_over(|| meter::blocked(next)) {
        Ok(0) => ff::AVERROR_EOF,
        Ok(count) => {
            if let Some(copy) = &reader.read_bytes {
                copy.add(&buffer[..count]);
            }
            count as c_int
        }
        Err(error) => {
            let code = ff::AVERROR(errno(&error));
            reader.error = Some(error);
            code
        }
    }
}

/// Callback of the I/O context: moves the file's position and returns it, or returns the file's
/// size for `AVSEEK_SIZE`. Returns a negative error code on failure. No path in it panics.
unsafe extern "C" fn seek(opaque: *mut c_void, offset: i64, whence: c_int) -> i64 {
    // SAFETY: as in `read`.
    let reader = unsafe { &mut *opaque.cast::<Reader>() };
    let whence = whence & !(ff::AVSEEK_FORCE as c_int);
    let result = shortage::keep_over(|| {
        if whence == ff::AVSEEK_SIZE as c_int {
            return reader.bytes.size();
        }
        match (whence, u64::try_from(offset)) {
            (libc::SEEK_SET, Ok(offset)) => reader.bytes.seek(SeekFrom::Start(offset)),
            (libc::SEEK_CUR, _) => reader.bytes.seek(SeekFrom::Current(offset)),
            (libc::SEEK_END, _) => reader.bytes.seek(SeekFrom::End(offset)),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    });
    match result {
        Ok(position) => i64::try_from(position).unwrap_or(i64::MAX),
        Err(error) => i64::from(ff::AVERROR(errno(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_bytes_are_not_kept() {
        let kept = ReadBytes(Arc::new(Mutex::new(Some(Vec::new()))));
        kept.add(b"abc");
        kept.add(b"d");
        assert_eq!(kept.take().as_deref(), Some(&b"abcd"[..]));
        kept.add(b"e");
        assert_eq!(kept.take(), None);
        let kept = ReadBytes(Arc::new(Mutex::new(Some(Vec::new()))));
        kept.add(&vec![0; MOST_KEPT]);
        kept.add(b"one more");
        assert_eq!(kept.take(), None);
    }
}
