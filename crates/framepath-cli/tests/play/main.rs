// SPDX-License-Identifier: MIT OR Apache-2.0
//! `play` in a window of the test's own X server.

mod eye;
mod library;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use framepath_testkit::clip;
use framepath_testkit::display::{Manager, Xvfb};
use framepath_testkit::harness::Tested;

framepath_testkit::tests! {
    the_screen_shows_the_right_frame,
    colours_follow_the_matrix_and_range_of_the_stream,
    a_server_without_shared_memory_shows_the_right_frame,
    a_paused_picture_is_a_frame_of_the_clip,
    a_larger_window_has_a_larger_picture,
    key_f_toggles_full_screen,
    keys_q_and_space_end_and_pause,
    every_format_is_played_to_the_end,
    memory_does_not_grow_with_the_number_of_picture_sizes,
    one_table_merges_the_cells_of_two_machines,
    library::the_command_is_not_linked_with_sdl,
    library::a_sandboxed_decoder_does_not_load_sdl,
    library::the_doctor_loads_sdl,
    library::a_missing_sdl_fails_only_the_window,
}

/// Time limit of each wait; a command that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

const SIZE: (u32, u32) = (320, 180);

/// Starts `framepath run --json -` with the path and the server's display.
fn play(server: &Xvfb, path: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_framepath"));
    command.args(["run", "--json", "-", path]).env("DISPLAY", server.name()).env("SDL_VIDEODRIVER", "x11");
    command.env_remove("WAYLAND_DISPLAY").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits for the end of `child` and returns its output. Kills `child` and panics after [`PATIENCE`].
fn ended(mut child: Child) -> Output {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it hangs: {:?}", child.wait_with_output());
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Returns the numbers of shown and of late frames from the JSON summary of a successful run.
fn counts(output: &Output) -> (u64, u64) {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &summary["rows"][0];
    let of = |key: &str| row[key].as_f64().unwrap() as u64;
    assert_eq!(of("frames"), of("shown") + of("late"), "{row}");
    (of("shown"), of("late"))
}

fn bytes_of(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Returns the frame with number `frame` of a clip in RGB, as the ffmpeg tool converts it.
fn reference(file: &str, frame: u32) -> Vec<u8> {
    let select = format!("select=eq(n\\,{frame})");
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-i", file, "-vf", &select, "-frames:v", "1"]);
    bytes_of(command.args(["-pix_fmt", "rgb24", "-f", "rawvideo", "-"]))
}

fn screenshot(server: &Xvfb) -> Vec<u8> {
    eye::screenshot(&server.name(), SIZE.0 as usize)
}

/// Size in pixels of the clip of [`moving_box`]: large enough for several bands of eight rows, which
/// are painted separately.
const BOXED: (u32, u32) = (320, 176);

/// Creates a clip in which a box moves over a static background, so that most of a frame is not
/// repainted. Returns its file and its frames in RGB.
fn moving_box(folder: &Path) -> (String, Vec<Vec<u8>>) {
    let file = folder.join("box.h264").display().to_string();
    let mut command = Command::new("ffmpeg");
    let source = |colour: &str, width, height| format!("color={colour}:s={width}x{height}:r=30");
    command.args(["-v", "error", "-f", "lavfi", "-i", &source("gray", BOXED.0, BOXED.1)]);
    command.args(["-f", "lavfi", "-i", &source("white", 64, 48)]);
    command.args(["-filter_complex", "[0][1]overlay=x='mod(n*5,256)':y='mod(n*3,128)'"]);
    bytes_of(command.args(["-frames:v", "60", "-c:v", "libx264", "-crf", "12", "-bf", "0", &file]));
    let mut command = Command::new("ffmpeg");
    let frames =
        bytes_of(command.args(["-v", "error", "-i", &file, "-pix_fmt", "rgb24", "-f", "rawvideo", "-"]));
    let frames: Vec<Vec<u8>> = frames.chunks((BOXED.0 * BOXED.1 * 3) as usize).map(<[u8]>::to_vec).collect();
    assert_eq!(frames.len(), 60);
    (file, frames)
}

/// Returns the percentage of a picture's pixels that differ by more than 40 in a channel from the
/// most similar of `frames`.
fn foreign_pixels(picture: &[u8], frames: &[Vec<u8>]) -> f64 {
    let differ = |(a, b): (&[u8], &[u8])| a.iter().zip(b).any(|(a, b)| a.abs_diff(*b) > 40);
    let count = |frame: &Vec<u8>| {
        assert_eq!(picture.len(), frame.len());
        picture.chunks(3).zip(frame.chunks(3)).filter(|pixels| differ(*pixels)).count()
    };
    let least = frames.iter().map(count).min().expect("a frame");
    least as f64 * 300.0 / picture.len() as f64
}

/// Returns the mean absolute difference of two pictures' bytes, 0 to 255.
fn distance(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum: u64 = a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / a.len() as f64
}

/// Takes screenshots until one has at most the distance `near` to `picture`, or [`PATIENCE`] is over.
/// Returns the last screenshot.
fn seen(server: &Xvfb, picture: &[u8], near: f64) -> Vec<u8> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let screen = screenshot(server);
        if distance(&screen, picture) <= near || Instant::now() > deadline {
            return screen;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Runs `xdotool` with these arguments on the server, to send input to the window.
fn xdotool(server: &Xvfb, words: &[&str]) {
    bytes_of(Command::new("xdotool").args(words).env("DISPLAY", server.name()));
}

fn window_is_there(server: &Xvfb) {
    let found = || {
        let mut command = Command::new("xdotool");
        command.args(["search", "--onlyvisible", "--name", "^framepath$"]).env("DISPLAY", server.name());
        command.stdout(Stdio::null()).status().unwrap().success()
    };
    let deadline = Instant::now() + PATIENCE;
    while !found() {
        assert!(Instant::now() < deadline, "no window");
        thread::sleep(Duration::from_millis(20));
    }
}

fn the_screen_shows_the_right_frame() -> Tested {
    let server = Xvfb::start(SIZE)?;
    let file = clip("vp9-180p8.ivf");
    let (first, other) = (reference(&file, 0), reference(&file, 20));
    assert!(distance(&first, &other) > 5.0, "the frames are too much alike to tell");
    for (host, driver) in [("inline", "software"), ("process", "software"), ("inline", "opengl")] {
        // Frames arrive every three seconds, so each frame stays for three seconds.
        let rest = format!("block time=3s ! play driver={driver} sync=0");
        let child = play(&server, &format!("file '{file}' ! decode host={host} ! {rest}"));
        let screen = seen(&server, &first, 3.0);
        let (right, wrong) = (distance(&screen, &first), distance(&screen, &other));
        assert!(
            right <= 3.0 && wrong > 4.0,
            "{host} {driver}: {right} from the first frame, {wrong} from another"
        );
        xdotool(&server, &["key", "q"]);
        counts(&ended(child));
    }
    Ok(())
}

/// The picture has a single colour, encoded with each matrix and range. A wrong conversion would show
/// another colour.
fn colours_follow_the_matrix_and_range_of_the_stream() -> Tested {
    let server = Xvfb::start(SIZE)?;
    let folder = tempfile::tempdir().unwrap();
    let wanted: Vec<u8> = [0x90, 0x50, 0x30].repeat((SIZE.0 * SIZE.1) as usize);
    for (matrix, range) in [("bt709", "tv"), ("bt709", "pc"), ("smpte170m", "pc"), ("smpte170m", "tv")] {
        let file = folder.path().join(format!("{matrix}-{range}.h264")).display().to_string();
        let source = format!("color=0x905030:s={}x{}:r=30,format=gbrp", SIZE.0, SIZE.1);
        let scale = format!("scale=out_color_matrix={matrix}:out_range={range},format=yuv420p");
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "error", "-f", "lavfi", "-i", &source, "-vf", &scale, "-frames:v", "10"]);
        command.args(["-colorspace", matrix, "-color_range", range, "-c:v", "libx264", "-crf", "8", &file]);
        bytes_of(&mut command);
        for driver in ["software", "opengl"] {
            let rest = format!("block time=1s ! play driver={driver} sync=0");
            let child = play(&server, &format!("file '{file}' ! decode ! {rest}"));
            let screen = seen(&server, &wanted, 3.0);
            assert!(
                distance(&screen, &wanted) <= 3.0,
                "{matrix} {range} {driver}: {:?}",
                &screen[screen.len() / 2..][..6]
            );
            xdotool(&server, &["key", "q"]);
            counts(&ended(child));
        }
    }
    Ok(())
}

/// Without shared memory, SDL sends the pictures through the connection to the server.
fn a_server_without_shared_memory_shows_the_right_frame() -> Tested {
    let server = Xvfb::without(SIZE, "MIT-SHM")?;
    let file = clip("vp9-180p8.ivf");
    let first = reference(&file, 0);
    let rest = "block time=3s ! play driver=software sync=0";
    let child = play(&server, &format!("file '{file}' ! decode ! {rest}"));
    let distance = distance(&seen(&server, &first, 3.0), &first);
    assert!(distance <= 3.0, "{distance} from the first frame");
    xdotool(&server, &["key", "q"]);
    counts(&ended(child));
    let (shown, late) = counts(&ended(play(&server, &format!("file '{file}' ! decode ! play"))));
    assert_eq!(shown + late, 30);
    Ok(())
}

/// `play` sends frames to the server before their times, often only the changed part. The
/// screen must have a complete frame whenever playback pauses.
fn a_paused_picture_is_a_frame_of_the_clip() -> Tested {
    let server = Xvfb::start(BOXED)?;
    let folder = tempfile::tempdir().unwrap();
    let (file, frames) = moving_box(folder.path());
    let child = play(&server, &format!("file '{file}' loop=100 ! decode ! play"));
    window_is_there(&server);
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(700));
        xdotool(&server, &["key", "space"]);
        // The server first shows frames that are already queued.
        thread::sleep(Duration::from_millis(700));
        let foreign = foreign_pixels(&screenshot(&server), &frames);
        assert!(foreign <= 0.1, "{foreign} % of the pixels are of no one frame");
        xdotool(&server, &["key", "space"]);
    }
    xdotool(&server, &["key", "q"]);
    counts(&ended(child));
    Ok(())
}

