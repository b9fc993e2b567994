// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decoder in `playbin3`, which chooses it by its rank, while its workers are killed. In a program of its own, because all of the
//! program's workers are killed.

mod support;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use gst::prelude::*;
use support::{clips, decoded, init, note, play, taken};

/// Returns the workers of this process, spare ones too.
fn workers() -> Vec<i32> {
    let own = std::process::id().to_string();
    let is_worker = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit(") ").next().unwrap_or_default().split(' ').nth(1).map(str::to_owned);
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        parent.as_deref() == Some(own.as_str())
            && command.split(|byte| *byte == 0).any(|argument| argument == b"framepath-worker")
    };
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_worker(*pid)).collect()
}

#[test]
fn a_hundred_kills_cost_no_frame_and_no_message() {
    init();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.h264");
    std::fs::write(&file, std::fs::read(clips().join("h264-180p8-high.h264")).unwrap().repeat(140)).unwrap();
    let (expected, texts) = decoded(&file, "h264parse ! avdec_h264");
    assert!(texts.is_empty() && expected.len() == 4_200, "{texts:?} {}", expected.len());

    gst::ElementFactory::find("framepathdec").unwrap().set_rank(gst::Rank::PRIMARY + 1000);
    let sink = gst::ElementFactory::make("fakesink").property("sync", false).build().unwrap();
    let player = gst::ElementFactory::make("playbin3").build().unwrap();
    player.set_property("uri", format!("file://{}", file.display()));
    player.set_property("video-sink", &sink);
    let frames = note(&sink);
    // Frames since the last kill, kills, processes.
    let killed = Arc::<Mutex<(usize, usize, HashSet<i32>)>>::default();
    let kills = killed.clone();
    sink.static_pad("sink").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        let mut kills = kills.lock().unwrap();
        kills.0 += 1;
        // Five frames later at the earliest; later if no new worker has started yet.
        if kills.0 >= 5 && kills.1 < 110 {
            let mut pids = workers();
            // A killed one takes a moment to end.
            pids.retain(|pid| !kills.2.contains(pid));
            // SAFETY: a call without memory; the processes are children of this one that it has not waited for.
            pids.iter().for_each(|pid| assert_eq!(unsafe { libc::kill(*pid, libc::SIGKILL) }, 0));
            if !pids.is_empty() {
                kills.0 = 0;
                kills.1 += 1;
                kills.2.extend(pids);
            }
        }
        gst::PadProbeReturn::Ok
    });
    let texts = play(player.downcast_ref().unwrap());
    let used = player.downcast_ref::<gst::Bin>().unwrap().iterate_recurse().into_iter().flatten();
    let used = used.filter(|element| element.factory().is_some_and(|of| of.name() == "framepathdec")).count();
    player.set_state(gst::State::Null).unwrap();
    let kills = killed.lock().unwrap();
    assert!(texts.is_empty() && used == 1, "{texts:?} {used}");
    assert!(kills.1 >= 100 && kills.2.len() >= 100, "{} kills of {} processes", kills.1, kills.2.len());
    let pixels = |frames: &[support::NotedFrame]| frames.iter().map(|frame| frame.hash).collect::<Vec<_>>();
    assert!(pixels(&taken(&frames)) == pixels(&expected));
}
