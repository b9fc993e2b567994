// SPDX-License-Identifier: MIT OR Apache-2.0
//! Known waits on a frame's way between two machines: each is on its own row, in the tables of both ends.

use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use framepath_testkit::{framepath, until, wait};
use rustix::process::{Pid, Signal, kill_process};

use crate::clip::h264;
use crate::ledgers::{CsvRow, CsvTable, number, read};
use crate::proxy::{Dropped, Proxy};
use crate::sender::{Sending, started};

/// Time for which a process is stopped.
const STOPPED: Duration = Duration::from_millis(500);
/// Time between two stops.
const PAUSE: Duration = Duration::from_millis(300);

/// Sends the packets of the path `source` to a viewer, whose path behind `recv` is `sink`; each end writes a table. `recv` has the
/// options `options`, and connects to the address that `through` returns. `meanwhile` runs when the viewer is there. Returns the
/// tables of the sender and the viewer.
fn tables(
    (source, options, sink): (&str, &str, &str),
    through: impl FnOnce(&Sending) -> Option<Proxy>,
    meanwhile: impl FnOnce(&Sending, &Child),
) -> [CsvTable; 2] {
    let folder = tempfile::tempdir().unwrap();
    let files = ["sent.csv", "received.csv"].map(|name| folder.path().join(name));
    let [sent, received] = [&files[0], &files[1]].map(|file| file.to_str().unwrap());
    let path = format!("{source} ! send listen=127.0.0.1:0 wait=1");
    let sending = started(&mut framepath(&["run", "-v", "--quiet", "--csv", sent, &path]));
    let proxy = through(&sending);
    let url = proxy.as_ref().map_or(&sending.url, |proxy| &proxy.url);
    let path = format!("recv {url} token={} timeout=60s latency=5s {options} ! {sink}", sending.token);
    let viewer = framepath(&["run", "--quiet", "--csv", received, &path]).spawn().unwrap();
    sending.until_begun();
    meanwhile(&sending, &viewer);
    wait(viewer, "recv").ended(0);
    sending.end().ended(0);
    proxy.map(Proxy::end);
    files.map(|file| read(&file))
}

/// Returns the row of a hop, by its name without the other end's.
fn row<'a>(rows: &'a [CsvRow], hop: &str) -> &'a CsvRow {
    let name = |row: &&CsvRow| {
        let text = row["stage"].split_once(": ").map_or(&*row["stage"], |(_, name)| name).to_owned();
        let first = text.split(' ').next().unwrap().to_owned();
        first == hop || hop == "packetise" && first == "send"
    };
    rows.iter().find(name).unwrap_or_else(|| panic!("{hop} in {rows:#?}"))
}

/// Checks that both tables have the same time of each hop of one machine, and returns the frames that both have: the rows of the
/// sender's table, and those of the viewer's.
fn agreed(tables: &[CsvTable; 2], hops: &[&str]) -> Vec<[Vec<CsvRow>; 2]> {
    let [sent, received] = tables;
    let whole = |rows: &Vec<CsvRow>| rows.len() == hops.len();
    let both = sent.iter().filter(|(_, rows)| whole(rows));
    let both = both.filter_map(|(seq, rows)| Some([rows, received.get(seq).filter(|rows| whole(rows))?]));
    let both: Vec<_> = both.map(|rows| rows.map(Clone::clone)).collect();
    assert!(both.len() > 5, "{} of {} and {} frames", both.len(), sent.len(), received.len());
    for [sent, received] in &both {
        for hop in hops.iter().filter(|hop| **hop != "wire") {
            let walls = [sent, received].map(|rows| number(row(rows, hop), "wall_ns"));
            assert_eq!(walls[0], walls[1], "{hop}: {sent:#?} {received:#?}");
        }
    }
    both
}

