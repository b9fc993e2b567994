// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gate: valid and invalid budget files, and its results for summaries.

use framepath_lab::gate::{
    self, BudgetOutcome, FigureLimits, GateOutcome, Limit, baseline, evaluate, old_spellings, parse,
};
use framepath_model::stats::{Spread, Verdict};
use framepath_model::summary::{CausesUs, LatencyUs, Machine, Ratio, Skipped, Summary, SummaryRow};

const BUDGETS: &str = include_str!("../../../budgets.toml");
const STREAM_BUDGETS: &str = include_str!("../../../budgets-stream.toml");

fn row(case: &str, contender: &str) -> SummaryRow {
    SummaryRow {
        case: case.into(),
        contender: contender.into(),
        runs: 10,
        frames: 150,
        ..SummaryRow::default()
    }
}

fn ratio(case: &str, metric: &str, a: &str, b: &str, ci95: Option<[f64; 2]>) -> Ratio {
    let median = ci95.map_or(1.0, |[low, high]| (low + high) / 2.0);
    Ratio {
        case: case.into(),
        metric: metric.into(),
        a: a.into(),
        b: b.into(),
        median,
        ci95,
        pairs: 10,
        verdict: Some(Verdict::of(ci95)),
    }
}

fn summary(experiment: &str) -> Summary {
    Summary {
        experiment: experiment.into(),
        machine: Machine::default(),
        started_unix_s: None,
        rows: vec![],
        ratios: vec![],
        skipped: vec![],
        notes: vec![],
    }
}

/// Returns a budget file that limits the CPU time ratio of `inline` to `ffmpeg` to 0.75 in `case`.
fn ratio_budget(case: &str) -> String {
    format!(
        "[[budget]]\nname = \"cpu\"\nexperiment = \"decode\"\ncase = \"{case}\"\n\
         metric = \"cpu_ms\"\na = \"inline\"\nb = \"ffmpeg\"\nmax = 0.75\n"
    )
}

fn verdict(budget: &str, summaries: &[Summary]) -> (BudgetOutcome, String) {
    let lines = evaluate(&parse(budget).unwrap(), summaries);
    assert_eq!(lines.len(), 1);
    (lines[0].outcome, lines[0].details.clone())
}

#[test]
fn the_budgets_of_the_stream_have_no_optional_figure() {
    let budgets = parse(STREAM_BUDGETS).unwrap();
    assert_eq!(budgets.len(), STREAM_BUDGETS.matches("[[budget]]").count());
    assert!(budgets.iter().all(|budget| !budget.optional));
    // Without the figures, each of them fails.
    let lines = evaluate(&budgets, &[summary("stream"), summary("loopback")]);
    assert!(lines.iter().all(|line| line.outcome == BudgetOutcome::Missing), "{lines:?}");
}

#[test]
fn the_committed_budget_file_is_valid() {
    let budgets = parse(BUDGETS).unwrap();
    assert_eq!(budgets.len(), BUDGETS.matches("[[budget]]").count());
    let first = &budgets[0];
    assert_eq!((first.experiment.as_str(), first.case.as_str()), ("queue", "64B"));
    assert_eq!(
        first.limit,
        Limit::Ratio {
            metric: "cpu_us_per_push".into(),
            a: "queue".into(),
            b: "gst-queue".into(),
            limits: FigureLimits { min: None, max: Some(0.05) }
        }
    );
    let names: std::collections::BTreeSet<&str> = budgets.iter().map(|b| b.name.as_str()).collect();
    assert_eq!(names.len(), budgets.len(), "names are unique");
}

#[test]
fn a_ratio_fails_only_if_its_interval_lies_beyond_the_limit() {
    let mut decode = summary("decode");
    for (ci95, expected) in [
        ([0.60, 0.70], BudgetOutcome::Pass),
        ([0.65, 0.75], BudgetOutcome::Pass),
        ([0.70, 0.80], BudgetOutcome::Inconclusive),
        ([0.74, 0.90], BudgetOutcome::Inconclusive),
        ([0.75, 0.90], BudgetOutcome::Inconclusive),
        ([0.76, 0.90], BudgetOutcome::Fail),
    ] {
        decode.ratios = vec![ratio("clip", "cpu_ms", "inline", "ffmpeg", Some(ci95))];
        let (outcome, details) = verdict(&ratio_budget("clip"), &[decode.clone()]);
        assert_eq!(outcome, expected, "{details}");
        assert!(details.contains("clip: inline/ffmpeg cpu_ms"), "{details}");
        assert!(details.contains("limit 0.75"), "{details}");
    }
    // An interval that spans the limit does not fail the gate, unless the gate is strict.
    decode.ratios = vec![ratio("clip", "cpu_ms", "inline", "ffmpeg", Some([0.74, 0.90]))];
    let budgets = parse(&ratio_budget("clip")).unwrap();
    assert_eq!(gate::outcome(&evaluate(&budgets, &[decode.clone()])), GateOutcome::Inconclusive);
    let failing = parse(&(ratio_budget("clip") + &ratio_budget("no such case"))).unwrap();
    assert_eq!(gate::outcome(&evaluate(&failing, &[decode])), GateOutcome::Failed);
}

