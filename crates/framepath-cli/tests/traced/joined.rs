// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ways through graphs with several inputs and ends, and through muxers: by the trace, and by numbers in the pixels.

use std::fs;
use std::process::Command;

use framepath_testkit::harness::Tested;
use tempfile::TempDir;

use crate::lineage::{FRAMES, HEIGHT, WIDTH, agree, births, numbers_at, write_clip, write_clip_of};
use crate::needs_bpf;

/// Clips with their numbers, and outputs.
struct Clips {
    folder: TempDir,
}

impl Clips {
    fn new() -> Clips {
        let clips = Clips { folder: TempDir::new().unwrap() };
        write_clip(&clips.path("quick.mp4"), &["-bf", "0"]);
        write_clip_of(&clips.path("slow.mp4"), "10", &["-bf", "0"]);
        clips
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

pub(crate) fn each_input_of_a_joined_picture_is_the_one_that_its_pixels_show() -> Tested {
    needs_bpf()?;
    let clips = Clips::new();
    let wide = [2 * WIDTH, HEIGHT];
    let beside: &[[usize; 2]] = &[[0, 16], [WIDTH, 16]];
    let lines: &[[usize; 2]] = &[[0, 16], [0, HEIGHT - 4]];
    // The first clip has 4 s, and the last picture of a clip stays until the other one's end. Inputs, graph, number of outputs, their size, and where each input's number is.
    let cases = [
        (["quick", "slow"], "[0:v][1:v]overlay=0:H-8", 160, [WIDTH, HEIGHT], lines),
        (["slow", "quick"], "[0:v][1:v]hstack", 180, wide, beside),
        (["quick", "slow"], "[0:v]fps=8[a];[a][1:v]hstack", 124, wide, beside),
        (["quick", "slow"], "[1:v]fps=4[a];[0:v][a]hstack,fps=30", 293, wide, beside),
        (
            ["quick", "slow"],
            "[0:v]setpts=PTS-STARTPTS[a];[1:v]setpts=0.5*(PTS-STARTPTS)[b];[a][b]hstack",
            180,
            wide,
            beside,
        ),
    ];
    let mut wrong = Vec::new();
    for (inputs, graph, count, size, places) in cases {
        for level in ["bpf", "preload"] {
            let [first, second] = inputs.map(|name| clips.path(&format!("{name}.mp4")));
            let (raw, csv) = (clips.path("raw"), clips.path("csv"));
            let ffmpeg = ["ffmpeg", "-nostdin", "-v", "error", "-y", "-i", &first, "-i", &second];
            let output = [
                "-filter_complex",
                graph,
                "-fps_mode",
                "passthrough",
                "-pix_fmt",
                "gray",
                "-f",
                "rawvideo",
                &raw,
            ];
            let (born, figures) = births(level, &[&ffmpeg[..], &output].concat(), &csv);
            let bytes = fs::read(raw).unwrap();
            let shown = places.iter().map(|place| numbers_at(&bytes, size, *place, WIDTH));
            let agreeing: Vec<usize> = shown
                .map(|shown| {
                    let fits = |born: &&Vec<u64>| shown.len() == count && agree(&shown, born, true);
                    born.values().filter(fits).count()
                })
                .collect();
            if agreeing != [1, 1] || born.len() != 2 || figures["trace"]["ambiguous"] != 0 {
                let outputs = bytes.len() / (size[0] * size[1]);
                let ways: Vec<usize> = born.values().map(Vec::len).collect();
                wrong.push(format!("{graph}, {level}: {outputs} outputs, ways {ways:?}, agree {agreeing:?}"));
            }
        }
    }
    // Two outputs, of both inputs and of one: each has a way from each of its inputs.
    let graph = "[0:v]split[a][c];[1:v][a]overlay=0:H-8,hflip,hflip[h];[c]scale=96:32[e]";
    let inputs = ["-i", &clips.path("quick.mp4"), "-i", &clips.path("slow.mp4"), "-filter_complex", graph];
    let outputs = ["-map", "[h]", "-f", "null", "-", "-map", "[e]", "-f", "null", "-"];
    let ffmpeg = ["ffmpeg", "-nostdin", "-v", "error"];
    let (born, _) = births("bpf", &[&ffmpeg[..], &inputs, &outputs].concat(), &clips.path("csv"));
    let mut counts: Vec<usize> = born.values().map(Vec::len).collect();
    counts.sort_unstable();
    // The overlay has the pictures of the slow clip.
    if counts != [100, 100, 100] {
        wrong.push(format!("{graph}: {counts:?}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

pub(crate) fn each_picture_of_a_muxer_has_its_way() -> Tested {
    needs_bpf()?;
    let clips = Clips::new();
    let at = |name: &str| clips.path(name);
    let tee = format!("{}|{}", at("tee.ts"), at("tee.mp4"));
    let (list, parts) = (at("list.ffconcat"), at("part%03d.ts"));
    // Options of the output, its name, and the file in which the pictures are.
    let cases: [(&[&str], &str, &str); 6] = [
        (&["-f", "hls", "-hls_time", "1", "-hls_list_size", "0"], &at("all.m3u8"), &at("all.m3u8")),
        (&["-f", "dash", "-seg_duration", "1"], &at("all.mpd"), &at("all.mpd")),
        (&["-map", "0:v", "-flags", "+global_header", "-f", "tee"], &tee, &at("tee.mp4")),
        (&["-f", "segment", "-segment_time", "1", "-segment_list", &list], &parts, &list),
        (&["-movflags", "+frag_keyframe"], &at("all.mp4"), &at("all.mp4")),
        (&["-bf", "3"], &at("all.mkv"), &at("all.mkv")),
    ];
    let mut wrong = Vec::new();
    for (options, output, file) in cases {
        let input = ["ffmpeg", "-nostdin", "-v", "error", "-y", "-i", &clips.path("quick.mp4")];
        let encoder = ["-c:v", "libx264", "-crf", "10", "-bf", "0", "-g", "25"];
        let command = [&input[..], &encoder, options, &[output]].concat();
        let (born, _) = births("bpf", &command, &clips.path("csv"));
        let read = ["-v", "error", "-i", file, "-fps_mode", "passthrough", "-pix_fmt", "gray"];
        let decoded = Command::new("ffmpeg").args(read).args(["-f", "rawvideo", "-"]).output().unwrap();
        let mut shown = numbers_at(&decoded.stdout, [WIDTH, HEIGHT], [0, 16], WIDTH);
        // With B frames, the muxer gets the pictures in another order.
        let mut born: Vec<Vec<u64>> = born.into_values().collect();
        shown.sort_unstable();
        born.iter_mut().for_each(|born| born.sort_unstable());
        let is_whole = born.len() == 1 && shown.len() == FRAMES as usize && agree(&shown, &born[0], true);
        if !is_whole {
            let ways: Vec<usize> = born.iter().map(Vec::len).collect();
            wrong.push(format!("{output}: {} pictures, ways {ways:?}", shown.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
