// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of each hop in `run --json`, the advice that follows from them, and `decode threading=`.

use std::fs;

use framepath_testkit::{clip, md5_lines, run};
use serde_json::Value;
use tempfile::TempDir;

/// Runs `path` and returns the row of its JSON summary.
fn row(path: &str) -> Value {
    let folder = TempDir::new().unwrap();
    let json = folder.path().join("run.json");
    let output = run(&["run", "--quiet", path, "--json", json.to_str().unwrap()]);
    assert!(output.code == Some(0), "{path}: {}", output.stderr);
    let summary: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    summary["rows"][0].clone()
}

fn hop<'a>(row: &'a Value, name: &str) -> &'a Value {
    let hops = row["hops"].as_array().unwrap();
    hops.iter().find(|hop| hop["hop"].as_str().unwrap().starts_with(name)).unwrap()
}

#[test]
fn the_causes_of_the_hops_add_up_to_those_of_the_path() {
    let file = clip("h264-180p8-container.mp4");
    let row = row(&format!("file {} ! decode threads=2 ! queue ! convert format=rgba ! null", file));
    let hops = row["hops"].as_array().unwrap();
    assert_eq!(hops.len(), 5);
    for (cause, whole) in row["causes_us"].as_object().unwrap() {
        let Some(whole) = whole.as_f64().filter(|_| cause != "unexplained") else { continue };
        let parts: f64 = hops.iter().filter_map(|hop| hop["causes_us"][cause].as_f64()).sum();
        assert!((parts - whole).abs() < 0.01, "{cause}: {parts} of {whole}");
    }
    let frames = row["frames"].as_u64().unwrap();
    assert!(hops.iter().all(|hop| hop["frames"].as_u64() == Some(frames)));
    // Only the link waits for a consumer, and it uses no CPU time; the conversion is computing.
    assert!(hop(&row, "queue")["cpu_us"].is_null());
    assert_eq!(hop(&row, "decode")["causes_us"]["queue"], 0.0);
    let convert = hop(&row, "convert");
    assert_eq!(convert["causes_us"]["copy"], 0.0);
    assert!(convert["causes_us"]["compute"].as_f64().unwrap() > 0.0);
    assert!(convert["copied_bytes_per_frame"].as_f64().unwrap() >= 320.0 * 180.0 * 4.0);
    // The CPU time of the hops and of no hop is that of the process.
    let hops_us: f64 = hops.iter().filter_map(|hop| hop["cpu_us"].as_f64()).sum();
    let all_us = row["cpu_ms"]["median"].as_f64().unwrap() * 1000.0 / frames as f64;
    let other_us = row["other_cpu_us"].as_f64().unwrap();
    assert!((hops_us + other_us - all_us).abs() < 0.01, "{hops_us} + {other_us} is not {all_us}");
}

#[test]
fn advice_that_is_followed_removes_the_time_that_it_names() {
    let file = clip("h264-180p8-container.mp4");
    let path = |decode: &str| format!("file {} rate=25 ! {decode} ! null", file);
    // The advice depends on times, and a machine that stands still for some frames changes them: one of five runs
    // must give it.
    let given = (0..5).find_map(|_| {
        let before = row(&path("decode threads=4"));
        // Whatever the times: frame threads hold frames, and without a link nothing waits for a busy consumer.
        assert!(hop(&before, "decode")["held_depth_us"].as_f64().unwrap() > 0.0);
        assert_eq!(before["causes_us"]["queue"], 0.0);
        before["advice"][0].as_str().map(String::from)
    });
    let advice = given.expect("an advice in one of five runs");
    let changed = "decode threads=1";
    assert!(
        advice.starts_with("held, ") && advice.contains(&format!("`{changed}` removes this")),
        "{advice}"
    );
    let after = row(&path(changed));
    assert!(hop(&after, "decode")["held_depth_us"].is_null());
    assert!(after["advice"].is_null(), "{after}");
}

#[test]
fn frame_threads_in_a_worker_are_explained_as_in_this_process() {
    let file = clip("h264-180p8-container.mp4");
    for host in ["inline", "process"] {
        let row = row(&format!("file {file} ! decode threads=3 host={host} ! null"));
        let decode = hop(&row, "decode");
        assert!(decode["causes_us"]["pool"].is_null(), "{host}: {decode}");
        assert!(decode["causes_us"]["held"].as_f64().unwrap() > 0.0, "{host}: {decode}");
        assert!(decode["held_depth_us"].as_f64().unwrap() > 0.0, "{host}: {decode}");
    }
}

#[test]
fn every_kind_of_threads_decodes_the_same_frames() {
    for name in
        ["h264-180p8-high.h264", "hevc-180p8.hevc", "vp9-180p8.ivf", "vp8-99x57p8-odd.ivf", "av1-180p8.ivf"]
    {
        for host in ["inline", "process"] {
            let frames = |options: &str| {
                let file = clip(name);
                let path = format!("file {} ! decode host={host} {options} ! framemd5 -", file);
                let output = run(&["run", "--quiet", &path]);
                assert!(output.code == Some(0), "{path}: {}", output.stderr);
                md5_lines(&output.stdout)
            };
            let wanted = frames("threads=1");
            for options in ["threads=3 threading=slice", "threads=3 threading=frame"] {
                assert_eq!(frames(options), wanted, "{name} {host} {options}");
            }
        }
    }
    // Without B pictures, low delay changes no frame.
    for name in ["h264-180p8-baseline.h264", "vp9-180p8.ivf", "av1-180p8.ivf"] {
        let frames = |options: &str| {
            let path = format!("file {} ! decode {options} ! framemd5 -", clip(name));
            md5_lines(&run(&["run", "--quiet", &path]).stdout)
        };
        let wanted = frames("threads=1");
        assert!(!wanted.is_empty());
        assert_eq!(frames("threads=3 lowdelay=1"), wanted, "{name}");
    }
}
