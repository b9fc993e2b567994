// SPDX-License-Identifier: MIT OR Apache-2.0
//! `host=process` delivers the same frames as `host=inline`, copies each packet once per worker that
//! it passes and no frame, and leaks no resources in its caller.

use std::fs;
use std::thread;
use std::time::Duration;

mod access_points;
mod duration;
mod encode;
mod kept;
mod plugins;
mod preroll;
mod size_change;

use framepath::{Level, Options};
use framepath_testkit::in_checkout;

/// Returns the lines of `framemd5` after `decode` with these options.
fn hashes(clip: &str, options: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hashes");
    let path = format!("file {clip} ! decode {options} ! framemd5 {}", file.display());
    framepath_testkit::run(&["run", &path]).ended(0);
    let text = fs::read_to_string(&file).unwrap();
    framepath_testkit::md5_lines(&text)
}

fn clips(large: bool) -> Vec<String> {
    let mut clips: Vec<String> = fs::read_dir(in_checkout("clips"))
        .unwrap()
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .filter(|path| !path.ends_with(".md") && !path.ends_with(".sh"))
        .filter(|path| path.contains("1080p") == large)
        .collect();
    clips.sort_unstable();
    assert!(clips.len() >= 7, "{clips:?}");
    clips
}

#[track_caller]
fn assert_same(clip: &str, options: &str) {
    let inline = hashes(clip, options);
    let process = hashes(clip, &format!("{options} host=process"));
    assert!(!inline.is_empty(), "{clip}");
    assert_eq!(process, inline, "{clip} {options}");
}

#[test]
fn small_clips_have_the_same_frames_in_a_worker_and_inline() {
    for clip in clips(false) {
        for threads in ["threads=1", "threads=2"] {
            assert_same(&clip, threads);
        }
        if !clip.contains("grey") {
            let format = if clip.contains("p10") { "format=p010" } else { "format=nv12" };
            assert_same(&clip, &format!("{format} threads=1"));
        }
    }
}

#[test]
fn large_clips_have_the_same_frames_in_a_worker_and_inline() {
    for clip in clips(true).iter().filter(|clip| !clip.contains("hard-")) {
        assert_same(clip, "threads=1");
    }
}

#[test]
fn branches_of_a_tee_decode_in_workers_and_inline() {
    let clip = in_checkout("clips/h264-180p8-high.h264");
    let clip = clip.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<String> =
        ["a", "b", "c"].map(|name| folder.path().join(name).to_str().unwrap().to_owned()).into();
    let [a, b, c] = &files[..] else { unreachable!() };
    let path = format!(
        "file {clip} ! tee ( queue ! decode host=process fault=crash@20 ! framemd5 {a} ) \
         ( queue ! decode host=process threads=1 ! tee ( queue ! framemd5 {b} ) ( null ) ) \
         ( decode ! framemd5 {c} )"
    );
    framepath_testkit::run(&["run", &path]).ended(0);
    let expected = hashes(clip, "threads=1");
    for file in files {
        assert_eq!(framepath_testkit::md5_lines(&fs::read_to_string(&file).unwrap()), expected, "{file}");
    }
}

/// Returns the number of descriptors, and of framepath's memfd mappings, in this process.
fn held() -> (usize, usize) {
    let files = fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    (files, maps.lines().filter(|line| line.contains("memfd:framepath")).count())
}

/// Waits until the numbers of [`held`] do not change for 100 ms, at most about 10 s, because a run
/// does not wait for its spare worker. Returns these numbers.
fn held_at_rest() -> (usize, usize) {
    let (mut last, mut looks) = (held(), 0);
    for _ in 0..1000 {
        thread::sleep(Duration::from_millis(10));
        let now = held();
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
        if looks == 10 {
            break;
        }
    }
    last
}

#[test]
fn packets_are_copied_twice_and_no_resource_leaks() {
    framepath::host::set_worker_program(env!("CARGO_BIN_EXE_framepath"));
    let clip = in_checkout("clips/h264-180p8-high.h264");
    let packets = fs::metadata(&clip).unwrap().len();
    let path = format!("file {} ! decode host=process ! null", clip.display());
    let path = framepath::path::parse(&path).unwrap();
    let options = Options { level: Level::Times, ..Options::default() };
    let run = || {
        let report = framepath::run(&path, &options).unwrap();
        assert!(report.error.is_none(), "{:?}", report.error);
        assert_eq!(report.frames, 30);
        report
    };
    // The first run also starts the spare worker, which stays.
    run();
    let before = held_at_rest();
    for _ in 0..5 {
        // One copy in the demuxer's worker, and one by the caller for the decoder's worker.
        assert_eq!(run().copied_bytes, 2 * packets);
        assert_eq!(held_at_rest(), before);
    }
}

/// Returns the child of the process `pid`, of any of its threads, whose command line contains `word`.
fn child_with(pid: u32, word: &str) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let children: String =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok()).collect();
    children.split_whitespace().map(|child| child.parse().unwrap()).find(|child: &u32| {
        fs::read(format!("/proc/{child}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
    })
}

#[test]
fn a_stopped_zygote_does_not_keep_a_run_from_its_end() {
    let clip = in_checkout("clips/h264-180p8-high.h264");
    let path = format!("file {} loop=20 ! decode host=process ! framemd5 -", clip.display());
    let mut running = framepath_testkit::framepath(&["run", &path]);
    running.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut running = running.spawn().unwrap();
    // The first frames show that both workers were forked.
    let mut first = [0; 1024];
    let mut output = running.stdout.take().unwrap();
    std::io::Read::read_exact(&mut output, &mut first).unwrap();
    let zygote = child_with(running.id(), "framepath-zygote").expect("the run has a zygote");
    let zygote = rustix::process::Pid::from_raw(zygote as i32).unwrap();
    rustix::process::kill_process(zygote, rustix::process::Signal::STOP).unwrap();
    let reader = thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    framepath_testkit::wait(running, "the run with a stopped zygote").ended(0);
    reader.join().unwrap().unwrap();
}
