// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clips of the tests, and the hashes of their frames.

use std::path::{Path, PathBuf};

/// Number of frames of a clip.
pub const FRAMES: usize = 100;
/// Number of frames of a clip with numbers.
pub const NUMBERED: u64 = 600;
/// Number of frames from one keyframe to the next.
pub const GROUP: usize = 25;

/// Makes a clip of H.264, with `b_frames` B frames in a row, in `folder`. The file's name decides the container.
pub fn h264(folder: &Path, name: &str, b_frames: &str) -> PathBuf {
    let coding =
        ["-c:v", "libx264", "-preset", "veryfast", "-bf", b_frames, "-sc_threshold", "0", "-b:v", "2M"];
    make(folder, name, &coding)
}

/// Makes a clip of VP8 in `folder`.
pub fn vp8(folder: &Path) -> PathBuf {
    make(folder, "clip.webm", &["-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "2M"])
}

/// Makes a clip of HEVC with two B frames in a row in `folder`. In a group that is open, pictures that are shown before the keyframe refer to
/// the group before.
pub fn hevc(folder: &Path, name: &str, is_open: bool) -> PathBuf {
    let open = u8::from(is_open);
    let options =
        format!("log-level=error:scenecut=0:bframes=2:open-gop={open}:keyint={GROUP}:min-keyint={GROUP}");
    make(folder, name, &["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", &options, "-b:v", "2M"])
}

/// Makes a clip of VP9 in `folder`.
pub fn vp9(folder: &Path) -> PathBuf {
    make(folder, "vp9.webm", &["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "2M"])
}

/// Makes a clip of AV1 in `folder`.
pub fn av1(folder: &Path) -> PathBuf {
    make(folder, "av1.mp4", &["-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-b:v", "2M"])
}

/// Makes clips of the codecs with payloads of framepath's own, in `folder`. In the one of HEVC, lengths are in place of start codes, and
/// parameter sets in the file's head only.
pub fn own_payloads(folder: &Path) -> [PathBuf; 3] {
    [hevc(folder, "hevc.mp4", false), vp9(folder), av1(folder)]
}

/// Makes a clip in `folder` that needs as many bits as its encoder may spend.
pub fn noise(folder: &Path) -> PathBuf {
    let source = "color=gray:size=320x180:rate=25,noise=alls=40:allf=t";
    make_of(folder, "noise.mkv", source, &["-c:v", "ffv1"])
}

/// Makes a clip of 12 frames of H.264 in `folder`, each of which is a keyframe of over 160 kilobytes.
pub fn large(folder: &Path) -> PathBuf {
    let clip = folder.join("large.mp4");
    let source = "color=gray:size=640x360:rate=25,noise=alls=60:allf=t";
    let coding = [
        "-frames:v",
        "12",
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-g",
        "1",
        "-qp",
        "24",
        "-pix_fmt",
        "yuv420p",
    ];
    framepath_testkit::ffmpeg(
        &[&["-f", "lavfi", "-i", source][..], &coding, &[clip.to_str().unwrap()]].concat(),
    );
    clip
}

/// Makes a clip of H.264 in `folder` with [`NUMBERED`] pictures of 512x64 pixels, each of which shows its number: 16 cells of 16 pixels
/// with its bits, the lowest first, white for 1, and 16 with the opposite.
pub fn numbered(folder: &Path) -> PathBuf {
    let clip = folder.join("numbered.mp4");
    let bit = "mod(floor(N/pow(2,mod(floor(X/16),16))),2)";
    let source = format!(
        "color=black:size=512x64:rate=60,geq=lum='if(eq({bit},lt(floor(X/16),16)),235,16)':cb=128:cr=128"
    );
    let frames = NUMBERED.to_string();
    let coding = ["-frames:v", &frames, "-c:v", "libx264", "-preset", "veryfast", "-bf", "0", "-g", "30"];
    let file = ["-pix_fmt", "yuv420p", clip.to_str().unwrap()];
    framepath_testkit::ffmpeg(&[&["-f", "lavfi", "-i", &source][..], &coding, &file].concat());
    clip
}

fn make(folder: &Path, name: &str, coding: &[&str]) -> PathBuf {
    make_of(folder, name, "testsrc2=size=320x180:rate=25", coding)
}

fn make_of(folder: &Path, name: &str, source: &str, coding: &[&str]) -> PathBuf {
    let clip = folder.join(name);
    let frames = FRAMES.to_string();
    let group = GROUP.to_string();
    let file = [
        "-frames:v",
        &frames,
        "-pix_fmt",
        "yuv420p",
        "-g",
        &group,
        "-keyint_min",
        &group,
        clip.to_str().unwrap(),
    ];
    framepath_testkit::ffmpeg(&[&["-f", "lavfi", "-i", source][..], coding, &file].concat());
    clip
}

/// Returns the hashes of the frames in framemd5 lines.
pub fn hashes(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| line.rsplit(',').next().unwrap().trim().to_owned()).collect()
}

/// Returns the hashes of all frames of the file `clip`.
pub fn hashes_of(clip: &Path) -> Vec<String> {
    let path = format!("file {} ! decode ! framemd5 -", clip.display());
    let all = hashes(&framepath_testkit::run(&["run", "--quiet", &path]).ended(0).frames());
    assert_eq!(all.len(), FRAMES);
    all
}
