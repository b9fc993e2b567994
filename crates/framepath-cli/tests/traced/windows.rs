// SPDX-License-Identifier: MIT OR Apache-2.0
//! Players with a window: which frame was shown when. A library in the player is the observer: it reads the number in each
//! picture that the player shows.

use std::fs;
use std::path::Path;
use std::process::Command;

use framepath_testkit::display::Xvfb;
use framepath_testkit::harness::{Missing, Tested, needs_program};
use framepath_testkit::{ffmpeg, finish, framepath, in_checkout};
use serde_json::Value;
use tempfile::TempDir;

use crate::{needs_bpf, stages};

/// Number of frames of the clip.
const FRAMES: usize = 40;

/// Picture that the observer saw: the times before and behind the call that showed it, and its number.
#[derive(Clone, Copy, Debug)]
struct Picture {
    begin_ns: u64,
    end_ns: u64,
    number: usize,
}

/// Frame in the ledger: its number in the order of presentation, and its rows' times, nanoseconds.
struct Shown {
    number: usize,
    birth_ns: u64,
    leave_ns: u64,
    rows_ns: u64,
}

/// Folder with the observer and a clip whose pictures have numbers, and an X server.
struct Stage {
    folder: TempDir,
    server: Xvfb,
    /// Number of each packet's frame in the order of presentation: the clip has B-frames.
    numbers: Vec<usize>,
}

impl Stage {
    fn new() -> Result<Stage, Missing> {
        needs_bpf()?;
        let (folder, server) = (TempDir::new().unwrap(), Xvfb::start((640, 480))?);
        let source = in_checkout("crates/framepath-cli/tests/traced/pictures.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o"]);
        compiler.arg(folder.path().join("pictures.so")).arg(source).arg("-ldl");
        match compiler.status() {
            Ok(status) => assert!(status.success()),
            Err(error) => return Err(Missing::new(format!("cc: {error}"))),
        }
        let stage = Stage { folder, server, numbers: Vec::new() };
        let luma = "geq=lum='if(mod(floor(N/pow(2,floor(X/32))),2),235,16)':cb=128:cr=128";
        let input = format!("nullsrc=s=256x64:r=25:d={}", FRAMES as f64 / 25.0);
        let clip = stage.file("clip.mp4");
        let output = ["-c:v", "mpeg4", "-bf", "2", "-qscale:v", "2", "-pix_fmt", "yuv420p", "-y", &clip];
        ffmpeg(&[&["-f", "lavfi", "-i", &input, "-vf", luma], &output[..]].concat());
        let mut probe = Command::new("ffprobe");
        probe.args(["-v", "error", "-show_entries", "packet=pts", "-of", "csv=p=0", &clip]);
        let packets = String::from_utf8(probe.output().unwrap().stdout).unwrap();
        let times: Vec<u64> =
            packets.lines().map(|line| line.trim_end_matches(',').parse().unwrap()).collect();
        let numbers: Vec<usize> =
            times.iter().map(|time| times.iter().filter(|other| *other < time).count()).collect();
        assert!(numbers.len() == FRAMES && !numbers.is_sorted(), "{numbers:?}");
        Ok(Stage { numbers, ..stage })
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Traces a player with the observer in it. Returns the figures, the frames with the stage `present`, and the pictures.
    fn play(&self, limits: &[&str], player: &[&str]) -> (Value, Vec<Shown>, Vec<Picture>) {
        let [csv, pictures, library, json] =
            ["frames.csv", "pictures", "pictures.so", "json"].map(|name| self.file(name));
        let _ = fs::remove_file(&pictures);
        let preload = format!("LD_PRELOAD={library}");
        let outputs = ["trace", "--level", "bpf", "--quiet", "--csv", &csv, "--json", &json];
        let mut command = framepath(&[&outputs, limits, &["--", "env", &preload], player].concat());
        command.env("DISPLAY", self.server.name()).env("PICTURES", &pictures);
        command.env("SDL_VIDEODRIVER", "x11").env("SDL_AUDIODRIVER", "dummy").env_remove("WAYLAND_DISPLAY");
        finish(command).ended(0);
        let figures: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
        assert_eq!(figures["trace"]["lost_events"], 0, "{figures}");
        let frames = self.frames(Path::new(&csv));
        let lines = fs::read_to_string(pictures).unwrap();
        let pictures = lines.lines().map(|line| {
            let words: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            Picture { begin_ns: words[0], end_ns: words[1], number: words[2] as usize }
        });
        (figures, frames, pictures.collect())
    }

    /// Reads the frames of the first path that have the stage `present`.
    fn frames(&self, csv: &Path) -> Vec<Shown> {
        let text = fs::read_to_string(csv).unwrap();
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let head = lines.next().unwrap();
        let rows: Vec<Vec<&str>> = lines.collect();
        let cell =
            |row: &[&str], name: &str| row[head.iter().position(|cell| *cell == name).unwrap()].to_owned();
        let time = |row: &[&str], name: &str| cell(row, name).parse::<u64>().unwrap();
        let shown = rows.iter().filter(|row| cell(row, "stage") == "present");
        let mut frames: Vec<Shown> = shown
            .map(|row| {
                let same = |other: &&Vec<&str>| {
                    cell(other, "path") == cell(row, "path") && cell(other, "seq") == cell(row, "seq")
                };
                Shown {
                    number: self.numbers[time(row, "seq") as usize],
                    birth_ns: time(row, "birth_ns"),
                    leave_ns: time(row, "leave_ns"),
                    rows_ns: rows.iter().filter(same).map(|row| time(row, "wall_ns")).sum(),
                }
            })
            .collect();
        frames.sort_by_key(|frame| frame.leave_ns);
        frames
    }
}

