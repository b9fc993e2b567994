// SPDX-License-Identifier: MIT OR Apache-2.0
//! A child process that waits before it executes its program, so that its parent can prepare the observation of
//! all that the program does.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::{self, JoinHandle};

use rustix::pipe::{PipeFlags, pipe_with};

/// Child that has not executed its program. Dropping the value ends the child; if there are several of these values, once
/// the later ones are dropped or released.
#[derive(Debug)]
pub struct HeldChild {
    pid: i32,
    /// Writing a byte releases the child; closing ends it.
    release: std::fs::File,
    /// Thread that waits until the child has executed its program.
    spawner: JoinHandle<io::Result<Child>>,
}

impl HeldChild {
    /// Starts a child for `command`.
    ///
    /// # Errors
    /// The child cannot be started.
    pub fn start(mut command: Command) -> io::Result<HeldChild> {
        let (read_pid, write_pid) = pipe_with(PipeFlags::CLOEXEC)?;
        let (read_release, write_release) = pipe_with(PipeFlags::CLOEXEC)?;
        let release = std::fs::File::from(write_release);
        let held = Held { report: write_pid, wait: read_release, release: release.as_raw_fd() };
        // SAFETY: the closure makes only system calls that are async-signal-safe.
        unsafe { command.pre_exec(move || held.wait_before_exec()) };
        // Command::spawn returns only after the child has executed its program.
        let spawner = thread::Builder::new().spawn(move || command.spawn())?;
        let mut pid = [0; 4];
        // Fails if the child could not be started: then the thread drops the other end.
        let received = std::fs::File::from(read_pid).read_exact(&mut pid);
        if received.is_err() {
            let spawned = spawner.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")));
            return Err(spawned
                .err()
                .unwrap_or_else(|| io::Error::other("the child did not report its number")));
        }
        Ok(HeldChild { pid: i32::from_ne_bytes(pid), release, spawner })
    }

    /// Returns the child's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the child execute its program, and waits until it has.
    ///
    /// # Errors
    /// The program cannot be executed.
    pub fn release(mut self) -> io::Result<Child> {
        // The child has the other end open until it executes the program; an error would be that of the spawn.
        let _ = self.release.write_all(&[1]);
        self.spawner.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    }
}

/// Descriptors of the child before it executes its program.
struct Held {
    report: OwnedFd,
    wait: OwnedFd,
    /// The parent's end of `wait`, which the child has inherited.
    release: i32,
}

impl Held {
    /// Reports the child's process id, and waits for the parent. Fails if the parent closes its end.
    fn wait_before_exec(&self) -> io::Result<()> {
        // SAFETY: plain system calls with descriptors that this process has; the buffers outlive the calls.
        unsafe {
            // Otherwise the end of the parent would not be noticed.
            libc::close(self.release);
            let pid = libc::getpid().to_ne_bytes();
            if libc::write(self.report.as_raw_fd(), pid.as_ptr().cast(), pid.len()) != pid.len() as isize {
                return Err(io::Error::last_os_error());
            }
            let mut byte = 0u8;
            loop {
                match libc::read(self.wait.as_raw_fd(), (&raw mut byte).cast(), 1) {
                    1 => return Ok(()),
                    0 => return Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                    _ if *libc::__errno_location() == libc::EINTR => {}
                    _ => return Err(io::Error::last_os_error()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_child_executes_its_program_when_it_is_released() {
        let held = HeldChild::start(Command::new("true")).unwrap();
        let name = std::fs::read_to_string(format!("/proc/{}/comm", held.pid())).unwrap();
        assert_ne!(name.trim(), "true");
        let mut child = held.release().unwrap();
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_at_the_release() {
        let held = HeldChild::start(Command::new("/nonexistent/program")).unwrap();
        assert_eq!(held.release().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_dropped_child_ends() {
        let held = HeldChild::start(Command::new("true")).unwrap();
        let HeldChild { pid: _, release, spawner } = held;
        drop(release);
        assert_eq!(spawner.join().unwrap().unwrap_err().raw_os_error(), Some(libc::ECANCELED));
    }
}
