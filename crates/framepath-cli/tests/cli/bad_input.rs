// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid input: the error names the object and the reason, and has an exit code.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::Value;

use framepath_testkit::{clip, finish, framepath, in_checkout, run, wait};

#[test]
fn path_errors_point_at_the_wrong_word() {
    let ran = run(&["run", "test frames=5 ! decdoe ! null"]).ended(2);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let at = lines.iter().position(|line| line.contains("test frames=5 ! decdoe ! null")).unwrap();
    assert_eq!(lines[at].find("decdoe"), lines[at + 1].find("^^^^^^"), "{ran:#?}");
    assert!(ran.stderr.contains("`decode`") && ran.stderr.starts_with("framepath: run: "), "{ran:#?}");
    assert_eq!(ran.stdout, "");
}

#[test]
fn unknown_arguments_are_usage_errors() {
    run(&["comparee"]).ended(2).prints("did you mean `framepath compare`?");
    run(&["run"]).ended(2).prints("<PATH>");
    run(&["run", "--ledger", "loud", "test ! null"]).ended(2).prints("full");
    run(&["lab", "quue"]).ended(2).prints("did you mean `queue`?");
    run(&["stages", "decod"]).ended(2).prints("did you mean `decode`?");
}

#[test]
fn errors_name_files_that_are_not_videos() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let file = folder.path().join(name);
        fs::write(&file, bytes).unwrap();
        file.to_str().unwrap().to_owned()
    };
    // A fixed sequence of meaningless bytes.
    let noise: Vec<u8> = (0_u32..100_000).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for file in [
        folder.path().to_str().unwrap().to_owned(),
        folder.path().join("missing.ivf").to_str().unwrap().to_owned(),
        write("empty.ivf", b""),
        write("random.ivf", &noise),
        write("random.mp4", &noise),
    ] {
        let ran = run(&["run", &format!("file '{file}' ! decode ! null")]).ended(1).prints(&file);
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:#?}");
    }
}

#[test]
fn a_truncated_file_delivers_its_frames_and_keeps_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(in_checkout("clips/vp9-180p8.ivf")).unwrap();
    let file = folder.path().join("cut.ivf");
    fs::write(&file, &whole[..whole.len() * 2 / 3]).unwrap();
    let csv = folder.path().join("frames.csv");
    let path = format!("file '{}' ! decode damage=stop ! null", file.display());
    let ran = run(&["run", &path, "--csv", csv.to_str().unwrap()]).ended(1).prints("is damaged or cut short");
    let frames: usize = ran.stdout.split(' ').next().unwrap().parse().unwrap();
    assert!((10..30).contains(&frames), "{ran:#?}");
    let text = fs::read_to_string(csv).unwrap();
    let mut lines = text.lines();
    // The columns are counted from the end, because a stage's text may contain commas.
    let column = lines.next().unwrap().rsplit(',').position(|name| name == "last").unwrap();
    let last = |line: &&str| line.rsplit(',').nth(column) == Some("1");
    assert_eq!(lines.filter(last).count(), frames);
}

#[test]
fn a_pool_too_small_for_the_decoder_is_an_error() {
    let clip = in_checkout("clips/h264-180p8-high.h264");
    let path = format!("file '{}' ! decode pool=1 ! null", clip.display());
    run(&["run", &path]).ended(1).prints("pool");
}

#[test]
fn a_full_disk_fails_a_sink_with_its_name() {
    for sink in ["framemd5", "y4m"] {
        let path = format!("test size=64x48 format=grey frames=400 ! queue ! {sink} /dev/full");
        let ran = run(&["run", &path]).ended(1).prints("/dev/full").prints("No space left on device");
        assert!(ran.stdout.contains(" frames in "), "{ran:#?}");
    }
}

#[test]
fn a_full_disk_fails_an_export_with_its_name() {
    for option in ["--csv", "--trace", "--json"] {
        run(&["run", "test size=64x48 frames=50 ! null", option, "/dev/full"])
            .ended(1)
            .prints("/dev/full")
            .prints("No space left on device");
    }
    run(&["run", "test ! null", "--csv", "/nowhere/a.csv"]).ended(1).prints("/nowhere/a.csv");
}

