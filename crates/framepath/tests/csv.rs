// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger as other programs read it: CSV.

use std::collections::BTreeSet;

use framepath::export::csv;
use framepath::{Level, Report};
use framepath_model::ledger::flag;
use framepath_testkit::pipeline::{at, run};

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
        assert_eq!(table[0].len(), 39);
        assert_eq!(table[0].iter().collect::<BTreeSet<_>>().len(), 39, "a column twice");
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
    assert!(text.lines().all(|line| cells(line).len() == 39));
    assert_eq!(text.matches("\"threshold level=9 roi=1,1,2,2\"").count(), 6);
}
