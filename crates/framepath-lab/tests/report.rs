// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report and the findings: made of realistic summaries, read back
//! as text, and opened in Chromium if it is installed.
//!
//! `FRAMEPATH_KEEP_REPORT=FILE` keeps the page for inspection.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use framepath_lab::plain;
use framepath_lab::report::{CauseSegment, FrameTimeline, LabRun, html};
use framepath_model::stats::{Spread, paired_ratio};
use framepath_model::summary::{CausesUs, LatencyUs, Machine, Ratio, Skipped, Summary, SummaryRow};
use framepath_testkit::harness::{Tested, needs_program};

framepath_testkit::tests! {
    the_page_has_every_picture_and_loads_nothing,
    titles_state_the_finding,
    text_of_a_run_is_escaped,
    several_runs_are_shown_side_by_side,
    unknown_figures_are_empty_cells,
    tables_are_aligned,
    findings_have_the_figures_of_the_summaries,
    summaries_survive_json,
    chromium_shows_the_pictures_without_an_error,
    labels_neither_overlap_nor_leave_their_picture,
    each_contender_is_explained,
}

const PICTURES: [&str; 5] = ["queue-sweep", "decode-bars", "causes", "latency", "slow-frames"];

/// Creates a ratio a/b of ten pairs around the value `around`, with some noise, so that intervals are
/// realistic.
fn ratio(case: &str, metric: &str, a: &str, b: &str, around: f64) -> Ratio {
    let noise = [0.97, 1.01, 1.0, 1.03, 0.99, 1.02, 0.98, 1.0, 1.01, 0.995];
    let of_a: Vec<f64> = noise.iter().map(|n| n * around).collect();
    Ratio::new(case, metric, a, b, &paired_ratio(&of_a, &[1.0; 10], 1).unwrap())
}

fn machine() -> Machine {
    Machine {
        cpu: "Example CPU <4> @ 2.1 GHz".into(),
        cores: 2,
        kernel: "6.12.48".into(),
        os: Some("Debian GNU/Linux 13 (trixie)".into()),
        memory_mib: Some(3935),
        versions: BTreeMap::from([("ffmpeg".into(), "7.1.2".into())]),
        ..Machine::default()
    }
}

fn summary(experiment: &str, rows: Vec<SummaryRow>, ratios: Vec<Ratio>) -> Summary {
    Summary {
        experiment: experiment.into(),
        machine: machine(),
        started_unix_s: Some(1_763_756_220),
        rows,
        ratios,
        skipped: vec![],
        notes: vec![],
    }
}

fn row(case: &str, contender: &str, frames: u64) -> SummaryRow {
    SummaryRow { case: case.into(), contender: contender.into(), runs: 10, frames, ..SummaryRow::default() }
}

fn around(median: f64) -> Option<Spread> {
    Some(Spread { median, min: median * 0.94, max: median * 1.11, ci95: None })
}

fn latency(p50: f64, tail: f64) -> Option<LatencyUs> {
    Some(LatencyUs { p50, p95: p50 * tail.sqrt(), p99: p50 * tail, max: p50 * tail * 2.5 })
}

