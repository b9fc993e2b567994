// SPDX-License-Identifier: MIT OR Apache-2.0
//! A desktop's session without a screen: D-Bus, PipeWire with a session manager and a node of blue pictures, xdg-desktop-portal, and a
//! stand-in for the desktop's dialog. PipeWire and the portal do not run as root.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use framepath_testkit::harness::{Missing, needs_program};
use framepath_testkit::until;
use tempfile::TempDir;

/// Size of the pictures.
pub const SIZE: (u32, u32) = (64, 48);
/// User and group `nobody` of Debian.
const NOBODY: u32 = 65_534;
/// The part of the portal that every desktop shares.
const PORTAL: &str = "/usr/libexec/xdg-desktop-portal";
/// Caps and properties of the node, in GStreamer's words.
const NODE: &str = "framepath-test";

/// Programs of the session. They end with this value.
pub struct Session {
    folder: TempDir,
    address: String,
    programs: Vec<(&'static str, Child)>,
}

impl Session {
    /// Starts a session whose user gives access to the node, or refuses it.
    pub fn start(refuses: bool) -> Result<Session, Missing> {
        for (program, package) in [
            ("dbus-daemon", "dbus"),
            ("pipewire", "pipewire"),
            ("wireplumber", "wireplumber"),
            ("pw-dump", "pipewire-bin"),
            ("gst-launch-1.0", "gstreamer1.0-tools gstreamer1.0-pipewire"),
            (PORTAL, "xdg-desktop-portal"),
            ("python3", "python3 python3-dbus python3-gi"),
        ] {
            needs_program(program, package)?;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let portals = folder.path().join("portals");
        fs::create_dir(&portals).unwrap();
        let description = "[portal]\nDBusName=org.freedesktop.impl.portal.desktop.test\n\
                           Interfaces=org.freedesktop.impl.portal.ScreenCast\nUseIn=test\n";
        fs::write(portals.join("test.portal"), description).unwrap();
        let desktop = folder.path().join("desktop.py");
        fs::write(&desktop, include_str!("desktop.py")).unwrap();
        // The programs' user may not reach the build's folder.
        fs::copy(env!("CARGO_BIN_EXE_framepath"), folder.path().join("framepath")).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut session = Session { folder, address: String::new(), programs: Vec::new() };
        session.address = session.begin("dbus-daemon", &["--session", "--nofork", "--print-address"]);
        session.spawn("pipewire", &[]);
        until("PipeWire listens", || session.folder().join("pipewire-0").exists());
        session.spawn("wireplumber", &[]);
        let (width, height) = SIZE;
        let caps = format!("video/x-raw,format=BGRx,width={width},height={height},framerate=30/1");
        let properties = format!("stream-properties=p,node.name={NODE},media.class=Video/Source");
        let words = ["videotestsrc", "is-live=true", "pattern=blue", "!", &caps, "!", "pipewiresink"];
        session.spawn("gst-launch-1.0", &[&words[..], &["mode=provide", &properties]].concat());
        let mut node = None;
        until("the node is there", || {
            node = session.node();
            node.is_some()
        });
        let answer = if refuses { "refuse".to_owned() } else { node.unwrap() };
        let ready = session.begin("python3", &["-u", desktop.to_str().unwrap(), &answer]);
        assert_eq!(ready, "ready");
        session.spawn(PORTAL, &[]);
        until("the portal answers", || {
            let words = ["--session", "--dest=org.freedesktop.portal.Desktop", "--print-reply"];
            let call = ["/org/freedesktop/portal/desktop", "org.freedesktop.DBus.Peer.Ping"];
            let ping = session.command("dbus-send").args(words).args(call).output().unwrap();
            ping.status.success()
        });
        Ok(session)
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a command of the session's user.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(self.folder());
        command.env("XDG_RUNTIME_DIR", self.folder()).env("HOME", self.folder());
        command
            .env("XDG_CURRENT_DESKTOP", "test")
            .env("XDG_DESKTOP_PORTAL_DIR", self.folder().join("portals"));
        command.env("DBUS_SESSION_BUS_ADDRESS", &self.address).stdin(Stdio::null());
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn log(&self, program: &str) -> PathBuf {
        self.folder().join(format!("{}.log", program.rsplit('/').next().unwrap()))
    }

    fn spawn(&mut self, program: &'static str, words: &[&str]) {
        let log = File::create(self.log(program)).unwrap();
        let child = self.command(program).args(words).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.programs.push((program, child));
    }

    /// Starts a program, and returns the first line that it prints.
    fn begin(&mut self, program: &'static str, words: &[&str]) -> String {
        let log = File::create(self.log(program)).unwrap();
        let mut child = self.command(program).args(words).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        self.programs.push((program, child));
        let said = fs::read_to_string(self.log(program)).unwrap();
        assert!(line.ends_with('\n'), "{program} has ended: {said}");
        line.trim().to_owned()
    }

    /// Returns the number of the node of pictures, as PipeWire lists it.
    fn node(&self) -> Option<String> {
        let listed = self.command("pw-dump").output().unwrap();
        let objects: serde_json::Value = serde_json::from_slice(&listed.stdout).ok()?;
        let is_node = |object: &&serde_json::Value| {
            object["info"]["props"]["node.name"] == NODE && object["type"] == "PipeWire:Interface:Node"
        };
        Some(objects.as_array()?.iter().find(is_node)?["id"].to_string())
    }

    /// Returns a command of framepath in the session.
    pub fn framepath(&self, words: &[&str]) -> Command {
        let mut command = self.command("./framepath");
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the content of a file that framepath writes; empty if it does not exist.
    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder().join(name)).unwrap_or_default()
    }

    /// Ends the program of the node, as if its screen were gone.
    pub fn end_node(&mut self) {
        let at = self.programs.iter().position(|(program, _)| *program == "gst-launch-1.0").unwrap();
        let (_, mut child) = self.programs.remove(at);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for (_, child) in self.programs.iter_mut().rev() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
