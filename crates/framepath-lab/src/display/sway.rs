// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Wayland compositor without a screen and without a GPU, which other programs can capture: sway.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::{Display, started};
use crate::temporary_folder::temporary_folder;

/// User and group `nobody` of Debian: sway does not run as root.
const NOBODY: u32 = 65_534;
const CONFIGURATION: &str =
    "output HEADLESS-1 resolution 1920x1080\noutput * bg #000000 solid_color\nseat * hide_cursor 1\n";

impl Display {
    /// Starts a sway, 1920x1080 at 60 Hz, drawn by the processor.
    ///
    /// # Errors
    /// sway is not installed or does not start; the text has the remedy, if any.
    pub(crate) fn sway() -> Result<Display, String> {
        let failed = |error: std::io::Error| format!("sway's folder: {error}");
        let folder = temporary_folder().map_err(|error| error.to_string())?;
        let configuration = folder.path().join("config");
        fs::write(&configuration, CONFIGURATION).map_err(failed)?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).map_err(failed)?;
        let mut command = Command::new("sway");
        command.arg("--config").arg(&configuration).current_dir("/").stdout(Stdio::null());
        super::without_display(&mut command);
        command.env("XDG_RUNTIME_DIR", folder.path()).env("HOME", folder.path());
        command.envs([
            ("WLR_BACKENDS", "headless"),
            ("WLR_RENDERER", "pixman"),
            ("WLR_LIBINPUT_NO_DEVICES", "1"),
        ]);
        // Only root may change the owner.
        if [folder.path(), &configuration]
            .into_iter()
            .all(|file| chown(file, Some(NOBODY), Some(NOBODY)).is_ok())
        {
            command.uid(NOBODY).gid(NOBODY);
        }
        let child = started(&mut command, "no Wayland compositor that can be captured; apt install sway")?;
        let path = folder.path().to_owned();
        let mut display = Display {
            environment: vec![("XDG_RUNTIME_DIR", path.display().to_string())],
            name: "sway".to_owned(),
            server: Some(child.id()),
            own: Some(child),
            _folder: Some(folder),
            under: None,
        };
        // It takes the first free name.
        let socket = || {
            let names = fs::read_dir(&path).ok()?.flatten();
            let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
            names.find(|name| name.starts_with("wayland-") && !name.ends_with(".lock"))
        };
        let name = display
            .awaited(socket)
            .ok_or("sway ended, or is not ready within 10 s; start it by hand to see its error")?;
        display.environment.push(("WAYLAND_DISPLAY", name));
        Ok(display)
    }
}
