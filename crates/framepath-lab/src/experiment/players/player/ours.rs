// SPDX-License-Identifier: MIT OR Apache-2.0
//! framepath as a player: `framepath run` with a path from the file to the sink `play`.

use std::process::Command;

use framepath_model::summary::Summary;

use super::{CAME_TO_SOFTWARE, OURS, Player, PlayerFigures, PlayerRequest};
use crate::experiment::players::api::{PlayerApi, PlayerOutput};

pub(super) const PLAYER: Player = Player {
    name: OURS,
    program: "framepath",
    remedy: "make build",
    as_root: true,
    version: ("--version", "framepath "),
    command,
    figures,
};

fn command(ask: &PlayerRequest<'_>) -> Result<Command, String> {
    let (driver, video) = match ask.output {
        PlayerOutput::Null => ("null", None),
        PlayerOutput::X11 => ("software", Some("x11")),
        PlayerOutput::Opengl => ("opengl", Some("x11")),
        PlayerOutput::Egl => ("opengles2", Some("x11")),
        PlayerOutput::Wayland => ("auto", Some("wayland")),
        PlayerOutput::Drm => ("auto", Some("kmsdrm")),
        PlayerOutput::Xv => return Err(super::not_offered(OURS, "Xv output")),
    };
    let api = match ask.api {
        PlayerApi::Software => String::new(),
        api => format!(" api={}", api.name()),
    };
    let file = framepath_model::path::quote(&ask.clip.file.to_string_lossy());
    // Clips that one thread can decode get no second thread, because each frame would wake it up.
    let threads = if ask.clip.easy && ask.api == PlayerApi::Software { " threads=1" } else { "" };
    let path = format!("file {file} ! decode{api}{threads} ! play driver={driver}");
    let mut command = Command::new(ask.program);
    command.args(["run", "--ledger", "off", "--quiet", "--json", "-", &path]);
    command.envs(video.map(|video| ("SDL_VIDEODRIVER", video)));
    Ok(command)
}

/// Parses the numbers of shown and dropped frames, and the note about a fallback to software, in
/// the JSON summary, which begins with the first `{` of the output.
fn figures(text: &str) -> PlayerFigures {
    let Some(start) = text.find('{') else { return PlayerFigures::default() };
    let mut summaries = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Summary>();
    let Some(Ok(summary)) = summaries.next() else { return PlayerFigures::default() };
    let of = |key: &str| summary.rows.first()?.extra.get(key).map(|count| *count as u64);
    let otherwise = summary.notes.iter().find(|note| note.contains(CAME_TO_SOFTWARE)).cloned();
    PlayerFigures { shown: of("shown"), dropped: of("dropped"), late: None, otherwise }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_summary() {
        let text = r#"{"experiment":"run","machine":{"cpu":"x","cores":2,"kernel":"6.1","pmu":false},
            "rows":[{"case":"p","contender":"path","runs":1,"frames":150,"shown":148.0,"dropped":2.0,"late":2.0}]}
            a word of a library"#;
        assert_eq!(
            figures(text),
            PlayerFigures { shown: Some(148), dropped: Some(2), late: None, ..PlayerFigures::default() }
        );
        assert_eq!(figures("no window"), PlayerFigures::default());
    }

    #[test]
    fn the_software_fallback_is_reported() {
        let note = "decode api=vaapi: in software, because vaapi: no device: no /dev/dri/renderD*";
        let text = format!(
            r#"{{"experiment":"run","machine":{{"cpu":"x","cores":2,"kernel":"6.1","pmu":false}},"notes":["{note}"]}}"#
        );
        assert_eq!(figures(&text).otherwise.as_deref(), Some(note));
    }
}