fn a_larger_window_has_a_larger_picture() -> Tested {
    let server = Xvfb::start((2 * SIZE.0, 2 * SIZE.1))?;
    let file = clip("vp9-180p8.ivf");
    let first = reference(&file, 0);
    // A frame stays for three seconds, which is enough to resize its window.
    let child =
        play(&server, &format!("file '{file}' ! decode ! block time=3s ! play driver=software sync=0"));
    window_is_there(&server);
    xdotool(&server, &["search", "--name", "^framepath$", "windowmove", "0", "0"]);
    xdotool(&server, &["search", "--name", "^framepath$", "windowsize", "640", "360"]);
    let second = reference(&file, 1);
    let screen = seen(&server, &second, 6.0);
    assert!(distance(&screen, &second).min(distance(&screen, &first)) <= 6.0);
    xdotool(&server, &["key", "Escape"]);
    counts(&ended(child));
    Ok(())
}

/// Waits until the window has this size; panics after [`PATIENCE`].
fn window_has(server: &Xvfb, size: (u32, u32)) {
    let wanted = format!("Geometry: {}x{}", size.0, size.1);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut command = Command::new("xdotool");
        command.args(["search", "--name", "^framepath$", "getwindowgeometry"]).env("DISPLAY", server.name());
        let geometry = String::from_utf8(bytes_of(&mut command)).unwrap();
        if geometry.lines().any(|line| line.trim() == wanted) {
            return;
        }
        assert!(Instant::now() < deadline, "{geometry}, and not {wanted}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn key_f_toggles_full_screen() -> Tested {
    let whole = (2 * BOXED.0, 2 * BOXED.1);
    let server = Xvfb::start(whole)?;
    let _manager = Manager::start(&server)?;
    let folder = tempfile::tempdir().unwrap();
    let (file, frames) = moving_box(folder.path());
    let child = play(&server, &format!("file '{file}' loop=100 ! decode ! play"));
    window_is_there(&server);
    for size in [whole, BOXED, whole] {
        xdotool(&server, &["search", "--name", "^framepath$", "windowfocus", "--sync", "key", "f"]);
        window_has(&server, size);
    }
    // While playback pauses, the screen must have exactly one of the clip's pictures,
    // even if the window changes while frames are in flight.
    for _ in 0..2 {
        xdotool(&server, &["key", "space", "key", "f"]);
        window_has(&server, BOXED);
        xdotool(&server, &["key", "f"]);
        window_has(&server, whole);
        thread::sleep(Duration::from_millis(700));
        let foreign = foreign_pixels(&screenshot(&server), &frames);
        // The edges of the box are soft.
        assert!(foreign <= 1.0, "{foreign} % of the pixels are of no one frame");
        xdotool(&server, &["key", "space"]);
        thread::sleep(Duration::from_millis(700));
    }
    xdotool(&server, &["key", "q"]);
    counts(&ended(child));
    Ok(())
}

fn keys_q_and_space_end_and_pause() -> Tested {
    let server = Xvfb::start((64, 48))?;
    for key in ["q", "Escape"] {
        let child = play(&server, "test size=64x48 frames=0 rate=30 ! play");
        window_is_there(&server);
        xdotool(&server, &["key", key]);
        let output = ended(child);
        counts(&output);
        assert!(String::from_utf8_lossy(&output.stderr).contains("ended by the viewer"), "{key}");
    }
    // 100 frames last four seconds.
    let mut child = play(&server, "test size=64x48 frames=100 rate=25 ! play");
    window_is_there(&server);
    xdotool(&server, &["key", "space"]);
    thread::sleep(Duration::from_secs(6));
    assert!(child.try_wait().unwrap().is_none(), "it went on through the pause");
    xdotool(&server, &["key", "space"]);
    let (shown, late) = counts(&ended(child));
    assert_eq!(shown + late, 100);
    Ok(())
}

fn every_format_is_played_to_the_end() -> Tested {
    let server = Xvfb::start(SIZE)?;
    let clips = ["vp9-180p10.ivf", "av1-180p8-grey.ivf", "vp9-resize-180p8.ivf", "vp9-99x57p8-odd.ivf"];
    for driver in ["software", "opengl"] {
        let mut paths: Vec<(String, u64)> = clips
            .iter()
            .zip([30, 30, 24, 12])
            .map(|(name, frames)| (format!("file '{}' ! decode ! play driver={driver}", clip(name)), frames))
            .collect();
        for format in ["nv12", "p010", "rgba", "grey"] {
            paths.push((format!("test size=99x57 format={format} frames=5 ! play driver={driver}"), 5));
        }
        paths.push((format!("file '{}' ! decode ! queue ! play driver={driver}", clip("vp9-180p8.ivf")), 30));
        paths.push((
            format!("file '{}' ! decode host=process ! play driver={driver}", clip("vp9-180p8.ivf")),
            30,
        ));
        for (path, frames) in paths {
            let (shown, late) = counts(&ended(play(&server, &path)));
            assert_eq!(shown + late, frames, "{path}");
        }
    }
    Ok(())
}

/// Makes a file of `frames` VP8 keyframes, each of another size: the size is patched into copies of
/// one frame, whose macroblocks stay the same. Returns the file's path.
fn many_sizes(folder: &Path, frames: u16) -> String {
    let one = folder.join("one.ivf").display().to_string();
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-f", "lavfi", "-i", "color=gray:s=1920x1088:r=25", "-frames:v", "1"]);
    bytes_of(command.args(["-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", &one]));
    let bytes = std::fs::read(&one).unwrap();
    let (head, frame) = (&bytes[..32], &bytes[44..]);
    assert_eq!(frame[3..6], [0x9d, 1, 0x2a]);
    let mut file = head.to_vec();
    file[24..28].copy_from_slice(&u32::from(frames).to_le_bytes());
    for number in 0..frames {
        file.extend((frame.len() as u32).to_le_bytes());
        file.extend(u64::from(number).to_le_bytes());
        let at = file.len();
        file.extend(frame);
        file[at + 6..at + 8].copy_from_slice(&(1920 - number % 16).to_le_bytes());
        file[at + 8..at + 10].copy_from_slice(&(1088 - number / 16).to_le_bytes());
    }
    let many = folder.join("many.ivf").display().to_string();
    std::fs::write(&many, file).unwrap();
    many
}

/// The stream has many picture sizes; each size needs a texture, and `play` keeps only few textures.
fn memory_does_not_grow_with_the_number_of_picture_sizes() -> Tested {
    let server = Xvfb::start(SIZE)?;
    let folder = tempfile::tempdir().unwrap();
    let file = many_sizes(folder.path(), 160);
    let path = format!("file '{file}' ! decode host=process memory=256MiB ! play driver=opengl sync=0");
    let mut child = play(&server, &path);
    // The highest resident size that the kernel saw, kilobytes.
    let status = format!("/proc/{}/status", child.id());
    let mut most_kib = 0;
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        most_kib = kib.unwrap_or(0).max(most_kib);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(counts(&ended(child)), (160, 0));
    // 160 textures of 3 MB would exist twice: for SDL and for OpenGL.
    assert!((1..500 << 10).contains(&most_kib), "{most_kib} KiB");
    Ok(())
}

/// Beauchesne's table: `lab` makes the table of one machine, `report` merges two. The second
/// machine is a copy of the first with another name, which the table must show.
fn one_table_merges_the_cells_of_two_machines() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let file = clip("vp9-180p8.ivf");
    let mut lab = Command::new(env!("CARGO_BIN_EXE_framepath"));
    lab.args(["lab", "players", &file, "--pairs", "1", "--out"]).arg(place("here"));
    // Without a display, the lab uses its own screen.
    lab.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").stdin(Stdio::null()).stdout(Stdio::null());
    let lab = lab.stderr(Stdio::piped()).spawn().unwrap();
    let output = ended(lab);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));

    let text = std::fs::read_to_string(place("here").join("run.json")).unwrap();
    let mut run: serde_json::Value = serde_json::from_str(&text).unwrap();
    let summary = if run.is_array() { &mut run[0] } else { &mut run };
    for row in summary["rows"].as_array().unwrap() {
        let contender = row["contender"].as_str().unwrap();
        if contender.starts_with("framepath-") {
            assert_eq!(row["unaccounted"], 0.0, "{row}");
            assert!(row["cpu_share"].as_f64().is_some_and(|share| share > 0.0), "{row}");
        }
    }
    let ours = |output: &str| format!("framepath-software-{output}");
    let has = |name: &str| summary["rows"].as_array().unwrap().iter().any(|row| row["contender"] == name);
    assert!(has(&ours("null")), "{text}");
    let again = |ratio: &serde_json::Value| ratio["b"] == format!("{} again", ours("null"));
    assert!(summary["ratios"].as_array().unwrap().iter().any(again), "{text}");
    let row_again = |row: &serde_json::Value| row["contender"].as_str().unwrap().ends_with("again");
    assert!(!summary["rows"].as_array().unwrap().iter().any(row_again), "one row for a cell: {text}");
    if Command::new("Xvfb").arg("-version").stdin(Stdio::null()).output().is_ok() {
        assert!(has(&ours("x11")), "{text}");
    }
    summary["machine"]["cpu"] = "a copy for a test, no machine".into();
    std::fs::create_dir(place("there")).unwrap();
    std::fs::write(place("there").join("run.json"), run.to_string()).unwrap();
    let mut report = Command::new(env!("CARGO_BIN_EXE_framepath"));
    report.arg("report").args([place("here"), place("there")]).arg("--out").arg(place("both.html"));
    bytes_of(&mut report);
    let page = std::fs::read_to_string(place("both.html")).unwrap();
    let table = page.split_once("players").expect("the table").1;
    assert!(table.contains("a copy for a test, no machine"));
    assert!(table.contains("vp9-180p8"));
}
