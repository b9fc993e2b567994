// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of standard input, for a program that does other work meanwhile.

use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

use crate::time::timespec;

/// Maximum length of a line, bytes. A longer one is dropped.
const LONGEST: usize = 4096;

/// Lines of standard input. Nothing else in the program may read standard input.
#[derive(Debug, Default)]
pub struct LineInput {
    /// Bytes behind the last line.
    rest: Vec<u8>,
}

impl LineInput {
    /// Waits for input, at most `limit`, and returns the lines that are complete; `None` at the end of the input. A program in the
    /// background of its terminal gets none: the lines are those of the shell, and reading them would stop the program (SIGTTIN).
    ///
    /// # Errors
    /// From poll(2) or read(2).
    pub fn lines_within(&mut self, limit: Duration) -> io::Result<Option<Vec<String>>> {
        let stdin = io::stdin();
        // Not a terminal: an error, which means that there is no background.
        if tcgetpgrp(&stdin).is_ok_and(|group| group != getpgrp()) {
            thread::sleep(limit);
            return Ok(Some(Vec::new()));
        }
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timespec(limit))) {
            Err(rustix::io::Errno::INTR) | Ok(0) => return Ok(Some(Vec::new())),
            Err(errno) => return Err(errno.into()),
            Ok(_) => {}
        }
        let mut bytes = [0; LONGEST];
        match rustix::io::read(stdin.as_fd(), &mut bytes) {
            Ok(0) => Ok(None),
            Ok(count) => Ok(Some(self.push(&bytes[..count]))),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(Some(Vec::new())),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Adds bytes, and returns the lines that are complete.
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line).trim().to_owned());
        }
        if self.rest.len() > LONGEST {
            self.rest.clear();
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole() {
        let mut input = LineInput::default();
        assert_eq!(input.push(b"view"), [""; 0]);
        assert_eq!(input.push(b"ers\r\nend 2\n\nen"), ["viewers", "end 2", ""]);
        assert_eq!(input.push(&[b'x'; LONGEST]), [""; 0]);
        assert_eq!(input.push(b"\nend all\n"), ["", "end all"]);
    }
}
