// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests' own X server and window manager.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::harness::Missing;

/// An X server without a screen. Dropping this value kills it.
#[derive(Debug)]
pub struct Xvfb {
    child: Child,
    name: String,
}

impl Xvfb {
    /// Starts a server with a screen of `size` pixels.
    ///
    /// # Errors
    /// Xvfb is not installed.
    pub fn start(size: (u32, u32)) -> Result<Xvfb, Missing> {
        Xvfb::with(size, &[])
    }

    /// Starts a server like [`Xvfb::start`], with the X extension `extension` turned off.
    ///
    /// # Errors
    /// Xvfb is not installed.
    pub fn without(size: (u32, u32), extension: &str) -> Result<Xvfb, Missing> {
        Xvfb::with(size, &["-extension", extension])
    }

    /// Starts a server like [`Xvfb::start`] that lets in only clients with a cookie of the authority file `cookies`.
    ///
    /// # Errors
    /// Xvfb is not installed.
    pub fn with_cookies(size: (u32, u32), cookies: &Path) -> Result<Xvfb, Missing> {
        Xvfb::with(size, &["-auth", &cookies.display().to_string()])
    }

    fn with(size: (u32, u32), words: &[&str]) -> Result<Xvfb, Missing> {
        let screen = format!("{}x{}x24", size.0, size.1);
        let mut command = Command::new("Xvfb");
        command
            .args(["-displayfd", "1", "-screen", "0", &screen, "-nolisten", "tcp", "-noreset"])
            .args(words);
        let missing = "no X server to show on: apt install xvfb xdotool";
        let mut child = started(command.stdout(Stdio::piped()), missing)?;
        let mut number = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut number).unwrap();
        assert!(!number.trim().is_empty(), "Xvfb did not start");
        Ok(Xvfb { child, name: format!(":{}", number.trim()) })
    }

    /// Returns the server's name for `DISPLAY`.
    pub fn name(&self) -> String {
        self.name.clone()
    }
}

/// A window manager. Dropping this value kills it.
#[derive(Debug)]
pub struct Manager(Child);

impl Manager {
    /// Starts a window manager for the server.
    ///
    /// # Errors
    /// jwm is not installed.
    pub fn start(server: &Xvfb) -> Result<Manager, Missing> {
        let mut command = Command::new("jwm");
        command.env("DISPLAY", server.name()).stdout(Stdio::null());
        started(&mut command, "no window manager: apt install jwm").map(Manager)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

impl Drop for Xvfb {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Starts a program. Returns an error with the text `missing` if the program is not installed; panics
/// at another error.
fn started(command: &mut Command, missing: &str) -> Result<Child, Missing> {
    match command.stdin(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(child) => Ok(child),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Missing::new(missing)),
        Err(error) => panic!("{command:?}: {error}"),
    }
}

fn end(child: &mut Child) {
    // The server may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}
