// SPDX-License-Identifier: MIT OR Apache-2.0
//! One ledger of both ends: the rows of a sender in the table of its viewer, and the other way around.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use framepath_testkit::harness::{Missing, Tested};
use framepath_testkit::{CommandOutput, framepath, until, wait};

use crate::clip::{FRAMES, h264, vp8};
use crate::proxy::{Dropped, Proxy};
use crate::sender::{Sending, started};

/// Time that the sender's stage `block` waits for each frame, nanoseconds.
const INJECTED_NS: u64 = 20_000_000;
/// Offset of the viewer's clock in a time namespace, seconds.
const DAY_S: u64 = 86_400;

/// Columns of the causes of a row's time. Together they are the time from entry to end, without what is unexplained.
const CAUSES: [&str; 14] = [
    "copy_ns",
    "queue_ns",
    "wakeup_ns",
    "blocked_ns",
    "compute_ns",
    "preempted_ns",
    "device_ns",
    "held_ns",
    "pool_ns",
    "paced_ns",
    "throttled_ns",
    "stopped_ns",
    "stolen_ns",
    "network_ns",
];
/// Difference of the clocks that measure the causes, nanoseconds: stamps and the CPU clocks of threads.
const ROUNDING_NS: u64 = 500_000;

/// Row of a CSV table: name of the hop, entry and end, by column.
pub type CsvRow = BTreeMap<String, String>;
/// Rows of a table: those of each frame, in the order of the hops.
pub type CsvTable = BTreeMap<u64, Vec<CsvRow>>;

/// Reads a table: the rows of each frame, in the order of the hops.
pub fn read(csv: &Path) -> CsvTable {
    let text = std::fs::read_to_string(csv).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let mut frames = CsvTable::new();
    for line in lines {
        let cells = line.split(',').map(str::to_owned);
        let row: CsvRow = names.iter().map(|name| (*name).to_owned()).zip(cells).collect();
        frames.entry(number(&row, "seq")).or_default().push(row);
    }
    frames.values_mut().for_each(|rows| rows.sort_by_key(|row| number(row, "hop")));
    frames
}

pub fn number(row: &CsvRow, column: &str) -> u64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} in {row:?}"))
}

/// Returns the number of nanoseconds of the row with a cause. An empty cell is a cause that the row does not have.
fn explained_ns(row: &CsvRow) -> u64 {
    CAUSES.into_iter().filter(|column| !row[*column].is_empty()).map(|column| number(row, column)).sum()
}

/// Returns the first words of the hops of a frame; two words if the first ends with a colon.
fn hops(rows: &[CsvRow]) -> Vec<String> {
    let name = |row: &CsvRow| {
        let words: Vec<&str> = row["stage"].split(' ').collect();
        let count = if words[0].ends_with(':') { 2 } else { 1 };
        words[..count].join(" ")
    };
    rows.iter().map(name).collect()
}