fn queue() -> Summary {
    let costs = [
        ("direct", 0.012),
        ("direct-times", 0.055),
        ("queue", 0.11),
        ("queue-times", 0.19),
        ("gst-direct", 0.28),
        ("gst-queue", 2.4),
        ("gst-queue2", 2.9),
    ];
    let mut rows = Vec::new();
    for power in 3..=20_u32 {
        let size = 1_u64 << power;
        let case = if size < 1024 {
            format!("{size}B")
        } else if size < 1 << 20 {
            format!("{}KiB", size >> 10)
        } else {
            format!("{}MiB", size >> 20)
        };
        for (i, (contender, us)) in costs.iter().enumerate() {
            let us = us * (1.0 + 0.03 * f64::from((power * 7 + i as u32 * 5) % 4));
            let pushes = (16 << 20) / size;
            let mut row = row(&case, contender, pushes);
            row.cpu_ms = around(us * pushes as f64 / 1000.0);
            row.wall_ms = around(us * pushes as f64 / 1400.0);
            row.extra.insert("cpu_us_per_push".into(), us);
            rows.push(row);
        }
    }
    let mut ratios = vec![
        ratio("64B", "cpu_us_per_push", "queue", "gst-queue", 0.11 / 2.4),
        ratio("64B", "cpu_us_per_push", "direct", "gst-direct", 0.012 / 0.28),
    ];
    for (hz, factor) in [(60, 0.8), (250, 0.9), (1000, 1.0)] {
        let case = format!("paced-{hz}");
        for (contender, us, p50) in [("queue", 6.0 * factor, 9.0), ("gst-queue", 14.0, 21.0)] {
            let mut row = row(&case, contender, 300);
            row.extra.insert("cpu_us_per_push".into(), us);
            row.latency_us = latency(p50, 4.0);
            if contender == "queue" {
                row.causes_us = Some(CausesUs {
                    compute: Some(1.2),
                    wakeup: Some(7.1),
                    queue: Some(0.4),
                    unexplained: Some(0.3),
                    ..CausesUs::default()
                });
                row.switches_per_frame = Some(1.02);
            }
            rows.push(row);
        }
        ratios.push(ratio(&case, "cpu_us_per_push", "queue", "gst-queue", 0.43 * factor));
        ratios.push(ratio(&case, "latency_p50_us", "queue", "gst-queue", 0.43));
        ratios.push(ratio(&case, "latency_p99_us", "queue", "gst-queue", 1.0));
    }
    let mut queue = summary("queue", rows, ratios);
    queue.skipped.push(Skipped {
        contender: "gst-queue2".into(),
        case: Some("paced-60".into()),
        reason: "the peer has no <queue2> pacing".into(),
    });
    queue
}

fn decode() -> Summary {
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    for (case, ms) in [
        ("vp9-1080p8", 640.0),
        ("av1-1080p8", 910.0),
        ("h264-1080p8", 560.0),
        ("vp9-1080p10", 230.0),
        ("hard-h264-1080p8", 4300.0),
    ] {
        for (contender, factor) in [
            ("ffmpeg", 1.0),
            ("ffmpeg-t1", 0.81),
            ("inline", 0.66),
            ("inline-t1", 0.58),
            ("bare", 0.64),
            ("bare-t1", 0.57),
        ] {
            let mut row = row(case, contender, 150);
            row.cpu_ms = around(ms * factor);
            row.wall_ms = around(ms * if contender.ends_with("-t1") { factor } else { factor * 0.6 });
            row.load = Some(if contender.ends_with("-t1") { 1.0 } else { 1.7 });
            row.peak_memory_kib = Some(61_000);
            if contender.starts_with("inline") {
                row.copied_bytes_per_frame = Some(1_036_800.0);
                row.latency_us = latency(ms * factor * 1000.0 / 150.0, 1.9);
                let us = ms * factor * 1000.0 / 150.0;
                row.causes_us = Some(CausesUs {
                    compute: Some(us * 0.86),
                    copy: Some(us * 0.06),
                    preempted: Some(us * 0.03),
                    blocked: Some(us * 0.035),
                    unexplained: Some(us * 0.015),
                    ..CausesUs::default()
                });
            }
            rows.push(row);
        }
        ratios.push(ratio(case, "cpu_ms", "inline", "ffmpeg", 0.66));
        ratios.push(ratio(case, "cpu_ms", "inline-t1", "ffmpeg", 0.58));
        ratios.push(ratio(case, "wall_ms", "inline", "ffmpeg", 0.66));
        ratios.push(ratio(case, "cpu_ms", "inline", "bare", 1.0));
    }
    summary("decode", rows, ratios)
}

fn inject(off_by: f64) -> Summary {
    let rows = ["compute", "copy", "queue", "wakeup", "preempted", "blocked"].map(|cause| {
        let mut row = row(cause, "inject", 200);
        row.extra.insert("injected_us".into(), 2000.0);
        row.extra.insert("attributed_us".into(), 2000.0 + if cause == "wakeup" { off_by } else { 4.0 });
        row
    });
    summary("inject", rows.into(), vec![])
}

