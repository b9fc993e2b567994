// SPDX-License-Identifier: MIT OR Apache-2.0
//! SDL2 is loaded only by commands that show a window.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{bytes_of, clip, ended};

const FRAMEPATH: &str = env!("CARGO_BIN_EXE_framepath");
const LIBRARY: &str = "libSDL2-2.0.so.0";

/// Returns the output of readelf(1) about the command.
fn readelf(option: &str) -> String {
    let mut command = Command::new("readelf");
    let text = bytes_of(command.args([option, "--wide", FRAMEPATH]).env("LC_ALL", "C"));
    String::from_utf8(text).unwrap()
}

pub fn the_command_is_not_linked_with_sdl() {
    let dynamic = readelf("--dynamic");
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(needed.iter().any(|line| line.contains("libavcodec")), "{dynamic}");
    assert!(!needed.iter().any(|line| line.contains("libSDL2")), "{needed:#?}");
    // Exported functions would replace SDL's own.
    let symbols = readelf("--dyn-syms");
    assert!(symbols.contains(" avcodec_"), "{symbols}");
    assert!(!symbols.contains(" SDL_"), "{symbols}");
}

/// Runs the command. Returns the dynamic linker's log of loaded libraries for each process that
/// executed the command's binary, workers included.
fn loaded(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let logs = folder.join("logs");
    fs::create_dir(&logs).unwrap();
    let (log, worker) = (logs.join("pid"), folder.join("worker"));
    // Workers have a clean environment, so this script sets the variables for them.
    let variables = format!("LD_DEBUG=files LD_DEBUG_OUTPUT={}", log.display());
    fs::write(&worker, format!("#!/bin/sh\n{variables} exec {FRAMEPATH} \"$@\"\n")).unwrap();
    fs::set_permissions(&worker, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(FRAMEPATH);
    command.args(arguments).env("FRAMEPATH_WORKER", &worker).env_remove("DISPLAY");
    command.env("LD_DEBUG", "files").env("LD_DEBUG_OUTPUT", &log);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = ended(command.spawn().unwrap());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let files = fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().path());
    let texts = files.map(|file| String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned());
    // Ignores other programs, whose logs need not name FFmpeg.
    texts.filter(|text| text.contains(&format!("program: {FRAMEPATH}"))).collect()
}

pub fn a_sandboxed_decoder_does_not_load_sdl() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("file '{}' ! decode host=process ! null", clip("vp9-180p8.ivf"));
    let logs = loaded(folder.path(), &["run", "--quiet", &path]);
    assert!(logs.len() >= 2, "the command and a worker program: {} logs", logs.len());
    for log in logs {
        assert!(log.contains("libavcodec"), "{log}");
        assert!(!log.contains("libSDL2"), "{log}");
    }
}

/// Counterpart of [`a_sandboxed_decoder_does_not_load_sdl`]: the log shows libraries that are loaded
/// late.
pub fn the_doctor_loads_sdl() {
    let folder = tempfile::tempdir().unwrap();
    let logs = loaded(folder.path(), &["doctor", "--json", "-"]);
    let with_sdl = logs.iter().filter(|log| log.contains(&format!("file={LIBRARY}"))).count();
    assert_eq!(with_sdl, 1, "{} logs", logs.len());
}

/// Runs the command with an empty file as SDL2 for the dynamic linker.
fn without_sdl(arguments: &[&str]) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(LIBRARY), "").unwrap();
    let mut command = Command::new(FRAMEPATH);
    command.args(arguments).env("LD_LIBRARY_PATH", folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    ended(command.spawn().unwrap())
}

pub fn a_missing_sdl_fails_only_the_window() {
    let output = without_sdl(&["run", "test size=64x48 frames=3 ! play"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(LIBRARY) && errors.contains("apt install libsdl2-2.0-0"), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");

    let output = without_sdl(&["run", "test size=64x48 frames=3 ! play driver=null"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));

    let output = without_sdl(&["doctor", "--json", "-"]);
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let probes = findings["probes"].as_array().unwrap();
    let sdl = probes.iter().find(|probe| probe["name"] == "SDL2").expect("a probe of SDL2");
    assert_eq!(sdl["state"], "missing", "{sdl}");
}
