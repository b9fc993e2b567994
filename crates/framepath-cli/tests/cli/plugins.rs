// SPDX-License-Identifier: MIT OR Apache-2.0
//! `plugins`, and the stages `plugin` and `convert`. They need Debian's
//! plug-ins: apt install frei0r-plugins.

use std::fs;
use std::path::Path;

use serde_json::Value;

use framepath_testkit::{CommandOutput, finish, framepath, run};

/// Runs the path, whose sink is `framemd5 -`. Returns the hashes of its frames.
fn hashes(path: &str) -> Vec<String> {
    let ran = run(&["run", path]).ended(0);
    let lines = ran.stdout.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| Some(line.rsplit_once(", ")?.1.to_owned())).collect()
}

/// Runs `framepath` with only the plug-ins of `folder`.
fn in_folder(folder: &Path, args: &[&str]) -> CommandOutput {
    let mut command = framepath(args);
    command.env("FREI0R_PATH", folder);
    finish(command)
}

#[test]
fn plugins_are_listed_by_type() {
    run(&["plugins"]).ended(0).shows("invert0r").shows("mixer2");
}

#[test]
fn a_plugin_is_shown_with_its_parameters() {
    let one = run(&["plugins", "frei0r:glow"]).ended(0).shows("frei0r:glow  filter");
    one.shows("blur=double").shows("a number from 0 to 1; default `0`");
    let json = run(&["plugins", "glow", "--json", "-"]).ended(0);
    let entries: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(entries[0]["type"], "filter");
    assert_eq!(entries[0]["params"][0]["name"], "blur");
    run(&["plugins", "glwo"]).ended(2).prints("did you mean `glow`?");
}

#[test]
fn a_plugin_that_cannot_be_loaded_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("noise.so"), "no shared object").unwrap();
    let ran = in_folder(folder.path(), &["plugins"]);
    ran.ended(0).shows("noise  -       noise: cannot load: ");
    let empty = tempfile::tempdir().unwrap();
    let ran = in_folder(empty.path(), &["run", "test ! plugin frei0r:glow ! null"]);
    ran.ended(1).prints("`glow`").prints("frei0r-plugins");
}

#[test]
fn a_plugin_has_its_memory_beyond_the_worker_program() {
    // The worker program alone has more than 64 MiB mapped.
    let stage = "plugin frei0r:3dflippo x-axis-rotation=0.5 host=process";
    let path = |memory: &str| format!("test size=64x48 format=rgba frames=3 ! {stage}{memory} ! framemd5 -");
    let frames = hashes(&path(""));
    assert_eq!(frames.len(), 3);
    assert_eq!(hashes(&path(" memory=64MiB")), frames);
}

#[test]
fn inverting_twice_restores_the_picture() {
    for size in ["64x48", "70x50"] {
        let plain = hashes(&format!("test size={size} format=rgba frames=3 ! framemd5 -"));
        let once =
            hashes(&format!("test size={size} format=rgba frames=3 ! plugin frei0r:invert0r ! framemd5 -"));
        let twice = hashes(&format!(
            "test size={size} format=rgba frames=3 ! plugin frei0r:invert0r ! queue ! plugin frei0r:invert0r ! framemd5 -"
        ));
        assert_eq!((plain.len(), once.len()), (3, 3));
        assert_ne!(plain, once);
        assert_eq!(plain, twice);
        // PACKED32 and BGRA8888 have the same result as the run without the plug-in.
        let grab = hashes(&format!(
            "test size={size} format=rgba frames=3 ! plugin frei0r:delay0r delaytime=0 ! framemd5 -"
        ));
        assert_eq!(plain, grab);
    }
}

#[test]
fn frames_of_other_formats_are_converted_to_rgba() {
    let by_stage =
        hashes("test size=70x50 frames=2 ! convert format=rgba ! plugin frei0r:invert0r ! framemd5 -");
    assert_eq!(by_stage, hashes("test size=70x50 frames=2 ! plugin frei0r:invert0r ! framemd5 -"));
    assert_eq!(by_stage.len(), 2);
    let same = hashes("test size=70x50 frames=2 ! convert format=nv12 ! framemd5 -");
    assert_eq!(same, hashes("test size=70x50 frames=2 ! framemd5 -"));
}

#[test]
fn invalid_plugin_parameters_are_reported() {
    let fails =
        |stage: &str| run(&["run", &format!("test frames=1 ! plugin frei0r:{stage} ! null")]).ended(1);
    fails("glow blurr=1").prints("`blurr`").prints("`blur`");
    fails("glow blur=2").prints("`blur=2`").prints("0 to 1");
    fails("addition").prints("mixer2");
}
