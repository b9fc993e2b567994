// SPDX-License-Identifier: MIT OR Apache-2.0
//! Codecs, containers and sources beyond the five known codecs: frames are ffmpeg's, and strangers' formats are read
//! in workers. `scripts/check-formats` compares many more kinds.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::Stdio;

use framepath_testkit::{CommandOutput, clip, ffmpeg, framepath, md5_lines, run, wait};
use tempfile::TempDir;

/// Number of frames of each file.
const FRAMES: usize = 10;

/// Folder with a file that `ffmpeg` made.
struct Film {
    folder: TempDir,
    path: String,
}

impl Film {
    /// Makes the file `name` with the options `codec`.
    fn new(name: &str, codec: &str) -> Film {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(name).display().to_string();
        let frames = FRAMES.to_string();
        let mut arguments = vec!["-f", "lavfi", "-i", "testsrc2=s=352x288:r=25", "-frames:v", &frames];
        arguments.extend(codec.split(' '));
        arguments.push(&path);
        ffmpeg(&arguments);
        Film { folder, path }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Returns the hashes of the frames that `ffmpeg` decodes, through `filters` if there are any.
    fn by_ffmpeg(&self, filters: &str) -> Vec<String> {
        let filters = if filters.is_empty() { "null" } else { filters };
        let output = ffmpeg(&[
            "-i",
            &self.path,
            "-map",
            "0:v:0",
            "-vf",
            filters,
            "-fps_mode",
            "passthrough",
            "-f",
            "framemd5",
            "-",
        ]);
        hashes(&md5_lines(&String::from_utf8(output).unwrap()))
    }

    /// Returns the hashes of the frames of the path `file FILE ! decode DECODE ! STAGES framemd5 -`.
    fn by_framepath(&self, decode: &str, stages: &str) -> Vec<String> {
        let path = format!("file {} ! decode {decode} ! {stages} framemd5 -", self.path);
        hashes(&run(&["run", "--quiet", &path]).ended(0).frames())
    }
}

fn hashes(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| line.rsplit(',').next().unwrap().trim().to_owned()).collect()
}

/// Runs `path` with the bytes of `file` in a pipe as standard input.
fn piped(path: &str, file: &str) -> CommandOutput {
    let mut command = framepath(&["run", "--quiet", path]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut input, bytes) = (child.stdin.take().unwrap(), fs::read(file).unwrap());
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = wait(child, path);
    writer.join().unwrap().unwrap();
    output
}

#[test]
fn another_codec_is_decoded_in_a_worker_unless_told_otherwise() {
    let film = Film::new("film.ts", "-c:v mpeg2video -bf 2");
    let wanted = film.by_ffmpeg("");
    assert_eq!(wanted.len(), FRAMES);
    let path = |decode: &str| format!("file {} ! {decode} ! framemd5 -", film.path);
    let by_default = run(&["run", "--quiet", &path("decode")]).ended(0);
    assert_eq!(hashes(&by_default.frames()), wanted);
    by_default.prints("mpeg2video is decoded in a sandboxed process (host=inline: in this process)");
    for host in ["inline", "process"] {
        let named = run(&["run", "--quiet", &path(&format!("decode host={host}"))]).ended(0);
        assert_eq!(hashes(&named.frames()), wanted);
        assert!(!named.stderr.contains("sandboxed"), "{named:?}");
    }
    // A known codec stays in this process, without a word.
    let known =
        run(&["run", "--quiet", &format!("file {} ! decode ! null", clip("vp8-99x57p8-odd.ivf"))]).ended(0);
    assert_eq!(known.stderr, "");
}

#[test]
fn the_bytes_of_a_pipe_are_handed_to_the_worker() {
    let film = Film::new("film.gif", "-f gif");
    let output = piped("file - ! decode ! framemd5 -", &film.path).ended(0);
    assert_eq!(hashes(&output.frames()), film.by_ffmpeg(""));
    let known = clip("h264-180p8-high.h264");
    let whole = run(&["run", "--quiet", &format!("file {known} ! decode ! framemd5 -")]).ended(0).frames();
    assert_eq!(piped("file - ! decode ! framemd5 -", &known).ended(0).frames(), whole);
}

