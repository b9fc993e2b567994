// SPDX-License-Identifier: MIT OR Apache-2.0
//! Displays for players: those of the session, or display servers that the lab starts and stops.

#[cfg(all(feature = "play", feature = "wayland"))]
mod sway;

use std::env;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use framepath_os::process::children;
use tempfile::TempDir;

use crate::descendants::process;
use crate::error::LabError;
use crate::process::Program;
use crate::temporary_folder::temporary_folder;

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// Number of polls for a server's start or end, at intervals of [`LOOK`]: about ten seconds in all.
const LOOKS: u32 = 500;
/// Interval between two polls of a server.
const LOOK: Duration = Duration::from_millis(20);

/// A display server: its environment for clients, and its process.
pub(crate) struct Display {
    /// Environment variables for clients: `DISPLAY`, or `WAYLAND_DISPLAY`; for the lab's own
    /// compositor also `XDG_RUNTIME_DIR`, the folder of its socket.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Name for the report, such as `Xvfb :7`.
    pub(crate) name: String,
    /// Process id of the display server, for the session's display the first process with the name of a
    /// known server; `None` if there is none.
    pub(crate) server: Option<u32>,
    /// Server process that the lab started, stopped on drop; `None` for the session's display.
    own: Option<Child>,
    /// Folder that the lab created for the server's socket, removed on drop; `None` if it created
    /// none.
    _folder: Option<TempDir>,
    /// X server on which the lab's own compositor runs, stopped after the compositor; `None` for other
    /// displays.
    under: Option<Box<Display>>,
}

impl Display {
    /// Returns the X server of the session, unchecked, if `DISPLAY` is set; otherwise starts an Xvfb.
    ///
    /// # Errors
    /// No display server is installed, or it does not start; the text has the remedy, if any.
    pub(crate) fn x11() -> Result<Display, String> {
        if let Some(name) = env::var("DISPLAY").ok().filter(|name| !name.is_empty()) {
            let server = named_process(&["Xorg", "Xwayland", "Xvfb", "X", "Xtigervnc"]);
            let environment = vec![("DISPLAY", name.clone())];
            let name = format!("X {name}");
            return Ok(Display { environment, name, server, own: None, _folder: None, under: None });
        }
        Display::xvfb()
    }

    /// Starts an Xvfb, 1920x1080.
    ///
    /// # Errors
    /// Xvfb is not installed or does not start; the text has the remedy, if any.
    pub(crate) fn xvfb() -> Result<Display, String> {
        let mut log =
            framepath_os::memory::memory_file("framepath-xvfb").map_err(|error| error.to_string())?;
        let out = log.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new("Xvfb");
        command.args(["-displayfd", "1", "-screen", "0", "1920x1080x24", "-nolisten", "tcp", "-noreset"]);
        without_display(&mut command);
        let child = started(command.stdout(out), "no X server; apt install xvfb")?;
        let mut display = Display {
            environment: Vec::new(),
            name: String::new(),
            server: Some(child.id()),
            own: Some(child),
            _folder: None,
            under: None,
        };
        // Xvfb writes its number when it is ready.
        let number = display
            .awaited(|| whole_line(&mut log))
            .ok_or("Xvfb ended, or is not ready within 10 s; start it by hand to see its error")?;
        display.environment = vec![("DISPLAY", format!(":{number}"))];
        display.name = format!("Xvfb :{number}");
        Ok(display)
    }

    /// Returns the session's compositor, unchecked, if `WAYLAND_DISPLAY` is set; else starts a
    /// weston on a separate, invisible Xvfb, because SDL 2.26 fails without a Wayland seat, which
    /// weston's headless backend does not have.
    ///
    /// # Errors
    /// No display server is installed, or it does not start; the text has the remedy, if any.
    pub(crate) fn wayland() -> Result<Display, String> {
        const MISSING: &str = "no Wayland compositor; apt install weston";
        if let Some(name) = env::var("WAYLAND_DISPLAY").ok().filter(|name| !name.is_empty()) {
            let server = named_process(&["weston", "gnome-shell", "kwin_wayland", "sway", "cage", "labwc"]);
            let environment = vec![("WAYLAND_DISPLAY", name.clone())];
            return Ok(Display {
                environment,
                name: format!("Wayland {name}"),
                server,
                own: None,
                _folder: None,
                under: None,
            });
        }
        let under = Display::xvfb()?;
        let folder = temporary_folder().map_err(|error| error.to_string())?;
        let socket = "framepath-0";
        let mut command = Command::new("weston");
        command.args(["--backend=x11-backend.so", "--width=1920", "--height=1080", "--idle-time=0"]);
        under.offer(&mut command);
        command.arg(format!("--socket={socket}")).env("XDG_RUNTIME_DIR", folder.path()).stdout(Stdio::null());
        let child = started(&mut command, MISSING)?;
        let path = folder.path().display().to_string();
        let environment = vec![("WAYLAND_DISPLAY", socket.to_owned()), ("XDG_RUNTIME_DIR", path)];
        let ready = folder.path().join(socket);
        let mut display = Display {
            environment,
            name: format!("weston in {}", under.name),
            server: Some(child.id()),
            own: Some(child),
            _folder: Some(folder),
            under: Some(Box::new(under)),
        };
        display
            .awaited(|| ready.exists().then_some(()))
            .ok_or("weston ended, or is not ready within 10 s; start it by hand to see its error")?;
        Ok(display)
    }

