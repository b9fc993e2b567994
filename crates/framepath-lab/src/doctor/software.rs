// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes of libraries and programs: framepath's codecs, and the lab's other contenders.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::probe::{Probe, ProbeState};
use super::{Places, counted};
use crate::error::LabError;
use crate::process::Program;

const GROUP: &str = "software";

pub(super) fn probes(places: &Places) -> Vec<Probe> {
    let mut probes: Vec<Probe> = framepath_codec::versions()
        .into_iter()
        .map(|(name, version)| Probe::ok(GROUP, name, "`decode`", version))
        .collect();
    probes.extend([
        ffmpeg(),
        gstreamer(),
        gst_headers(),
        sdl(),
        peer(
            &places.peers,
            ("peer gst-push", "gst-push"),
            "the contenders `gst-*` of lab `queue`",
            "`make build` in the checkout",
        ),
        peer(
            &places.peers,
            ("peer gst-handoff", "gst-handoff"),
            "contenders `gst-unixfd` and `gst-shm` of lab `handoff`",
            "`make build` in the checkout, and apt install gstreamer1.0-plugins-bad",
        ),
        peer(
            &places.peers,
            ("peer unix-handoff", "unix-handoff"),
            "contender `unix-socket` of lab `handoff`",
            "`make build` in the checkout",
        ),
        peer(
            &places.peers,
            ("peer iceoryx2-handoff", "iceoryx2-handoff"),
            "contenders `iceoryx2-wait` and `iceoryx2-poll` of lab `handoff`",
            "`make peers` in the checkout",
        ),
        clips(&places.clips),
        browser(),
    ]);
    probes
}

/// Runs `program` with `args`, and returns the first line of its standard output. The error has the
/// state and the text for the probe.
fn first_output(program: &str, args: &[&str]) -> Result<String, (ProbeState, String)> {
    match Program::new(program, args.iter().copied()).run(true) {
        Ok(finished) => Ok(finished.stdout.lines().next().unwrap_or_default().trim().to_owned()),
        Err(LabError::Io { error, .. }) => Err((ProbeState::from_error(&error), error.to_string())),
        Err(error) => Err((ProbeState::Missing, error.to_string())),
    }
}

fn tool(
    name: &'static str,
    unlocks: &'static str,
    version: Result<String, (ProbeState, String)>,
    remedy: &str,
) -> Probe {
    match version {
        Ok(version) => Probe::ok(GROUP, name, unlocks, version),
        Err((state, found)) => Probe::lacking(GROUP, name, unlocks, state, found, remedy),
    }
}

fn ffmpeg() -> Probe {
    // Removes the copyright from "ffmpeg version 7.1 Copyright (c) ...".
    let version = first_output("ffmpeg", &["-version"])
        .map(|line| line.split(" Copyright").next().unwrap_or_default().to_owned());
    tool("ffmpeg tool", "`ffmpeg*` of lab `decode`, made clips of `inject`", version, "apt install ffmpeg")
}

fn gstreamer() -> Probe {
    let version = first_output("gst-launch-1.0", &["--version"]);
    tool("GStreamer", "`framepath compare` with gst-launch-1.0", version, "apt install gstreamer1.0-tools")
}

fn gst_headers() -> Probe {
    let version = first_output("pkg-config", &["--modversion", "gstreamer-1.0"]);
    tool(
        "GStreamer headers",
        "building the peers gst-push and gst-handoff",
        version,
        "apt install libgstreamer1.0-dev",
    )
}

fn sdl() -> Probe {
    #[cfg(feature = "play")]
    let (version, remedy) = (
        framepath_os::display::sdl::version().map_err(|error| (ProbeState::Missing, error.to_string())),
        "apt install libsdl2-2.0-0",
    );
    #[cfg(not(feature = "play"))]
    let (version, remedy) = (
        Err((ProbeState::Missing, "this framepath was built without the feature `play`".to_owned())),
        "`make build` in the checkout",
    );
    tool("SDL2", "sink `play` with a window", version, remedy)
}

/// Probes for the file `program` in the folder `peers`; `name` is the probe's name.
fn peer(peers: &Path, (name, program): (&'static str, &str), unlocks: &'static str, remedy: &str) -> Probe {
    let file = peers.join(program);
    if file.is_file() {
        return Probe::ok(GROUP, name, unlocks, file.display().to_string());
    }
    let found = format!("no {}", file.display());
    Probe::lacking(GROUP, name, unlocks, ProbeState::Missing, found, remedy)
}

fn clips(folder: &Path) -> Probe {
    let (name, unlocks) = ("committed clips", "lab `decode`, `players`, `faults`, `rpc` and `aa`");
    let is_clip = |path: &PathBuf| {
        path.extension()
            .is_some_and(|e| ["ivf", "h264", "hevc", "mp4", "mkv", "webm"].iter().any(|k| e == *k))
    };
    let count = fs::read_dir(folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).filter(is_clip).count())
        .unwrap_or(0);
    if count > 0 {
        let found = format!("{} in {}", counted(count, "clip", "clips"), folder.display());
        return Probe::ok(GROUP, name, unlocks, found);
    }
    let found = format!("none in {}", folder.display());
    let remedy = "run inside the checkout, or give the folder with --clips DIR";
    Probe::lacking(GROUP, name, unlocks, ProbeState::Missing, found, remedy)
}

fn browser() -> Probe {
    let (name, unlocks) = ("Chromium", "the test that opens report.html");
    let names = ["chromium", "chromium-browser", "google-chrome"];
    match names.into_iter().find_map(in_path) {
        Some(file) => Probe::ok(GROUP, name, unlocks, file.display().to_string()),
        None => Probe::lacking(
            GROUP,
            name,
            unlocks,
            ProbeState::Missing,
            "not in PATH",
            "apt install chromium (the report itself opens in any browser)",
        ),
    }
}

fn in_path(program: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(program)).find(|file| file.is_file())
}
