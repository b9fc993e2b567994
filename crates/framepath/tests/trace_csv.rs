// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger as other programs read it: CSV, and a trace for Perfetto.

use std::collections::{BTreeMap, BTreeSet};

use framepath::export::{csv, trace};
use framepath::{Level, Report};
use framepath_model::ledger::flag;
use framepath_testkit::clip;
use framepath_testkit::pipeline::{at, run};
use serde_json::Value;

const PLAIN: &str = "test size=64x48 format=grey frames=20 ! queue depth=2 ! encode raw ! null";

fn csv_of(report: &Report) -> Vec<Vec<String>> {
    let mut bytes = Vec::new();
    csv::write(report, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    text.lines().map(cells).collect()
}

/// Splits one line into its cells; quotes as in RFC 4180.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => cells.last_mut().unwrap().push(c),
        }
    }
    cells
}

#[test]
fn csv_has_a_line_per_row_and_a_cell_per_column() {
    for level in [Level::Off, Level::Times, Level::Full] {
        let report = run(PLAIN, &at(level));
        let table = csv_of(&report);
        assert_eq!(table.len(), 1 + report.rows.len());
        assert_eq!(report.rows.len(), if level == Level::Off { 0 } else { 80 });
        assert_eq!(table[0][..5], ["path", "seq", "hop", "stage", "thread"]);
        assert_eq!(table[0].len(), 32);
        assert_eq!(table[0].iter().collect::<BTreeSet<_>>().len(), 32, "a column twice");
        for (line, row) in table[1..].iter().zip(&report.rows) {
            assert_eq!(line.len(), table[0].len(), "{line:?}");
            let cell = |name: &str| &line[table[0].iter().position(|column| column == name).unwrap()];
            assert_eq!(cell("path"), &report.path());
            assert_eq!(cell("seq"), &row.seq.to_string());
            assert_eq!(cell("stage"), &report.hops[usize::from(row.hop)].text);
            assert_eq!(cell("thread"), &report.threads[usize::from(row.thread)]);
            assert_eq!(cell("wall_ns"), &row.wall_ns().to_string());
            assert_eq!(cell("copied_bytes"), &row.copied_bytes.to_string());
            assert_eq!(cell("last"), &u8::from(row.has(flag::LAST)).to_string());
        }
    }
}

#[test]
fn csv_cells_without_a_measurement_are_empty() {
    let counters =
        ["compute_ns", "preempted_ns", "voluntary_switches", "involuntary_switches", "minor_faults"];
    let events = ["cycles", "instructions", "cache_misses"];
    for level in [Level::Times, Level::Full] {
        let report = run(PLAIN, &at(level));
        let has_pmu = report.rows.iter().any(|r| r.cycles > 0);
        let table = csv_of(&report);
        for (line, row) in table[1..].iter().zip(&report.rows) {
            let is_empty = |name: &str| {
                let at = table[0].iter().position(|column| column == name).unwrap();
                line[at].is_empty()
            };
            let counted = level == Level::Full && !row.has(flag::LINK);
            assert!(counters.iter().all(|name| is_empty(name) != counted), "{line:?}");
            assert!(events.iter().all(|name| is_empty(name) != (counted && has_pmu)), "{line:?}");
            assert_eq!(is_empty("unexplained_ns"), !counted && !row.has(flag::LINK), "{line:?}");
            for known in ["enter_ns", "leave_ns", "copy_ns", "queue_ns", "wakeup_ns", "blocked_ns", "dropped"]
            {
                assert!(!is_empty(known), "{known}: {line:?}");
            }
        }
    }
}

#[test]
fn csv_holds_several_runs_and_any_name() {
    let report =
        run("test size=16x16 format=grey frames=3 ! threshold level=9 roi=1,1,2,2 ! null", &at(Level::Times));
    let mut bytes = Vec::new();
    csv::write_all(&[("one", &report), ("a \"b\", c", &report)], &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("path,")).count(), 1);
    assert_eq!(text.lines().filter(|line| line.starts_with("one,")).count(), 9);
    assert_eq!(text.lines().filter(|line| line.starts_with("\"a \"\"b\"\", c\",")).count(), 9);
    assert!(text.lines().all(|line| cells(line).len() == 32));
    assert_eq!(text.matches("\"threshold level=9 roi=1,1,2,2\"").count(), 6);
}

