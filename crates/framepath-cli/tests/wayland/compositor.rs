// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compositor of the tests: sway without a screen and without a GPU. It does not run as root.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use framepath_testkit::harness::{Missing, needs_program};
use framepath_testkit::until;
use tempfile::TempDir;

/// Size of every output.
pub const WIDTH: u32 = 320;
pub const HEIGHT: u32 = 180;
/// User and group `nobody` of Debian.
const NOBODY: u32 = 65_534;

/// Running compositor. It ends with this value.
pub struct Sway {
    child: Child,
    /// Name of its socket.
    display: String,
    folder: TempDir,
}

impl Sway {
    /// Starts the compositor, whose output has this colour.
    pub fn start(colour: [u8; 3]) -> Result<Sway, Missing> {
        for program in ["sway", "swaybg"] {
            needs_program(program, program)?;
        }
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        let text = format!(
            "output * resolution {WIDTH}x{HEIGHT}\noutput * bg {} solid_color\nseat * hide_cursor 1\n",
            hexadecimal(colour)
        );
        fs::write(&config, text).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let mut command = Command::new("sway");
        command.arg("--config").arg(&config).current_dir("/").env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("XDG_RUNTIME_DIR", folder.path()).env("HOME", folder.path());
        command.envs([
            ("WLR_BACKENDS", "headless"),
            ("WLR_RENDERER", "pixman"),
            ("WLR_LIBINPUT_NO_DEVICES", "1"),
        ]);
        if rustix::process::geteuid().is_root() {
            for file in [folder.path(), &config] {
                chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
            }
            command.uid(NOBODY).gid(NOBODY);
        }
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut sway = Sway { child, display: String::new(), folder };
        until("the compositor listens", || {
            let log = || fs::read_to_string(sway.folder.path().join("log")).unwrap_or_default();
            assert!(sway.child.try_wait().unwrap().is_none(), "sway has ended: {}", log());
            let display = sway.file("wayland-", ".lock");
            sway.display = display.clone().unwrap_or_default();
            display.is_some() && sway.file("sway-ipc.", ".sock").is_some()
        });
        // Its background comes later.
        until("the output is there", || sway.message(&["-t", "get_outputs"]).contains("HEADLESS-1"));
        Ok(sway)
    }

    /// Returns the name of a socket of the compositor.
    fn file(&self, prefix: &str, without: &str) -> Option<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        match without {
            ".lock" => names.find(|name| name.starts_with(prefix) && !name.ends_with(without)),
            ends => names.find(|name| name.starts_with(prefix) && name.ends_with(ends)),
        }
    }

    /// Returns the folder of its sockets.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Lets a command find the compositor, and nothing else.
    pub fn offer(&self, command: &mut Command) {
        command.env_remove("DISPLAY").env_remove("WAYLAND_SOCKET");
        command.env("XDG_RUNTIME_DIR", self.folder.path()).env("WAYLAND_DISPLAY", &self.display);
    }

    /// Sends a command to the compositor. Returns its answer.
    pub fn message(&self, words: &[&str]) -> String {
        let socket = self.folder.path().join(self.file("sway-ipc.", ".sock").unwrap());
        let sent = Command::new("swaymsg").arg("-s").arg(socket).args(words).output().unwrap();
        assert!(sent.status.success(), "{words:?}: {sent:?}");
        String::from_utf8(sent.stdout).unwrap()
    }

    /// Gives all outputs a colour.
    pub fn paint(&self, colour: [u8; 3]) {
        self.message(&["output", "*", "bg", &hexadecimal(colour), "solid_color"]);
    }
}

impl Drop for Sway {
    fn drop(&mut self) {
        // Its background program ends with it. It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hexadecimal([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
