// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cases of lab `stream` with framepath alone: that each has its figures, and that counts agree with each other.

use framepath_lab::LabError;
use framepath_lab::experiment::{ExperimentSettings, Size, find};
use framepath_lab::process::Program;
use framepath_lab::progress::NoProgress;
use framepath_model::summary::SummaryRow;
use framepath_testkit::harness::{Missing, Tested, needs_program};
use framepath_testkit::{clips, program};

framepath_testkit::tests! {
    the_ledger_has_the_frames_that_the_observer_sees,
    a_sender_encodes_once_for_ten_viewers,
    recovery_has_its_figures,
    settling_has_its_figures,
}

/// Runs a case once. Returns framepath's row.
fn row(case: &str) -> Result<SummaryRow, Missing> {
    needs_program("Xvfb", "xvfb")?;
    let framepath = program();
    if !Program::new(&framepath, ["stages", "send"]).run(true).unwrap().stdout.contains("listen=") {
        return Err(Missing::new("framepath was built without the feature `net`"));
    }
    let settings = ExperimentSettings {
        size: Size::Quick,
        pairs: Some(1),
        cases: vec![case.to_owned()],
        files: Vec::new(),
        framepath,
        clips: clips(),
        peers: "peers".into(),
    };
    let summary = match find("stream").unwrap().run(&settings, &NoProgress) {
        Ok(result) => result.summary,
        Err(LabError::Missing(reason)) => return Err(Missing::new(reason)),
        Err(error) => panic!("{error}"),
    };
    match summary.skipped.first() {
        Some(skipped) => Err(Missing::new(skipped.reason.clone())),
        None => Ok(summary.row(case, "native").unwrap().clone()),
    }
}

/// Returns a figure of a row, which has it.
fn figure(row: &SummaryRow, name: &str) -> f64 {
    *row.extra.get(name).unwrap_or_else(|| panic!("no {name} in {row:?}"))
}

fn the_ledger_has_the_frames_that_the_observer_sees() -> Tested {
    let row = row("ledger")?;
    let [matched, unmatched, without] =
        ["matched", "unmatched", "without_sender"].map(|name| figure(&row, name));
    // The first picture may have been shown before the watch, and is not compared.
    assert_eq!(matched + unmatched + without + 1.0, figure(&row, "shown"), "{row:?}");
    assert!(matched > unmatched, "{row:?}");
    let hops = ["capture", "convert", "encode", "packetise", "pace", "wire", "receive", "decode", "present"];
    for name in hops.map(|hop| format!("{hop}_ms")) {
        figure(&row, &name);
    }
    for name in [
        "apart_p50_ms",
        "apart_p95_ms",
        "unexplained_percent",
        "ledger_unexplained_percent",
        "draw_to_report_ms",
        "draw_to_birth_ms",
        "end_to_reading_ms",
        "reading_ms",
        "clock_error_ms",
    ] {
        figure(&row, name);
    }
    Ok(())
}

fn a_sender_encodes_once_for_ten_viewers() -> Tested {
    let row = row("viewers")?;
    assert_eq!(figure(&row, "viewers"), 10.0);
    // On a slow machine, the sender drops frames in front of the encoder.
    let [captured, encoded] = ["captured", "encoded"].map(|name| figure(&row, name));
    assert!(encoded > 0.0 && encoded <= captured, "{row:?}");
    assert_eq!(figure(&row, "encodes_per_frame"), encoded / captured);
    assert!(figure(&row, "viewer_frames") > 0.0, "{row:?}");
    figure(&row, "lost");
    figure(&row, "cpu_ms_per_viewer_and_frame");
    Ok(())
}

fn recovery_has_its_figures() -> Tested {
    let row = row("recovery")?;
    assert!(figure(&row, "encoded") > 0.0, "{row:?}");
    figure(&row, "shown_of_encoded_percent");
    figure(&row, "keyframes_requested");
    if figure(&row, "freezes") > 0.0 {
        assert!(figure(&row, "recovery_p99_ms") >= figure(&row, "recovery_p50_ms"), "{row:?}");
    }
    Ok(())
}

fn settling_has_its_figures() -> Tested {
    let row = row("settling")?;
    assert!(figure(&row, "offered_highest_mbits") > 0.0, "{row:?}");
    figure(&row, "link_dropped");
    figure(&row, "shown_of_encoded_percent");
    // Both or none: a stream may not settle, and may show no picture afterwards.
    assert!(row.extra.contains_key("settling_ms") || !row.extra.contains_key("settled_p95_ms"), "{row:?}");
    Ok(())
}