#[test]
fn a_lower_limit_is_the_mirror_of_an_upper_one() {
    let mut decode = summary("decode");
    let budget = ratio_budget("clip").replace("max = ", "min = ");
    for (ci95, expected) in [
        ([0.60, 0.74], BudgetOutcome::Fail),
        ([0.70, 0.80], BudgetOutcome::Inconclusive),
        ([0.75, 0.90], BudgetOutcome::Pass),
    ] {
        decode.ratios = vec![ratio("clip", "cpu_ms", "inline", "ffmpeg", Some(ci95))];
        let (outcome, details) = verdict(&budget, &[decode.clone()]);
        assert_eq!(outcome, expected, "{details}");
        assert!(details.contains("limit at least 0.75"), "{details}");
    }
    let mut loopback = summary("loopback");
    loopback.rows = vec![row("64MiB", "tcp")];
    loopback.rows[0].extra.insert("throughput_mb_s".into(), 900.0);
    let budget = count_budget("tcp", "throughput_mb_s", "1").replace("max_count = 1", "min_count = 1000");
    let (outcome, details) = verdict(&budget, &[loopback.clone()]);
    assert_eq!(
        (outcome, details.as_str()),
        (BudgetOutcome::Fail, "64MiB: tcp throughput_mb_s 900, limit at least 1000")
    );
    let both = budget.replace("min_count = 1000", "min_count = 800\nmax_count = 1000");
    assert_eq!(verdict(&both, &[loopback]).1, "64MiB: tcp throughput_mb_s 900, limits 800 to 1000");
}

#[test]
fn names_are_paths_of_the_json_and_old_spellings_work() {
    let mut decode = summary("decode");
    decode.rows = vec![SummaryRow {
        cpu_ms: Spread::of(&[30.0; 10]),
        cpu_us_per_frame: Some(200.0),
        latency_us: Some(LatencyUs { p50: 5.0, p95: 6.0, p99: 7.0, max: 8.0 }),
        ..row("clip", "inline")
    }];
    for (metric, figure) in [
        ("latency_us.p99", "7"),
        ("latency_p99_us", "7"),
        ("cpu_ms.median", "30 (30 to 30)"),
        ("cpu_us_per_frame", "200 (200 to 200)"),
    ] {
        let budget = count_budget("inline", metric, "200");
        assert_eq!(
            verdict(&budget, &[decode.clone()]),
            (BudgetOutcome::Pass, format!("clip: inline {metric} {figure}, limit 200"))
        );
    }
    let notes = |metric| old_spellings(&parse(&count_budget("inline", metric, "1")).unwrap());
    assert_eq!(
        notes("latency_p99_us"),
        ["budget n: `latency_p99_us` is an old spelling; write its path in the JSON: `latency_us.p99`"]
    );
    assert_eq!(notes("cpu_ms"), [""; 0], "the path of an object stands for its median");
    // A ratio's metric has the name that `ratios` of the JSON has, or the path in the rows.
    decode.ratios = vec![ratio("clip", "latency_p50_us", "inline", "ffmpeg", Some([0.5, 0.6]))];
    for metric in ["latency_p50_us", "latency_us.p50"] {
        let budget = ratio_budget("clip").replace("cpu_ms", metric);
        assert_eq!(verdict(&budget, &[decode.clone()]).0, BudgetOutcome::Pass);
    }
}