#[test]
fn standard_input_begins_at_its_offset_on_every_host() {
    const KNOWN: &str = "-c:v libx264 -bf 2 -g 5";
    for (name, codec) in
        [("film.ts", "-c:v mpeg2video -bf 2 -g 5"), ("film.h264", KNOWN), ("film.mp4", KNOWN)]
    {
        let film = Film::new(name, codec);
        // Three frames of the same kind come first: a run that began at the file's start would show them.
        let first = film.file(&format!("first-{name}"));
        ffmpeg(&["-i", &film.path, "-frames:v", "3", "-c:v", codec.split(' ').nth(1).unwrap(), &first]);
        let (first, bytes) = (fs::read(&first).unwrap(), fs::read(&film.path).unwrap());
        let offset = first.len() as u64;
        let both = film.file("both");
        fs::write(&both, [first, bytes].concat()).unwrap();
        for host in ["", "host=inline", "host=process"] {
            for options in ["loop=2", "start=200ms loop=2"] {
                let path = |file: &str| format!("file {file} {host} {options} ! decode {host} ! framemd5 -");
                let wanted = run(&["run", "--quiet", &path(&film.path)]).ended(0).frames();
                assert!(wanted.len() >= FRAMES / 2, "{name} {host} {options}");
                for writable in [false, true] {
                    let mut file = OpenOptions::new().read(true).write(writable).open(&both).unwrap();
                    file.seek(SeekFrom::Start(offset)).unwrap();
                    let mut command = framepath(&["run", "--quiet", &path("-")]);
                    let output = command.stdin(file).stdout(Stdio::piped()).stderr(Stdio::piped());
                    let output = wait(output.spawn().unwrap(), name).ended(0);
                    assert_eq!(output.frames(), wanted, "{name} {host} {options} writable={writable}");
                }
            }
        }
    }
}

#[test]
fn a_repetition_of_a_file_that_begins_inside_a_group_of_pictures_gives_the_same_frames() {
    for (name, codec) in [
        ("film.ts", "-c:v mpeg2video -bf 2 -g 5"),
        ("open.ts", "-c:v libx264 -bf 2 -x264-params open-gop=1:keyint=5:min-keyint=1:scenecut=0"),
        ("vc2.ts", "-c:v vc2 -pix_fmt yuv422p -f mpegts"),
    ] {
        let film = Film::new(name, codec);
        let bytes = fs::read(&film.path).unwrap();
        // Inside the second picture: the references of the leading pictures behind the next I picture are missing.
        let cut = bytes.len() / FRAMES * 3 / 2 / 188 * 188;
        fs::write(&film.path, &bytes[cut..]).unwrap();
        for host in ["host=inline", "host=process"] {
            let frames = |options: &str| {
                let path = format!("file {} {options} {host} ! decode {host} ! framemd5 -", film.path);
                hashes(&run(&["run", "--quiet", &path]).ended(0).frames())
            };
            let once = frames("");
            assert!(once.len() >= 4, "{name} {host}: {once:?}");
            assert_eq!(frames("loop=3"), [&once[..]; 3].concat(), "{name} {host}");
        }
    }
}

#[test]
fn av1_goes_on_at_the_next_keyframe_behind_a_damaged_packet() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("damaged.ivf").display().to_string();
    let mut bytes = fs::read(clip("av1-180p8-grey.ivf")).unwrap();
    // One bit in the second packet, after which dav1d rejects everything.
    bytes[3633] ^= 8;
    fs::write(&path, &bytes).unwrap();
    for (host, times) in [("host=inline", 1), ("host=inline", 3), ("host=process", 3)] {
        let path = format!("file {path} loop={times} {host} ! decode threads=1 {host} ! framemd5 -");
        let run = run(&["run", "--quiet", &path]).ended(0);
        assert_eq!(hashes(&run.frames()).len(), times, "{host} loop={times}");
    }
}

