// SPDX-License-Identifier: MIT OR Apache-2.0
//! `run`: its output, and the files it writes.

use std::fs;

use serde_json::Value;

use framepath_testkit::run;

#[test]
fn the_summary_has_frames_latency_hops_and_causes() {
    let ran = run(&["run", "test size=64x48 frames=20 ! threshold ! queue depth=4 ! null"]).ended(0);
    for part in
        ["20 frames", "latency: p50", "threshold", "queue depth=4", "compute", "unexplained", "copied: 0 B"]
    {
        assert!(ran.stdout.contains(part), "no `{part}` in {ran:#?}");
    }
    assert_eq!(ran.stderr, "");
}

#[test]
fn an_unquoted_path_works_if_the_shell_keeps_its_words() {
    run(&["run", "test", "size=64x48", "frames=7", "!", "queue", "!", "null"]).ended(0).shows("7 frames");
}

#[test]
fn the_option_frames_limits_a_run() {
    let path = "test size=64x48 frames=0 ! queue ! framemd5 -";
    let ran = run(&["run", "--frames", "12", "--quiet", path]).ended(0);
    assert_eq!(ran.frames().len(), 12);
    run(&["run", "--frames", "0", path]).ended(2);
}

#[test]
fn the_option_quiet_prints_no_summary() {
    let ran = run(&["run", "--quiet", "test size=64x48 frames=3 ! null"]).ended(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
}

#[test]
fn the_ledger_can_be_off() {
    let ran = run(&["run", "--ledger", "off", "test size=64x48 frames=3 ! null"]).ended(0).shows("3 frames");
    assert!(!ran.stdout.contains("latency"), "{ran:#?}");
}

#[test]
fn a_sink_on_standard_output_moves_the_summary_to_standard_error() {
    let ran = run(&["run", "test size=64x48 frames=4 ! framemd5 -"]).ended(0).prints("4 frames");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("0, ")).count(), 4);
    assert!(lines.iter().all(|line| line.starts_with("0, ") || line.starts_with('#')), "{ran:#?}");
}

#[test]
fn two_outputs_do_not_share_standard_output() {
    run(&["run", "--json", "-", "test size=64x48 frames=4 ! y4m -"]).ended(2).prints("standard output");
}

#[test]
fn the_csv_has_a_row_per_frame_and_hop() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("frames.csv");
    let path = "test size=64x48 frames=25 ! threshold ! queue ! null";
    run(&["run", path, "--csv", csv.to_str().unwrap()]).ended(0);
    let text = fs::read_to_string(csv).unwrap();
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("path,seq,hop,stage,thread,birth_ns,enter_ns,leave_ns,"));
    let hops = ["test size=64x48 frames=25", "threshold", "queue", "null"];
    assert_eq!(lines.clone().count(), 25 * hops.len());
    for (hop, name) in hops.iter().enumerate() {
        let rows =
            lines.clone().filter(|line| line.split(',').skip(2).take(2).eq([&*hop.to_string(), *name]));
        assert_eq!(rows.count(), 25, "{name}");
    }
}

#[test]
fn the_trace_is_json_with_events() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    run(&["run", "test size=64x48 frames=5 ! queue ! null", "--trace", trace.to_str().unwrap()]).ended(0);
    let trace: Value = serde_json::from_str(&fs::read_to_string(trace).unwrap()).unwrap();
    assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
}

#[test]
fn the_report_is_a_page_about_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    run(&["run", "test size=64x48 frames=5 ! queue ! null", "--report", page.to_str().unwrap()]).ended(0);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<h1>Of the median frame's "));
    assert!(page.contains("<code>test size=64x48 frames=5 ! queue ! null</code>"));
}

#[test]
fn the_json_has_the_shape_of_a_summary() {
    let path = "test size=64x48 format=grey frames=12 ! encode raw copy=yes ! null";
    let ran = run(&["run", "--json", "-", path]).ended(0).prints("12 frames");
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(summary["experiment"], "run");
    assert!(summary["machine"]["cores"].as_u64().unwrap() >= 1);
    assert!(summary["machine"]["pmu"].is_boolean());
    let row = &summary["rows"][0];
    assert_eq!(row["case"], path);
    assert_eq!(row["frames"], 12);
    assert_eq!(row["runs"], 1);
    assert_eq!(row["dropped"], 0.0);
    assert_eq!(row["copied_bytes_per_frame"], 64.0 * 48.0);
    assert!(row["syscalls_per_frame"].is_null(), "what is not known is null");
    for (key, of) in
        [("wall_ms", "median"), ("cpu_ms", "max"), ("latency_us", "p99"), ("causes_us", "compute")]
    {
        assert!(row[key][of].is_number(), "{key}.{of} in {row:#}");
    }
    for key in ["ratios", "skipped", "notes"] {
        assert_eq!(summary[key].as_array().unwrap().len(), 0, "{key}");
    }
}