#[test]
fn a_wrong_name_lists_the_near_ones() {
    let mut decode = summary("decode");
    decode.rows = vec![
        SummaryRow { cpu_ms: Spread::of(&[1.0]), ..row("vp9-1080p8", "inline") },
        row("av1-1080p8", "process"),
    ];
    decode.ratios = vec![ratio("vp9-1080p8", "cpu_ms", "inline", "ffmpeg", Some([0.5, 0.6]))];
    for (budget, expected) in [
        (count_budget("inline", "cpu_ms.medain", "1"), "is missing (near: `cpu_ms.median`"),
        (count_budget("inlin", "cpu_ms", "1"), "no contender `inlin` (near: `inline`)"),
        (
            count_budget("inline", "cpu_ms", "1").replace("case = \"*\"", "case = \"vp9-1080p\""),
            "no such case (near: `vp9-1080p8`",
        ),
        (
            count_budget("inline", "cpu_ms", "1").replace("experiment = \"*\"", "experiment = \"decod\""),
            "no experiment `decod` in the summary (near: `decode`)",
        ),
        (count_budget("*", "cpu_mss.median", "1"), "no figure `cpu_mss.median` (near: `cpu_ms.median`"),
        (ratio_budget("vp9*").replace("\"ffmpeg\"", "\"fmpeg\""), "(near: `inline/ffmpeg`)"),
        (ratio_budget("vp9*").replace("cpu_ms", "cpu_m"), "(near: `cpu_ms`)"),
    ] {
        let (outcome, details) = verdict(&budget, &[decode.clone()]);
        assert_eq!(outcome, BudgetOutcome::Missing, "{details}");
        assert!(details.contains(expected), "{details}");
    }
}

#[test]
fn a_baseline_needs_no_budgets() {
    let mut old = summary("decode");
    old.rows = vec![SummaryRow {
        cpu_ms: Spread::of(&[30.0, 30.1, 30.2, 30.3, 30.4, 30.5]),
        cpu_us_per_frame: Some(30.25 * 1e3 / 150.0),
        copied_bytes_per_frame: Some(0.0),
        ..row("clip", "inline")
    }];
    old.ratios = vec![ratio("clip", "cpu_ms", "inline", "ffmpeg", Some([0.50, 0.51]))];
    let results = |new: &Summary| {
        let report = baseline(&[old.clone()], std::slice::from_ref(new), 0.05);
        let outcomes: Vec<BudgetOutcome> = report.lines.iter().map(|line| line.outcome).collect();
        (outcomes, report.better, report.notes)
    };
    use BudgetOutcome::{Fail, Inconclusive, Missing, Pass};
    // The count, the CPU time per frame, the ratio.
    assert_eq!(results(&old), (vec![Pass, Pass, Pass], 0, vec![]));

    let mut new = old.clone();
    new.rows[0].copied_bytes_per_frame = Some(1.0);
    new.rows[0].cpu_ms = Spread::of(&[40.0, 40.1, 40.2, 40.3, 40.4, 40.5]);
    new.rows[0].cpu_us_per_frame = Some(40.25 * 1e3 / 150.0);
    new.ratios[0] = ratio("clip", "cpu_ms", "inline", "ffmpeg", Some([0.50, 0.56]));
    assert_eq!(results(&new), (vec![Fail, Fail, Inconclusive], 0, vec![]));

    new = old.clone();
    new.rows[0].cpu_ms = Spread::of(&[20.0, 20.1, 20.2, 20.3, 20.4, 20.5]);
    new.rows[0].cpu_us_per_frame = Some(20.25 * 1e3 / 150.0);
    new.ratios[0].ci95 = None;
    assert_eq!(results(&new), (vec![Pass, Pass, Inconclusive], 1, vec![]));

    // Figures of another machine say nothing about time, but counts and ratios do.
    new.machine.cpu = "another".into();
    let (outcomes, _, notes) = results(&new);
    assert_eq!((outcomes, notes.len()), (vec![Pass, Inconclusive], 1));

    new.rows.clear();
    new.ratios.clear();
    assert_eq!(results(&new).0, vec![Missing, Missing]);
    assert_eq!(results(&summary("queue")).0, vec![Missing]);
}

#[test]
fn an_inverse_ratio_satisfies_a_budget() {
    let mut decode = summary("decode");
    decode.ratios = vec![ratio("clip", "cpu_ms", "ffmpeg", "inline", Some([1.9, 2.1]))];
    let (outcome, details) = verdict(&ratio_budget("*"), &[decode]);
    assert_eq!(outcome, BudgetOutcome::Pass);
    assert!(details.contains("0.5 (0.476 to 0.526)"), "{details}");
}

