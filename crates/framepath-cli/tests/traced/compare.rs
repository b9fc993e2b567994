// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath compare --trace`.

use std::fs;
use std::process::Stdio;

use framepath_os::process::children;
use framepath_testkit::harness::Tested;
use framepath_testkit::{clip, framepath, run, until};
use serde_json::Value;
use tempfile::TempDir;

use crate::{needs_bpf, stages};

const SIGINT: i32 = 2;

fn decode(options: &str) -> String {
    format!("ffmpeg -v error {options} -i '{}' -f null -", clip("h264-180p8-container.mp4"))
}

/// Compares two traced commands in `pairs` pairs. Returns the figures and the text.
fn compare(pairs: &str, a: &str, b: &str) -> (Value, String) {
    let ran = run(&["compare", "--trace", "--pairs", pairs, "--json", "-", "--", a, b]).ended(0);
    let figures = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout));
    (figures, ran.stderr)
}

/// Returns the row of `stages` for all causes of the stage that side a calls `name`.
fn stage<'a>(figures: &'a Value, name: &str) -> &'a Value {
    let is_wanted = |row: &&Value| row["stage_a"] == name && row["cause"].is_null();
    figures["stages"].as_array().unwrap().iter().find(is_wanted).unwrap_or_else(|| panic!("{figures}"))
}

pub(crate) fn two_traced_commands_are_compared_by_stage_and_cause() -> Tested {
    needs_bpf()?;
    let (figures, text) = compare("2", &decode("-threads 3"), &decode("-threads 1"));
    assert_eq!(figures["experiment"], "compare");
    for row in figures["rows"].as_array().unwrap() {
        assert_eq!((row["frames"].as_u64(), row["runs"].as_u64()), (Some(30), Some(2)), "{row}");
        assert!(stages(row).contains(&"decode h264"), "{row}");
    }
    let all = stage(&figures, "decode h264");
    assert_eq!((&all["stage_b"], all["pairs"].as_u64()), (&"decode h264".into(), Some(2)), "{all}");
    for key in ["a_us", "b_us"] {
        assert!(all[key].as_f64().unwrap() > 0.0, "{all}");
    }
    assert!(all["difference_us"].is_number() && all["ci95"].is_array(), "{all}");
    let of_decoder: Vec<&Value> = (figures["stages"].as_array().unwrap().iter())
        .filter(|row| row["stage_a"] == "decode h264" && !row["cause"].is_null())
        .collect();
    assert!(of_decoder.iter().any(|row| row["cause"] == "compute"), "{figures}");
    // The causes of a stage add up, in each run.
    let (figures, _) = compare("1", &decode("-threads 1"), &decode("-threads 1"));
    let rows = figures["stages"].as_array().unwrap();
    let sum: f64 = (rows.iter())
        .filter(|row| row["stage_a"] == "decode h264" && !row["cause"].is_null())
        .map(|row| row["a_us"].as_f64().unwrap())
        .sum();
    let all = stage(&figures, "decode h264");
    assert!((sum - all["a_us"].as_f64().unwrap()).abs() < 0.01, "{sum}: {all}");
    assert!(all["ci95"].is_null(), "{all}");
    for part in ["both sides traced: level bpf", "ms per frame", "decode h264", "per frame ("] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    Ok(())
}

pub(crate) fn stages_of_one_side_have_no_difference() -> Tested {
    needs_bpf()?;
    let (figures, text) = compare("1", &decode("-threads 1"), "true");
    let all = stage(&figures, "decode h264");
    assert!(all["stage_b"].is_null() && all["difference_us"].is_null(), "{all}");
    assert_eq!(figures["rows"][1]["frames"], 0);
    for part in ["b traced: level bpf; no frame was seen", "the sides have no stage in common"] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    let (figures, text) = compare("1", "true", "true");
    assert_eq!(figures["stages"], serde_json::json!([]));
    assert!(text.contains("CPU time: ") && !text.contains("ms per frame"), "{text}");
    Ok(())
}

pub(crate) fn a_failed_traced_side_is_an_error() -> Tested {
    needs_bpf()?;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("warm");
    // The first run, which is not traced, succeeds.
    let script =
        format!("sh -c '[ ! -e {0} ] || {{ echo no good >&2; exit 4; }}; touch {0}'", file.display());
    run(&["compare", "--trace", "--pairs", "1", "--", &script, "true"])
        .ended(1)
        .prints("exited with 4: no good");
    run(&["compare", "--trace", "--", "true", "framepath-is-no-such-program"])
        .ended(1)
        .prints("is not installed");
    Ok(())
}

pub(crate) fn an_interrupt_ends_the_traced_side() -> Tested {
    needs_bpf()?;
    let folder = TempDir::new().unwrap();
    let (warm, pid) = (folder.path().join("warm"), folder.path().join("pid"));
    let script = format!(
        "sh -c '[ ! -e {0} ] || {{ echo $$ >{1}; exec sleep 60; }}; touch {0}'",
        warm.display(),
        pid.display()
    );
    let mut compared = framepath(&["compare", "--trace", "--pairs", "1", "--", &script, "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let sleeps = || fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'));
    until("the traced side sleeps", sleeps);
    let pid = fs::read_to_string(&pid).unwrap();
    children::signal(&compared, SIGINT).unwrap();
    assert_eq!(compared.wait().unwrap().code(), Some(130));
    assert!(!fs::exists(format!("/proc/{}", pid.trim())).unwrap());
    Ok(())
}
