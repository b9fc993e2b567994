// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends of commands: the exit code shows if everything was delivered, standard error names
//! the losses, and control characters from a file are escaped.

mod lack;
mod names;
mod reader;

use std::fs;

use framepath_testkit::harness::{Missing, Tested};
use framepath_testkit::{CommandOutput, in_checkout, run};

framepath_testkit::tests! {
    a_skipped_packet_is_reported_even_with_quiet_and_exits_with_3,
    all_frames_lost_is_a_failure,
    frames_lost_with_their_worker_exit_with_3,
    a_source_that_ends_without_a_frame_is_a_failure,
    a_packet_too_large_for_every_worker_ends_the_run_after_the_earlier_frames,
    requested_drops_do_not_count_as_loss,
    a_path_that_loses_frames_gives_a_comparison_no_figures,
    a_failed_run_leaves_no_empty_file,
    an_export_replaces_the_target_of_a_link_and_keeps_permissions,
    lack::too_few_descriptors_fail_the_run_and_skip_no_packet,
    lack::running_out_of_descriptors_fails_the_run_and_skips_no_frame,
    lack::running_out_of_descriptors_fails_the_run_and_skips_no_packet,
    names::errors_and_summaries_escape_file_names,
    names::unknown_options_are_escaped_in_errors,
    names::json_escapes_the_names_of_a_traced_program,
    reader::a_slow_reader_of_a_stream_without_keyframes_loses_nothing,
}

/// Returns the number of `framemd5` lines: frames that were delivered.
fn delivered(ran: &CommandOutput) -> usize {
    ran.frames().len()
}

/// Runs the clip through a decoder with these options into `framemd5`, with `--quiet`.
fn decoded(clip: &str, options: &str) -> CommandOutput {
    let clip = in_checkout("clips").join(clip);
    run(&["run", "--quiet", &format!("file {} ! decode {options} ! framemd5 -", clip.display())])
}

fn a_skipped_packet_is_reported_even_with_quiet_and_exits_with_3() {
    let whole = decoded("vp9-180p8.ivf", "host=process").ended(0);
    assert_eq!(whole.stderr, "");
    // The packet is late enough that frames before it are delivered.
    let last = delivered(&whole) - 3;
    let options = format!("host=process fault=poison@{last}");
    let ran = decoded("vp9-180p8.ivf", &options).ended(3);
    assert!(delivered(&ran) > 0 && delivered(&ran) < delivered(&whole), "{ran:#?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:#?}");
    ran.prints(&options).prints(&format!("packet {last}"));
}

fn all_frames_lost_is_a_failure() {
    let ran = decoded("vp9-180p8.ivf", "host=process fault=poison@0").ended(1);
    assert_eq!(delivered(&ran), 0);
    ran.prints("no frame").prints("packet 0");
}

fn frames_lost_with_their_worker_exit_with_3() -> Tested {
    framepath_codec::frei0r::find("baltan").map_err(|error| Missing::new(error.to_string()))?;
    // The filter has state, so frames inside a dead worker cannot be computed again.
    let ran = run(&[
        "run",
        "--quiet",
        "test size=64x48 frames=50 ! plugin frei0r:baltan host=process fault=crash@20 ! framemd5 -",
    ]);
    let ran = ran.ended(3).prints("frame 20").prints("lost 1 worker state: ");
    assert!((1..50).contains(&delivered(&ran)), "{ran:#?}");
    Ok(())
}

fn a_source_that_ends_without_a_frame_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    // An IVF head without a frame.
    let file = folder.path().join("empty.ivf");
    let clip = fs::read(in_checkout("clips/vp9-180p8.ivf")).unwrap();
    fs::write(&file, &clip[..32]).unwrap();
    run(&["run", "--quiet", &format!("file {} ! decode ! null", file.display())])
        .ended(1)
        .prints("empty.ivf");
}

fn requested_drops_do_not_count_as_loss() {
    for leaky in ["upstream", "downstream"] {
        let path =
            format!("test size=64x48 frames=200 ! queue depth=1 leaky={leaky} ! block time=1ms ! null");
        let ran = run(&["run", "--json", "-", &path]).ended(0);
        let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let row = &json["rows"][0];
        assert!(row["dropped"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["lost"].as_f64(), Some(0.0));
    }
}

fn a_path_that_loses_frames_gives_a_comparison_no_figures() {
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let path = |fault: &str| format!("file {} ! decode host=process{fault} ! null", clip.display());
    let (good, lossy) = (path(""), path(" fault=poison@7"));
    let ran = run(&["compare", "--pairs", "1", &good, &lossy]).ended(3).prints("packet 7");
    assert_eq!(ran.stdout, "");
}

fn a_failed_run_leaves_no_empty_file() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let (csv, trace) = (folder.path().join("run.csv"), folder.path().join("trace.json"));
    let name = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let files = ["--json", &name(&json), "--csv", &name(&csv), "--trace", &name(&trace)];
    fs::write(&csv, "of before\n").unwrap();
    run(&[&["run", "file /nowhere/clip.ivf ! null"], &files[..]].concat()).ended(1);
    let summary: serde_json::Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert!(summary["notes"][0].as_str().unwrap().contains("/nowhere/clip.ivf"), "{summary}");
    assert_eq!(fs::read_to_string(&csv).unwrap(), "of before\n");
    assert!(!trace.exists());
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");

    fs::remove_file(&json).unwrap();
    run(&["compare", "--json", &name(&json), "file /nowhere/clip.ivf ! null", "test ! null"]).ended(1);
    assert!(!json.exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

fn an_export_replaces_the_target_of_a_link_and_keeps_permissions() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file.json"), folder.path().join("link.json"));
    fs::write(&file, "of before").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    run(&["run", "test size=64x48 frames=2 ! null", "--json", link.to_str().unwrap()]).ended(0);
    assert!(link.is_symlink());
    assert!(fs::read_to_string(&file).unwrap().contains("\"frames\": 2"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    // A link to a file that does not exist yet stays a link, too.
    fs::remove_file(&file).unwrap();
    run(&["run", "test size=64x48 frames=3 ! null", "--json", link.to_str().unwrap()]).ended(0);
    assert!(link.is_symlink());
    assert!(fs::read_to_string(&file).unwrap().contains("\"frames\": 3"));
    // A pipe is written to directly.
    run(&["run", "test size=64x48 frames=2 ! null", "--json", "/dev/stderr"])
        .ended(0)
        .prints("\"frames\": 2");
}

/// Number of slices, which is also the number of frames, before the large packet.
const SLICES_BEFORE: usize = 14;

fn a_packet_too_large_for_every_worker_ends_the_run_after_the_earlier_frames() {
    let clip = fs::read(in_checkout("clips/h264-180p8-high.h264")).unwrap();
    let is_slice = |at: &usize| clip[*at..].starts_with(&[0, 0, 1]) && clip[at + 3] & 0x1f == 1;
    let slice = (0..clip.len() - 4).filter(is_slice).nth(SLICES_BEFORE).unwrap();
    // Filler data of the previous picture, larger than the packet area that 64 MiB of
    // memory leave.
    let filler = [&[0, 0, 1, 0x0c][..], &vec![0xff; 9 << 20], &[0x80]].concat();
    let large = [&clip[..slice], &filler, &clip[slice..]].concat();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.h264");
    fs::write(&file, large).unwrap();
    let path = format!(
        "file {} host=inline ! decode host=process threads=1 memory=64MiB ! framemd5 -",
        file.display()
    );
    let ran = run(&["run", "--quiet", &path]).ended(1);
    assert_eq!(delivered(&ran), SLICES_BEFORE, "{ran:#?}");
}
