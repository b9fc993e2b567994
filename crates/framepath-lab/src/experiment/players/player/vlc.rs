// SPDX-License-Identifier: MIT OR Apache-2.0
//! VLC without an interface. VLC refuses to run as root, so a lab that runs as root starts VLC as user nobody,
//! if the tool `setpriv` is installed.

use std::process::Command;

use super::{Player, PlayerFigures, PlayerRequest, not_offered};
use crate::experiment::players::api::{PlayerApi, PlayerOutput};

pub(super) const PLAYER: Player = Player {
    name: "vlc",
    program: "cvlc",
    remedy: "apt install vlc-bin vlc-plugin-base vlc-plugin-video-output",
    as_root: false,
    version: ("--version", "VLC version "),
    command,
    figures,
};

fn command(ask: &PlayerRequest<'_>) -> Result<Command, String> {
    let output = match ask.output {
        PlayerOutput::Null => "dummy",
        PlayerOutput::X11 => "xcb_x11",
        PlayerOutput::Xv => "xcb_xv",
        PlayerOutput::Opengl => "gl",
        PlayerOutput::Egl => "gles2",
        PlayerOutput::Wayland => "wl_shm",
        PlayerOutput::Drm => return Err(not_offered("vlc", "DRM output in Debian's packages")),
    };
    let decoder = match ask.api {
        PlayerApi::Software => "none",
        PlayerApi::Vaapi => "vaapi",
        PlayerApi::Vdpau => "vdpau_avcodec",
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

/// Counts VLC's warnings: one for each dropped and one for each late picture. Unknown without VLC's
/// heading, because VLC did not run then.
fn figures(text: &str) -> PlayerFigures {
    if !text.contains("VLC media player") {
        return PlayerFigures::default();
    }
    let lines = |part: &str| text.lines().filter(|line| line.contains(part)).count() as u64;
    PlayerFigures {
        shown: None,
        dropped: Some(lines("too late to be displayed")),
        late: Some(lines("might be displayed late")),
        ..PlayerFigures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_count() {
        let text = "VLC media player 3.0.24 Vetinari (revision 3.0.24-0-g0)\n\
                    [00007f] main video output warning: picture is too late to be displayed (missing 47 ms)\n\
                    [00007f] main video output warning: picture might be displayed late (missing 12 ms)\n\
                    [00007f] main video output warning: picture is too late to be displayed (missing 9 ms)\n";
        assert_eq!(
            figures(text),
            PlayerFigures { shown: None, dropped: Some(2), late: Some(1), ..PlayerFigures::default() }
        );
        assert_eq!(figures("VLC is not supposed to be run as root. Sorry."), PlayerFigures::default());
    }
}
