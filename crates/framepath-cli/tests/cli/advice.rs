// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice of the ledger: the advised path reduces the time that the advice names.

use serde_json::Value;

use framepath_testkit::run;

/// Runs one case of lab `inject` and returns its row.
fn advised(case: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let ran = run(&["lab", "inject", "--case", case, "--json", "-", "--out", out]).ended(0);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    summary["rows"].get(0).cloned().unwrap_or_else(|| panic!("{case}: no row in {ran:#?}"))
}

/// Returns the figure `name` before and after the advice was taken.
fn figures(row: &Value, name: &str) -> (f64, f64) {
    let of = |when: &str| row[format!("{when}_{name}")].as_f64().unwrap();
    (of("before"), of("after"))
}

#[test]
fn one_thread_ends_the_wait_for_the_depth_of_frame_threads() {
    let (before, after) = figures(&advised("advice-held"), "us");
    assert!(after < before / 2.0, "{before} µs, then {after} µs");
}

#[test]
fn a_queue_of_depth_one_ends_the_wait_in_the_queue() {
    let (before, after) = figures(&advised("advice-queue"), "us");
    assert!(after < before, "{before} µs, then {after} µs");
}

#[test]
fn the_native_format_saves_a_copy() {
    let (before, after) = figures(&advised("advice-copy"), "bytes");
    assert!(after < before, "{before} bytes, then {after} bytes");
}