#[test]
fn a_crash_loses_no_frame_of_any_codec() {
    for (name, codec) in [
        ("film.avi", "-c:v mpeg4 -bf 2"),
        ("film.mov", "-c:v prores"),
        ("palette.mov", "-c:v qtrle -pix_fmt gray"),
    ] {
        let film = Film::new(name, codec);
        let wanted = film.by_ffmpeg("");
        for decode in ["host=process threads=1 fault=crash@5", "host=process fault=crash@0,crash@7"] {
            assert_eq!(film.by_framepath(decode, ""), wanted, "{name} {decode}");
        }
    }
}

#[test]
fn a_start_time_leaves_out_the_frames_before_it() {
    // A program stream has a time for some of its pictures only.
    for (name, codec) in [("film.mpg", "-c:v mpeg1video -bf 2 -g 4"), ("film.avi", "-c:v mpeg4 -bf 2 -g 4")] {
        let film = Film::new(name, codec);
        let wanted = film.by_ffmpeg("");
        for (start, first) in [("0s", 0), ("120ms", 3), ("200ms", 5), ("280ms", 7), ("360ms", 9)] {
            let path = format!("file {} start={start} ! decode ! framemd5 -", film.path);
            let frames = hashes(&run(&["run", "--quiet", &path]).ended(0).frames());
            assert_eq!(frames, wanted[first..], "{name} {start}");
        }
    }
}

#[test]
fn a_format_without_a_counterpart_is_converted_and_named() {
    let film = Film::new("film.mkv", "-c:v ffv1 -pix_fmt yuv411p");
    let output =
        run(&["run", "--quiet", &format!("file {} ! decode host=inline ! framemd5 -", film.path)]).ended(0);
    let exact = "scale=flags=bicubic+full_chroma_int+accurate_rnd+bitexact,format=yuv422p";
    assert_eq!(hashes(&output.frames()), film.by_ffmpeg(exact));
    output.prints("pictures in yuv411p are converted to YUV422P");
}

#[test]
fn pictures_of_a_sequence_are_a_stream() {
    let film = Film::new("film.mkv", "-c:v ffv1 -pix_fmt rgb24");
    let (folder, wanted) = (film.file("pictures"), film.by_ffmpeg("format=rgb24"));
    run(&["run", "--quiet", &format!("file {} ! decode host=inline ! png {folder}", film.path)]).ended(0);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), FRAMES);
    let sequence = format!("file {folder}/frame-%06d.png ! decode ! framemd5 -");
    assert_eq!(hashes(&run(&["run", "--quiet", &sequence]).ended(0).frames()), wanted);
    let single = format!("file {folder}/frame-000003.png ! decode ! framemd5 -");
    assert_eq!(hashes(&run(&["run", "--quiet", &single]).ended(0).frames()), wanted[3..4]);
    run(&["run", "--quiet", &format!("file {folder}/none-%d.png ! decode ! null")])
        .ended(1)
        .prints("none-0.png");
}