#[test]
fn a_failed_run_still_writes_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let path = "test size=64x48 format=grey frames=100 ! framemd5 /dev/full";
    run(&["run", path, "--json", json.to_str().unwrap()]).ended(1);
    let summary: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert!(summary["notes"][0].as_str().unwrap().contains("No space left on device"));
}

#[test]
fn a_file_with_too_many_tracks_is_refused_by_their_number() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tracks.mp4").to_str().unwrap().to_owned();
    let clip = framepath_testkit::clip("h264-180p8-container.mp4");
    let maps = ["-map", "0:v"].repeat(101);
    framepath_testkit::ffmpeg(&[&["-i", &clip][..], &maps, &["-c", "copy", &file]].concat());
    for host in ["inline", "process"] {
        let path = format!("file {file} host={host} ! decode ! null");
        run(&["run", &path]).ended(1).prints("cannot open: it has more than 100 tracks");
    }
}

#[test]
fn a_y4m_picture_out_of_range_is_refused_by_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.y4m").to_str().unwrap().to_owned();
    fs::write(&file, "YUV4MPEG2 W999999999 H100 F25:1 C420\nFRAME\n").unwrap();
    for host in ["inline", "process"] {
        let path = format!("file {file} host={host} ! decode ! null");
        run(&["run", &path]).ended(1).prints("cannot open: the size of its pictures is out of range");
    }
}

#[test]
fn a_filter_in_a_worker_that_writes_a_file_is_refused_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("written");
    let path = |host: &str| {
        let graph = format!("metadata=print:file={}", file.display());
        format!("test frames=2 size=64x48 format=grey ! filter '{graph}' host={host} ! null")
    };
    run(&["run", &path("process")]).ended(1).prints("add host=inline");
    assert!(!file.exists());
    run(&["run", &path("inline")]).ended(0);
    assert!(file.exists());
}

#[test]
fn a_limit_of_file_sizes_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("test size=640x480 format=grey frames=10 ! y4m {}/out.y4m", folder.path().display());
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -f 8 && exec \"$@\"", "sh"]).arg(framepath_testkit::program());
    shell.args(["run", &path]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(shell).ended(1).prints("File too large");
}

#[test]
fn a_closed_standard_output_is_an_error() {
    let path = "test size=64x48 format=grey frames=3 !";
    for arguments in [
        &["run", "--quiet", &format!("{path} framemd5 -")][..],
        &["run", "--quiet", &format!("{path} y4m -")],
        &["run", "--quiet", "--json", "-", &format!("{path} null")],
        &["run", &format!("{path} null")],
        &["stages"],
        &["run", "--quiet", &format!("{path} framemd5 /dev/stdout")],
        &["run", "--quiet", &format!("{path} raw /proc/self/fd/1")],
        &["run", "--quiet", "--csv", "/dev/stdout", &format!("{path} null")],
        &["--help"],
        &["run", "--help"],
        &["--version"],
    ] {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "exec \"$@\" >&-", "sh"]).arg(framepath_testkit::program()).args(arguments);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(shell).ended(1).prints("standard output").prints("Bad file descriptor");
    }
}

