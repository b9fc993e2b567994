// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compositor of the tests that has ext-image-copy-capture: a small one of wlroots 0.20, which Debian does not have yet. Its
//! library is in a package of PyPI, which `scripts/setup ci` fetches.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use framepath_testkit::harness::{Missing, needs_program};
use tempfile::TempDir;

/// Name of its socket.
const SOCKET: &str = "wayland-wlroots";

/// Running compositor. It ends with this value.
pub struct Wlroots {
    child: Child,
    commands: ChildStdin,
    folder: TempDir,
}

impl Wlroots {
    /// Starts the compositor, whose output has 320x180 pixels and is blue.
    pub fn start() -> Result<Wlroots, Missing> {
        needs_program("python3", "python3")?;
        let libraries = libraries();
        if !libraries.is_dir() {
            return Err(Missing::new("wlroots 0.20 is not there; scripts/setup ci"));
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let program = folder.path().join("wlroots.py");
        fs::write(&program, include_str!("wlroots.py")).unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new("python3");
        command.arg(program).arg(libraries).arg(SOCKET).env("XDG_RUNTIME_DIR", folder.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let log = fs::read_to_string(folder.path().join("log")).unwrap();
        assert_eq!(line, "ready\n", "{log}");
        let commands = child.stdin.take().unwrap();
        Ok(Wlroots { child, commands, folder })
    }

    /// Lets a command find the compositor, and nothing else.
    pub fn offer(&self, command: &mut Command) {
        command.env_remove("DISPLAY").env_remove("WAYLAND_SOCKET");
        command.env("XDG_RUNTIME_DIR", self.folder.path()).env("WAYLAND_DISPLAY", SOCKET);
    }

    /// Gives the output a colour.
    pub fn paint(&mut self, colour: [u8; 3]) {
        let [red, green, blue] = colour.map(|part| f64::from(part) / 255.0);
        self.command(&format!("colour {red} {green} {blue}\n"));
    }

    /// Switches the output off.
    pub fn switch_off(&mut self) {
        self.command("off\n");
    }

    /// Gives the output a size, and switches it on.
    pub fn resize(&mut self, (width, height): (u32, u32)) {
        self.command(&format!("size {width} {height}\n"));
    }

    /// Sends a line, by one write: the compositor takes what one read gives it.
    fn command(&mut self, line: &str) {
        self.commands.write_all(line.as_bytes()).unwrap();
    }
}

impl Drop for Wlroots {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns where `scripts/setup ci` puts the libraries.
fn libraries() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    cache.unwrap_or_else(home).join("framepath/wlroots-0.20/qtile.libs")
}