fn run(label: &str) -> LabRun {
    let frame = |seq: u64, factor: f64| {
        let pieces = [
            ("file", "blocked", 120.0),
            ("decode", "compute", 4100.0 * factor),
            ("decode", "copy", 310.0),
            ("queue", "queue", 2400.0 * factor),
            ("threshold", "preempted", 1900.0 * (factor - 1.0)),
            ("threshold", "compute", 240.0),
            ("null", "no such cause", 15.0),
        ];
        let mut at = 0.0;
        let mut segments = Vec::new();
        for (hop, cause, us) in pieces {
            segments.push(CauseSegment {
                hop: hop.into(),
                cause: cause.into(),
                start_us: at,
                end_us: at + us,
            });
            at += us;
        }
        FrameTimeline {
            path: "file hard-h264-1080p8.h264 ! decode format=nv12 ! queue ! threshold ! null".into(),
            seq,
            segments,
        }
    };
    LabRun {
        label: label.into(),
        summaries: vec![queue(), decode(), inject(6.0)],
        slow_frames: vec![frame(12, 1.4), frame(97, 2.1), frame(140, 1.1), frame(33, 1.7)],
    }
}

fn the_page_has_every_picture_and_loads_nothing() {
    let page = html(&[run("this machine")]);
    for id in PICTURES {
        assert!(page.contains(&format!("<svg id=\"{id}\" role=\"img\"")), "{id}");
        assert!(page.contains(&format!("<title id=\"{id}-title\">")), "{id}");
        assert!(page.contains(&format!("<desc id=\"{id}-desc\">")), "{id}");
    }
    for loads in ["<script", "src=", "href=", "url(", "@import", "<link", "<img"] {
        assert!(!page.contains(loads), "{loads}");
    }
    assert!(page.contains("prefers-color-scheme:dark"));
    assert!(page.contains("2025-11-21 20:17 UTC"));
}

/// Returns true if `text` contains all `facts` in this order, with any text between them.
fn in_order(text: &str, facts: &[&str]) -> bool {
    let mut rest = text;
    facts.iter().all(|fact| match rest.split_once(fact) {
        Some((_, behind)) => {
            rest = behind;
            true
        }
        None => false,
    })
}

fn titles_state_the_finding() {
    let page = html(&[run("this machine")]);
    for facts in [
        &["0.11 µs", "GStreamer", "2.62 µs", "0.046×"][..],
        &["0.66×", "ffmpeg"],
        &["3.3 %", "13 paths"],
        &["16.4 ms", "54 %", "compute"],
    ] {
        assert!(page.lines().any(|line| in_order(line, facts)), "{facts:?}");
    }
}

fn text_of_a_run_is_escaped() {
    let mut run = run("<b>&\"label\"");
    run.summaries[0].rows[0].contender = "<script>alert(1)</script>".into();
    run.slow_frames[0].path = "file '<x>' ! null".into();
    let page = html(&[run]);
    assert!(!page.contains("<b>") && !page.contains("<script") && !page.contains("<x>"));
    assert!(page.contains("&lt;b&gt;&amp;&quot;label&quot;"));
    assert!(page.contains("Example CPU &lt;4&gt;"));
}

fn several_runs_are_shown_side_by_side() {
    let mut other = run("board");
    other.summaries.truncate(1);
    other.slow_frames.clear();
    let page = html(&[run("desk"), other]);
    assert!(page.contains("--runs:2"));
    assert!(page.contains("id=\"queue-sweep\"") && page.contains("id=\"queue-sweep-2\""));
    assert!(page.contains("id=\"decode-bars\"") && !page.contains("id=\"decode-bars-2\""));
    assert!(page.contains("This run has no figures for decode"));
    assert!(page.contains("desk: a / b") && page.contains("board: a / b"));
}

fn unknown_figures_are_empty_cells() {
    let mut summary = summary("decode", vec![row("clip", "inline", 1), row("clip", "bare", 1)], vec![]);
    summary.rows[0].copied_bytes_per_frame = Some(0.0);
    let text = plain::tables(&summary);
    let line = |needle: &str| text.lines().find(|l| l.contains(needle)).unwrap().to_owned();
    let copied: Vec<&str> = text.lines().skip_while(|l| !l.contains("copied B/frame")).collect();
    assert!(copied[2].ends_with('0') && copied[2].contains("inline"));
    assert!(!copied.iter().any(|l| l.contains("bare")), "a row without a figure is omitted");
    assert!(!line("copied B/frame").contains("switches"), "a column without a figure is omitted");
}

