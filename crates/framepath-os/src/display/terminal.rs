// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal as a full screen, for live output.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use framepath_model::shown::shown;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

use crate::process::cancel::StoppableWriter;
use crate::time::timespec;

/// Escape sequences that enter the alternate screen, hide the cursor and turn off line wrapping.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Escape sequences that undo [`ENTER`].
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Full screen on standard output, with keys from standard input. Dropping it restores the
/// terminal, also after a panic.
pub struct Terminal {
    before: Termios,
}

impl Terminal {
    /// Returns true if both standard output and standard input are terminals.
    pub fn is_there() -> bool {
        isatty(io::stdout()) && isatty(io::stdin())
    }

    /// Takes over the terminal: enters the alternate screen, and turns off echo, line editing and the
    /// signals that keys send. Each key arrives at once; Ctrl-C arrives as byte 3, without a SIGINT.
    ///
    /// # Errors
    /// Standard input is not a terminal, or writing to the terminal failed.
    pub fn open() -> io::Result<Terminal> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        let terminal = Terminal { before };
        terminal.write(ENTER)?;
        Ok(terminal)
    }

    /// Returns the number of columns and of rows; 80 and 24 if the terminal does not report them.
    pub fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    /// Replaces the content of the screen by the lines of `text`, in one write if the terminal takes it.
    /// Escapes control characters, and drops lines below the last row; the terminal cuts lines that are too
    /// long.
    ///
    /// # Errors
    /// The terminal is gone, or takes no more bytes when the grace period of a signal or stop request has
    /// passed.
    pub fn show(&self, text: &str) -> io::Result<()> {
        let (_, rows) = self.size();
        let mut screen = String::from("\x1b[H");
        for (row, line) in text.lines().take(rows).enumerate() {
            if row > 0 {
                screen.push_str("\r\n");
            }
            screen.push_str(&shown(line));
            // Erases the rest of the previous line.
            screen.push_str("\x1b[K");
        }
        screen.push_str("\x1b[J");
        self.write(screen.as_bytes())
    }

    /// Returns the first byte of the next key, and drops the others that have arrived (up to 63);
    /// `None` if no key arrives within `limit`, or after a signal.
    ///
    /// # Errors
    /// The terminal is gone, or standard input has ended.
    pub fn key_within(&self, limit: Duration) -> io::Result<Option<u8>> {
        let left = timespec(limit);
        let stdin = io::stdin();
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) | Ok(0) => Ok(None),
            Err(errno) => Err(errno.into()),
            Ok(_) => {
                let mut bytes = [0; 64];
                match rustix::io::read(stdin.as_fd(), &mut bytes)? {
                    0 => Err(io::ErrorKind::UnexpectedEof.into()),
                    _ => Ok(Some(bytes[0])),
                }
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        StoppableWriter::new(io::stdout().lock()).write_all(bytes)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Ignores errors: a terminal that is gone needs no restore.
        let _ = self.write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}
