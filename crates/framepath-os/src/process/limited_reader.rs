// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of files in /proc that a hostile process can keep from ever ending.
//!
//! `/proc/PID/fdinfo/N` takes a lock of the object behind the descriptor. Its program can hold the lock of an epoll(7) forever: by an
//! epoll_wait(2) into a page of a file system (FUSE) whose daemon does not answer. No signal ends the wait for that lock, not even
//! SIGKILL. The user of the process does not tell whether the object is trusted: a set-user-ID program inherits descriptors from the
//! user that starts it, and a service gets them through sockets.
//!
//! Therefore a child reads, and this process waits for the answer with a limit. The child stays for further reads, because a fork for
//! each one takes too long. A child that does not answer is killed and left alone. It ends when its read does, and until then keeps
//! nothing of this process but a copy of the memory: no descriptor, above all no probe, and no folder.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use super::memory_words::{close_others, end_child, wait_for_answer};

/// Most bytes of a file that are read.
pub const MOST_BYTES: usize = 64 << 10;

/// Most bytes of a path.
const PATH_BYTES: usize = 128;

/// Bytes of an answer in front of the file's: the error's number, or 0.
const HEAD_BYTES: usize = 4;

/// Most children of one reader that do not answer.
const MOST_LOST: u32 = 4;

/// Reader of files with a limit of the time. Its child starts at the first read.
#[derive(Debug, Default)]
pub struct LimitedReader {
    child: Option<ReadingChild>,
    /// Number of children that did not answer.
    lost: u32,
}

#[derive(Debug)]
struct ReadingChild {
    pid: libc::pid_t,
    socket: OwnedFd,
}

impl LimitedReader {
    /// Returns the first bytes of the file at `path`, at most [`MOST_BYTES`]. The path must mean the same in a child of this process:
    /// none below `/proc/self`.
    ///
    /// # Errors
    /// `TimedOut` if the read takes longer than `limit`, `Unsupported` for all further files when that was so four times; the file
    /// cannot be read; the path is longer than 128 bytes; there can be no child.
    pub fn read(&mut self, path: &Path, limit: Duration) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + limit;
        let path: &OsStr = path.as_ref();
        if path.len() > PATH_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.lost >= MOST_LOST {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let child = match self.child.take() {
            Some(child) => child,
            None => ReadingChild::start()?,
        };
        match child.read(path.as_bytes(), deadline) {
            Ok(answer) => {
                self.child = Some(child);
                answer
            }
            Err(error) => {
                child.end(libc::WNOHANG);
                self.lost += 1;
                Err(error)
            }
        }
    }
}

impl Drop for LimitedReader {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // It waits for this process alone, so it ends at once.
            child.end(0);
        }
    }
}

impl ReadingChild {
    fn start() -> io::Result<ReadingChild> {
        let (socket, of_child) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // The terminal's signals go to the child, too, where no handler of this process may run.
        // SAFETY: sigfillset initialises its set; pthread_sigmask reads it and fills the other.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            let refused = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            if refused != 0 {
                return Err(io::Error::from_raw_os_error(refused));
            }
        }
        // SAFETY: the child makes only system calls, and ends by one.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: this is the child, which has the descriptor.
            unsafe { answer_reads(of_child.as_raw_fd()) }
        }
        let error = io::Error::last_os_error();
        // SAFETY: filled by the first call, which succeeded.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
        match pid {
            -1 => Err(error),
            pid => Ok(ReadingChild { pid, socket }),
        }
    }

    /// Reads the file at `path`. The inner error is the file's.
    ///
    /// # Errors
    /// `TimedOut` behind the deadline; the child has ended.
    fn read(&self, path: &[u8], deadline: Instant) -> io::Result<io::Result<Vec<u8>>> {
        send(&self.socket, path, SendFlags::NOSIGNAL)?;
        wait_for_answer(&self.socket, deadline)?;
        let mut answer = vec![0; HEAD_BYTES + MOST_BYTES];
        let (length, _) = recv(&self.socket, &mut answer[..], RecvFlags::DONTWAIT)?;
        let (head, bytes) = answer[..length].split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(match i32::from_ne_bytes(*head) {
            0 => Ok(bytes.to_vec()),
            error => Err(io::Error::from_raw_os_error(error)),
        })
    }

    /// Kills the child, and waits for it as `flags` of waitpid(2) say.
    fn end(self, flags: libc::c_int) {
        // SAFETY: only this function waits for the child, once.
        unsafe { end_child(self.pid, flags) };
    }
}