/// Sends a clip to one viewer; each end writes a table. Returns the tables of the sender and the viewer, and the viewer's output.
/// `view` is the viewer's command in front of its arguments.
fn exchange(clip: &Path, send: &str, view: &[&str]) -> ([CsvTable; 2], CommandOutput) {
    let folder = clip.parent().unwrap();
    let [sent, received] = ["sent.csv", "received.csv"].map(|name| folder.join(name));
    let path =
        format!("file {} rate=25 ! block time=20ms ! send listen=127.0.0.1:0 wait=1 {send}", clip.display());
    let sending = started(&mut framepath(&["run", "-v", "--quiet", "--csv", sent.to_str().unwrap(), &path]));
    let path = format!("recv {} token={} timeout=60s latency=5s ! decode ! null", sending.url, sending.token);
    let args = ["run", "--csv", received.to_str().unwrap(), &path];
    let mut viewer = framepath(&args);
    if let [program, rest @ ..] = view {
        let own = viewer.get_program().to_owned();
        viewer = Command::new(program);
        viewer.args(rest).arg(own).args(args);
        viewer.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let output = wait(viewer.spawn().unwrap(), "recv").ended(0);
    sending.end().ended(0);
    ([read(&sent), read(&received)], output)
}

/// Returns the frames that have these hops. All rows of such a frame follow each other without a gap, from the birth to the end.
pub fn whole<'a>(frames: &'a CsvTable, names: &[&str]) -> BTreeMap<u64, &'a [CsvRow]> {
    let mut whole = BTreeMap::new();
    for (seq, rows) in frames.iter().filter(|(_, rows)| hops(rows) == names) {
        assert_eq!(number(&rows[0], "enter_ns"), number(&rows[0], "birth_ns"), "frame {seq}");
        for pair in rows.windows(2) {
            assert_eq!(number(&pair[0], "leave_ns"), number(&pair[1], "enter_ns"), "frame {seq}: {pair:#?}");
            assert_eq!(pair[0]["birth_ns"], pair[1]["birth_ns"], "frame {seq}");
        }
        let latency = number(&rows[rows.len() - 1], "leave_ns") - number(&rows[0], "birth_ns");
        assert_eq!(rows.iter().map(|row| number(row, "wall_ns")).sum::<u64>(), latency, "frame {seq}");
        assert_eq!(rows.iter().filter(|row| row["last"] == "1").count(), 1, "frame {seq}");
        whole.insert(*seq, &rows[..]);
    }
    whole
}

const AT_VIEWER: [&str; 10] = [
    "sender: file",
    "sender: block",
    "sender: packetise",
    "sender: pace",
    "wire",
    "reassemble",
    "jitter",
    "recv",
    "decode",
    "null",
];
const AT_SENDER: [&str; 10] = [
    "file",
    "block",
    "send",
    "pace",
    "wire",
    "viewer: reassemble",
    "viewer: jitter",
    "viewer: recv",
    "viewer: decode",
    "viewer: null",
];

/// Checks that both tables have the injected wait of the sender on its row, and that the offset of the clocks is `offset_ns`.
fn check(tables: &[CsvTable; 2], offset_ns: u64) {
    let [sent, received] = [whole(&tables[0], &AT_SENDER), whole(&tables[1], &AT_VIEWER)];
    // Rows of frames that have just passed when the session ends do not come back.
    assert!(received.len() > FRAMES / 2 && sent.len() > FRAMES / 4, "{} {}", received.len(), sent.len());
    // A decoder's frame threads work on several frames at once: their times are shared out by stamps.
    let is_one_thread = |row: &&CsvRow| !row["stage"].ends_with("decode");
    let rows: Vec<&CsvRow> =
        received.values().chain(sent.values()).copied().flatten().filter(is_one_thread).collect();
    // A time with two causes, or with none, would be in the rows of all frames. On a busy machine, single rows are off by more than
    // the rounding: a thread that is interrupted between a stamp and the look at its CPU clock.
    let is_off = |row: &&CsvRow| explained_ns(row).abs_diff(number(row, "wall_ns")) > ROUNDING_NS;
    let off: Vec<_> = rows.iter().copied().filter(is_off).collect();
    assert!(off.len() <= rows.len() / 20, "{} of {}: {off:#?}", off.len(), rows.len());
    for (at_viewer, at_sender) in received.iter().filter_map(|(seq, rows)| Some((rows, sent.get(seq)?))) {
        for rows in [at_viewer, at_sender] {
            assert!(number(&rows[1], "blocked_ns") >= INJECTED_NS, "{rows:#?}");
        }
        // Both ends mean the same frame, and the same time: the birth, which the sender knows exactly.
        let born = number(&at_sender[0], "birth_ns") + offset_ns;
        let (converted, error) = (number(&at_viewer[0], "birth_ns"), number(&at_viewer[0], "clock_error_ns"));
        // If a frame arrives before it has left, the clocks are wrong by this, and the rows move.
        assert!(born.abs_diff(converted) <= error, "{born} {converted} {error}");
        let arrived = number(&at_viewer[5], "enter_ns");
        let (converted, error) =
            (number(&at_sender[5], "enter_ns") + offset_ns, number(&at_sender[5], "clock_error_ns"));
        assert!(arrived.abs_diff(converted) <= error, "{arrived} {converted} {error}");
    }
}