#[test]
fn every_measured_case_needs_its_ratio() {
    let mut decode = summary("decode");
    decode.rows = vec![row("one", "inline"), row("two", "inline"), row("two", "bare")];
    decode.ratios = vec![ratio("one", "cpu_ms", "inline", "ffmpeg", Some([0.5, 0.6]))];
    let (outcome, details) = verdict(&ratio_budget("*"), &[decode.clone()]);
    assert_eq!((outcome, details.as_str()), (BudgetOutcome::Missing, "no ratio two: inline/ffmpeg cpu_ms"));

    decode.ratios.push(ratio("two", "cpu_ms", "inline", "ffmpeg", Some([0.6, 0.7])));
    let (outcome, details) = verdict(&ratio_budget("*"), &[decode.clone()]);
    assert_eq!(outcome, BudgetOutcome::Pass);
    assert!(details.starts_with("two:") && details.ends_with("(the worst of 2 rows)"), "{details}");

    decode.ratios[0].ci95 = Some([0.9, 1.0]);
    decode.ratios[1].ci95 = Some([0.8, 0.9]);
    let (outcome, details) = verdict(&ratio_budget("*"), &[decode]);
    assert_eq!(outcome, BudgetOutcome::Fail);
    assert!(details.contains("one:") && details.contains("; two:"), "{details}");
}

#[test]
fn a_missing_figure_is_named_and_fails_its_budget() {
    let budget = ratio_budget("clip");
    let (outcome, details) = verdict(&budget, &[]);
    assert_eq!(
        (outcome, details.as_str()),
        (BudgetOutcome::Missing, "no experiment `decode` in the summary")
    );

    let mut decode = summary("decode");
    decode.rows = vec![row("clip", "inline")];
    decode.skipped = vec![Skipped {
        contender: "ffmpeg".into(),
        case: None,
        reason: "not installed: apt install ffmpeg".into(),
    }];
    let (outcome, details) = verdict(&budget, &[decode.clone()]);
    assert_eq!(outcome, BudgetOutcome::Missing);
    assert_eq!(
        details,
        "no ratio clip: inline/ffmpeg cpu_ms (ffmpeg skipped: not installed: apt install ffmpeg)"
    );

    let optional = format!("{budget}optional = true\n");
    let lines = evaluate(&parse(&optional).unwrap(), &[decode.clone()]);
    assert_eq!(lines[0].outcome, BudgetOutcome::Skipped);
    assert_eq!(gate::outcome(&lines), GateOutcome::Passed);
    assert!(lines[0].to_string().starts_with("skipped       cpu: no ratio clip"));

    // One pair has no interval, so its noise is not known.
    decode.ratios = vec![ratio("clip", "cpu_ms", "inline", "ffmpeg", None)];
    let (outcome, details) = verdict(&budget, &[decode]);
    assert_eq!(outcome, BudgetOutcome::Missing);
    assert!(details.contains("one pair"), "{details}");
}

fn count_budget(contender: &str, metric: &str, max_count: &str) -> String {
    format!(
        "[[budget]]\nname = \"n\"\nexperiment = \"*\"\ncase = \"*\"\ncontender = \"{contender}\"\n\
         metric = \"{metric}\"\nmax_count = {max_count}\n"
    )
}

#[test]
fn counts_above_their_limit_fail() {
    let mut decode = summary("decode");
    decode.rows = vec![row("clip", "native"), row("clip", "ffmpeg")];
    let budget = count_budget("native", "copied_bytes_per_frame", "0");
    let (outcome, details) = verdict(&budget, &[decode.clone()]);
    assert_eq!(
        (outcome, details.as_str()),
        (BudgetOutcome::Missing, "clip: native copied_bytes_per_frame is missing (known: `frames`, `runs`)")
    );
    decode.rows[0].copied_bytes_per_frame = Some(0.0);
    assert_eq!(verdict(&budget, &[decode.clone()]).0, BudgetOutcome::Pass);
    decode.rows[0].copied_bytes_per_frame = Some(1.0);
    let (outcome, details) = verdict(&budget, &[decode.clone()]);
    assert_eq!(
        (outcome, details.as_str()),
        (BudgetOutcome::Fail, "clip: native copied_bytes_per_frame 1, limit 0")
    );
}

