// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `ffmpeg` command.

use std::fs;

use framepath_testkit::harness::Tested;
use framepath_testkit::{clip, ffmpeg, md5_lines, run};
use tempfile::TempDir;

use crate::{needs_bpf, stages, trace, trace_at};

pub(crate) fn every_frame_of_every_clip_is_seen_and_the_output_is_the_same() -> Tested {
    needs_bpf()?;
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("md5");
    let output = output.to_str().unwrap();
    for name in [
        "h264-180p8-container.mp4",
        "h264-180p8-high.h264",
        "h264-resize-180p8.h264",
        "hevc-180p8-container.mkv",
        "hevc-180p10.hevc",
        "vp8-180p8-container.webm",
        "vp9-resize-180p8.ivf",
        "av1-180p8-container.mp4",
    ] {
        let file = clip(name);
        let wanted = md5_lines(&String::from_utf8(ffmpeg(&["-i", &file, "-f", "framemd5", "-"])).unwrap());
        for threads in
            [&["-threads", "1"][..], &["-threads", "3"], &["-threads", "3", "-thread_type", "slice"]]
        {
            let command = ["ffmpeg", "-v", "error", "-y"];
            let figures = trace(&[&command, threads, &["-i", &file, "-f", "framemd5", output]].concat());
            assert_eq!(md5_lines(&fs::read_to_string(output).unwrap()), wanted, "{name} {threads:?}");
            let rows = figures["rows"].as_array().unwrap();
            assert_eq!(rows.len(), 1, "{name} {threads:?}");
            assert_eq!(rows[0]["frames"].as_u64(), Some(wanted.len() as u64), "{name} {threads:?}");
            assert_eq!(figures["trace"]["ambiguous"], 0, "{name} {threads:?}");
        }
    }
    Ok(())
}

pub(crate) fn the_probes_of_older_kernels_see_the_same() -> Tested {
    needs_bpf()?;
    let file = clip("hevc-180p8-container.mkv");
    // Not the count of probes: those of windows come with their mapping, and a short program may have ended by then.
    let seen = ["best", "events"].map(|probes| {
        let figures = trace_at("bpf", probes, &["ffmpeg", "-v", "error", "-i", &file, "-f", "null", "-"]);
        let row = &figures["rows"][0];
        let names: Vec<String> = stages(row).into_iter().map(str::to_owned).collect();
        (row["frames"].as_u64(), names)
    });
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].0, Some(30));
    Ok(())
}

pub(crate) fn the_stages_are_those_of_the_command() -> Tested {
    needs_bpf()?;
    let file = clip("h264-180p8-container.mp4");
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("out.avi");
    let convert = ["-vf", "scale=160:-2,hflip", "-c:v", "mpeg4", "-threads", "1", output.to_str().unwrap()];
    let figures = trace(&[&["ffmpeg", "-v", "error", "-i", &file], &convert[..]].concat());
    let row = &figures["rows"][0];
    assert_eq!(
        stages(row),
        ["demux mov", "decode h264", "filter scale,hflip", "encode mpeg4", "mux avi"],
        "{figures}"
    );
    // Each stage has worked, and each has all frames.
    for hop in row["hops"].as_array().unwrap() {
        assert!(hop["causes_us"]["compute"].as_f64().unwrap() > 0.0, "{hop}");
        assert_eq!(hop["frames"], row["frames"], "{hop}");
        assert!(hop["copied_bytes_per_frame"].is_null(), "{hop}");
    }
    // Each thread of a command has its CPU clock, an observer beside the switch records.
    for thread in figures["trace"]["threads"].as_array().unwrap() {
        assert!(thread["clock_ns"].as_u64().is_some_and(|ns| ns > 0), "{thread}");
    }
    // The decoder is in the second row, and dav1d's threads are its own.
    let figures = trace(&["ffmpeg", "-v", "error", "-i", &clip("av1-180p8.ivf"), "-f", "null", "-"]);
    let decode = &figures["rows"][0]["hops"][1];
    assert_eq!(decode["hop"], "decode libdav1d");
    assert!(decode["causes_us"]["pool"].as_f64().unwrap() > 0.0, "{decode}");
    Ok(())
}