fn tables_are_aligned() {
    let text = plain::tables(&decode());
    let table: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    let heading = table[0];
    assert!(heading.starts_with("case") && heading.contains("wall ms") && heading.contains("CPU ms"));
    let rule = table[1].chars().count();
    assert!(table.iter().all(|line| line.chars().count() <= rule));
    let ratios = text.lines().position(|line| line.contains("95 % interval")).unwrap();
    let first = text.lines().nth(ratios + 2).unwrap();
    assert!(first.contains("inline / ffmpeg") && first.contains("less") && first.contains("0.66"));
}

fn findings_have_the_figures_of_the_summaries() {
    let run = run("x");
    let found = plain::findings(&run.summaries).join("\n");
    for facts in [
        &["`queue`", "0.11 µs", "64 B", "GStreamer", "2.62 µs", "0.046×", "0.045", "0.047"][..],
        &["`!`", "0.0127 µs", "64 B"],
        &["`queue`", "GStreamer", "4.8 µs", "14 µs", "0.34×"],
        &["36 µs", "84 µs", "no difference", "1.00×"],
        &["vp9-1080p8", "NV12", "0.66×", "0.65", "0.67"],
        &["vp9-1080p10", "P010"],
        &["libavcodec", "`threads=auto`", "no difference", "1.00×"],
        &["6", "10 %", "20 µs", "6 µs"],
        &["`decode`", "1.5 %"],
        &["queue: `gst-queue2`", "paced-60", "the peer has no <queue2> pacing."],
    ] {
        assert!(found.lines().any(|line| in_order(line, facts)), "{facts:?}\n\n{found}");
    }
    let aa = summary(
        "aa",
        vec![],
        vec![ratio("aa-01", "cpu_ms", "a", "b", 1.0), ratio("aa-02", "cpu_ms", "a", "b", 1.3)],
    );
    let mut encode =
        summary("encode", vec![row("720p-nv12", "raw", 1), row("720p-nv12", "memcpy", 1)], vec![]);
    for (row, us) in encode.rows.iter_mut().zip([0.05, 210.0]) {
        row.extra.insert("encode_p50_us".into(), us);
    }
    let mut loopback = summary(
        "loopback",
        vec![row("10MB", "tcp", 1)],
        vec![ratio("10MB", "throughput_mb_s", "udp-gso", "udp", 3.0)],
    );
    loopback.rows[0].extra.insert("throughput_mb_s".into(), 2210.0);
    loopback.rows[0].extra.insert("first_chunk_us".into(), 41.5);
    let found = plain::findings(&[aa, encode, loopback]);
    let facts = [
        &["1 of 2", "CPU time"][..],
        &["720p-nv12", "0.05 µs", "memcpy", "210 µs"],
        &["10MB", "`tcp`", "2210 MB/s", "41.5 µs"],
        &["10MB", "`udp-gso`", "3.00×", "`udp`", "2.94", "3.06"],
    ];
    assert_eq!(found.len(), facts.len(), "{found:#?}");
    assert!(found.iter().zip(facts).all(|(line, facts)| in_order(line, facts)), "{found:#?}");
    let mut handoff = summary("handoff", vec![row("paced-60", "iceoryx2-wait", 1)], vec![]);
    handoff.rows[0].latency_us = Some(LatencyUs { p50: 50.0, p95: 70.0, p99: 80.5, max: 90.0 });
    handoff.ratios.push(ratio("paced-60", "latency_p50_us", "process", "iceoryx2-wait", 0.5));
    let found = plain::findings(&[handoff]);
    assert!(in_order(&found[0], &["1080p", "60", "iceoryx2", "50 µs", "80.5 µs"]), "{found:#?}");
    assert!(
        in_order(&found[1], &["paced-60", "`process`", "0.50×", "iceoryx2", "0.49", "0.51"]),
        "{found:#?}"
    );
    let wrong = plain::findings(&[inject(700.0)]).join("\n");
    let facts = ["1 of 6", "10 %", "20 µs", "2 ms", "`wakeup`", "2.7 ms"];
    assert!(wrong.lines().any(|line| in_order(line, &facts)), "{wrong}");
}