pub fn both_ends_have_the_whole_table() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let (tables, output) = exchange(&clip, "", &[]);
    check(&tables, 0);
    let output = output.shows("ledger: rows of the sender for ").shows("; the clocks agree to ±");
    output.shows("(birth to end of sink; by two clocks, ±").shows("\nwire ±").shows("\nsender: block ");
}

pub fn frames_are_matched_without_user_data() {
    let folder = tempfile::tempdir().unwrap();
    for (clip, send) in [(vp8(folder.path()), ""), (h264(folder.path(), "clip.mp4", "2"), "numbers=0")] {
        check(&exchange(&clip, send, &[]).0, 0);
    }
}

pub fn clocks_a_day_apart_agree() -> Tested {
    let view = ["unshare", "-T", "--monotonic", "86400"];
    let tried = Command::new(view[0]).args(&view[1..]).arg("true").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        return Err(Missing::new("no time namespace; run the tests as root, with unshare of util-linux"));
    }
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    check(&exchange(&clip, "", &view).0, DAY_S * 1_000_000_000);
    Ok(())
}

pub fn an_end_without_a_ledger_gives_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let path = format!("file {} rate=100 ! send listen=127.0.0.1:0 wait=1", clip.display());
    let sending = started(&mut framepath(&["run", "-v", "--quiet", "--ledger", "off", &path]));
    let path = format!("recv {} token={} timeout=60s latency=5s ! decode ! null", sending.url, sending.token);
    let output = wait(framepath(&["run", &path]).spawn().unwrap(), "recv").ended(0);
    assert!(!output.stdout.contains("ledger: rows of"), "{output:#?}");
    output.shows(&format!("{FRAMES} frames in "));
    sending.end().ended(0);
}

/// Returns the rows of one viewer in the sender's table, and those of the sender.
fn of_viewer(table: &CsvTable, viewer: &str) -> CsvTable {
    let is_on_way = |row: &&CsvRow| row["viewer"].is_empty() || row["viewer"] == viewer;
    let rows = table.iter().map(|(seq, rows)| (*seq, rows.iter().filter(is_on_way).cloned().collect()));
    rows.collect()
}

/// Returns the names of the hops behind `send` in the sender's table with several viewers.
fn behind(viewer: u64, hops: &[&str]) -> Vec<String> {
    let all = ["file", "send"].map(str::to_owned).into_iter();
    all.chain(hops.iter().map(|hop| format!("viewer {viewer}: {hop}"))).collect()
}

/// Returns the first words of the hops of a frame, with the number of the viewer.
fn numbered_hops(rows: &[CsvRow]) -> Vec<String> {
    let name = |row: &CsvRow| {
        let count = if row["stage"].starts_with("viewer ") { 3 } else { 1 };
        row["stage"].split(' ').take(count).collect::<Vec<_>>().join(" ")
    };
    rows.iter().map(name).collect()
}

/// Returns the frames of the sender's table that have the rows of this viewer, whose hops are `hops`. They follow each other.
fn seen_by(table: &CsvTable, viewer: u64, hops: &[&str]) -> Vec<u64> {
    let names = behind(viewer, hops);
    let frames = of_viewer(table, &viewer.to_string());
    let frames = frames.into_iter().filter(|(_, rows)| numbered_hops(rows) == names);
    let seqs = frames.map(|(seq, rows)| {
        for pair in rows.windows(2) {
            assert_eq!(number(&pair[0], "leave_ns"), number(&pair[1], "enter_ns"), "{pair:#?}");
        }
        seq
    });
    seqs.collect()
}

