// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gate` and `report` on summaries, and `lab`'s list.

use std::fs;
use std::path::Path;

use framepath_testkit::{in_checkout, run};

const BUDGETS: &str = r#"
[[budget]]
name = "half the CPU"
experiment = "decode"
case = "a"
metric = "cpu_ms"
a = "inline"
b = "ffmpeg"
max = 0.5
"#;

/// Returns a summary, as JSON, in which `inline` takes `ratio` times the CPU time of `ffmpeg`.
fn summary(ratio: f64) -> String {
    format!(
        r#"{{ "experiment": "decode",
              "machine": {{ "cpu": "test", "cores": 2, "kernel": "6.1", "pmu": false }},
              "rows": [ {{ "case": "a", "contender": "inline", "runs": 10, "frames": 150 }} ],
              "ratios": [ {{ "case": "a", "metric": "cpu_ms", "a": "inline", "b": "ffmpeg",
                             "median": {ratio}, "ci95": [{}, {}], "pairs": 10 }} ] }}"#,
        ratio - 0.01,
        ratio + 0.01
    )
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn the_gate_prints_a_line_per_budget_and_sets_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let budgets = write(folder.path(), "budgets.toml", BUDGETS);
    let good = write(folder.path(), "good.json", &summary(0.4));
    let bad = write(folder.path(), "bad.json", &format!("[{}]", summary(0.6)));
    let passed = run(&["gate", &budgets, &good]).ended(0).shows("half the CPU");
    assert_eq!(passed.stdout.lines().count(), 1);
    run(&["gate", &budgets, &bad]).ended(1).shows("FAIL");
}

#[test]
fn the_committed_budgets_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let good = write(folder.path(), "good.json", &summary(0.4));
    let budgets = in_checkout("budgets.toml");
    run(&["gate", budgets.to_str().unwrap(), &good]).ended(1).shows("MISSING").shows("pass");
}

#[test]
fn runs_of_several_machines_become_one_report() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "laptop/run.json", &summary(0.4));
    let board = write(folder.path(), "board/run.json", &format!("[{0}, {0}]", summary(0.6)));
    let laptop = folder.path().join("laptop");
    let out = folder.path().join("both.html");
    let (laptop, out) = (laptop.to_str().unwrap(), out.to_str().unwrap());
    run(&["report", laptop, &board, "--out", out]).ended(0).shows(out);
    let html = fs::read_to_string(out).unwrap();
    assert!(html.contains("laptop") && html.contains("board") && html.contains("</html>"));
    let ran = run(&["report", laptop, "--out", "-"]).ended(0).shows("</html>");
    assert!(!ran.stdout.contains("board"));
}

#[test]
fn the_lab_lists_its_experiments() {
    let ran = run(&["lab", "--list"]).ended(0);
    for experiment in ["queue", "decode", "encode", "loopback", "handoff", "inject", "aa"] {
        assert!(ran.stdout.lines().any(|line| line.split(' ').next() == Some(experiment)), "{experiment}");
    }
}