#[test]
fn a_star_for_the_contender_selects_rows_with_the_figure() {
    let mut decode = summary("decode");
    decode.rows = vec![row("clip", "inline"), row("clip", "ffmpeg")];
    let budget = count_budget("*", "unexplained_share", "0.05");
    assert_eq!(verdict(&budget, &[decode.clone()]).0, BudgetOutcome::Missing);
    let causes = |unexplained| CausesUs {
        compute: Some(100.0 - unexplained),
        unexplained: Some(unexplained),
        ..CausesUs::default()
    };
    decode.rows[0].causes_us = Some(causes(4.0));
    assert_eq!(verdict(&budget, &[decode.clone()]).0, BudgetOutcome::Pass);
    decode.rows[0].causes_us = Some(causes(6.0));
    assert_eq!(verdict(&budget, &[decode.clone()]).0, BudgetOutcome::Fail);
    // A ledger does not close either if the causes exceed the latency.
    decode.rows[0].causes_us = Some(causes(-9.0));
    assert_eq!(verdict(&budget, &[decode]).0, BudgetOutcome::Fail);
}

#[test]
fn errors_in_the_file_are_named() {
    let good = ratio_budget("clip");
    for (text, expected) in [
        (String::new(), "the file has no [[budget]]"),
        ("budget = 3".into(), "the file: `budget` must be tables, each under [[budget]], not 3"),
        ("budget = [3]".into(), "the file: `budget` must be tables"),
        ("[[budgets]]\n".into(), "the file: unknown key `budgets`, did you mean `budget`?"),
        (good.replace("metric", "metrik"), "budget 1 (cpu): unknown key `metrik`, did you mean `metric`?"),
        (good.replace("name = \"cpu\"\n", ""), "budget 1: `name` is missing: the budget's name"),
        (good.replace("a = \"inline\"\n", ""), "budget 1 (cpu): `a` is missing: the contender above"),
        (good.replace("max = 0.75\n", ""), "budget 1 (cpu): `max` is missing"),
        (good.replace("0.75", "\"0.75\""), "`max` must be a number of 0 or more, not \"0.75\""),
        (good.replace("0.75", "-1"), "`max` must be a number of 0 or more, not -1"),
        (good.replace("0.75", "nan"), "`max` must be a number of 0 or more, not NaN"),
        (good.replace("\"cpu_ms\"", "\"\""), "`metric` must be a non-empty text"),
        (good.replace("max = 0.75", "max_count = 3"), "`a` and `max_count` exclude each other"),
        (good.replace("max = 0.75", "max = 0.75\nmin = 0.8"), "`min` is above `max`"),
        (good.replace("max = 0.75", "max = 0.75\nmin_count = 0.8"), "`a` and `min_count` exclude each other"),
        (good.clone() + "optional = 1\n", "`optional` must be true or false, not 1"),
        (good.clone() + &good.replace("case", "cases"), "budget 2 (cpu): unknown key `cases`"),
        ("[[budget]\n".into(), "line 1"),
        (count_budget("x", "y", "1").replace("contender = \"x\"\n", ""), "`contender` is missing"),
    ] {
        let error = parse(&text).expect_err(&text).to_string();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn lines_show_result_name_figure_and_limit() {
    let mut decode = summary("decode");
    decode.rows = vec![row("clip", "inline")];
    let budgets = [count_budget("inline", "runs", "10"), count_budget("inline", "runs", "1")].concat();
    let lines = evaluate(&parse(&budgets).unwrap(), &[decode]);
    assert_eq!(lines[0].to_string(), "pass          n: clip: inline runs 10, limit 10");
    assert_eq!(lines[1].to_string(), "FAIL          n: clip: inline runs 10, limit 1");
    assert_eq!(gate::outcome(&lines), GateOutcome::Failed);
}

/// Parses 2000 random mutations of the committed budget file: an invalid file must be an error, not a
/// panic. The fuzz target tests more files.
#[test]
fn every_mutation_parses_or_is_an_error() {
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let pieces =
        ["[[budget]]", "[", "]]", "\"", "=", "\n", "max", "1e999", "nan", "ä", "\0", "'''", "{", ","];
    let summaries = [summary("decode"), summary("queue")];
    let mut read = 0;
    for _ in 0..2000 {
        let mut text: Vec<char> = BUDGETS.chars().collect();
        for _ in 0..=random(6) {
            let at = random(text.len());
            let piece = pieces[random(pieces.len())].chars();
            let cut = (at + random(40)).min(text.len());
            if random(2) == 0 {
                text.splice(at..at, piece);
            } else {
                text.splice(at..cut, piece);
            }
        }
        let text: String = text.into_iter().collect();
        match parse(&text) {
            Ok(budgets) => {
                read += 1;
                assert_eq!(evaluate(&budgets, &summaries).len(), budgets.len());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(read > 0, "some mutations fall into comments and names");
}