pub fn the_sender_has_the_rows_of_each_viewer() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let csv = folder.path().join("sent.csv");
    let path =
        format!("file {} rate=25 loop=1000 ! send listen=127.0.0.1:0 wait=2 control=yes", clip.display());
    let args = ["run", "-v", "--csv", csv.to_str().unwrap(), &path];
    let mut sending = started(framepath(&args).stdin(Stdio::piped()));
    let recv = format!("recv {} token={} timeout=60s latency=5s", sending.url, sending.token);
    let viewer = |tail: &str| framepath(&["run", "--quiet", &format!("{recv} ! {tail}")]).spawn().unwrap();
    // The second one has a wait of its own.
    let first = viewer("decode ! null");
    until("the first viewer watches", || metrics(&sending).contains("framepath_send_viewers 1\n"));
    let second = viewer("decode ! block time=20ms ! null");
    let hop = |viewer: u64, name: &str| format!("name=\"{name}\",viewer=\"{viewer}\",quantile=\"0.5\"}} ");
    until("the page has the hops of both viewers", || {
        let page = metrics(&sending);
        page.contains(&hop(1, "decode"))
            && page.contains(&hop(2, "block"))
            && !page.contains(&hop(1, "block"))
    });
    let page = metrics(&sending);
    let p50 = |viewer: u64, name: &str| -> f64 {
        let hop = hop(viewer, name);
        let line = page.lines().find(|line| line.contains(&hop)).unwrap_or_else(|| panic!("{hop}: {page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(p50(2, "block") >= 0.02 && p50(1, "wire") >= 0.0, "{page}");
    assert!(!page.contains(&sending.token), "{page}");
    let top = framepath_testkit::run(&["top", "--once", "--sender", &format!("127.0.0.1:{}", sending.port)]);
    let top = top.ended(0).stdout;
    let is_block = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words[..], ["block", "2", ..])
    };
    assert!(top.starts_with("2 viewers, ") && top.lines().any(is_block), "{top}");
    sending.enter("table");
    sending.until_printed("viewer 2: block ");
    sending.signal(rustix::process::Signal::INT);
    for viewer in [first, second] {
        wait(viewer, "recv").ended(0);
    }
    let output = sending
        .end()
        .ended(130)
        .shows("ledger: rows of viewer 1 for ")
        .shows("ledger: rows of viewer 2 for ");
    output.shows("\nviewer 2: wire ±").shows("latency to viewer 2: null: ");
    let table = read(&csv);
    let common = ["pace", "wire", "reassemble", "jitter", "recv", "decode"];
    let of_first = seen_by(&table, 1, &[&common[..], &["null"]].concat());
    let of_second = seen_by(&table, 2, &[&common[..], &["block", "null"]].concat());
    assert!(of_first.len() > 10 && of_second.len() > 10, "{} {}", of_first.len(), of_second.len());
    let both = of_second.iter().filter(|seq| of_first.contains(seq)).count();
    assert!(both > 0, "{of_first:?} {of_second:?}");
    for row in table.values().flatten().filter(|row| row["stage"] == "viewer 2: block") {
        assert!(number(row, "blocked_ns") >= INJECTED_NS, "{row:?}");
    }
}

fn metrics(sending: &Sending) -> String {
    crate::refusals::request(sending, "GET /metrics HTTP/1.1", "")
}

/// Numbers of the frames of a viewer's table that have the sender's rows.
fn from_sender(table: &CsvTable) -> Vec<u64> {
    whole(
        table,
        &[
            "sender: file",
            "sender: packetise",
            "sender: pace",
            "wire",
            "reassemble",
            "jitter",
            "recv",
            "null",
        ],
    )
    .into_keys()
    .collect()
}