/// Checks the properties that a trace viewer relies on.
fn check_trace(report: &Report) {
    let mut bytes = Vec::new();
    trace::write(report, &mut bytes).unwrap();
    let trace: Value = serde_json::from_slice(&bytes).expect("a trace is JSON");
    let events = trace["traceEvents"].as_array().expect("a list of events");
    let of = |phase: &'static str| events.iter().filter(move |e| e["ph"] == phase);
    let number = |value: &Value| value.as_f64().filter(|n| n.is_finite() && *n >= 0.0).expect("a time");

    let names: Vec<u64> =
        of("M").filter(|e| e["name"] == "thread_name").map(|e| e["tid"].as_u64().unwrap()).collect();
    assert_eq!(names, (0..report.threads.len() as u64).collect::<Vec<_>>());
    assert_eq!(of("M").filter(|e| e["name"] == "process_name").count(), 1);

    let rows = || report.rows.iter().filter(|r| !r.has(flag::DROPPED));
    assert_eq!(of("X").count(), rows().filter(|r| !r.has(flag::LINK)).count());
    assert_eq!(of("i").count(), rows().filter(|r| r.has(flag::LINK)).count());

    let mut rows_of: BTreeMap<u64, usize> = BTreeMap::new();
    for row in rows() {
        *rows_of.entry(row.seq).or_default() += 1;
    }
    let mut flows: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for event in events.iter().filter(|e| ["s", "t", "f"].iter().any(|phase| e["ph"] == *phase)) {
        flows.entry(event["id"].as_str().unwrap()).or_default().push(event);
    }
    assert_eq!(flows.len(), rows_of.values().filter(|rows| **rows > 1).count());
    for (id, steps) in &flows {
        assert_eq!(steps.iter().filter(|e| e["ph"] == "s").count(), 1, "flow {id}");
        assert_eq!(steps.iter().filter(|e| e["ph"] == "f").count(), 1, "flow {id}");
        assert_eq!((&steps[0]["ph"], &steps[steps.len() - 1]["ph"]), (&"s".into(), &"f".into()));
        let seq: u64 = id.rsplit('.').next().unwrap().parse().unwrap();
        assert_eq!(steps.len(), rows_of[&seq], "flow {id}");
        assert!(steps.windows(2).all(|w| number(&w[0]["ts"]) <= number(&w[1]["ts"])), "flow {id}");
    }

    let mut tracks: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for slice in of("X") {
        let (from, length) = (number(&slice["ts"]), number(&slice["dur"]));
        tracks.entry(slice["tid"].as_u64().unwrap()).or_default().push((from, from + length));
    }
    for (thread, mut slices) in tracks {
        slices.sort_by(|a, b| (a.0, -a.1).partial_cmp(&(b.0, -b.1)).unwrap());
        let mut open: Vec<(f64, f64)> = Vec::new();
        for slice in slices {
            // Times are in microseconds with three decimals.
            open.retain(|outer| outer.1 > slice.0 + 0.0005);
            for outer in &open {
                assert!(slice.1 <= outer.1 + 0.0005, "thread {thread}: {outer:?} and {slice:?} cross");
            }
            open.push(slice);
        }
    }
    // A flow's step belongs to the slice around it.
    for step in flows.values().flatten() {
        let at = number(&step["ts"]);
        let around = |e: &&Value| {
            let long = e["dur"].as_f64().unwrap_or(0.0);
            let from = number(&e["ts"]);
            e["tid"] == step["tid"] && from <= at && at <= from + long
        };
        assert!(events.iter().filter(|e| e["ph"] == "X" || e["ph"] == "i").any(|e| around(&e)), "{step}");
    }
}

#[test]
fn traces_of_frames_open() {
    for level in [Level::Off, Level::Times, Level::Full] {
        check_trace(&run(PLAIN, &at(level)));
        check_trace(&run("test size=64x48 frames=10 ! null", &at(level)));
    }
}

#[test]
fn traces_with_drops_open() {
    for leaky in ["upstream", "downstream"] {
        let text =
            format!("test size=16x16 frames=100 ! queue depth=2 leaky={leaky} ! block time=200us ! null");
        let report = run(&text, &at(Level::Full));
        assert!(report.dropped > 0);
        check_trace(&report);
    }
}

/// Checks traces of frames that leave a decoder late and in another order.
#[test]
fn traces_of_decoders_open() {
    for name in ["h264-180p8-high.h264", "vp8-180p8-container.webm", "vp9-180p8.ivf", "av1-180p8.ivf"] {
        for threads in ["1", "4"] {
            for link in ["", "! queue depth=3 "] {
                let text = format!("file {} ! decode threads={threads} {link}! null", clip(name));
                check_trace(&run(&text, &at(Level::Full)));
            }
        }
    }
}
