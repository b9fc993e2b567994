// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which input each output of a program shows: by the trace, and by numbers that the pictures themselves have in their pixels.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use framepath_testkit::harness::Tested;
use framepath_testkit::{finish, framepath};
use serde_json::Value;
use tempfile::TempDir;

use crate::needs_bpf;

pub(crate) const WIDTH: usize = 192;
pub(crate) const HEIGHT: usize = 64;
pub(crate) const FRAMES: u32 = 100;
/// Number of bits in a picture: columns of 16 pixels that are dark or bright.
const BITS: usize = 12;

/// Writes a clip of 25 pictures per second that have their numbers, with `options` of the encoder.
pub(crate) fn write_clip(path: &str, options: &[&str]) {
    write_clip_of(path, "25", options);
}

/// Writes such a clip with another rate.
pub(crate) fn write_clip_of(path: &str, rate: &str, options: &[&str]) {
    let raw = ["-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "gray", "-s", "192x64", "-r", rate];
    let mut ffmpeg = Command::new("ffmpeg")
        .args(raw)
        .args(["-i", "-"])
        .args(["-c:v", "libx264", "-crf", "10", "-g", "25", "-pix_fmt", "yuv420p"])
        .args(options)
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = ffmpeg.stdin.take().unwrap();
    for number in 0..FRAMES {
        let bit = |bit: usize| if number >> bit & 1 == 1 { 235 } else { 16 };
        let row: Vec<u8> = (0..WIDTH).map(|x| bit(x / (WIDTH / BITS))).collect();
        input.write_all(&row.repeat(HEIGHT)).unwrap();
    }
    drop(input);
    assert!(ffmpeg.wait().unwrap().success());
}

/// Returns the numbers of gray pictures of this size, scaled or not: of the left one if several are side by side.
pub(crate) fn numbers(bytes: &[u8], width: usize, height: usize, columns: usize) -> Vec<u32> {
    numbers_at(bytes, [width, height], [0, height / 4], columns)
}

/// Returns the numbers that gray pictures have in `columns` pixels from the pixel `x`, `y` on.
pub(crate) fn numbers_at(
    bytes: &[u8],
    [width, height]: [usize; 2],
    [x, y]: [usize; 2],
    columns: usize,
) -> Vec<u32> {
    let number = |picture: &[u8]| {
        let row = &picture[y * width + x..];
        (0..BITS).map(|bit| u32::from(row[(2 * bit + 1) * columns / (2 * BITS)] >= 128) << bit).sum()
    };
    bytes.chunks_exact(width * height).map(number).collect()
}

/// Outputs of a traced ffmpeg.
struct Outputs {
    /// Numbers in the pixels, in the order of the outputs.
    shown: Vec<u32>,
    /// Time at which the frame of each output was born, nanoseconds, in the same order; of each input.
    born: Vec<Vec<u64>>,
    figures: Value,
}

/// Runs ffmpeg with these arguments at `level`; its output has this size, and the numbers in the left `columns` pixels.
fn outputs(level: &str, arguments: &[&str], [width, height, columns]: [usize; 3]) -> Outputs {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (raw, csv) = (path("raw"), path("csv"));
    let ffmpeg = ["ffmpeg", "-nostdin", "-v", "error", "-y"];
    let output = ["-pix_fmt", "gray", "-f", "rawvideo", &raw];
    let (born, figures) = births(level, &[&ffmpeg[..], arguments, &output].concat(), &csv);
    Outputs {
        shown: numbers(&fs::read(raw).unwrap(), width, height, columns),
        born: born.into_values().collect(),
        figures,
    }
}

/// Runs a command at `level`. Returns the births of the frames of each way, nanoseconds, in the order of their ends, and the
/// figures. The table is written to `csv`.
pub(crate) fn births(level: &str, command: &[&str], csv: &str) -> (BTreeMap<String, Vec<u64>>, Value) {
    let trace = ["trace", "--level", level, "--quiet", "--json", "-", "--csv", csv, "--"];
    let ran = finish(framepath(&[&trace[..], command].concat())).ended(0);
    let table = fs::read_to_string(csv).unwrap();
    let mut lines = table.lines().map(|line| line.split(',').collect::<Vec<&str>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let [path, number, birth, leave] = ["path", "seq", "birth_ns", "leave_ns"].map(column);
    // End and birth of each frame of each way: the last row has the end.
    let mut ways: BTreeMap<String, BTreeMap<u64, (u64, u64)>> = BTreeMap::new();
    for line in lines {
        // Names of stages may have commas; the times are behind them.
        let value = |column: usize| line[column].parse::<u64>().unwrap();
        let behind = |column: usize| value(line.len() + column - header.len());
        let frames = ways.entry(line[path].to_owned()).or_default();
        frames.insert(value(number), (behind(leave), behind(birth)));
    }
    let in_order = |frames: BTreeMap<u64, (u64, u64)>| {
        let mut frames: Vec<(u64, u64)> = frames.into_values().collect();
        frames.sort_unstable();
        frames.into_iter().map(|(_, birth)| birth).collect()
    };
    let born = ways.into_iter().map(|(way, frames)| (way, in_order(frames))).collect();
    (born, serde_json::from_str(&ran.stdout).unwrap())
}

/// True if outputs with one number have one birth and others have others; without B frames, in the order of the numbers.
pub(crate) fn agree(shown: &[u32], born: &[u64], has_order: bool) -> bool {
    let (mut births, mut numbers) = (HashMap::new(), BTreeMap::new());
    let is_same = |(number, birth): (&u32, &u64)| {
        births.entry(*number).or_insert(*birth) == birth && numbers.entry(*birth).or_insert(*number) == number
    };
    let all = shown.iter().zip(born).map(is_same).collect::<Vec<bool>>();
    shown.len() == born.len()
        && all.iter().all(|is_same| *is_same)
        && (!has_order || numbers.values().is_sorted())
}

pub(crate) fn each_output_has_the_input_that_its_pixels_show() -> Tested {
    needs_bpf()?;
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (plain, reordered) = (path("plain.mp4"), path("reordered.mp4"));
    write_clip(&plain, &["-bf", "0"]);
    write_clip(&reordered, &["-bf", "2"]);
    let whole = [WIDTH, HEIGHT, WIDTH];
    // Filter, size of the output, and number of outputs.
    let filters = [
        ("null", whole, 100),
        ("scale=96:32", [96, 32, 96], 100),
        ("crop=iw:ih-2:0:1", [WIDTH, HEIGHT - 2, WIDTH], 100),
        ("fps=15", whole, 60),
        ("fps=1", whole, 4),
        ("fps=60", whole, 240),
        ("scale=96:32,fps=30,setsar=1", [96, 32, 96], 120),
        ("select=not(mod(n\\,3))", whole, 34),
        ("yadif=1", whole, 200),
        ("thumbnail=10", whole, 10),
        ("tile=1x2", [WIDTH, 2 * HEIGHT, WIDTH], 50),
        ("minterpolate=50:mi_mode=dup", whole, 197),
        ("reverse", whole, 100),
        ("loop=2:20:10", whole, 140),
        ("setpts=PTS*2", whole, 100),
    ];
    let mut wrong = Vec::new();
    for (filter, size, count) in filters {
        for level in ["bpf", "preload"] {
            let found = outputs(level, &["-i", &plain, "-vf", filter, "-fps_mode", "passthrough"], size);
            let ways = found.born.len();
            if found.shown.len() != count || ways != 1 || !agree(&found.shown, &found.born[0], true) {
                wrong.push(format!("{filter}, {level}: {} outputs, {ways} ways", found.shown.len()));
            }
            let links = &found.figures["trace"]["links"];
            if links["time"] != 0 || links["order"] != 0 {
                wrong.push(format!("{filter}, {level}: {links}"));
            }
        }
    }
    // Inputs, filter and size of the output. Each input has its way.
    let joined: [([&str; 2], &str, [usize; 3]); 3] = [
        ([&plain, &plain], "[0:v][1:v]overlay=0:H-8", whole),
        ([&plain, &reordered], "[1:v]scale=48:8[s];[0:v][s]overlay=0:H-8", whole),
        ([&plain, &plain], "hstack", [2 * WIDTH, HEIGHT, WIDTH]),
    ];
    for (inputs, filter, size) in joined {
        let has_order = inputs[0] == inputs[1];
        let inputs = ["-i", inputs[0], "-i", inputs[1], "-filter_complex", filter];
        let found = outputs("bpf", &inputs, size);
        let agrees: Vec<bool> = found.born.iter().map(|born| agree(&found.shown, born, has_order)).collect();
        let rows = found.figures["rows"].as_array().unwrap();
        let ends: Vec<(usize, &str)> =
            rows.iter().map(crate::stages).map(|stages| (stages.len(), stages[4])).collect();
        if agrees != [true; 2] || ends != [(5, "mux rawvideo"); 2] {
            wrong.push(format!("{filter}: {} outputs, {agrees:?}, {ends:?}", found.shown.len()));
        }
    }
    // One input behind the other: each has its own way.
    let found = outputs("bpf", &["-i", &plain, "-i", &plain, "-filter_complex", "concat"], whole);
    let (first, second) = found.shown.split_at(FRAMES as usize);
    if found.born.len() != 2 || !agree(first, &found.born[0], true) || !agree(second, &found.born[1], true) {
        wrong.push("concat".to_owned());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
