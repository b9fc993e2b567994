// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger as a trace for Perfetto: the properties that its viewer relies on, and the figures in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use framepath::export::trace;
use framepath::ledger::{Cause, SpanPlace, flag};
use framepath::{HelperKind, Level, Report};
use framepath_testkit::clip;
use framepath_testkit::pipeline::{at, run};
use serde_json::Value;

const PLAIN: &str = "test size=64x48 format=grey frames=20 ! queue depth=2 ! encode raw ! null";

/// A trace as a viewer reads it.
struct Trace(Vec<Value>);

impl Trace {
    fn of(report: &Report) -> Trace {
        let mut bytes = Vec::new();
        trace::write(report, &mut bytes).unwrap();
        let trace: Value = serde_json::from_slice(&bytes).expect("a trace is JSON");
        Trace(trace["traceEvents"].as_array().expect("a list of events").clone())
    }

    fn of_phase<'a>(&'a self, phases: &'a [&str]) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(|event| phases.contains(&event["ph"].as_str().unwrap()))
    }

    /// Returns the name of each track of a thread, decoder thread or worker.
    fn tracks(&self) -> BTreeMap<u64, String> {
        let names = self.of_phase(&["M"]).filter(|event| event["name"] == "thread_name");
        names.map(|event| (event["tid"].as_u64().unwrap(), text(&event["args"]["name"]))).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// Converts a time in microseconds to nanoseconds as Perfetto does: without rounding.
fn ns(value: &Value) -> u64 {
    (value.as_f64().filter(|us| *us >= 0.0).expect("a time") * 1000.0) as u64
}

/// Returns the names that slices of each hop may have.
fn hop_names(report: &Report) -> BTreeSet<String> {
    let hops = report.hops.iter().enumerate();
    hops.flat_map(|(at, hop)| [hop.text.clone(), format!("{} (hop {at})", hop.text)]).collect()
}

/// Checks all properties that hold for every trace.
fn check_trace(report: &Report) -> Trace {
    let trace = Trace::of(report);
    check_tracks(report, &trace);
    check_slices(report, &trace);
    check_bars(report, &trace);
    check_counters(report, &trace);
    check_flows(report, &trace);
    trace
}

fn check_tracks(report: &Report, trace: &Trace) {
    let tracks = trace.tracks();
    let numbers: Vec<u64> = tracks.keys().copied().collect();
    assert_eq!(numbers, (1..=(report.threads.len() + report.helpers.len()) as u64).collect::<Vec<_>>());
    assert_eq!(tracks.values().collect::<BTreeSet<_>>().len(), tracks.len(), "a name twice: {tracks:?}");
    assert_eq!(trace.of_phase(&["M"]).filter(|event| event["name"] == "process_name").count(), 1);
}

/// Checks that each stretch of work is a slice with the name of its hop, and that the slices of a track do not
/// overlap.
fn check_slices(report: &Report, trace: &Trace) {
    let is_whole = |row: &&framepath::ledger::Row| !row.has(flag::LINK) && !row.has(flag::SPLIT);
    let whole = report.rows.iter().filter(is_whole).count();
    let parts = report.spans.iter().filter(|span| !matches!(span.place, SpanPlace::Inside(_))).count();
    assert_eq!(trace.of_phase(&["X"]).count(), whole + parts);
    let (names, tracks) = (hop_names(report), trace.tracks());
    let mut of_track: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for slice in trace.of_phase(&["X"]) {
        assert!(names.contains(&text(&slice["name"])), "{slice}");
        assert!(slice["args"]["frame"].is_u64(), "{slice}");
        let (track, start_ns) = (slice["tid"].as_u64().unwrap(), ns(&slice["ts"]));
        assert!(tracks.contains_key(&track), "{slice}");
        of_track.entry(track).or_default().push((start_ns, start_ns + ns(&slice["dur"])));
    }
    for (track, mut slices) in of_track {
        slices.sort_unstable();
        let crossing = slices.windows(2).find(|pair| pair[1].0 < pair[0].1);
        assert_eq!(crossing, None, "track {track} ({})", tracks[&track]);
    }
}

/// Checks that every begin of a bar has its end, that the outer bars are hops and the inner ones causes or
/// helpers, and that each frame in a link has its bar.
fn check_bars(report: &Report, trace: &Trace) {
    let names = hop_names(report);
    let mut open: HashMap<String, Vec<(String, u64)>> = HashMap::new();
    let mut bars: BTreeMap<String, usize> = BTreeMap::new();
    for event in trace.of_phase(&["b", "e"]) {
        let stack = open.entry(text(&event["id2"]["local"])).or_default();
        let (name, at_ns) = (text(&event["name"]), ns(&event["ts"]));
        if event["ph"] == "e" {
            let (begun, since_ns) = stack.pop().unwrap_or_else(|| panic!("an end without a begin: {event}"));
            assert_eq!(begun, name, "{event}");
            assert!(since_ns <= at_ns, "{event}");
            continue;
        }
        if let Some((_, since_ns)) = stack.last() {
            let is_cause = framepath::ledger::CAUSES.iter().any(|cause| cause.name() == name);
            assert!(is_cause || name.starts_with("decoder thread ") || name.starts_with("worker"), "{event}");
            assert!(*since_ns <= at_ns, "{event}");
        } else {
            assert!(names.contains(&name), "{event}");
            *bars.entry(name.clone()).or_default() += 1;
        }
        stack.push((name, at_ns));
    }
    assert!(open.values().all(Vec::is_empty), "a begin without an end");
    let mut links: BTreeMap<String, usize> = BTreeMap::new();
    for row in report.rows.iter().filter(|row| row.has(flag::LINK)) {
        let name = |name: &String| bars.contains_key(name);
        let hop = &report.hops[usize::from(row.hop)].text;
        let names = [hop.clone(), format!("{hop} (hop {})", row.hop)];
        *links.entry(names.iter().find(|n| name(n)).expect("a bar").clone()).or_default() += 1;
    }
    for (name, frames) in links {
        assert_eq!(bars[&name], frames, "{name}");
    }
}

/// Checks each counter against the order in which frames entered and left its queue.
fn check_counters(report: &Report, trace: &Trace) {
    let start_ns = report.rows.iter().map(|row| row.enter_ns);
    let start_ns = start_ns.chain(report.spans.iter().map(|span| span.start_ns)).min().unwrap_or(0);
    let mut counters: BTreeMap<String, Vec<(u64, i64)>> = BTreeMap::new();
    for event in trace.of_phase(&["C"]) {
        let value = event["args"]["frames waiting"].as_i64().expect("a number of frames");
        counters.entry(text(&event["name"])).or_default().push((ns(&event["ts"]), value));
    }
    let links: Vec<u16> =
        (0..report.hops.len() as u16).filter(|hop| report.hops[usize::from(*hop)].link).collect();
    let rows_of = |hop: u16| report.rows.iter().filter(move |row| row.hop == hop && row.has(flag::LINK));
    let with_rows: Vec<u16> = links.into_iter().filter(|hop| rows_of(*hop).count() > 0).collect();
    assert_eq!(counters.len(), with_rows.len());
    for hop in with_rows {
        let own = &report.hops[usize::from(hop)].text;
        let values = counters.get(own).unwrap_or_else(|| &counters[&format!("{own} (hop {hop})")]);
        let mut times: Vec<u64> = rows_of(hop).flat_map(|row| [row.enter_ns, row.leave_ns]).collect();
        times.sort_unstable();
        times.dedup();
        let waiting = |at: u64| {
            let entered = rows_of(hop).filter(|row| row.enter_ns <= at).count();
            let left = rows_of(hop).filter(|row| row.leave_ns <= at).count();
            (at - start_ns, entered as i64 - left as i64)
        };
        assert_eq!(*values, times.into_iter().map(waiting).collect::<Vec<_>>(), "{own}");
        assert_eq!(values.last().map(|(_, frames)| *frames), Some(0), "{own}");
    }
}

/// Checks that each frame with two slices on its way to a sink has one arrow to this sink: a start, steps, and an
/// end, each at the start of a slice of the frame. Ids are numbers, because Perfetto ignores others.
fn check_flows(report: &Report, trace: &Trace) {
    let mut flows: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for event in trace.of_phase(&["s", "t", "f"]) {
        flows.entry(event["id"].as_u64().expect("a number")).or_default().push(event);
    }
    let starts: HashMap<(u64, u64), Vec<u64>> =
        trace.of_phase(&["X"]).fold(HashMap::new(), |mut starts, slice| {
            let key = (slice["tid"].as_u64().unwrap(), ns(&slice["ts"]));
            starts.entry(key).or_default().push(slice["args"]["frame"].as_u64().unwrap());
            starts
        });
    let mut followed = 0;
    for (id, steps) in &flows {
        let phases: String = steps.iter().map(|step| text(&step["ph"])).collect();
        assert!(phases.starts_with('s') && phases.ends_with('f'), "flow {id}: {phases}");
        assert_eq!(phases[1..phases.len() - 1].replace('t', ""), "", "flow {id}: {phases}");
        assert!(steps.windows(2).all(|w| ns(&w[0]["ts"]) <= ns(&w[1]["ts"])), "flow {id}");
        let frames = steps.iter().map(|step| {
            let key = (step["tid"].as_u64().unwrap(), ns(&step["ts"]));
            starts.get(&key).unwrap_or_else(|| panic!("no slice starts at {step}")).iter().copied()
        });
        let common = frames.map(|frames| frames.collect::<BTreeSet<u64>>()).reduce(|a, b| &a & &b);
        assert!(common.is_some_and(|frames| !frames.is_empty()), "flow {id} joins slices of two frames");
        followed += 1;
    }
    let hops = report.hop_tree();
    let mut expected = 0;
    for end in hops.leaves() {
        let way = hops.way_to(end);
        let mut slices: HashMap<u64, usize> = HashMap::new();
        let is_work = |row: &&framepath::ledger::Row| !row.has(flag::LINK) && !row.has(flag::SPLIT);
        let rows = report.rows.iter().filter(is_work).map(|row| (row.hop, row.seq));
        let spans = report.spans.iter().filter(|span| !matches!(span.place, SpanPlace::Inside(_)));
        for (hop, seq) in rows.chain(spans.map(|span| (span.hop, span.seq))) {
            *slices.entry(seq).or_default() += usize::from(way[usize::from(hop)]);
        }
        expected += slices.values().filter(|slices| **slices > 1).count();
    }
    assert_eq!(followed, expected);
}

#[test]
fn traces_of_frames_open() {
    for level in [Level::Off, Level::Times, Level::Full] {
        check_trace(&run(PLAIN, &at(level)));
        check_trace(&run("test size=64x48 frames=10 ! null", &at(level)));
    }
}

#[test]
fn hops_with_the_same_text_have_tracks_of_their_own() {
    let report = run("test size=16x16 frames=30 ! queue ! encode raw ! queue ! null", &at(Level::Times));
    let trace = check_trace(&report);
    let counters: BTreeSet<String> = trace.of_phase(&["C"]).map(|event| text(&event["name"])).collect();
    assert_eq!(counters.iter().collect::<Vec<_>>(), ["queue (hop 1)", "queue (hop 3)"]);
}

#[test]
fn traces_of_branches_open() {
    let text = "test size=16x16 frames=30 ! tee ( queue depth=2 ! null ) ( encode raw ! null )";
    check_trace(&run(text, &at(Level::Full)));
}

#[test]
fn traces_with_drops_open() {
    for leaky in ["upstream", "downstream"] {
        let text =
            format!("test size=16x16 frames=100 ! queue depth=2 leaky={leaky} ! block time=200us ! null");
        let report = run(&text, &at(Level::Full));
        assert!(report.dropped > 0);
        let trace = check_trace(&report);
        let dropped = trace.of_phase(&["b"]).filter(|event| event["args"]["dropped"] == true).count();
        assert_eq!(dropped as u64, report.dropped);
    }
}

/// Checks traces of frames that leave a decoder late and in another order.
#[test]
fn traces_of_decoders_open() {
    for name in ["h264-180p8-high.h264", "vp8-180p8-container.webm", "vp9-180p8.ivf", "av1-180p8.ivf"] {
        for threads in ["1", "4"] {
            for link in ["", "! queue depth=3 "] {
                for level in [Level::Times, Level::Full] {
                    let text = format!("file {} ! decode threads={threads} {link}! null", clip(name));
                    check_trace(&run(&text, &at(level)));
                }
            }
        }
    }
}

/// Checks that each picture of a decoder with frame threads is one slice of a thread's track, and that the slices
/// and bars of the frame have the times of its row.
#[test]
fn each_frame_thread_has_a_track_with_its_pictures() {
    let text = format!("file {} ! decode threads=3 ! null", clip("h264-180p8-high.h264"));
    let report = run(&text, &at(Level::Full));
    let trace = check_trace(&report);
    let threads = report.helpers.iter().filter(|helper| helper.kind == HelperKind::DecoderThread).count();
    let tracks = trace.tracks();
    let named: Vec<u64> =
        tracks.iter().filter(|(_, name)| name.contains("decoder thread")).map(|(tid, _)| *tid).collect();
    assert_eq!(named.len(), threads);
    if report.rows.iter().any(|row| row.pool_ns > 0) {
        // The kernel refuses switch records here, and so the begin and end of a picture are not known.
        assert_eq!(threads, 0);
        return;
    }
    assert_eq!(threads, 3);
    let pictures: Vec<u64> = trace
        .of_phase(&["X"])
        .filter(|slice| named.contains(&slice["tid"].as_u64().unwrap()))
        .map(|slice| slice["args"]["frame"].as_u64().unwrap())
        .collect();
    assert_eq!(pictures.len() as u64, report.frames);
    assert_eq!(pictures.iter().collect::<BTreeSet<_>>().len(), pictures.len());
    for row in report.rows.iter().filter(|row| row.hop == 1) {
        let spans = || report.spans.iter().filter(|span| (span.hop, span.seq) == (1, row.seq));
        let wait = |cause| {
            let own = spans().filter(|span| span.place == SpanPlace::Inside(cause));
            own.map(|span| span.end_ns - span.start_ns).sum::<u64>()
        };
        assert_eq!(wait(Cause::Wakeup), row.wakeup_ns);
        assert!(wait(Cause::Held) >= row.held_ns, "the thread's own work is part of the bar");
        let work = spans().find(|span| matches!(span.place, SpanPlace::Helper(_))).expect("a slice");
        let work_ns = work.end_ns - work.start_ns;
        let inside_ns = wait(Cause::Blocked) + wait(Cause::Wakeup) + work_ns + wait(Cause::Held);
        let sent_ns = spans().map(|span| span.end_ns).min().unwrap();
        assert_eq!(inside_ns, row.leave_ns - sent_ns, "the parts of a bar leave no gap");
    }
}