#[test]
fn a_closed_pipe_ends_a_listing_silently() {
    // The pipe never has a reader.
    let (reader, writer) = UnixStream::pair().unwrap();
    drop(reader);
    let mut command = framepath(&["stages"]);
    let child = command.stdout(Stdio::from(OwnedFd::from(writer))).spawn().unwrap();
    drop(command);
    let ran = wait(child, "stages").ended(1);
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_closed_pipe_stops_a_path_with_its_summary() {
    let mut child =
        framepath(&["run", "test size=640x480 format=grey frames=100000 ! queue ! y4m -"]).spawn().unwrap();
    let mut start = [0; 9];
    child.stdout.as_mut().unwrap().read_exact(&mut start).unwrap();
    assert_eq!(&start, b"YUV4MPEG2");
    drop(child.stdout.take());
    let ran = wait(child, "run").ended(0).prints("frames in");
    assert!(!ran.stderr.contains("Broken pipe"), "{ran:?}");
}

#[test]
fn errors_have_the_name_of_a_file_once() {
    for path in ["file no-such.mp4 ! decode ! null", "test frames=1 ! framemd5 /nowhere/no-such.mp4"] {
        let ran = run(&["run", "--quiet", path]).ended(1).prints("No such file or directory");
        assert_eq!(ran.stderr.matches("no-such.mp4").count(), 1, "{ran:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("not video.mp4");
    fs::write(&file, "no video").unwrap();
    let ran =
        run(&["run", "--quiet", &format!("file '{}' ! decode host=process ! null", file.display())]).ended(1);
    assert_eq!(ran.stderr.matches("not video.mp4").count(), 1, "{ran:?}");
    assert!(ran.stderr.contains("Invalid data found when processing input"), "{ran:?}");
}

#[test]
fn an_unquoted_command_of_compare_is_quoted_in_the_error() {
    run(&["compare", "--", "ffmpeg", "-i", "a.ivf", "-f", "null", "-"])
        .ended(2)
        .prints("compare -- 'ffmpeg -i a.ivf -f null -' 'OTHER COMMAND'");
}

#[test]
fn errors_name_invalid_summaries_and_budgets() {
    let folder = tempfile::tempdir().unwrap();
    let not_json = folder.path().join("not.json");
    fs::write(&not_json, "{").unwrap();
    let not_json = not_json.to_str().unwrap();
    let budgets = in_checkout("budgets.toml");
    let budgets = budgets.to_str().unwrap();
    run(&["gate", budgets]).ended(2).prints("framepath lab --json");
    run(&["gate", budgets, not_json]).ended(1).prints(not_json);
    run(&["gate", "/nowhere/budgets.toml", not_json]).ended(1).prints("/nowhere/budgets.toml");
    run(&["gate", not_json, not_json]).ended(2).prints("not.json");
    run(&["report", not_json]).ended(1).prints(not_json);
    run(&["report", folder.path().to_str().unwrap()]).ended(1).prints("run.json");
}

#[test]
fn an_output_that_is_the_input_or_another_output_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [input, link, symbolic, out] = ["in.mp4", "link.mp4", "symbolic.mp4", "out.raw"].map(place);
    fs::copy(clip("av1-180p8-container.mp4"), &input).unwrap();
    fs::hard_link(&input, &link).unwrap();
    std::os::unix::fs::symlink(&input, &symbolic).unwrap();
    let before = fs::read(&input).unwrap();
    let refused = |arguments: &[&str], code: i32| {
        let ran = run(&[&["run", "--quiet"][..], arguments].concat()).ended(code);
        assert!(ran.stderr.contains("; choose another file"), "{arguments:?}: {}", ran.stderr);
        assert!(fs::read(&input).unwrap() == before, "{arguments:?}");
        assert!(!fs::exists(&out).unwrap(), "{arguments:?}");
    };
    for same in [&input, &link, &symbolic] {
        refused(&[&format!("file {input} ! mux {same}")], 2);
        refused(&[&format!("file {input} ! decode ! raw {same}")], 2);
        refused(&[&format!("file {input} ! null"), "--json", same], 2);
    }
    let other = format!("{}/./out.raw", folder.path().display());
    let two = format!("test frames=3 ! tee ( queue ! raw {out} ) ( queue ! raw {other} )");
    refused(&[&two], 2);
    refused(&["test frames=3 ! null", "--json", &out, "--csv", &other], 2);
    // A link to the file that would be made.
    let dangling = format!("{}/dangling", folder.path().display());
    std::os::unix::fs::symlink("out.raw", &dangling).unwrap();
    refused(&[&format!("test frames=3 ! raw {dangling}"), "--csv", &out], 2);
    refused(&[&format!("test frames=3 ! framemd5 {out}"), "--report", &out], 2);
    // Pictures of a folder that are made from one of them.
    let pictures = place("pictures");
    fs::create_dir(&pictures).unwrap();
    let first = format!("{pictures}/frame-000000.png");
    run(&["run", "--quiet", &format!("test frames=1 size=64x48 format=grey ! png {pictures}")]).ended(0);
    for input in [&first, &format!("{pictures}/frame-%06d.png")] {
        refused(&[&format!("file {input} ! decode ! png {pictures}")], 2);
    }
    refused(&[&format!("test frames=1 format=grey ! png {pictures}"), "--json", &first], 2);
    run(&["run", "--quiet", &format!("file {first} ! decode ! convert format=grey ! pgm {pictures}")])
        .ended(0);
    // Devices and pipes may be shared.
    let shared = "test frames=3 ! tee ( queue ! raw /dev/null ) ( queue ! raw /dev/null )";
    run(&["run", "--quiet", shared, "--csv", "/dev/null"]).ended(0);
}