fn summaries_survive_json() {
    // Figures that binary fractions represent exactly: serde_json may otherwise
    // read one back as its neighbour.
    let mut run = LabRun {
        label: "x".into(),
        summaries: vec![summary("decode", vec![row("clip", "inline", 150)], vec![])],
        slow_frames: run("x").slow_frames,
    };
    run.slow_frames[0].segments.truncate(1);
    run.slow_frames.truncate(1);
    let first = &mut run.summaries[0].rows[0];
    first.cpu_ms = Some(Spread { median: 2.5, min: 2.25, max: 3.0, ci95: None });
    first.latency_us = Some(LatencyUs { p50: 0.5, p95: 1.0, p99: 1.5, max: 2.0 });
    first.causes_us = Some(CausesUs { compute: Some(0.25), ..CausesUs::default() });
    first.extra.insert("cpu_us_per_push".into(), 0.125);
    let json = serde_json::to_string(&run).unwrap();
    assert_eq!(serde_json::from_str::<LabRun>(&json).unwrap(), run);

    // The shape of the design page, with a key of a later version.
    let text = r#"{ "experiment": "decode",
      "machine": { "cpu": "x", "cores": 2, "kernel": "6", "pmu": false, "later": [1] },
      "rows": [ { "case": "vp9-1080p8", "contender": "ffmpeg", "runs": 10, "frames": 150,
        "wall_ms": {"median":1.0,"min":0.5,"max":2}, "cpu_ms": null, "load": 1.58,
        "latency_us": {"p50":1,"p95":2,"p99":3,"max":4},
        "copied_bytes_per_frame": 0, "switches_per_frame": 1.9, "syscalls_per_frame": null,
        "causes_us": {"compute":1,"copy":2,"queue":null},
        "cpu_us_per_push": 3, "later": {"a": 1}, "later_text": "x", "later_null": null } ],
      "ratios": [ { "case": "vp9-1080p8", "metric": "cpu_ms", "a": "process", "b": "ffmpeg",
        "median": 0.71, "ci95": [0.68, 0.74], "pairs": 10 } ],
      "skipped": [ { "contender": "mpv", "reason": "not installed: apt install mpv" } ] }"#;
    let summary: Summary = serde_json::from_str(text).unwrap();
    let row = &summary.rows[0];
    assert_eq!(row.extra, BTreeMap::from([("cpu_us_per_push".to_owned(), 3.0)]));
    assert_eq!(row.figure("cpu_us_per_push"), Some(3.0));
    assert_eq!(row.figure("latency_p99_us"), Some(3.0));
    assert_eq!(row.figure("wall_ms"), Some(1.0));
    assert_eq!((row.figure("cpu_ms"), row.figure("syscalls_per_frame")), (None, None));
    assert_eq!((row.figure("cause_copy_us"), row.figure("cause_queue_us")), (Some(2.0), None));
    assert_eq!(summary.ratios[0].verdict(), framepath_model::stats::Verdict::ALess);

    // An unknown figure is written as null, under the design's names.
    let value = serde_json::to_value(&summary).unwrap();
    let row = &value["rows"][0];
    assert!(row["cpu_ms"].is_null() && row.get("cpu_ms").is_some());
    assert!(row["causes_us"]["network"].is_null());
    assert_eq!(row["cpu_us_per_push"], 3.0);
    assert_eq!(value["ratios"][0]["ci95"][1], 0.74);
}

/// Opens the page in Chromium, as a reader would, and expects every picture and no console message.
fn chromium_shows_the_pictures_without_an_error() -> Tested {
    needs_program("chromium", "chromium")?;
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    std::fs::write(&page, html(&[run("this machine")])).unwrap();
    if let Some(keep) = std::env::var_os("FRAMEPATH_KEEP_REPORT") {
        std::fs::copy(&page, &keep).unwrap();
        let two = html(&[run("desk"), run("board")]);
        std::fs::write(Path::new(&keep).with_extension("two.html"), two).unwrap();
    }
    let output = open_in_chromium(&page, dir.path());
    let dom = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    for id in PICTURES {
        assert!(dom.contains(&format!("<svg id=\"{id}\"")), "{id} is not in the page\n{log}");
    }
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
    Ok(())
}