/// Replaces files of a sequence by files without a picture: empty ones, text, and pictures that are cut off.
#[test]
fn files_of_a_sequence_without_a_picture_are_counted_one_by_one() {
    for (kind, codec) in
        [("png", "-c:v png"), ("jpg", "-c:v mjpeg"), ("bmp", "-c:v bmp"), ("tiff", "-c:v tiff")]
    {
        let film = Film::new(&format!("shot-%03d.{kind}"), codec);
        let file = |number: usize| film.file(&format!("shot-{:03}.{kind}", number + 1));
        let wanted = film.by_ffmpeg("");
        assert_eq!(wanted.len(), FRAMES);
        let whole = fs::read(file(4)).unwrap();
        let useless = [&b""[..], &b"no picture ".repeat(1000), &whole[..30]];
        for bad in [&[0][..], &[4], &[8], &[9], &[0, 1, 2, 5, 6, 7], &[7, 8]] {
            let before: Vec<Vec<u8>> = bad.iter().map(|at| fs::read(file(*at)).unwrap()).collect();
            bad.iter().for_each(|at| fs::write(file(*at), useless[at % 3]).unwrap());
            let kept: Vec<(i64, &String)> =
                (0..).zip(&wanted).filter(|(at, _)| !bad.contains(&(*at as usize))).collect();
            for hosts in [
                ("", ""),
                ("host=inline", "host=inline threads=3"),
                ("host=process", "host=process threads=1"),
            ] {
                let path = format!("file {} {} ! decode {} ! framemd5 -", film.path, hosts.0, hosts.1);
                let output = run(&["run", "--quiet", &path]).ended(3);
                let lines = output.frames();
                let times = lines.iter().map(|line| line.split(',').nth(2).unwrap().trim().parse().unwrap());
                let hashes = hashes(&lines);
                assert_eq!(times.zip(&hashes).collect::<Vec<_>>(), kept, "{kind} {bad:?} {hosts:?}");
                let (count, s) = (bad.len(), if bad.len() == 1 { "" } else { "s" });
                output
                    .prints(&format!("lost {count} picture{s}: nothing could be decoded from their files"))
                    .prints(&format!(
                        "damaged stream: {count} packet{s} undecodable, 0 frames concealed, first"
                    ));
            }
            bad.iter().zip(before).for_each(|(at, bytes)| fs::write(file(*at), bytes).unwrap());
        }
        // The decoder's threads have further pictures inside, which are left out and counted, too.
        let last = fs::read(file(FRAMES - 2)).unwrap();
        fs::write(file(FRAMES - 2), useless[2]).unwrap();
        for options in ["host=inline threads=1", "host=inline threads=3", "host=process threads=4"] {
            let path = format!("file {} ! decode damage=skip {options} ! framemd5 -", film.path);
            let output = run(&["run", "--quiet", &path]).ended(3);
            let lost = FRAMES - output.frames().len();
            assert!(lost > 0, "{kind} {options}");
            output.prints(&format!("lost {lost} picture"));
        }
        fs::write(file(FRAMES - 2), last).unwrap();
        (0..FRAMES).for_each(|at| fs::write(file(at), useless[at % 3]).unwrap());
        for host in ["inline", "process"] {
            run(&["run", "--quiet", &format!("file {} host={host} ! decode ! null", film.path)])
                .ended(1)
                .prints("none of the 10 files of the image sequence is a picture");
        }
    }
}

#[test]
fn raw_pixels_are_written_and_read_back() {
    for format in ["yuv422p10le", "gbrap", "gray"] {
        let film = Film::new("film.mkv", &format!("-c:v ffv1 -pix_fmt {format}"));
        let (raw, other) = (film.file("film.raw"), film.file("film.other"));
        run(&["run", "--quiet", &format!("file {} ! decode host=inline ! raw {raw}", film.path)]).ended(0);
        ffmpeg(&["-i", &film.path, "-f", "rawvideo", &other]);
        assert!(fs::read(&raw).unwrap() == fs::read(&other).unwrap(), "{format}");
        let path = format!("rawfile {raw} size=352x288 format={format} ! framemd5 -");
        assert_eq!(hashes(&run(&["run", "--quiet", &path]).ended(0).frames()), film.by_ffmpeg(""));
        let path = format!("rawfile - size=352x288 format={format} ! framemd5 -");
        assert_eq!(hashes(&piped(&path, &raw).ended(0).frames()), film.by_ffmpeg(""));
        // A file that ends inside a frame: the frames before it, and an error that says what is missing.
        let bytes = fs::read(&raw).unwrap();
        fs::write(&raw, &bytes[..bytes.len() - 7]).unwrap();
        let cut = run(&["run", "--quiet", &path.replace("rawfile -", &format!("rawfile {raw}"))]).ended(1);
        assert_eq!(cut.frames().len(), FRAMES - 1);
        cut.prints("the file ends inside frame 9, 7 of ");
    }
}