/// Returns the time of a row with a cause, nanoseconds.
fn cause(row: &CsvRow, column: &str) -> u64 {
    if row[column].is_empty() { 0 } else { number(row, column) }
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Returns the processes that the process `pid` has started.
fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// Stops processes for a while.
fn stop(pids: &[u32]) {
    let signal = |signal| {
        for pid in pids {
            // A worker may have ended.
            let _ = kill_process(Pid::from_raw(*pid as i32).unwrap(), signal);
        }
    };
    signal(Signal::STOP);
    sleep(STOPPED);
    signal(Signal::CONT);
}

pub fn a_wait_in_the_encoder_is_on_its_row() {
    const STOPS: usize = 4;
    // The thread of the path is in the encoder almost always.
    let source = "test size=848x480 format=yuv420p frames=150 ! encode h264 crf=30 preset=medium threads=1";
    let stops = |sending: &Sending, _: &Child| {
        for _ in 0..STOPS {
            sleep(PAUSE);
            stop(&[sending.pid()]);
        }
    };
    let tables = tables((source, "", "null"), |_| None, stops);
    let hops = ["test", "encode", "packetise", "pace", "wire", "reassemble", "jitter", "recv", "null"];
    let frames = agreed(&tables, &hops);
    let stopped: Vec<_> =
        frames.iter().filter(|[sent, _]| number(row(sent, "encode"), "wall_ns") >= ns(STOPPED)).collect();
    assert!(!stopped.is_empty(), "{frames:#?}");
}

pub fn a_wait_in_the_decoder_is_on_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let source = format!("file {} rate=25", clip.display());
    let stops = |_: &Sending, viewer: &Child| {
        let workers = || children(viewer.id()).into_iter().flat_map(children).collect::<Vec<u32>>();
        until("the decoder has a worker", || !workers().is_empty());
        sleep(PAUSE);
        stop(&workers());
    };
    let tables = tables((&source, "", "decode host=process threads=1 ! null"), |_| None, stops);
    let hops = ["file", "packetise", "pace", "wire", "reassemble", "jitter", "recv", "decode", "null"];
    let frames = agreed(&tables, &hops);
    // The first packet of this time came up to a frame interval later.
    let least_ns = ns(STOPPED) - 100_000_000;
    assert!(frames.iter().any(|[sent, _]| number(row(sent, "decode"), "wall_ns") >= least_ns), "{frames:#?}");
}

pub fn a_wait_in_the_network_is_on_its_row() {
    const DELAY: Duration = Duration::from_millis(40);
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let source = format!("file {} rate=25", clip.display());
    let through = |sending: &Sending| Some(Proxy::late(sending.port, DELAY, Dropped::Nothing));
    let tables = tables((&source, "", "null"), through, |_, _| ());
    let hops = ["file", "packetise", "pace", "wire", "reassemble", "jitter", "recv", "null"];
    let frames = agreed(&tables, &hops);
    for (end, error) in [(0, "viewer"), (1, "sender")] {
        let mut waits: Vec<u64> = Vec::new();
        for rows in frames.iter().map(|frame| &frame[end]) {
            let wire = row(rows, "wire");
            let [waited_ns, error_ns] = [cause(wire, "network_ns"), number(wire, "clock_error_ns")];
            assert!(waited_ns + error_ns >= ns(DELAY), "{error}: {rows:#?}");
            waits.push(waited_ns);
        }
        waits.sort_unstable();
        // The error is that of the pings, half of the way there and back. Their real difference is far smaller.
        assert!(waits[waits.len() / 2] >= ns(DELAY) / 2, "{error}: {waits:?}");
    }
}