/// Opens the page in frames of several widths, and measures the boxes of all texts of the visible pictures.
fn labels_neither_overlap_nor_leave_their_picture() -> Tested {
    /// Reports, for each frame: the width of its document, the visible pictures, and a line for each text that
    /// is cut, leaves its picture or meets another text. Boxes are taken smaller by a pixel at each edge.
    const SCRIPT: &str = r#"
        const found = [];
        for (const frame of document.querySelectorAll('iframe')) {
            const page = frame.contentDocument, width = frame.width;
            const say = (text) => found.push(width + ': ' + text);
            say('document ' + page.documentElement.scrollWidth);
            const visible = [...page.querySelectorAll('svg')].filter((svg) => svg.getBoundingClientRect().width > 0);
            say('pictures ' + visible.map((svg) => svg.id).join(' '));
            for (const svg of visible) {
                const edge = svg.getBoundingClientRect(), view = svg.viewBox.baseVal.width;
                if (edge.width < view * 0.97) say('BAD ' + svg.id + ' is drawn at ' + edge.width / view);
                const boxes = [...svg.querySelectorAll('text')].map((text) => {
                    const b = text.getBoundingClientRect();
                    return { text: text.textContent, l: b.left + 1, r: b.right - 1, t: b.top + 2, b: b.bottom - 2 };
                });
                for (const [i, a] of boxes.entries()) {
                    if (a.text.includes('…')) say('BAD ' + svg.id + ' cuts ' + a.text);
                    if (a.l < edge.left - 1 || a.r > edge.right + 1 || a.t < edge.top - 1 || a.b > edge.bottom + 1)
                        say('BAD ' + svg.id + ' is left by ' + a.text);
                    for (const b of boxes.slice(i + 1))
                        if (a.l < b.r && b.l < a.r && a.t < b.b && b.t < a.b)
                            say('BAD ' + svg.id + ': ' + a.text + ' meets ' + b.text);
                }
            }
        }
        const result = document.createElement('pre');
        result.id = 'result';
        result.textContent = found.join(String.fromCharCode(10));
        document.body.append(result);
    "#;
    needs_program("chromium", "chromium")?;
    let dir = tempfile::tempdir().unwrap();
    let report = html(&[run("this machine")]).replace('&', "&amp;").replace('"', "&quot;");
    let frames: String = [420, 800, 1400]
        .iter()
        .map(|width| format!("<iframe width={width} height=30000 srcdoc=\"{report}\"></iframe>"))
        .collect();
    let page = dir.path().join("frames.html");
    let script = format!("addEventListener('load', () => {{{SCRIPT}}});");
    std::fs::write(
        &page,
        format!("<!DOCTYPE html><meta charset=utf-8><body>{frames}<script>{script}</script>"),
    )
    .unwrap();
    let output = open_in_chromium(&page, dir.path());
    let dom = String::from_utf8_lossy(&output.stdout);
    let (_, result) = dom.split_once("<pre id=\"result\">").unwrap_or_else(|| {
        panic!("no result\n{}", String::from_utf8_lossy(&output.stderr));
    });
    let lines: Vec<&str> = result.split("</pre>").next().unwrap().lines().collect();
    let bad: Vec<&&str> = lines.iter().filter(|line| line.contains("BAD")).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    for (width, suffix) in [(420, "-narrow"), (800, "-medium"), (1400, "")] {
        assert!(lines.contains(&format!("{width}: document {width}").as_str()), "{lines:#?}");
        let ids: Vec<String> = PICTURES.iter().map(|id| format!("{id}{suffix}")).collect();
        assert!(lines.contains(&format!("{width}: pictures {}", ids.join(" ")).as_str()), "{lines:#?}");
    }
    Ok(())
}

fn each_contender_is_explained() {
    let run = run("this machine");
    let page = html(std::slice::from_ref(&run));
    for summary in &run.summaries[..2] {
        for contender in summary.contenders() {
            assert!(page.contains(&format!("<dt>{contender}</dt><dd>")), "{contender}");
        }
    }
}

fn open_in_chromium(page: &Path, dir: &Path) -> std::process::Output {
    Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--enable-logging=stderr",
            "--v=0",
            "--virtual-time-budget=2000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap_or_else(|error| panic!("chromium: {error}"))
}
