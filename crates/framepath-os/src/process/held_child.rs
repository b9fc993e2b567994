// SPDX-License-Identifier: MIT OR Apache-2.0
//! A child process that waits before it executes its program, so that its parent can prepare the observation of
//! all that the program does.
//!
//! The child is forked here and not by [`Command::spawn`], which returns only when the program runs: a thread that waits for
//! that would count as a process of the user and of the cgroup, and a child that is given up would print an error and abort.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::pipe::{PipeFlags, pipe_with};

use super::children::{self, ResourceUsage};

/// Child that has not executed its program. Dropping the value ends the child, which prints nothing and leaves no core file; the
/// child also ends with this process.
#[derive(Debug)]
pub struct HeldChild {
    pid: i32,
    /// A byte releases the child; the end of this process ends it.
    release: File,
    /// Receives the error if the program cannot be executed, and ends when the program runs.
    report: File,
    /// True if the child needs no end here: it was released, or has ended and was waited for.
    is_free: bool,
}

/// Child that executes its program and was not waited for.
#[derive(Debug)]
pub struct ReleasedChild {
    pid: i32,
}

/// Report of a child that is ready for its release; another number is that of an error.
const READY: i32 = 0;

impl HeldChild {
    /// Starts a child for `command`, whose standard files must not be new pipes: those would be the child's. Call this where no
    /// other thread changes the environment.
    ///
    /// # Errors
    /// The child cannot be started.
    pub fn start(command: &mut Command) -> io::Result<HeldChild> {
        let (report, write_report) = pipe_with(PipeFlags::CLOEXEC)?;
        let (wait, release) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: the child uses copies of what this thread owns. It allocates, which the C library allows behind a fork, also
        // where other threads run. It ends in `execute`.
        let pid = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                // Otherwise the child would not notice the end of its parent.
                drop((report, release));
                execute(command, &write_report, wait)
            }
            pid => pid,
        };
        drop((write_report, wait));
        let mut held =
            HeldChild { pid, release: File::from(release), report: File::from(report), is_free: false };
        match held.receive()? {
            Some(READY) => Ok(held),
            Some(number) => Err(io::Error::from_raw_os_error(number)),
            None => Err(io::Error::other("the child has ended before its program was executed")),
        }
    }

    /// Returns the child's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the child execute its program, and waits until it has. Succeeds, too, if a signal has ended the child.
    ///
    /// # Errors
    /// The program cannot be executed; then the child has ended.
    pub fn release(mut self) -> io::Result<ReleasedChild> {
        // Fails if the child has ended.
        let _ = self.release.write_all(&[1]);
        match self.receive()? {
            None => {
                self.is_free = true;
                Ok(ReleasedChild { pid: self.pid })
            }
            Some(number) => Err(io::Error::from_raw_os_error(number)),
        }
    }

    /// Waits for a report of the child; `None` if there will be none.
    fn receive(&mut self) -> io::Result<Option<i32>> {
        let mut number = [0; 4];
        match self.report.read_exact(&mut number) {
            Ok(()) => Ok(Some(i32::from_ne_bytes(number))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for HeldChild {
    fn drop(&mut self) {
        if self.is_free {
            return;
        }
        // By a signal, because other children may have copies of the descriptor that releases this one.
        // SAFETY: plain system call; the child was not waited for, so the number is still its own.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        let _ = children::wait_for(self.pid);
    }
}

impl ReleasedChild {
    /// Returns the child's process id.
    pub fn id(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Sends the signal with number `signal`. Succeeds without an effect if the child has ended.
    ///
    /// # Errors
    /// The child has another user.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        children::signal_process(self.id(), signal)
    }

    /// Waits for the end of the child, as [`children::wait`] does.
    ///
    /// # Errors
    /// As for [`children::wait`].
    pub fn wait(self) -> io::Result<ResourceUsage> {
        children::wait_for(self.pid)
    }
}

/// Prepares this process, a new child, for `command`, waits until `wait` has a byte, and executes the command. Never returns.
fn execute(command: &mut Command, report: &OwnedFd, wait: OwnedFd) -> ! {
    let number = report.as_raw_fd();
    let send = move |error: i32| {
        // SAFETY: plain system call with an open descriptor; the buffer outlives it. Fails if the parent has ended.
        unsafe { libc::write(number, (&raw const error).cast(), size_of::<i32>()) };
    };
    // Last among the functions of the command, which may take some time and fail.
    // SAFETY: the closure makes only system calls that are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            send(READY);
            wait_for_release(&wait);
            Ok(())
        });
    }
    send(command.exec().raw_os_error().unwrap_or(libc::EINVAL));
    // SAFETY: ends this process without what the program registered for its end.
    unsafe { libc::_exit(127) }
}

/// Waits for a byte. Ends this process if the other end is closed first.
fn wait_for_release(wait: &OwnedFd) {
    let mut byte = 0u8;
    // SAFETY: plain system calls with an open descriptor; the buffer outlives them.
    unsafe {
        loop {
            match libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1) {
                1 => return,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(127),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_held_child_executes_its_program_when_it_is_released() {
        let mut command = Command::new("true");
        let held = HeldChild::start(&mut command).unwrap();
        let name = fs::read_to_string(format!("/proc/{}/comm", held.pid())).unwrap();
        assert_ne!(name.trim(), "true");
        let child = held.release().unwrap();
        assert_eq!(child.wait().unwrap().exit_code, Some(0));
        // The command can be started again.
        let child = HeldChild::start(&mut command).unwrap().release().unwrap();
        assert_eq!(child.wait().unwrap().exit_code, Some(0));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_at_the_release() {
        let held = HeldChild::start(&mut Command::new("/nonexistent/program")).unwrap();
        assert_eq!(held.release().unwrap_err().kind(), io::ErrorKind::NotFound);
        let error = HeldChild::start(Command::new("true").current_dir("/nonexistent")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_dropped_child_ends_without_a_word() {
        let path = std::env::temp_dir().join(format!("held-child-{}", std::process::id()));
        let mut command = Command::new("true");
        command.stderr(File::create(&path).unwrap());
        let held =
            [&mut command, &mut Command::new("true")].map(|command| HeldChild::start(command).unwrap());
        let folders = held.each_ref().map(|held| format!("/proc/{}", held.pid()));
        // The first one first: the second one has a copy of its descriptor.
        held.into_iter().for_each(drop);
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        fs::remove_file(path).unwrap();
        assert!(folders.iter().all(|folder| fs::metadata(folder).is_err()));
    }

    #[test]
    fn a_signal_ends_a_child_that_is_held() {
        let held = HeldChild::start(&mut Command::new("true")).unwrap();
        children::signal_process(held.pid().unsigned_abs(), libc::SIGTERM).unwrap();
        let usage = held.release().unwrap().wait().unwrap();
        assert_eq!((usage.exit_code, usage.signal), (None, Some(libc::SIGTERM)));
    }
}