pub(crate) fn the_programs_of_a_shell_command_have_streams_of_their_own() -> Tested {
    needs_bpf()?;
    let file = clip("h264-180p8-container.mp4");
    let pipe = format!(
        "ffmpeg -v error -i '{file}' -f rawvideo - | ffmpeg -v error -f rawvideo -s 320x180 -i - -f null -"
    );
    let figures = trace(&["sh", "-c", &pipe]);
    let rows = figures["rows"].as_array().unwrap();
    let mut decoders: Vec<&str> = rows.iter().map(|row| stages(row)[1]).collect();
    decoders.sort_unstable();
    let names: Vec<&str> = rows.iter().map(|row| row["contender"].as_str().unwrap()).collect();
    assert_eq!(names, ["demux to mux", "demux to mux (2)"]);
    assert_eq!(decoders, ["decode h264", "decode rawvideo"]);
    assert!(rows.iter().all(|row| row["frames"] == 30), "{rows:?}");
    Ok(())
}

pub(crate) fn each_output_of_a_program_has_its_own_way() -> Tested {
    needs_bpf()?;
    let file = clip("h264-180p8-container.mp4");
    let folder = TempDir::new().unwrap();
    let [first, second] = ["first.avi", "second.avi"].map(|name| folder.path().join(name));
    let [first, second] = [&first, &second].map(|path| path.to_str().unwrap());
    // Three ends of one graph, one of them with a third of the frames; two graphs; one graph that changes nothing, and two
    // encoders.
    let split = "split=3[a][b][c];[a]scale=100:100[d];[b]fps=10[e]";
    let outputs = [
        &["-filter_complex", split, "-map", "[d]", "-c:v", "mpeg4", first, "-map", "[c]", "-c:v", "huffyuv"]
            [..],
        &["-pix_fmt", "yuv422p", second, "-map", "[e]", "-f", "null", "-"],
    ]
    .concat();
    let two_graphs = ["-vf", "scale=100:100", "-c:v", "mpeg4", first, "-vf", "hflip", "-f", "null", "-"];
    let no_graphs = ["-c:v", "mpeg4", first, "-c:v", "mpeg2video", second];
    let all = [
        (&outputs[..], &[("mpeg4", 30), ("huffyuv", 30), ("wrapped_avframe", 10)][..]),
        (&two_graphs, &[("mpeg4", 30), ("wrapped_avframe", 30)]),
        (&no_graphs, &[("mpeg4", 30), ("mpeg2video", 30)]),
    ];
    for (outputs, wanted) in all {
        for threads in ["1", "3"] {
            let command = ["ffmpeg", "-v", "error", "-y", "-threads", threads, "-i", &file];
            let figures = trace(&[&command, outputs].concat());
            let encoder = |row: &serde_json::Value| {
                stages(row).into_iter().find_map(|stage| stage.strip_prefix("encode ").map(str::to_owned))
            };
            let mut seen: Vec<(String, u64)> = (figures["rows"].as_array().unwrap().iter())
                .map(|row| (encoder(row).unwrap(), row["frames"].as_u64().unwrap()))
                .collect();
            let mut wanted: Vec<(String, u64)> =
                wanted.iter().map(|(name, frames)| ((*name).to_owned(), *frames)).collect();
            seen.sort();
            wanted.sort();
            assert_eq!(seen, wanted, "{outputs:?} {figures}");
            assert_eq!(figures["trace"]["ambiguous"], 0, "{outputs:?}");
        }
    }
    Ok(())
}

