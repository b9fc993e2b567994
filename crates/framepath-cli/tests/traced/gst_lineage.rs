// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which input each output of a GStreamer pipeline shows: by the trace, and by the numbers in the pictures' pixels.

use std::fs;
use std::process::Command;

use framepath_testkit::harness::{Tested, needs_program};
use serde_json::Value;
use tempfile::TempDir;

use crate::lineage::{FRAMES, HEIGHT, WIDTH, agree, births, numbers, write_clip};
use crate::{needs_bpf, stages};

const PLAYERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traced/players.py");

const LEVELS: [&str; 2] = ["bpf", "preload"];

/// Runs the pipeline, which writes gray pictures of this size to `raw`. Returns the numbers in their left half, and the births on
/// each way that ends at the file.
fn outputs(
    level: &str,
    pipeline: &str,
    folder: &TempDir,
    columns: usize,
) -> (Vec<Vec<u32>>, Vec<Vec<u64>>, Value) {
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (raw, csv) = (path("raw"), path("csv"));
    let _ = fs::remove_file(&raw);
    let text =
        format!("{pipeline} ! videoconvert ! video/x-raw,format=GRAY8 ! filesink name=end location={raw}");
    let command: Vec<&str> = ["gst-launch-1.0", "-q"].into_iter().chain(text.split(' ')).collect();
    let (born, figures) = births(level, &command, &csv);
    let born = born.into_iter().filter(|(way, _)| way.ends_with("to end")).map(|(_, born)| born).collect();
    let bytes = fs::read(raw).unwrap();
    let width = columns * WIDTH;
    let shown = (0..columns).map(|column| {
        let part = |row: &[u8]| row[column * WIDTH..(column + 1) * WIDTH].to_vec();
        let part: Vec<u8> = bytes.chunks_exact(width).flat_map(part).collect();
        numbers(&part, WIDTH, HEIGHT, WIDTH)
    });
    (shown.collect(), born, figures)
}