/// Reads the files whose paths come from `socket`, until the other end is closed, and ends this process.
///
/// # Safety
/// This process is a child of [`libc::fork`] that has done nothing yet, with all signals blocked. The descriptor is open.
unsafe fn answer_reads(socket: RawFd) -> ! {
    // SAFETY: plain system calls; the buffers outlive them, and have as many bytes as the calls are told. Nothing here allocates,
    // locks or returns.
    unsafe {
        if !close_others(socket, socket) {
            libc::_exit(1);
        }
        libc::chdir(c"/".as_ptr());
        let mut answer = [0u8; HEAD_BYTES + MOST_BYTES];
        loop {
            // Ends with a zero.
            let mut path = [0u8; PATH_BYTES + 1];
            if libc::recv(socket, path.as_mut_ptr().cast(), PATH_BYTES, 0) <= 0 {
                libc::_exit(0);
            }
            let mut filled = 0;
            let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_NOCTTY);
            let mut error = if file < 0 { *libc::__errno_location() } else { 0 };
            while file >= 0 && filled < MOST_BYTES {
                let to = answer.as_mut_ptr().add(HEAD_BYTES + filled);
                match libc::read(file, to.cast(), MOST_BYTES - filled) {
                    0 => break,
                    // The bytes read before an error count.
                    -1 => {
                        error = if filled == 0 { *libc::__errno_location() } else { 0 };
                        break;
                    }
                    read => filled += read as usize,
                }
            }
            libc::close(file);
            answer.as_mut_ptr().cast::<[u8; HEAD_BYTES]>().write(error.to_ne_bytes());
            libc::send(socket, answer.as_ptr().cast(), HEAD_BYTES + filled, libc::MSG_NOSIGNAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn a_file_has_its_bytes_or_its_error() {
        let folder = tempfile::tempdir().unwrap();
        let (short, long) = (folder.path().join("short"), folder.path().join("long"));
        let bytes: Vec<u8> = (0..2 * MOST_BYTES).map(|n| (n / 7) as u8).collect();
        fs::write(&short, b"some\0bytes").unwrap();
        fs::write(&long, &bytes).unwrap();
        let mut reader = LimitedReader::default();
        assert_eq!(reader.read(&short, LIMIT).unwrap(), b"some\0bytes");
        assert_eq!(reader.read(&long, LIMIT).unwrap(), bytes[..MOST_BYTES]);
        assert_eq!(reader.read(Path::new("/dev/null"), LIMIT).unwrap(), b"");
        let kind = |error: io::Error| error.kind();
        assert_eq!(reader.read(Path::new("/no/such"), LIMIT).map_err(kind), Err(io::ErrorKind::NotFound));
        assert_eq!(reader.read(folder.path(), LIMIT).map_err(kind), Err(io::ErrorKind::IsADirectory));
        let path = "/".repeat(PATH_BYTES + 1);
        assert_eq!(reader.read(Path::new(&path), LIMIT).map_err(kind), Err(io::ErrorKind::InvalidInput));
        // All of it was one child, which has nothing open but its socket, and ends with the reader.
        let own = format!("/proc/{}", reader.child.as_ref().unwrap().pid);
        assert_eq!(fs::read_dir(format!("{own}/fd")).unwrap().count(), 1);
        assert_eq!(fs::read_link(format!("{own}/cwd")).unwrap(), Path::new("/"));
        assert_eq!(reader.lost, 0);
        drop(reader);
        assert!(!Path::new(&own).exists());
    }

    #[test]
    fn a_read_without_an_end_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let (fifo, file) = (folder.path().join("fifo"), folder.path().join("file"));
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        fs::write(&file, b"bytes").unwrap();
        let mut reader = LimitedReader::default();
        for _ in 0..MOST_LOST {
            assert_eq!(reader.read(&file, LIMIT).unwrap(), b"bytes");
            // The open waits for the other end of the FIFO.
            let error = reader.read(&fifo, Duration::from_millis(20)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(reader.read(&file, LIMIT).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
