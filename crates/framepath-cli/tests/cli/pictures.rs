// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orientation, field order, times and alpha: each sink writes them, or says in one line that it does not.

use std::fs;

use framepath_testkit::mp4::set_display_matrix;
use framepath_testkit::{ffmpeg, md5_lines, run};
use tempfile::TempDir;

/// Numbers a, b, c and d of every display matrix without scale, the first one the identity.
const MATRICES: [[i32; 4]; 8] = [
    [1, 0, 0, 1],
    [-1, 0, 0, 1],
    [-1, 0, 0, -1],
    [1, 0, 0, -1],
    [0, 1, 1, 0],
    [0, 1, -1, 0],
    [0, -1, -1, 0],
    [0, -1, 1, 0],
];

/// Makes a file of eight pictures by `ffmpeg` with these options behind the test source; returns its path.
fn film(folder: &TempDir, name: &str, options: &str) -> String {
    let path = folder.path().join(name).display().to_string();
    let mut arguments = vec!["-f", "lavfi", "-i", "testsrc2=s=96x64:r=25", "-frames:v", "8"];
    arguments.extend(options.split(' '));
    arguments.push(&path);
    ffmpeg(&arguments);
    path
}

fn hashes(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| line.rsplit(',').next().unwrap().trim().to_owned()).collect()
}

/// Returns the hashes of the pictures that `ffmpeg` writes for these arguments.
fn by_ffmpeg(arguments: &[&str]) -> Vec<String> {
    let output = ffmpeg(&[arguments, &["-f", "framemd5", "-"]].concat());
    hashes(&md5_lines(&String::from_utf8(output).unwrap()))
}

/// Returns the notes of a run of `path`, which succeeds.
fn notes(path: &str) -> Vec<String> {
    let output = run(&["run", "--quiet", path]).ended(0);
    let lines = output.stderr.lines().filter(|line| line.contains("does not hold"));
    lines.map(|line| line.strip_prefix("framepath: ").unwrap().to_owned()).collect()
}

#[test]
fn rotate_auto_makes_the_pictures_upright_as_ffmpeg_does() {
    let folder = TempDir::new().unwrap();
    let path = film(&folder, "film.mp4", "-c:v libx264 -bf 2");
    for matrix in MATRICES {
        set_display_matrix(&path, matrix);
        let wanted = by_ffmpeg(&["-i", &path]);
        assert_eq!(wanted.len(), 8);
        for decode in ["decode", "decode host=process", "decode host=process fault=crash@3"] {
            let path = format!("file {path} ! {decode} ! rotate angle=auto ! framemd5 -");
            let output = run(&["run", "--quiet", &path]).ended(0);
            assert_eq!(hashes(&output.frames()), wanted, "{matrix:?}: {decode}");
            assert!(!output.stderr.contains("does not hold"), "{output:?}");
        }
    }
}

#[test]
fn a_stage_that_turns_keeps_the_rest_of_the_orientation() {
    let folder = TempDir::new().unwrap();
    let path = film(&folder, "film.mp4", "-c:v libx264");
    for matrix in MATRICES {
        set_display_matrix(&path, matrix);
        for (stage, filter) in [
            ("rotate angle=90", "transpose=clock"),
            ("rotate angle=180", "hflip,vflip"),
            ("flip direction=horizontal", "hflip"),
        ] {
            // ffmpeg makes the pictures upright in front of the filter.
            let wanted = by_ffmpeg(&["-i", &path, "-vf", filter]);
            let path = format!("file {path} ! decode ! {stage} ! rotate angle=auto ! framemd5 -");
            let output = run(&["run", "--quiet", &path]).ended(0);
            assert_eq!(hashes(&output.frames()), wanted, "{matrix:?}: {stage}");
        }
    }
}

#[test]
fn the_orientation_of_a_photograph_is_that_of_its_exif() {
    let folder = TempDir::new().unwrap();
    let plain = film(&folder, "plain.jpg", "-update 1 -frames:v 1 -pix_fmt yuvj420p");
    // A TIFF header, and one entry: tag 0x112 (orientation), of type 3 (short), one value: 6.
    let exif = b"Exif\0\0II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let mut bytes = fs::read(&plain).unwrap();
    let segment = [&[0xff, 0xe1, 0, exif.len() as u8 + 2], &exif[..]].concat();
    bytes.splice(2..2, segment);
    let photograph = folder.path().join("photograph.jpg").display().to_string();
    fs::write(&photograph, bytes).unwrap();
    let wanted = by_ffmpeg(&["-i", &plain, "-vf", "transpose=clock"]);
    for host in ["inline", "process"] {
        let path = format!("file {photograph} ! decode host={host} ! rotate angle=auto ! framemd5 -");
        assert_eq!(hashes(&run(&["run", "--quiet", &path]).ended(0).frames()), wanted, "{host}");
    }
}

