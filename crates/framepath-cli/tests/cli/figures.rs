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
fn a_strict_gate_has_an_exit_code_for_an_inconclusive_budget() {
    let folder = tempfile::tempdir().unwrap();
    let budgets = write(folder.path(), "budgets.toml", BUDGETS);
    let near = write(folder.path(), "near.json", &summary(0.5));
    let bad = write(folder.path(), "bad.json", &summary(0.6));
    run(&["gate", &budgets, &near]).ended(0).shows("inconclusive");
    run(&["gate", "--strict", &budgets, &near]).ended(4).shows("inconclusive");
    run(&["gate", "--strict", &budgets, &bad]).ended(1).shows("FAIL");
}

#[test]
fn a_baseline_is_an_older_run() {
    let folder = tempfile::tempdir().unwrap();
    let old = write(folder.path(), "old.json", &summary(0.4));
    let worse = write(folder.path(), "worse.json", &summary(0.6));
    run(&["gate", "--baseline", &old, &old]).ended(0).shows("1 figures: ");
    run(&["gate", "--baseline", &old, &worse]).ended(1).shows("FAIL").shows("inline/ffmpeg cpu_ms");
    run(&["gate", "--baseline", &worse, &old]).ended(0).shows("(1 of them better)");
    run(&["gate", "--baseline", &old, "--tolerance", "100", &worse]).ended(0);
    run(&["gate", "--tolerance", "5", &old]).ended(2).prints("--baseline");
    run(&["gate", &old, &worse]).ended(2).prints("gate --baseline");
}

#[test]
fn names_and_old_spellings_of_figures() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let json = json.to_str().unwrap();
    run(&["run", "test frames=9 size=64x48 ! queue ! null", "--json", json]).ended(0);
    let names = run(&["gate", "--names", json]).ended(0).stdout;
    for path in ["cpu_us_per_frame", "latency_us.p99", "causes_us.queue", "hops[0].frames", "lost"] {
        assert!(
            names.lines().any(|line| line.split("  ").any(|word| word.trim() == path)),
            "{path}: {names}"
        );
    }
    let budget = |metric: &str| {
        let text = format!(
            "[[budget]]\nname = \"n\"\nexperiment = \"run\"\ncase = \"*\"\ncontender = \"path\"\n\
             metric = \"{metric}\"\nmax_count = 1e9\n"
        );
        write(folder.path(), "budgets.toml", &text)
    };
    run(&["gate", &budget("latency_us.p99"), json]).ended(0);
    run(&["gate", &budget("hops[queue].frames"), json]).ended(0).shows("frames 9");
    run(&["gate", &budget("latency_p99_us"), json])
        .ended(0)
        .prints("write its path in the JSON: `latency_us.p99`");
    run(&["gate", &budget("latency_us.p98"), json]).ended(1).shows("near: `latency_us.p9");
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
fn lab_decode_takes_files() {
    let folder = tempfile::tempdir().unwrap();
    let (json, out) = (folder.path().join("run.json"), folder.path().join("run"));
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let [json, out, clip] = [&json, &out, &clip].map(|path| path.to_str().unwrap());
    run(&["lab", "decode", clip, "--pairs", "1", "--json", json, "--out", out]).ended(0);
    let summary: framepath_model::summary::Summary =
        serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(summary.cases(), ["vp9-180p8"]);
    for contender in ["ffmpeg", "inline", "process", "bare-t1"] {
        assert_eq!(summary.row("vp9-180p8", contender).unwrap().frames, 30, "{contender}");
    }
    assert!(fs::read_to_string(format!("{out}/report.html")).unwrap().contains("vp9-180p8"));
    run(&["lab", "decode", "no-such.mp4", "--out", out]).ended(1).prints("no-such.mp4: cannot open");
}

#[test]
fn an_unknown_case_is_an_error_with_the_cases() {
    let ran = run(&["lab", "queue", "encode", "--case", "65B"]).ended(2).prints("no case `65B`; near: 64B");
    assert!(ran.stderr.contains("encode: 720p-nv12") && ran.stdout.is_empty(), "{ran:#?}");
}

#[test]
fn the_lab_lists_its_experiments() {
    let ran = run(&["lab", "--list"]).ended(0);
    for experiment in ["queue", "decode", "encode", "loopback", "handoff", "inject", "aa"] {
        assert!(ran.stdout.lines().any(|line| line.split(' ').next() == Some(experiment)), "{experiment}");
    }
}