pub(crate) fn all_outputs_have_the_frames() -> Tested {
    needs_bpf()?;
    let folder = TempDir::new().unwrap();
    let [csv, perfetto, page] = ["csv", "json", "html"].map(|end| folder.path().join(format!("trace.{end}")));
    let file = clip("h264-180p8-container.mp4");
    let name = |path: &std::path::PathBuf| path.to_str().unwrap().to_owned();
    let outputs = ["--csv", &name(&csv), "--perfetto", &name(&perfetto), "--report", &name(&page)];
    let command = ["--", "ffmpeg", "-v", "error", "-i", &file, "-f", "null", "-"];
    let ran = run(&[&["trace", "--level", "bpf"], &outputs[..], &command].concat()).ended(0);
    ran.prints("30 frames; latency (demux to mux) p50").prints("decode h264");
    let csv = fs::read_to_string(csv).unwrap();
    assert_eq!(csv.lines().count(), 1 + 30 * 5, "a line for each frame and stage");
    let trace: serde_json::Value = serde_json::from_str(&fs::read_to_string(perfetto).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let slices = events.iter().filter(|event| event["ph"] == "X" && event["name"] == "decode h264");
    assert!(slices.count() >= 30);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("decode h264") && page.contains("sampled: instructions of"), "{page}");
    Ok(())
}

pub(crate) fn a_gate_checks_the_figures_of_a_trace() -> Tested {
    needs_bpf()?;
    let folder = TempDir::new().unwrap();
    let [json, budgets] = ["trace.json", "budgets.toml"].map(|name| folder.path().join(name));
    let [json, budgets] = [&json, &budgets].map(|path| path.to_str().unwrap());
    let file = clip("h264-180p8-container.mp4");
    let command = ["--", "ffmpeg", "-v", "error", "-i", &file, "-f", "null", "-"];
    run(&[&["trace", "--level", "bpf", "--quiet", "--json", json], &command[..]].concat()).ended(0);
    let budget = |frames: u32| {
        format!(
            "[[budget]]\nname = \"frames of the decoder\"\nexperiment = \"trace\"\ncase = \"ffmpeg\"\n\
             metric = \"hops[decode].frames\"\ncontender = \"demux to mux\"\nmax_count = {frames}\n"
        )
    };
    fs::write(budgets, budget(30)).unwrap();
    run(&["gate", budgets, json]).ended(0).shows("frames of the decoder");
    fs::write(budgets, budget(29)).unwrap();
    run(&["gate", budgets, json]).ended(1).shows("FAIL");
    Ok(())
}

pub(crate) fn a_part_of_the_way_begins_with_its_first_stage() -> Tested {
    needs_bpf()?;
    let file = clip("h264-180p8-container.mp4");
    let command = ["--", "ffmpeg", "-v", "error", "-i", &file, "-f", "null", "-"];
    let part = |limits: &[&str]| {
        let ran = run(&[&["trace", "--level", "bpf", "--quiet", "--json", "-"], limits, &command].concat())
            .ended(0);
        serde_json::from_str::<serde_json::Value>(&ran.stdout).unwrap()
    };
    let figures = part(&["--from", "decode", "--to", "filter"]);
    let row = &figures["rows"][0];
    assert_eq!((stages(row), &row["contender"]), (vec!["decode h264", "filter"], &"decode to filter".into()));
    assert_eq!(row["frames"], 30);
    let figures = part(&["--from", "encode", "--to", "decode"]);
    assert_eq!(figures["rows"], serde_json::json!([]));
    let note = figures["notes"][0].as_str().unwrap();
    assert!(note.starts_with("no frame was seen between the named stages"), "{note}");
    Ok(())
}

pub(crate) fn a_paced_output_and_a_slow_reader_are_told_apart() -> Tested {
    needs_bpf()?;
    // The reader sleeps before it reads: the writer's frames wait in write(2) once the pipe is full.
    let slow =
        "ffmpeg -v error -f lavfi -i testsrc=d=1:s=640x360 -f rawvideo - | { sleep 0.2; cat; } >/dev/null";
    let figures = trace(&["sh", "-c", slow]);
    let mux = figures["rows"][0]["hops"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(mux["hop"], "mux rawvideo");
    let text = run(&["trace", "--level", "bpf", "--", "sh", "-c", slow]).ended(0);
    // The other waits of the line, such as locks, depend on the load of the machine.
    let blocked = text.stderr.lines().find(|line| line.starts_with("blocked, mean per frame: "));
    assert!(blocked.is_some_and(|line| line.contains("write to pipe")), "{}", text.stderr);
    Ok(())
}
