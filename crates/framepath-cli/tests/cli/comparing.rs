// SPDX-License-Identifier: MIT OR Apache-2.0
//! `compare`: its sides, and its results.

use serde_json::Value;

use framepath_testkit::run;

#[test]
fn two_paths_run_in_pairs() {
    let (a, b) = ("test size=64x48 frames=5 ! null", "test size=64x48 frames=5 ! queue ! null");
    let ran = run(&["compare", "--pairs", "3", "--json", "-", a, b]).ended(0);
    for part in [&format!("a: {a}"), &format!("b: {b}"), "wall ms", "CPU ms", "3 pairs", "wall time: "] {
        assert!(ran.stderr.contains(part), "no `{part}` in {ran:#?}");
    }
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(summary["experiment"], "compare");
    for (row, name) in summary["rows"].as_array().unwrap().iter().zip(["a", "b"]) {
        assert_eq!(row["contender"], name);
        assert_eq!(row["frames"], 5);
        assert_eq!(row["runs"], 3);
    }
    let ratios = summary["ratios"].as_array().unwrap();
    let metrics: Vec<&str> = ratios.iter().map(|ratio| ratio["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics, ["wall_ms", "cpu_ms"]);
    assert!(ratios.iter().all(|ratio| ratio["pairs"] == 3 && ratio["ci95"].is_array()));
}

#[test]
fn commands_may_be_quoted_or_split() {
    let pairs = ["compare", "--pairs", "1"];
    let compare = |words: &[&str]| run(&[&pairs, words].concat());
    compare(&["--", "sh -c 'exit 0'", "true"]).ended(0).shows("a: sh -c 'exit 0'").shows("b: true");
    compare(&["--", "sh", "-c", "exit 0", "--", "true"]).ended(0).shows("a: sh -c 'exit 0'").shows("b: true");
    let path = "test size=64x48 frames=2 ! framemd5 -";
    compare(&[path, "--", "sh", "-c", ":"]).ended(0).shows(&format!("a: {path}")).shows("b: sh -c :");
}

#[test]
fn a_failing_side_is_reported_at_once() {
    run(&["compare", "test ! null"]).ended(2).prints("expected two sides, found 1");
    run(&["compare", "test ! null", "test ! nul"]).ended(2).prints("^^^");
    run(&["compare", "--", "true", "framepath-is-no-such-program"]).ended(1).prints("is not installed");
    run(&["compare", "--", "true", "sh -c 'echo no good >&2; exit 4'"])
        .ended(1)
        .prints("exited with 4: no good");
    run(&["compare", "test frames=1 ! null", "file /nowhere.ivf ! decode ! null"])
        .ended(1)
        .prints("/nowhere.ivf");
}