pub(crate) fn each_buffer_has_the_origin_that_its_pixels_show() -> Tested {
    needs_bpf()?;
    needs_program("gst-launch-1.0", "gstreamer1.0-tools")?;
    let folder = TempDir::new().unwrap();
    let clip = folder.path().join("clip.mp4").to_str().unwrap().to_owned();
    write_clip(&clip, &["-bf", "0"]);
    let source = format!("filesrc location={clip} ! qtdemux ! h264parse ! avdec_h264");
    // Elements, the fewest and the most outputs.
    let elements = [
        ("x264enc bframes=2 ! h264parse ! avdec_h264", 100..=100),
        ("x265enc speed-preset=ultrafast ! h265parse ! avdec_h265", 100..=100),
        ("openh264enc ! h264parse ! avdec_h264", 100..=100),
        ("vp8enc deadline=1 ! vp8dec", 100..=100),
        ("theoraenc ! theoradec", 100..=100),
        ("videorate ! video/x-raw,framerate=60/1", 236..=242),
        ("videorate ! video/x-raw,framerate=10/1", 39..=41),
        ("deinterlace mode=interlaced fields=all", 190..=200),
        ("tee name=t t. ! queue ! fakesink t. ! queue", 100..=100),
        ("queue leaky=downstream max-size-buffers=2 ! x264enc tune=zerolatency ! avdec_h264", 1..=100),
        (
            "x264enc tune=zerolatency ! rtph264pay mtu=200 ! rtpjitterbuffer ! rtph264depay ! avdec_h264",
            100..=100,
        ),
        (
            "jpegenc ! rtpjpegpay mtu=300 ! identity drop-probability=0.02 ! rtpjitterbuffer latency=20 ! \
             rtpjpegdepay ! jpegdec",
            10..=100,
        ),
        (
            "identity ts-offset=70000000 ! textoverlay ! videoflip method=rotate-180 ! videoflip method=rotate-180",
            100..=100,
        ),
    ];
    let mut wrong = Vec::new();
    for (elements, count) in elements {
        for level in LEVELS {
            let (shown, born, figures) = outputs(level, &format!("{source} ! {elements}"), &folder, 1);
            let ways = born.len();
            if !count.contains(&shown[0].len()) || ways != 1 || !agree(&shown[0], &born[0], true) {
                let frames = born.first().map_or(0, Vec::len);
                wrong.push(format!(
                    "{elements}, {level}: {} outputs, {frames} frames, {ways} ways",
                    shown[0].len()
                ));
            }
            let links = &figures["trace"]["links"];
            let count = |rule: &str| links[rule].as_u64().unwrap();
            if count("descent") < 9 * (count("time") + count("order")) {
                wrong.push(format!("{elements}, {level}: {links}"));
            }
        }
    }
    // Two inputs, one of which has a lower rate; and a decoder that is found by a bin.
    let other = source.replace("avdec_h264", "avdec_h264 ! videorate ! video/x-raw,framerate=10/1");
    let mixer = format!("compositor name=c sink_1::xpos={WIDTH}");
    for level in LEVELS {
        let pipeline = format!("{source} ! c. {other} ! c. {mixer}");
        let (shown, born, _) = outputs(level, &pipeline, &folder, 2);
        let agrees =
            born.len() == 2 && (0..2).all(|input| born.iter().any(|born| agree(&shown[input], born, true)));
        if !agrees {
            let frames: Vec<usize> = born.iter().map(Vec::len).collect();
            wrong.push(format!("compositor, {level}: {} outputs, {frames:?} frames", shown[0].len()));
        }
        let (shown, born, _) = outputs(level, &format!("filesrc location={clip} ! decodebin3"), &folder, 1);
        if born.len() != 1 || !agree(&shown[0], &born[0], true) {
            wrong.push(format!("decodebin3, {level}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Checks programs that write themselves what comes to their last element.
pub(crate) fn each_buffer_of_a_player_has_its_origin() -> Tested {
    needs_bpf()?;
    needs_program("gst-launch-1.0", "gstreamer1.0-tools")?;
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (clip, raw, csv) = (path("clip.mp4"), path("raw"), path("csv"));
    write_clip(&clip, &["-bf", "0"]);
    let mut wrong = Vec::new();
    // Argument of the program, its way, and an element of that way.
    let programs =
        [("seeks", "qtdemux0 to end", "streamsynchronizer0"), ("hand-over", "qtdemux0 to end", "source")];
    for (program, way, element) in programs {
        for level in LEVELS {
            let command = ["/usr/bin/python3", PLAYERS, program, &clip, &raw];
            let (born, figures) = births(level, &command, &csv);
            let shown = numbers(&fs::read(&raw).unwrap(), WIDTH, HEIGHT, WIDTH);
            // A number comes again after a seek. The pictures are in the order of their births, and each has its own.
            let is_own = |born: &Vec<u64>| born.is_sorted_by(|before, next| before < next);
            let is_shown = |born: &Vec<u64>| born.len() == shown.len() && is_own(born);
            let elements = stages(&figures["rows"][0]);
            if born.len() != 1 || !born.get(way).is_some_and(is_shown) || !elements.contains(&element) {
                let frames: Vec<usize> = born.values().map(Vec::len).collect();
                wrong.push(format!(
                    "{program}, {level}: {} pictures, {frames:?} frames, {elements:?}",
                    shown.len()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Checks files: what a muxer writes is decoded by another program.
pub(crate) fn each_frame_of_a_file_has_its_origin() -> Tested {
    needs_bpf()?;
    needs_program("gst-launch-1.0", "gstreamer1.0-tools")?;
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (clip, file, csv) = (path("clip.mp4"), path("file"), path("csv"));
    write_clip(&clip, &["-bf", "0"]);
    let mut wrong = Vec::new();
    for muxer in ["mp4mux", "matroskamux", "mpegtsmux", "flvmux", "qtmux fragment-duration=500"] {
        for level in LEVELS {
            let text = format!(
                "filesrc location={clip} ! qtdemux ! h264parse ! avdec_h264 ! x264enc bframes=0 ! h264parse ! queue ! mux. \
                 audiotestsrc num-buffers=150 ! avenc_aac ! aacparse ! queue ! mux. \
                 {muxer} name=mux ! filesink name=end location={file}"
            );
            let command: Vec<&str> = ["gst-launch-1.0", "-q"].into_iter().chain(text.split(' ')).collect();
            let (born, _) = births(level, &command, &csv);
            let decoder = [
                "-v",
                "error",
                "-i",
                &file,
                "-fps_mode",
                "passthrough",
                "-pix_fmt",
                "gray",
                "-f",
                "rawvideo",
                "-",
            ];
            let decoded = Command::new("ffmpeg").args(decoder).output().unwrap();
            let shown = numbers(&decoded.stdout, WIDTH, HEIGHT, WIDTH);
            let of_video = &born["qtdemux0 to end"];
            let is_first = born.keys().next().is_some();
            if shown.len() != FRAMES as usize || !is_first || !agree(&shown, of_video, true) {
                wrong.push(format!(
                    "{muxer}, {level}: {} in the file, {} frames",
                    shown.len(),
                    of_video.len()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