pub fn a_wait_in_the_jitter_buffer_is_on_its_row() {
    // Two frame intervals.
    const DEPTH: Duration = Duration::from_millis(80);
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let source = format!("file {} rate=25", clip.display());
    let tables = tables((&source, "jitter=2", "null"), |_| None, |_, _| ());
    let hops = ["file", "packetise", "pace", "wire", "reassemble", "jitter", "recv", "null"];
    let frames = agreed(&tables, &hops);
    for end in [0, 1] {
        let kept = |rows: &[CsvRow]| {
            let [reassembly, jitter, source] = ["reassemble", "jitter", "recv"].map(|hop| row(rows, hop));
            assert_eq!(cause(jitter, "paced_ns"), number(jitter, "wall_ns"), "{rows:#?}");
            assert_eq!((cause(reassembly, "paced_ns"), cause(source, "paced_ns")), (0, 0), "{rows:#?}");
            // The buffer counts from the arrival.
            number(jitter, "leave_ns") - number(reassembly, "enter_ns")
        };
        let kept: Vec<u64> = frames.iter().map(|frame| kept(&frame[end])).collect();
        // A late frame is kept for the rest; the earliest one is not late.
        assert!(kept.iter().any(|ns| *ns >= self::ns(DEPTH)), "{kept:?}");
        let paced = frames.iter().map(|frame| cause(row(&frame[end], "jitter"), "paced_ns"));
        assert!(paced.max() >= Some(ns(DEPTH) / 2), "{frames:#?}");
    }
}

pub fn a_wait_for_earlier_packets_is_on_the_row_of_the_reassembly() {
    // A packet of a later frame, because the first frames wait for the first pings.
    const LOST: usize = 80;
    const DELAY: Duration = Duration::from_millis(40);
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let source = format!("file {} rate=40 loop=2", clip.display());
    // The packet comes again at least twice this time later; meanwhile, later frames arrive.
    let through = |sending: &Sending| Some(Proxy::late(sending.port, DELAY, Dropped::FirstOf(LOST)));
    let tables = tables((&source, "jitter=0", "null"), through, |_, _| ());
    let hops = ["file", "packetise", "pace", "wire", "reassemble", "jitter", "recv", "null"];
    agreed(&tables, &hops);
    let [sent, received] = &tables;
    let arrival = |table: &CsvTable, seq: usize| {
        table
            .get(&(seq as u64))
            .filter(|rows| rows.len() == hops.len())
            .map(|rows| number(row(rows, "reassemble"), "enter_ns"))
    };
    for (table, end) in [(received, "viewer"), (sent, "sender")] {
        let lost_ns = arrival(table, LOST).unwrap_or_else(|| panic!("{end}: frame {LOST} is not whole"));
        let mut behind = 0;
        for seq in LOST + 1..LOST + 8 {
            let Some(waited_ns) = arrival(table, seq).and_then(|ns| lost_ns.checked_sub(ns)) else {
                continue;
            };
            let reassembly = row(&table[&(seq as u64)], "reassemble");
            assert!(cause(reassembly, "wakeup_ns") >= waited_ns, "{end}: {waited_ns} {reassembly:#?}");
            behind += u64::from(waited_ns > 0);
        }
        assert!(behind > 0, "{end}: no frame arrived before the lost one");
    }
}

pub fn a_wait_for_the_pace_is_on_its_row() {
    // Of a stream whose bandwidth is not estimated, so many bytes leave at once, and the rest at this pace.
    const AT_ONCE: u64 = 64_000 + 16_000 + 2_000;
    const NS_PER_BYTE: f64 = 8e9 / 256e6;
    let folder = tempfile::tempdir().unwrap();
    let clip = crate::clip::large(folder.path());
    let source = format!("file {} rate=4", clip.display());
    let tables = tables((&source, "", "null"), |_| None, |_, _| ());
    let hops = ["file", "packetise", "pace", "wire", "reassemble", "jitter", "recv", "null"];
    for [sent, received] in agreed(&tables, &hops) {
        for rows in [&sent, &received] {
            let [packetise, pace] = ["packetise", "pace"].map(|hop| row(rows, hop));
            // The bytes are copied twice. While the packets wait, others are encrypted, which is in the row in front.
            let bytes = number(packetise, "copied_bytes") / 2;
            assert!(bytes > 2 * AT_ONCE, "{rows:#?}");
            let least_ns = ((bytes - AT_ONCE) as f64 * NS_PER_BYTE) as u64;
            let encrypted_ns = number(packetise, "wall_ns");
            assert!(cause(pace, "paced_ns") + encrypted_ns >= least_ns, "{least_ns}: {rows:#?}");
        }
    }
}