#[test]
fn a_sink_says_in_one_line_what_its_output_does_not_hold() {
    let folder = TempDir::new().unwrap();
    let path = film(&folder, "film.mp4", "-c:v libx264");
    set_display_matrix(&path, MATRICES[5]);
    let turn = "the orientation (a clockwise turn by 90 degrees makes the pictures upright; put `rotate \
                angle=auto` in front)";
    let out = folder.path().join("out").display().to_string();
    for (sink, target) in [("png", &*out), ("pgm", &out), ("raw", "/dev/null"), ("y4m", "/dev/null")] {
        let path = format!("file {path} ! decode ! {sink} {target}");
        assert_eq!(notes(&path), [format!("{sink}: the output does not hold {turn}")]);
    }
    assert_eq!(notes(&format!("file {path} ! decode ! play driver=null sync=0")), [""; 0]);
    let alpha = film(&folder, "alpha.mkv", "-c:v ffv1 -pix_fmt yuva420p");
    let decoded = format!("file {alpha} ! decode");
    for sink in [format!("pgm {out}"), "play driver=null sync=0".to_owned()] {
        let name = sink.split(' ').next().unwrap();
        let expected = format!("{name}: the output does not hold the alpha channel");
        assert_eq!(notes(&format!("{decoded} ! {sink}")), [expected]);
    }
    for sink in ["raw /dev/null".to_owned(), format!("png {out}")] {
        assert_eq!(notes(&format!("{decoded} ! {sink}")), [""; 0]);
    }
}

#[test]
fn y4m_has_the_field_order_of_the_pictures() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out.y4m").display().to_string();
    for (codec, field, letter) in [
        ("mpeg2video -flags +ilme+ildct -bf 2", "tff", "t"),
        ("mpeg2video -flags +ilme+ildct", "bff", "b"),
        ("libx264 -flags +ilme+ildct", "tff", "t"),
        ("libx264", "prog", "p"),
    ] {
        let path = film(&folder, "film.ts", &format!("-vf setfield={field} -c:v {codec}"));
        for host in ["inline", "process"] {
            let decoded = format!("file {path} ! decode host={host}");
            assert_eq!(notes(&format!("{decoded} ! y4m {out}")), [""; 0]);
            let header = fs::read(&out).unwrap();
            let header = String::from_utf8_lossy(header.split(|byte| *byte == b'\n').next().unwrap());
            assert!(header.contains(&format!(" F25:1 I{letter} ")), "{codec} {field} {host}: {header}");
            let notes_of_raw = notes(&format!("{decoded} ! raw /dev/null"));
            assert_eq!(notes_of_raw.len(), usize::from(letter != "p"), "{notes_of_raw:?}");
            if let Some(note) = notes_of_raw.first() {
                let first = if letter == "t" { "top" } else { "bottom" };
                assert!(note.starts_with(&format!("raw: the output does not hold the interlacing ({first}")));
            }
            for filter_host in ["inline", "process"] {
                let filtered = format!("{decoded} ! filter yadif host={filter_host} ! raw /dev/null");
                assert_eq!(notes(&filtered), [""; 0], "{codec}");
                let kept = format!("{decoded} ! filter hflip host={filter_host} ! raw /dev/null");
                assert_eq!(notes(&kept), notes_of_raw, "{codec}");
            }
        }
    }
}

#[test]
fn a_variable_frame_rate_is_said() {
    let folder = TempDir::new().unwrap();
    let constant = film(&folder, "constant.mkv", "-vf fps=30 -c:v libx264 -bf 2");
    let select = "-vf select=not(eq(n\\,2)) -fps_mode passthrough";
    let variable = film(&folder, "variable.mkv", &format!("{select} -c:v libx264 -bf 2"));
    let out = folder.path().join("out").display().to_string();
    for sink in ["y4m /dev/null", "raw /dev/null", &format!("png {out}")] {
        assert_eq!(notes(&format!("file {constant} loop=2 ! decode ! {sink}")), [""; 0], "{sink}");
        let said = notes(&format!("file {variable} ! decode ! {sink}"));
        assert_eq!(said.len(), 1, "{sink}: {said:?}");
        assert!(
            said[0].contains("does not hold the times (the frame rate varies, first at frame "),
            "{said:?}"
        );
    }
    assert_eq!(notes(&format!("file {variable} ! decode ! framemd5 /dev/null")), [""; 0]);
}