#[test]
fn a_reader_that_has_enough_ends_the_run_quietly() {
    for sink in ["y4m -", "raw -", "framemd5 -"] {
        let path = format!("test frames=100000 size=320x240 format=grey ! {sink}");
        let mut command = framepath(&["run", "--quiet", &path]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = [0; 100];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        // The pipe is closed now.
        let output = wait(child, &path).ended(0);
        assert_eq!(output.stderr, "", "{sink}");
    }
}

#[test]
fn stages_make_the_pictures_of_ffmpegs_filters() {
    let flags = "bicubic+full_chroma_int+accurate_rnd+bitexact";
    for format in ["yuv420p", "nv12", "rgb24", "yuva444p10le", "gray16le"] {
        let film = match format {
            "nv12" => Film::new("film.nut", "-c:v rawvideo -pix_fmt nv12"),
            _ => Film::new("film.mkv", &format!("-c:v ffv1 -pix_fmt {format}")),
        };
        for (stage, filter) in [
            ("rotate angle=90", "transpose=clock".to_owned()),
            ("rotate angle=180", "hflip,vflip".to_owned()),
            ("rotate angle=270", "transpose=cclock".to_owned()),
            ("flip direction=horizontal", "hflip".to_owned()),
            ("flip direction=vertical", "vflip".to_owned()),
            ("crop roi=31,17,100,50", "crop=100:50:31:17".to_owned()),
            ("scale width=200", format!("scale=200:-2:flags={flags}")),
            ("scale size=500x333", format!("scale=500:333:flags={flags}")),
            (
                "filter 'negate,eq=contrast=1.2,format=rgb24'",
                "negate,eq=contrast=1.2,format=rgb24".to_owned(),
            ),
        ] {
            let made = film.by_framepath("host=inline", &format!("{stage} !"));
            assert_eq!(made, film.by_ffmpeg(&filter), "{format}: {stage}");
        }
    }
    let film = Film::new("film.mkv", "-c:v ffv1 -pix_fmt yuv422p");
    let path = format!("file {} ! decode host=inline ! rotate angle=90 ! null", film.path);
    run(&["run", "--quiet", &path]).ended(1).prints("does not work on YUV422P frames");
    let path = format!("file {} ! decode host=inline ! crop roi=300,0,100,50 ! null", film.path);
    run(&["run", "--quiet", &path])
        .ended(1)
        .prints("part 100x50 at 300,0 is not inside the picture of 352x288");
}

#[test]
fn a_graph_of_filters_runs_in_this_process_and_in_a_worker() {
    let film = Film::new("film.ts", "-c:v mpeg2video");
    // One that keeps frames, one that drops some, one with several chains, one that changes nothing.
    for graph in ["yadif", "select=not(mod(n\\,3))", "split[a][b];[a]hflip[c];[b][c]vstack", "null"] {
        let wanted = film.by_ffmpeg(graph);
        for host in ["inline", "process"] {
            let made = film.by_framepath("host=inline", &format!("filter '{graph}' host={host} !"));
            assert_eq!(made, wanted, "{graph} {host}");
        }
    }
    // A frame that no filter changes is not copied.
    let json = film.file("run.json");
    let path = format!("file {} ! decode host=inline ! filter null ! null", film.path);
    run(&["run", "--quiet", &path, "--json", &json]).ended(0);
    let summary: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(summary["rows"][0]["hops"][2]["copied_bytes_per_frame"], 0.0);
    for (graph, text) in [
        ("nosuch=1", "libavfilter has no filter `nosuch`"),
        ("scale=nosuch=1", "Option not found"),
        ("split", "cannot"),
    ] {
        let path = format!("file {} ! decode host=inline ! filter '{graph}' ! null", film.path);
        run(&["run", "--quiet", &path]).ended(1).prints(text);
    }
}

#[test]
fn an_unusual_container_is_read_and_decoded_in_workers_whatever_its_codec() {
    // The worker names the codec: a hostile one could name a codec that would run in this process.
    let film = Film::new("film.wtv", "-c:v libx264 -bf 0");
    let path = format!("file {} ! decode ! framemd5 -", film.path);
    let by_default = run(&["run", &path]).ended(0);
    assert_eq!(hashes(&by_default.frames()), film.by_ffmpeg(""));
    by_default.prints("h264 is decoded in a sandboxed process (host=inline: in this process)");
    assert_eq!(film.by_framepath("host=inline", ""), film.by_ffmpeg(""));
}

#[test]
fn gxf_is_read_and_decoded_in_workers() {
    let film = Film::new("film.gxf", "-vf scale=720:576 -c:v mpeg2video");
    let path = format!("file {} ! decode ! framemd5 -", film.path);
    let by_default = run(&["run", "--quiet", &path]).ended(0);
    assert_eq!(hashes(&by_default.frames()), film.by_ffmpeg(""));
    assert_eq!(by_default.frames().len(), FRAMES);
    by_default.prints("mpeg2video is decoded in a sandboxed process (host=inline: in this process)");
}

#[test]
fn a_graph_outputs_the_same_frames_and_times_in_this_process_and_in_a_worker() {
    let film = Film::new("film.avi", "-c:v mpeg4");
    let frames = |graph: &str, host: &str| {
        let path = format!("file {} ! decode ! filter '{graph}' host={host} ! framemd5 -", film.path);
        run(&["run", "--quiet", &path]).ended(0).frames()
    };
    for (graph, count) in [
        ("fps=50", 18),
        ("fps=10", 4),
        ("loop=loop=3:size=10", 40),
        ("setpts=N*2", 10),
        ("setpts=N*2,fps=50", 40),
        ("reverse", 10),
        ("tpad=start=5:stop=7:stop_mode=clone", 22),
        ("tile=2x2", 3),
        ("bwdif=mode=send_field", 20),
        ("select=eq(n\\,3),loop=loop=600:size=1", 601),
        ("framerate=fps=60", 24),
        ("tmix=frames=3", 10),
    ] {
        let [inline, process] = ["inline", "process"].map(|host| frames(graph, host));
        assert_eq!(inline, process, "{graph}");
        assert_eq!(inline.len(), count, "{graph}");
    }
}

#[test]
fn the_time_of_a_frame_inside_a_graph_is_held() {
    let film = Film::new("film.avi", "-c:v mpeg4");
    let json = film.file("run.json");
    for host in ["inline", "process"] {
        // The second graph outputs each frame at once.
        let [held, not_held] = ["yadif", "scale=320:-2"].map(|graph| {
            let path = format!("file {} ! decode ! filter '{graph}' host={host} ! null", film.path);
            run(&["run", "--quiet", &path, "--json", &json]).ended(0);
            let summary: serde_json::Value =
                serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
            summary["rows"][0]["hops"][2]["causes_us"]["held"].as_f64().unwrap_or(0.0)
        });
        assert!(held > 0.0, "{host}");
        assert_eq!(not_held, 0.0, "{host}");
    }
}

#[test]
fn a_graph_that_keeps_all_frames_does_not_wait_for_the_hop_in_front() {
    // More frames than the decoder's pool has slots, and a source with a small pool.
    let long = Film::new("long.mkv", "-vf scale=64x48,loop=loop=99:size=10 -frames:v 1000 -c:v mpeg4");
    for path in [
        format!("file {} ! decode host=inline ! filter reverse host=HOST ! framemd5 -", long.path),
        "test size=64x48 frames=1000 pool=4 ! filter reverse host=HOST ! framemd5 -".to_owned(),
    ] {
        let [inline, process] = ["inline", "process"]
            .map(|host| run(&["run", "--quiet", &path.replace("HOST", host)]).ended(0).frames());
        assert_eq!(inline.len(), 1000, "{path}");
        assert_eq!(inline, process, "{path}");
    }
}

#[test]
fn a_container_whose_demuxer_ends_by_an_io_error_is_whole() {
    let film = Film::new("film.roq", "-vf scale=352:288 -r 30 -c:v roqvideo");
    assert_eq!(film.by_framepath("", "").len(), film.by_ffmpeg("").len());
}
