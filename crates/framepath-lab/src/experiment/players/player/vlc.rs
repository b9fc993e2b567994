// SPDX-License-Identifier: MIT OR Apache-2.0
//! VLC without an interface. It reports pictures that came too late. It does not
//! run as root; root runs it as user nobody.

use std::process::Command;

use super::{Ask, Player, Told, not_offered};
use crate::experiment::players::api::{Api, Output};

pub(super) const PLAYER: Player = Player {
    name: "vlc",
    program: "cvlc",
    remedy: "apt install vlc-bin vlc-plugin-base vlc-plugin-video-output",
    as_root: false,
    version: ("--version", "VLC version "),
    command,
    told,
};

fn command(ask: &Ask<'_>) -> Result<Command, String> {
    let output = match ask.output {
        Output::Null => "dummy",
        Output::X11 => "xcb_x11",
        Output::Xv => "xcb_xv",
        Output::Opengl => "gl",
        Output::Egl => "gles2",
        Output::Wayland => "wl_shm",
        Output::Drm => return Err(not_offered("vlc", "DRM output in Debian's packages")),
    };
    let decoder = match ask.api {
        Api::Software => "none",
        Api::Vaapi => "vaapi",
        Api::Vdpau => "vdpau_avcodec",
        api => return Err(not_offered("vlc", &format!("{} decoding", api.name()))),
    };
    let mut command = PLAYER.start(ask.program);
    command.args([
        "--ignore-config",
        "--no-audio",
        "--play-and-exit",
        "--no-video-title-show",
        "--verbose=1",
    ]);
    command.arg(format!("--vout={output}")).arg(format!("--avcodec-hw={decoder}")).arg(&ask.clip.file);
    Ok(command)
}

/// Counts its warnings: one for each picture that it did not show, or showed late.
fn told(said: &str) -> Told {
    if !said.contains("VLC media player") {
        return Told::default();
    }
    let lines = |part: &str| said.lines().filter(|line| line.contains(part)).count() as u64;
    Told {
        shown: None,
        dropped: Some(lines("too late to be displayed")),
        late: Some(lines("might be displayed late")),
        ..Told::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_count() {
        let said = "VLC media player 3.0.24 Vetinari (revision 3.0.24-0-g0)\n\
                    [00007f] main video output warning: picture is too late to be displayed (missing 47 ms)\n\
                    [00007f] main video output warning: picture might be displayed late (missing 12 ms)\n\
                    [00007f] main video output warning: picture is too late to be displayed (missing 9 ms)\n";
        assert_eq!(told(said), Told { shown: None, dropped: Some(2), late: Some(1), ..Told::default() });
        assert_eq!(told("VLC is not supposed to be run as root. Sorry."), Told::default());
    }
}