    /// Polls `look` until it returns a value, and returns that value; `None` if the server ended or about
    /// ten seconds passed.
    fn awaited<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..LOOKS {
            if let Some(found) = look() {
                return Some(found);
            }
            process(self.server?)?;
            sleep(LOOK);
        }
        None
    }

    /// Returns the name by which X clients connect, such as `:7`.
    ///
    /// # Errors
    /// [`LabError::Unknown`] for a Wayland compositor.
    #[cfg(feature = "play")]
    pub(crate) fn x_name(&self) -> Result<&str, LabError> {
        let mut variables = self.environment.iter();
        let found = variables.find(|(key, _)| *key == "DISPLAY").map(|(_, name)| name.as_str());
        found.ok_or_else(|| LabError::Unknown(format!("{} is no X server", self.name)))
    }

    /// Sets this display, and no other, in a command's environment.
    pub(crate) fn offer(&self, command: &mut Command) {
        without_display(command);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
    }

    /// Checks that the lab's own X display shows a window large enough for pictures. Succeeds
    /// without a check for a display of the session, for Wayland, and if the tool `xwininfo` is
    /// missing or fails.
    ///
    /// # Errors
    /// There is no such window.
    pub(crate) fn has_window(&self) -> Result<(), String> {
        if self.own.is_none() {
            return Ok(());
        }
        let Some((_, name)) = self.environment.iter().find(|(key, _)| *key == "DISPLAY") else {
            return Ok(());
        };
        match Program::new("xwininfo", ["-root", "-children", "-display", name]).run(true) {
            Ok(listing) if !lists_window(&listing.stdout) => {
                Err("opened no window, and was stopped".to_owned())
            }
            // There is a window, or xwininfo is missing or failed, so that no check is possible.
            _ => Ok(()),
        }
    }

    /// Checks with the tool `xvinfo` that the X server can scale and convert video (the Xv extension).
    ///
    /// # Errors
    /// There is no X server, no Xv adaptor or no `xvinfo`, or `xvinfo` fails; the text has
    /// the remedy, if any.
    pub(crate) fn has_xv(&self) -> Result<(), String> {
        let Some((_, name)) = self.environment.iter().find(|(key, _)| *key == "DISPLAY") else {
            return Err("no X server".to_owned());
        };
        match Program::new("xvinfo", ["-display", name]).run(true) {
            Ok(listing) if listing.stdout.contains("Adaptor #") => Ok(()),
            Ok(_) => Err(format!("{} has no Xv adaptor; install a GPU's X driver", self.name)),
            Err(LabError::Missing(_)) => {
                Err("xvinfo, which checks for Xv, is not installed; apt install x11-utils".to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Some(child) = self.own.take() {
            // The error is ignored, because the server may have ended by itself.
            let _ = children::signal_group(&child, SIGTERM);
            for _ in 0..LOOKS {
                if process(child.id()).is_none() {
                    break;
                }
                sleep(LOOK);
            }
            let _ = children::signal_group(&child, SIGKILL);
            let _ = children::wait(child);
        }
        drop(self.under.take());
    }
}

/// Removes `DISPLAY` and `WAYLAND_DISPLAY` from a command's environment, and `XAUTHORITY` if the lab itself
/// runs without `DISPLAY`. With `DISPLAY` the variable `XAUTHORITY` stays, because clients of the session's
/// X server need it.
pub(crate) fn without_display(command: &mut Command) {
    for name in ["DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"] {
        if name != "XAUTHORITY" || env::var_os("DISPLAY").is_none() {
            command.env_remove(name);
        }
    }
}

fn started(command: &mut Command, missing: &str) -> Result<Child, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stderr(Stdio::null());
    children::on_a_lead(command).spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => missing.to_owned(),
        _ => format!("{name}: {error}"),
    })
}

/// Reads the first line of the file; `None` until the line is complete.
fn whole_line(file: &mut File) -> Option<String> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
    text.split_once('\n').map(|(line, _)| line.trim().to_owned())
}

/// Finds the first process in /proc with one of these names. If several run, it may be the wrong one.
fn named_process(names: &[&str]) -> Option<u32> {
    let entries = fs::read_dir("/proc").ok()?;
    entries.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        names.contains(&name.trim()).then_some(pid)
    })
}

/// Returns true if `text`, the output of `xwininfo -children`, lists a window of at least 16x16 pixels.
fn lists_window(text: &str) -> bool {
    text.lines().filter(|line| line.trim_start().starts_with("0x")).any(|line| {
        line.split_whitespace().filter_map(|word| word.split_once('x')).any(|(width, rest)| {
            let height = rest.split(['+', '-']).next().unwrap_or_default();
            let side = |text: &str| text.parse::<u32>().is_ok_and(|side| side >= 16);
            side(width) && side(height)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_helper_windows_do_not_count() {
        let root = "xwininfo: Window id: 0x1e6 (the root window) (has no name)\n\n  Root window id: 0x1e6\n  \
                    Parent window id: 0x0 (none)\n";
        let tiny = format!("{root}     1 child:\n     0x200001 (has no name): ()  1x1+-1+-1  +-1+-1\n");
        let player = "     0x200007 \"clip.ivf - mpv\": (\"gl\" \"mpv\")  1920x1080+0+0  +0+0\n";
        assert!(!lists_window(root) && !lists_window(&tiny));
        assert!(lists_window(&(tiny + player)));
    }
}
