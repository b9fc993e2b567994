// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lab players` with artificial players: scripts that hang, crash, ask a question
//! or play.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use framepath_testkit::{finish, framepath, in_checkout};

fn script(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn players_that_fail_are_reported_and_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let pids = folder.path().join("pids");
    let version = "case $1 in --version|-version) exit 0;; esac; ";
    script(
        &bin,
        "mpv",
        &format!("{version}sleep 301 & echo $! >> {0}; echo $$ >> {0}; exec sleep 302", pids.display()),
    );
    script(&bin, "ffplay", &format!("{version}echo 'no such codec' >&2; kill -SEGV $$"));
    script(&bin, "mplayer", &format!("{version}echo 'Overwrite? [y/N]'; read answer; exec sleep 303"));
    script(&bin, "cvlc", &format!("{version}sleep 1.2"));
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let json = folder.path().join("players.json");
    let out = folder.path().join("run");
    let mut command = framepath(&["lab", "players", clip.to_str().unwrap(), "--pairs", "1"]);
    command.arg("--json").arg(&json).arg("--out").arg(&out);
    // PATH has only these tools: no display server and no other player.
    command.env("PATH", format!("{}:/usr/bin/coreutils-only", bin.display()));
    for tool in ["sh", "sleep"] {
        std::os::unix::fs::symlink(Path::new("/bin").join(tool), bin.join(tool)).unwrap();
    }
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    finish(command).ended(0);
    let summary: serde_json::Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let rows: Vec<&str> =
        summary["rows"].as_array().unwrap().iter().map(|row| row["contender"].as_str().unwrap()).collect();
    assert_eq!(rows, ["framepath-software-null", "vlc-software-null"]);
    assert_eq!(summary["rows"][0]["unaccounted"].as_f64(), Some(0.0), "{summary}");
    let reason = |contender: &str| {
        let skipped = summary["skipped"].as_array().unwrap();
        let one = skipped.iter().find(|one| one["contender"] == contender);
        one.unwrap_or_else(|| panic!("no {contender} in {skipped:?}"))["reason"].as_str().unwrap().to_owned()
    };
    assert!(reason("mpv-software-null").starts_with("still ran after"));
    assert!(reason("ffplay-software-null").ends_with("no such codec"));
    assert!(reason("ffplay-software-null").starts_with("was killed by signal 11"));
    assert!(reason("mplayer-software-null").starts_with("asks a question"));
    assert!(reason("gst-play").starts_with("not installed: apt install"));
    assert!(reason("x11").contains("apt install xvfb"));
    for pid in fs::read_to_string(&pids).unwrap().lines() {
        let gone = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(20));
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.is_empty() || status.contains("State:\tZ")
        });
        assert!(gone, "{pid} was left running");
    }
}

#[test]
fn only_players_accepts_files() {
    is_a_usage_error(&["lab", "queue", "film.mkv"], "only decode, players accept files");
    is_a_usage_error(&["lab", "playes"], "did you mean `players`?");
}

fn is_a_usage_error(words: &[&str], part: &str) {
    finish(framepath(words)).ended(2).prints(part);
}