pub fn the_ledger_goes_on_when_the_sender_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let csv = folder.path().join("received.csv");
    let first = crate::reconnects::start_at(&clip, 0, 20);
    let (port, url) = (first.port, first.url.clone());
    let path = format!("recv {url} token={} timeout=60s latency=5s reconnect=8 ! null", first.token);
    let viewer = framepath(&["run", "--csv", csv.to_str().unwrap(), &path]).spawn().unwrap();
    first.until_begun();
    std::thread::sleep(std::time::Duration::from_secs(2));
    first.signal(rustix::process::Signal::KILL);
    assert_eq!(first.end().code, None);
    let second = crate::reconnects::start_at(&clip, port, 40);
    let output = wait(viewer, "recv").ended(3).prints("lost 1 connection: reconnected");
    output.shows("ledger: rows of the sender for ");
    second.end().ended(0);
    let table = read(&csv);
    let with_rows = from_sender(&table);
    // The second sender has sent the last hundred frames, and numbers them from 0 again.
    let border = table.len() as u64 - FRAMES as u64;
    let (before, behind): (Vec<u64>, Vec<u64>) = with_rows.iter().partition(|seq| **seq < border);
    assert!(!before.is_empty() && behind.len() > FRAMES / 4, "{border}: {with_rows:?}");
}

pub fn the_ledger_goes_on_when_the_network_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let [sent, received] = ["sent.csv", "received.csv"].map(|name| folder.path().join(name));
    let path = format!("file {} rate=25 loop=1000 ! send listen=127.0.0.1:0 wait=1", clip.display());
    let sending = started(&mut framepath(&["run", "-v", "--quiet", "--csv", sent.to_str().unwrap(), &path]));
    let proxy = Proxy::start(sending.port, Dropped::Nothing);
    let path = format!("recv {} token={} timeout=60s reconnect=inf ! null", proxy.url, sending.token);
    let viewer = framepath(&["run", "--quiet", "--csv", received.to_str().unwrap(), &path]).spawn().unwrap();
    until("50 frames have passed", || proxy.frames() >= 50);
    proxy.cut(true);
    std::thread::sleep(std::time::Duration::from_secs(5));
    proxy.cut(false);
    let before = proxy.frames();
    until("frames pass again", || proxy.frames() >= before + 75);
    sending.signal(rustix::process::Signal::INT);
    wait(viewer, "recv").ended(3).prints("lost 1 connection: reconnected");
    sending.end().ended(130);
    proxy.end();
    let table = read(&received);
    let with_rows = from_sender(&table);
    let pts_gap = table.values().zip(table.values().skip(1)).position(|(frame, next)| {
        let birth = |rows: &[CsvRow]| number(&rows[rows.len() - 1], "enter_ns");
        birth(next) - birth(frame) > 2_000_000_000
    });
    let border = pts_gap.unwrap() as u64;
    let (before, behind): (Vec<u64>, Vec<u64>) = with_rows.iter().partition(|seq| **seq <= border);
    assert!(before.len() > 10 && behind.len() > 10, "{border}: {with_rows:?}");
    // At the sender, a viewer that comes back has a new number.
    let table = read(&sent);
    let hops = ["pace", "wire", "reassemble", "jitter", "recv", "null"];
    let [first, second] = [1, 2].map(|viewer| seen_by(&table, viewer, &hops));
    assert!(first.len() > 10 && second.len() > 10, "{first:?} {second:?}");
    assert!(first.last() < second.first(), "{first:?} {second:?}");
}

pub fn a_running_viewer_shows_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let path = format!("file {} rate=25 ! send listen=127.0.0.1:0 wait=1", clip.display());
    let sending = started(&mut framepath(&["run", "-v", "--quiet", &path]));
    let path = format!("recv {} token={} timeout=60s latency=5s ! null", sending.url, sending.token);
    let viewer = framepath(&["run", "--quiet", "--live", &path]).spawn().unwrap();
    let output = wait(viewer, "recv").ended(0);
    sending.end().ended(0);
    assert_eq!(output.stdout, "");
    for part in
        [" frames in the last ", "\nsender: pace ", "\nwire ±", "\nreassemble ", "\njitter ", "\nnull "]
    {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    // The value is known at the end.
    assert!(!output.stderr.contains("(no hop)"), "{}", output.stderr);
}