/// Checks that each frame of the ledger is the one that the observer saw at this time, that all numbers that it saw are
/// frames of the ledger, and that the rows add up.
fn check(figures: &Value, frames: &[Shown], pictures: &[Picture]) {
    for frame in frames {
        let at = |picture: &&Picture| (picture.begin_ns..=picture.end_ns).contains(&frame.leave_ns);
        let seen: Vec<usize> = pictures.iter().filter(at).map(|picture| picture.number).collect();
        assert_eq!(seen, [frame.number], "{pictures:?}");
        assert_eq!(frame.rows_ns, frame.leave_ns - frame.birth_ns);
    }
    let numbers: Vec<usize> = frames.iter().map(|frame| frame.number).collect();
    assert!(numbers.is_sorted() && !numbers.is_empty(), "{numbers:?}");
    let mut seen: Vec<usize> = pictures.iter().map(|picture| picture.number).collect();
    seen.dedup();
    assert_eq!(seen, numbers, "{pictures:?}");
    let row = &figures["rows"][0];
    assert_eq!(row["frames"], numbers.len(), "{figures}");
    assert_eq!(stages(row).last(), Some(&"present"), "{figures}");
    assert_eq!(figures["trace"]["ambiguous"], 0, "{figures}");
}

/// Returns the time for which the median frame waits in a stage for its own time, microseconds.
fn paced_us(figures: &Value, stage: usize) -> f64 {
    figures["rows"][0]["hops"][stage]["causes_us"]["paced"].as_f64().unwrap_or(0.0)
}

pub(crate) fn ffplay_shows_each_frame_that_is_in_its_texture() -> Tested {
    let stage = Stage::new()?;
    let clip = stage.file("clip.mp4");
    for limits in [&[][..], &["--from", "decode", "--to", "present"]] {
        // Without dropped frames, and with those that a busy computer drops.
        let drops = if limits.is_empty() { "-noframedrop" } else { "-framedrop" };
        let (figures, frames, pictures) =
            stage.play(limits, &["ffplay", "-v", "error", "-autoexit", drops, &clip]);
        check(&figures, &frames, &pictures);
        if limits.is_empty() {
            assert_eq!(frames.len(), FRAMES);
            assert_eq!(stages(&figures["rows"][0]), ["demux mov", "decode mpeg4", "filter", "present"]);
            assert!(paced_us(&figures, 3) > 0.0, "{figures}");
        } else {
            assert_eq!(figures["rows"][0]["contender"], "decode to present");
        }
    }
    Ok(())
}

pub(crate) fn mpv_is_matched_only_if_it_shows_each_frame_once() -> Tested {
    let stage = Stage::new()?;
    needs_program("mpv", "mpv")?;
    let clip = stage.file("clip.mp4");
    let player = ["mpv", "--no-config", "--no-audio", "--really-quiet", "--vo=x11", "--framedrop=no", &clip];
    let (figures, frames, pictures) = stage.play(&[], &player);
    // When the server exposes the new window late, mpv draws the first picture once more: then nothing is matched.
    if pictures.len() != FRAMES {
        let note = format!("present: {} pictures shown, {FRAMES} frames: not matched", pictures.len());
        assert!(figures["notes"].as_array().unwrap().contains(&note.into()), "{figures}");
        assert_eq!(stages(&figures["rows"][0]), ["demux mov", "decode mpeg4"]);
        assert!(frames.is_empty());
        return Ok(());
    }
    check(&figures, &frames, &pictures);
    assert_eq!(stages(&figures["rows"][0]), ["demux mov", "decode mpeg4", "present"]);
    assert!(paced_us(&figures, 2) > 0.0, "{figures}");
    Ok(())
}

pub(crate) fn a_pipeline_shows_the_buffer_of_its_sink() -> Tested {
    let stage = Stage::new()?;
    needs_program("gst-launch-1.0", "gstreamer1.0-tools")?;
    let clip = stage.file("clip.mp4");
    let elements = format!("filesrc location={clip} ! qtdemux ! avdec_mpeg4 ! videoconvert ! ximagesink");
    let found = Command::new("gst-inspect-1.0").arg("ximagesink").output().unwrap();
    if !found.status.success() {
        return Err(Missing::new("no ximagesink: apt install gstreamer1.0-x"));
    }
    let words: Vec<&str> = elements.split(' ').collect();
    let (figures, frames, pictures) = stage.play(&[], &[&["gst-launch-1.0", "-q"], &words[..]].concat());
    check(&figures, &frames, &pictures);
    let names = stages(&figures["rows"][0]);
    assert_eq!(names[names.len() - 2..], ["ximagesink0", "present"]);
    assert!(paced_us(&figures, names.len() - 2) > 0.0, "{figures}");
    Ok(())
}
